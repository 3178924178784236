"""The parts of a JSON document by their place, as `messages[3].content[0].text`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


def below(path: str, key: str | int) -> str:
    """The path of `key` within the part at `path`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _PLAIN.match(key):
        return f"{path}[{json.dumps(key)}]"
    return f"{path}.{key}" if path else key


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every part that has no parts of its own, in the document's order; an empty object or list is one."""
    # A stack of its own: documents may be nested deeper than Python calls.
    stack = [(path, value)]
    while stack:
        where, part = stack.pop()
        if isinstance(part, dict) and part:
            stack += [(below(where, key), one) for key, one in reversed(part.items())]
        elif isinstance(part, list) and part:
            stack += [(below(where, index), part[index]) for index in range(len(part) - 1, -1, -1)]
        else:
            yield where, part


def digests(value: Any, path: str = "") -> dict[str, str]:
    """The SHA-256 of every leaf by its path: of a text its UTF-8, of anything else its JSON."""
    return {where: digest(leaf) for where, leaf in leaves(value, path)}


def digest(leaf: Any) -> str:
    text = leaf if isinstance(leaf, str) else json.dumps(leaf, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
