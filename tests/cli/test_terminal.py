"""Colour only where it is wanted."""

from __future__ import annotations

import io

import pytest

from headstart.cli.terminal import Terminal, format_bytes


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, **environment: str) -> str:
    Terminal(stream, environment).ready("ready")
    return stream.getvalue()


def test_colour_only_on_a_terminal_that_wants_it() -> None:
    assert "\x1b[" in shown(Screen(), TERM="xterm")
    assert shown(io.StringIO(), TERM="xterm") == "ready\n"
    assert shown(Screen(), TERM="xterm", NO_COLOR="1") == "ready\n"
    assert shown(Screen(), TERM="dumb") == "ready\n"


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (4 << 30, "4.0 GB"), (5 << 40, "5.0 TB")]
)
def test_bytes_are_shown_in_a_fitting_unit(n: int, text: str) -> None:
    assert format_bytes(n) == text
