"""The gates, one file each. A file holds one class and `GATE`, an instance of it.

A gate asks through the session, decides with `judge` and pure functions of its own (verdict from
exchanges; tested without a server), and answers with verdicts. It never catches what it does not
expect: a gate that raises becomes a verdict in the runner.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast

from headstart.accept.session import Session
from headstart.accept.verdict import Verdict

NAMES = (
    "preflight",
    "cold",
    "exact_repeat",
    "append",
    "middle_edit",
    "gap_sweep",
    "length_sweep",
    "side_requests",
    "concurrency",
    "cancel",
    "must_miss",
    "truncation",
    "knobs",
    "honesty",
    "accelerators",
    "stages",
    "churn",
    "model_switch",
    "restart",
    "crash",
    "control",
)
"""In the order they run: what leaves the server as it was comes first."""


class Need(StrEnum):
    """What a gate cannot do without. The runner answers UNSUPPORTED, with what to give, where it is
    missing."""

    RESTART = "restart"
    """A way to restart the server: --spawn or --restart-cmd."""
    KILL = "kill"
    """A server of the harness's own, to be killed: --spawn."""
    CONTROL = "control"
    """The same server with its cache off: --control-cmd or --control-url."""
    MODELS = "models"
    """A second model: --other-model, or one more in the server's list."""


class Gate(Protocol):
    """One question.

    `name`: as on the command line (`--only`). `title`: two or three words for the table. `shows`: one
    sentence, what a PASS shows. `needs`: see Need.
    """

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def shows(self) -> str: ...
    @property
    def needs(self) -> frozenset[Need]: ...

    def run(self, session: Session) -> list[Verdict]:
        """Asks and judges. At least one verdict, one a tier where tiers matter."""
        ...


def load(name: str) -> Gate:
    """The gate of that name. Raises KeyError where there is none."""
    if name not in NAMES:
        raise KeyError(name)
    return cast(Gate, import_module(f"{__name__}.{name}").GATE)


def available() -> Sequence[str]:
    """The names that can be loaded, in the order of `NAMES`."""
    return [name for name in NAMES if find_spec(f"{__name__}.{name}") is not None]
