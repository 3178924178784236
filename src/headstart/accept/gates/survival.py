"""Does a prompt come back after the server's process was replaced? The rule of `restart` and `crash`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headstart.accept.exchange import Ask, Counters, Exchange
from headstart.accept.fixtures import Passage, Tier
from headstart.accept.gates.evidence import (
    Kept,
    Reuse,
    broken,
    by_facts,
    figures_of,
    kept,
    of_prompt,
    outcome_of,
    reuse_of,
    seconds,
)
from headstart.accept.judge import Answer, Sameness, Warmth
from headstart.accept.session import Session
from headstart.accept.verdict import Figure, Outcome, Verdict

_DISK_WORDS = ("ssd", "disk", "persist", "slot_save", "slot-save", "l2")
_OFF_WORDS = ("", "0", "off", "none", "null", "false", "no", "disabled", "unknown")
WARM_UP_TOKENS = 256


@dataclass(frozen=True)
class Planted:
    """A prompt that was read before the process ended."""

    tier: Tier
    passage: Passage
    ask: Ask
    before: Exchange


@dataclass(frozen=True)
class Loss:
    """How the process ended. `words`: "a restart", "SIGKILL". `replaced`: whether another process
    answers now (None: nothing tells). `disk`: whether the server states a cache that outlives its
    process (None: it states nothing about it)."""

    words: str
    replaced: bool | None
    disk: bool | None


@dataclass(frozen=True)
class Return:
    """The same prompt after the loss."""

    tier: Tier
    before: Exchange
    after: Exchange
    reuse: Reuse
    answer: Sameness


def keeps_on_disk(cache: Mapping[str, str], counters: Counters | None) -> bool | None:
    """Whether the server states a cache on disk, by its cache options and what it counts; None where
    it says nothing about one."""
    named = [
        value.strip().lower()
        for name, value in cache.items()
        if any(word in name.lower() for word in _DISK_WORDS)
    ]
    if named:
        return any(value not in _OFF_WORDS for value in named)
    return True if counters is not None and counters.from_ssd else None


def disk_stated(session: Session) -> bool | None:
    """`keeps_on_disk` of the server as it is now: some state a cache only after the first request."""
    now = session.server.facts(session.http, session.options.model)
    return keeps_on_disk({**session.facts.cache, **now.cache}, session.counters())


def plant_all(session: Session, label: str) -> list[Planted]:
    """A new text of the small size, and a known one of every tier beside it."""
    new = session.small
    known = [tier for tier in session.tiers if tier != new]
    return [plant_new(session, new, label), *(plant(session, tier, label) for tier in known)]


def plant_new(session: Session, tier: Tier, label: str) -> Planted:
    """A text that the server sees for the first time, so that it has been in memory only."""
    passage = session.fresh(tier)
    ask = session.ask(passage, label=f"{tier.name}, {label}")
    return Planted(tier, passage, ask, session.send(ask, tier=tier))


def plant(session: Session, tier: Tier, label: str) -> Planted:
    """The text of `tier` that was read before, seen once more."""
    family, first = session.first_sight(tier)
    passage = family.at(tier)
    ask = session.ask(passage, label=f"{tier.name}, {label}")
    again = session.send(ask, tier=tier)
    return Planted(tier, passage, ask, first if again.ok else again)


def ask_interrupted(session: Session, planted: Planted) -> tuple[Exchange, Exchange | None, Sameness]:
    """The prompt again, its cold answer where there is one, and what they show."""
    tier, passage = planted.tier, planted.passage
    ask = session.ask(passage, label=f"{tier.name}, broken off, again")
    after = session.send(ask, tier=tier)
    cold = session.cold(ask, tier=tier)
    if cold is None:
        return after, None, by_facts(session.facts_right(after, passage))
    return after, cold, session.same(cold, after, passage)


def come_back(session: Session, planted: Planted, label: str) -> Return:
    """Asks the same again."""
    tier, before = planted.tier, planted.before
    ask = session.ask(planted.passage, label=f"{tier.name}, {label}")
    after = session.send(ask, tier=tier)
    answer = session.same(before, after, planted.passage)
    return Return(tier, before, after, reuse_of(after, session.calibration, tier.least), answer)


def warm_up(session: Session) -> None:
    """A short unrelated prompt, so that what a new process does once is not measured."""
    session.send(session.ask(session.passage(WARM_UP_TOKENS), label="unrelated warm-up"))


def verdict(gate: str, back: Return, loss: Loss, *, allowance: int, head: int, part: str = "") -> Verdict:
    """What the return shows about a cache that has to outlive its process.

    `head`: tokens any two prompts share through their template.
    """
    failed = broken(gate, (back.before, back.after), back.tier, part)
    if failed:
        return failed
    outcome, reason = _judge(back, loss, allowance, head)
    return Verdict(
        gate,
        outcome,
        reason,
        tier=back.tier.name,
        part=part,
        figures=figures(back, loss),
        cases=(back.before.case, back.after.case),
    )


def answer_verdict(gate: str, back: Return, loss: Loss, part: str) -> Verdict:
    """Only whether the answer is right; how much was kept is told and not judged."""
    failed = broken(gate, (back.before, back.after), back.tier, part)
    if failed:
        return failed
    told = f"{of_prompt(back.reuse)} after {loss.words}"
    return Verdict(
        gate,
        outcome_of(back.answer),
        f"{told}; {back.answer.detail}",
        tier=back.tier.name,
        part=part,
        figures=figures(back, loss),
        cases=(back.before.case, back.after.case),
    )


def interrupted_verdict(
    gate: str, tier: Tier, after: Exchange, *, cold: Exchange | None, answer: Sameness, part: str
) -> Verdict:
    """Whether a prompt whose first reading was broken off is answered right. `cold`: its answer without
    the cache, where the server can give one; `answer`: the two compared, or what the facts say."""
    failed = broken(gate, [after], tier, part)
    if failed:
        return failed
    total = "" if after.prompt_tokens is None else f" of {after.prompt_tokens}"
    reused = "does not say what it reused" if after.reused is None else f"reused {after.reused}{total} tokens"
    return Verdict(
        gate,
        outcome_of(answer),
        f"broken off while it was read, then asked again: {reused}; {answer.detail}",
        tier=tier.name,
        part=part,
        figures={
            "prompt_tokens": after.prompt_tokens,
            "reused_tokens": after.reused,
            "waited_s": round(after.waited_s, 4),
            "score_difference": answer.difference,
        },
        cases=(after.case,) if cold is None else (after.case, cold.case),
    )


def figures(back: Return, loss: Loss) -> dict[str, Figure]:
    counted = back.after.counters or Counters()
    tokens = back.reuse.tokens
    missing = None if tokens is None or back.reuse.prompt is None else max(0, back.reuse.prompt - tokens)
    return {
        **figures_of(back.reuse, back.before),
        "gap_tokens": missing,
        "ssd_loaded_entries": counted.ssd_loaded_entries,
        "ssd_read_bytes": counted.ssd_read_bytes,
        "score_difference": back.answer.difference,
        "process_replaced": loss.replaced,
    }


def _judge(back: Return, loss: Loss, allowance: int, head: int) -> tuple[Outcome, str]:
    reuse = back.reuse
    told = f"{of_prompt(reuse)} after {loss.words}"
    if back.answer.answer is Answer.DIFFERENT:
        return Outcome.FAIL, f"{told}, and answers otherwise: {back.answer.detail}"
    state = kept(reuse, None, allowance, head)
    if state is Kept.NONE:
        return _nothing_kept(back, loss, told)
    if state is Kept.PART:
        gap = (reuse.prompt or 0) - (reuse.tokens or 0)
        return Outcome.FAIL, f"{told}: {gap} were read again, {allowance} would be no fault"
    if state is Kept.UNKNOWN:
        return (
            Outcome.INCONCLUSIVE,
            f"the server {of_prompt(reuse)}, and reading so few tokens takes too little time to tell",
        )
    return _all_kept(back, loss, told)


def _nothing_kept(back: Return, loss: Loss, told: str) -> tuple[Outcome, str]:
    reuse = back.reuse
    quick = reuse.clock is Warmth.WARM and 2 * reuse.waited_s < back.before.waited_s
    if quick and not reuse.confirmed:
        return Outcome.INCONCLUSIVE, (
            f"{told}, yet the first token came after {seconds(reuse.waited_s)} where reading took "
            f"{seconds(back.before.waited_s)}: the clock disagrees with what it says"
        )
    read_again = f"{told}: the whole prompt was read again in {seconds(reuse.waited_s)}"
    if loss.disk and reuse.tokens is None:
        return Outcome.INCONCLUSIVE, f"{read_again}, though a cache on disk is stated; only the clock says so"
    if loss.disk:
        return Outcome.FAIL, f"{read_again}, though the server states a cache on disk"
    stated = "states that it keeps none on disk" if loss.disk is False else "states no cache on disk"
    return Outcome.UNSUPPORTED, f"{read_again}; the server {stated}"


def _all_kept(back: Return, loss: Loss, told: str) -> tuple[Outcome, str]:
    reuse = back.reuse
    times = f"first token after {seconds(reuse.waited_s)} instead of {seconds(back.before.waited_s)}"
    loaded = back.after.counters.from_ssd if back.after.counters else None
    if reuse.clock is Warmth.COLD:
        agree = "its counters agree with it" if reuse.confirmed else "nothing else confirms it"
        return Outcome.INCONCLUSIVE, f"{told}, but the {times}, as long as reading takes; {agree}"
    if loss.replaced is False and not loaded:
        return Outcome.INCONCLUSIVE, f"{told}, but its counters went on: no new process was seen"
    if loss.replaced and loaded is False:
        return Outcome.FAIL, f"{told}, but its count of loads from disk did not rise: it cannot have been"
    if back.answer.answer is Answer.UNDECIDED:
        return Outcome.INCONCLUSIVE, f"{told}; the answer cannot be compared: {back.answer.detail}"
    from_disk = ", and its count of what it loads from disk rose" if loaded else ""
    unseen = "" if loss.replaced is not None else "; that the process is new shows in no counter of it"
    return Outcome.PASS, f"{told}{from_disk}, {times}; {back.answer.detail}{unseen}"
