"""What exchanges show about reuse, failures and answers, for the rules of several gates. Pure.

Three witnesses of reuse are kept apart: the reply, the server's counters, and the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from headstart.accept import judge
from headstart.accept.exchange import Ask, Counters, Exchange
from headstart.accept.fixtures import Passage, Tier
from headstart.accept.gates.trouble import trouble
from headstart.accept.hits import metered_reuse
from headstart.accept.judge import Answer, Calibration, Sameness, Warmth
from headstart.accept.session import Session
from headstart.accept.verdict import Figure, Outcome, Verdict

TAIL_CHARS = 160


def broken(
    gate: str, exchanges: Iterable[Exchange], tier: Tier | None = None, part: str = ""
) -> Verdict | None:
    """`trouble` for a gate that has its tier at hand."""
    return trouble(gate, exchanges, tier=tier.name if tier else None, part=part)


@dataclass(frozen=True)
class Reuse:
    """What the witnesses say about one prompt. `prompt`: its tokens. `stated`: reused by the reply;
    `counted`: by the server's counters. None: that witness does not say."""

    prompt: int | None
    stated: int | None
    counted: int | None
    clock: Warmth
    waited_s: float

    @property
    def tokens(self) -> int | None:
        """Tokens reused, the reply's word first."""
        return self.counted if self.stated is None else self.stated

    @property
    def confirmed(self) -> bool:
        """Reply and counters both say, and say the same to within a hundredth of the prompt."""
        if self.stated is None or self.counted is None:
            return False
        return abs(self.stated - self.counted) <= max(2, (self.prompt or 0) // 100)


def reuse_of(exchange: Exchange, calibration: Calibration, about: int = 0) -> Reuse:
    """The witnesses on `exchange`. `about`: tokens of its prompt where the server does not say."""
    prompt = exchange.prompt_tokens
    tokens = prompt if prompt is not None else about
    unclear = exchange.first_token_s is None or not tokens
    clock = Warmth.UNCLEAR if unclear else judge.warmth(exchange.waited_s, tokens, calibration)
    counted = metered_reuse(exchange)
    counted = None if counted is None else max(0, counted)
    return Reuse(prompt, exchange.reused, counted, clock, exchange.waited_s)


class Kept(StrEnum):
    """How much of what was due came from the cache."""

    ALL = "all"
    PART = "part"
    NONE = "none"
    UNKNOWN = "unknown"


def kept(reuse: Reuse, due: int | None, allowance: int, head: int = 0) -> Kept:
    """By the tokens where they are known, else by the clock.

    `due`: tokens a perfect cache restores; None: all of the prompt. `head`: tokens any two prompts
    share through their template, which are no sign of a cache.
    """
    due = reuse.prompt if due is None else due
    if reuse.tokens is not None and due is not None:
        if due - reuse.tokens <= allowance:
            return Kept.ALL
        return Kept.NONE if reuse.tokens <= head else Kept.PART
    by_clock = {Warmth.WARM: Kept.ALL, Warmth.COLD: Kept.NONE, Warmth.UNCLEAR: Kept.UNKNOWN}
    return by_clock[reuse.clock]


def outcome_of(answer: Sameness) -> Outcome:
    """Of a question that is only about the answer."""
    outcomes = {
        Answer.SAME: Outcome.PASS,
        Answer.DIFFERENT: Outcome.FAIL,
        Answer.UNDECIDED: Outcome.INCONCLUSIVE,
    }
    return outcomes[answer.answer]


def by_facts(right: bool | None) -> Sameness:
    """What the planted facts alone say, where there is no other answer to set beside the reply."""
    if right:
        return Sameness(Answer.SAME, "facts", "the planted facts are answered right")
    words = "this model cannot be asked" if right is None else "the planted facts are answered wrong"
    return Sameness(Answer.UNDECIDED, "facts", f"there is no cold answer to set beside it, and {words}")


def names_other(heard: str | None, own: str | None, foreign: Iterable[str]) -> bool:
    """Whether the reply gives a value that belongs to another text and not to its own."""
    return heard is not None and heard != own and heard in set(foreign)


def with_options(ask: Ask, options: Mapping[str, Any]) -> Ask:
    """The same with more fields in its body; those it has stay."""
    return replace(ask, options={**ask.options, **options}) if options else ask


def quoted(text: str, limit: int = 40) -> str:
    """The beginning of a reply on one line, for a reason."""
    line = " ".join(text.split())
    return f'"{line[:limit]}…"' if len(line) > limit else f'"{line}"'


def seconds(value: float) -> str:
    """ "0.042 s", "1.73 s", "61 s": three figures at most."""
    if value < 1:
        return f"{value:.3f} s"
    return f"{value:.2f} s" if value < 10 else f"{value:.0f} s"


def of_prompt(reuse: Reuse) -> str:
    """ "reused 7936 of 7950 tokens", with the witness named where it is not the reply."""
    total = "" if reuse.prompt is None else f" of {reuse.prompt}"
    if reuse.stated is not None:
        return f"reused {reuse.stated}{total} tokens"
    if reuse.counted is not None:
        return f"reused {reuse.counted}{total} tokens by its counters"
    by_clock = {
        Warmth.WARM: f"was warm by the clock ({seconds(reuse.waited_s)})",
        Warmth.COLD: f"read everything by the clock ({seconds(reuse.waited_s)})",
        Warmth.UNCLEAR: "does not say what it reused",
    }
    return by_clock[reuse.clock]


def figures_of(reuse: Reuse, before: Exchange | None = None) -> dict[str, Figure]:
    """The numbers of `reuse` under their names; `before`: the same prompt read from nothing."""
    figures: dict[str, Figure] = {
        "prompt_tokens": reuse.prompt,
        "reused_tokens": reuse.stated,
        "reused_tokens_counted": reuse.counted,
        "waited_s": round(reuse.waited_s, 4),
        "clock": reuse.clock.value,
    }
    if before is not None:
        figures["cold_s"] = round(before.waited_s, 4)
    return figures


def replaced(spawned: bool, before: Counters | None, after: Counters | None) -> bool | None:
    """Whether another process answers now. By its counters, which begin anew; None where they cannot
    tell. `spawned`: the harness ended the old process itself."""
    if spawned:
        return True
    if before is None or after is None:
        return None
    names = ("requests", "prompt_tokens", "read_tokens", "reused_tokens")
    rises = {name: getattr(after.since(before), name) for name in names}
    known = [rise for name, rise in rises.items() if rise is not None and getattr(before, name) > 0]
    return None if not known else any(rise < 0 for rise in known)


def restored(exchange: Exchange) -> int | None:
    """Prompt tokens reused: by the reply, else by the server's counters; None where neither says.

    Whether the two agree is for the gate honesty.
    """
    told = exchange.reused if exchange.reused is not None else metered_reuse(exchange)
    return None if told is None else max(0, told)


def cut_after(passage: Passage, at: int) -> Passage:
    """The passage to shortly after `at`, so that a prompt that only has to part there costs little."""
    return passage.cut(min(len(passage.text), at + TAIL_CHARS))


def prompt_length(session: Session, ask: Ask) -> int | None:
    """Tokens of a prompt by the server's own tokenizer, None where it has none to ask."""
    model = session.options.model or session.facts.model
    known = session.server.tokens(session.http, ask, session.wire.name, model)
    return None if known is None else len(known)
