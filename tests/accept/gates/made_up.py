"""Exchanges and what goes with them, made up for tests of rules."""

from __future__ import annotations

from typing import Any

from headstart.accept.clock import Doubt, Lap
from headstart.accept.exchange import Ask, Exchange, Failure, FailureKind
from headstart.accept.judge import Answer, Calibration, Floor, Reach, Sameness, Warmth

BROKEN_KINDS = (
    FailureKind.SERVER_ERROR,
    FailureKind.HUNG,
    FailureKind.DROPPED,
    FailureKind.BROKEN,
    FailureKind.UNREACHABLE,
)
"""What is the server's own fault, and so fails a gate."""

SAME = Sameness(Answer.SAME, "scores", "log-probabilities differ by 0.01", 0.01)
DIFFERENT = Sameness(Answer.DIFFERENT, "scores", "log-probabilities differ by 4.2", 4.2)
UNDECIDED = Sameness(Answer.UNDECIDED, "text", "nothing to compare by")


def exchange(case: str = "c", **changes: Any) -> Exchange:
    """A good reply: 1000 prompt tokens, none reused, the text "fine"."""
    label = changes.pop("label", "")
    given: dict[str, Any] = {
        "case": case,
        "ask": changes.pop("ask", Ask(prompt="text", label=label)),
        "started": 0.0,
        "total_s": 1.0,
        "status": 200,
        "first_token_s": 0.5,
        "text": "fine",
        "prompt_tokens": 1000,
        "completion_tokens": 5,
        "reused": 0,
    }
    return Exchange(**(given | changes))


def failed(kind: FailureKind, detail: str = "in the server's words", **changes: Any) -> Exchange:
    """A request that did not come off."""
    status = changes.pop("status", None)
    nothing = {"text": "", "prompt_tokens": None, "completion_tokens": None, "reused": None}
    given = nothing | {"first_token_s": None, "status": status, "failure": Failure(kind, detail, status)}
    return exchange(changes.pop("case", "bad"), **(given | changes))


def calibration(**changes: Any) -> Calibration:
    """100 tokens a second are read, 0.1 s pass before and for a warm prompt."""
    given: dict[str, Any] = {
        "base_s": 0.1,
        "read_s_per_token": 0.01,
        "warm_s": 0.1,
        "decode_s_per_token": 0.05,
        "chars_per_token": 4.0,
        "overhead_tokens": 30,
        "question": None,
        "floor": Floor(0.02, True),
    }
    return Calibration(**(given | changes))


def doubt(short_s: float, cold_s: float, suspect_s: float, suspected: Warmth = Warmth.COLD) -> Doubt:
    """What came of measuring again: agreed where the lap says `suspected`."""
    lap = Lap(*(exchange(first_token_s=one) for one in (short_s, cold_s, suspect_s)))
    return Doubt((lap,), agreed=lap.warmth is suspected)


def reach(low: int, high: int | None = None) -> Reach:
    return Reach(low, low if high is None else high)
