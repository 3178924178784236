"""SVG elements as escaped markup."""

from __future__ import annotations

import math
from collections.abc import Iterable

from markupsafe import Markup, escape

from headstart.accept.report.plain import plain

Value = str | int | float | None
_CAMEL = frozenset({"viewBox", "preserveAspectRatio"})


def element(name: str, *children: Markup, **attributes: Value) -> Markup:
    """<name ...>children</name>. An underscore at an attribute's end is dropped, others become hyphens;
    attributes that are None are left out."""
    given = Markup("").join(
        Markup(' {}="{}"').format(_attribute(key), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(children)
    if not inside:
        return Markup("<{}{}/>").format(Markup(name), given)
    return Markup("<{}{}>{}</{}>").format(Markup(name), given, inside, Markup(name))


def group(children: Iterable[Markup], **attributes: Value) -> Markup:
    """A <g> of `children`; a tooltip goes in as `titled`."""
    return element("g", *children, **attributes)


def titled(text: str, *children: Markup) -> Markup:
    """`children` with a tooltip that says `text`."""
    return group([element("title", escape(plain(text))), *children])


def text(x: float, y: float, content: str, class_: str = "", anchor: str | None = None) -> Markup:
    """One line of text; `anchor`: start (None), middle or end."""
    return element("text", escape(plain(content)), x=x, y=y, class_=class_ or None, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def box(x: float, y: float, width: float, height: float, class_: str) -> Markup:
    """A rectangle; nothing where it would have no width."""
    if width <= 0 or height <= 0:
        return Markup("")
    return element("rect", x=x, y=y, width=width, height=height, class_=class_)


def dot(x: float, y: float, radius: float, class_: str) -> Markup:
    return element("circle", cx=x, cy=y, r=radius, class_=class_)


def cross(x: float, y: float, reach: float, class_: str) -> Markup:
    """An x, `reach` long from its middle."""
    path = f"M{_value(x - reach)} {_value(y - reach)}l{_value(2 * reach)} {_value(2 * reach)}"
    path += f"m0 {_value(-2 * reach)}l{_value(-2 * reach)} {_value(2 * reach)}"
    return element("path", d=path, class_=class_)


def picture(width: float, height: float, says: str, children: Iterable[Markup]) -> Markup:
    """The whole <svg>, which grows and shrinks with the page. `says`: the picture in words."""
    return element(
        "svg",
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_value(width)} {_value(height)}",
        width=width,
        height=height,
        role="img",
        aria_label=plain(says),
        class_="chart",
    )


def _attribute(key: str) -> str:
    return key if key in _CAMEL else key.removesuffix("_").replace("_", "-")


def _value(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"
    return str(value)
