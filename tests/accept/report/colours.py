"""Colour arithmetic: contrast as WCAG defines it, and how far two colours are apart for other eyes."""

from __future__ import annotations

import re
from collections.abc import Sequence

Rgb = tuple[float, float, float]

# Machado, Oliveira, Fernandes (2009), severity 1.0, for linear RGB.
EYES: dict[str, Sequence[Sequence[float]]] = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def schemes(css: str) -> dict[str, dict[str, str]]:
    """The variables of a style sheet's two :root rules: light, and dark with light's where it has none."""
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{(.*?)\}", css, re.S)
    )
    return {"light": light, "dark": {**light, **dark}}


def linear(colour: str) -> Rgb:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return red, green, blue


def contrast(one: str, other: str) -> float:
    """From 1 (equal) to 21 (black on white)."""
    light, dark = sorted((_luminance(linear(one)), _luminance(linear(other))), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def apart(one: str, other: str, eyes: str) -> float:
    """Distance in CIELAB (CIE76) as those eyes see it; 2 is just noticeable, 10 at a glance."""
    a, b = (_lab(_seen(linear(colour), eyes)) for colour in (one, other))
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5


def _luminance(rgb: Rgb) -> float:
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def _seen(rgb: Rgb, eyes: str) -> Rgb:
    red, green, blue = (
        min(1.0, max(0.0, sum(m * c for m, c in zip(row, rgb, strict=True)))) for row in EYES[eyes]
    )
    return red, green, blue


def _lab(rgb: Rgb) -> Rgb:
    red, green, blue = rgb
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (c ** (1 / 3) if c > 0.008856 else 7.787 * c + 16 / 116 for c in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)
