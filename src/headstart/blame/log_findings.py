"""Findings of a server's log: what cost the most, who did it, and the setting that mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headstart.blame.finding import Culprit, Finding, Fix, Step
from headstart.blame.log_fixes import (
    cache_fix,
    context_fix,
    gap_fix,
    never_fix,
    reload_fix,
    side_fix,
    stored_fix,
    two_requests_fix,
)
from headstart.blame.log_report import LogReport
from headstart.blame.log_tallies import LEAST_GRAIN, Loss

OVER_LIMIT = 1.05


def findings_of(report: LogReport) -> list[Finding]:
    """The most expensive first; those without a price at the end."""
    found = [finding for find in _ALL for finding in find(report)]
    return sorted(found, key=lambda one: -(one.tokens_lost or 0))


def _of_server(cause: str, said: str, **more: Any) -> Finding:
    return Finding(cause, Culprit.SERVER, Step.SERVER, said, **more)


def _gap(report: LogReport) -> Iterator[Finding]:
    gap, grain = report.gap, report.grain.tokens
    if not gap.turns or gap.worst is None:
        return
    turn = gap.worst.turn
    apart = f"; it resumes only at multiples of {grain:,} tokens" if grain else ""
    yield _of_server(
        "SERVER_GAP",
        f"the server read {gap.tokens:,} tokens again that it still held, in {_turns(gap.turns)}: turn "
        f"{gap.worst.number} parts at token {turn.shared:,} of {turn.prompt_tokens or 0:,} and was resumed "
        f"at {turn.cached:,}{apart}",
        token=turn.shared,
        tokens_lost=gap.tokens,
        seconds_lost=report.seconds(gap.tokens),
        fix=gap_fix(report),
    )


def _never(report: LogReport) -> Iterator[Finding]:
    totals, seen = report.totals, report.intervals
    if totals.later >= 2 and totals.later_cached < LEAST_GRAIN * totals.later and not report.gap.turns:
        if report.changed.turns or report.replaced.turns:
            return
        yield _of_server(
            "SERVER_NEVER_HITS",
            f"nothing was reused in any of {_turns(totals.later)} after the first, though each had 256 "
            "tokens or more",
            fix=never_fix(report),
        )
    if seen.busy >= 3 and seen.never_hit and seen.last_hit_share is not None:
        yield _of_server(
            "SERVER_NEVER_HITS",
            f"the hit rate stayed at 0 % in all {seen.busy} intervals in which prompts were read",
            fix=never_fix(report),
        )


def _block(report: LogReport) -> Iterator[Finding]:
    block, context = _whole(report, "block_tokens"), _whole(report, "context_tokens")
    if block and context and block > context:
        yield _of_server(
            "SERVER_NEVER_HITS",
            f"a block is {block:,} tokens and the context {context:,}: no block is ever full and none reused",
            fix=Fix("give it a context of several blocks", f"--max-model-len {4 * block}"),
        )


def _changed(report: LogReport) -> Iterator[Finding]:
    for loss, words in ((report.changed, _parting(report)), (report.replaced, _nothing(report.replaced))):
        if loss.turns and loss.worst is not None:
            yield Finding(
                "PROMPT_CHANGED",
                Culprit.CLIENT,
                Step.BODY,
                words,
                token=loss.worst.turn.shared,
                tokens_lost=loss.tokens,
                seconds_lost=report.seconds(loss.tokens),
                fix=two_requests_fix(report),
            )


def _parting(report: LogReport) -> str:
    loss = report.changed
    if loss.worst is None:
        return ""
    turn = loss.worst.turn
    place, times = report.places.most_common(1)[0] if report.places else (0, 0)
    often = f"; {times} of them part near token {place:,}" if times > 1 else ""
    return (
        f"{_turns(loss.turns)} part early from what the server held: turn {loss.worst.number} at token "
        f"{_about(turn.shared_within)}{turn.shared or 0:,} of {turn.prompt_tokens or 0:,}{often}. The client "
        "changed the prompt there, or another conversation took the slot"
    )


def _nothing(loss: Loss) -> str:
    if loss.worst is None:
        return ""
    turn = loss.worst.turn
    return (
        f"{_turns(loss.turns)} shared almost nothing with what any slot held: turn {loss.worst.number} at "
        f"most {turn.shared_most or 0:,} of {turn.prompt_tokens or 0:,} tokens. The client changed the "
        "beginning, or a new conversation began"
    )


def _side(report: LogReport) -> Iterator[Finding]:
    side = report.side
    if side.turns and side.worst is not None:
        yield _of_server(
            "SIDE_REQUEST_EVICTED",
            f"a short request took the slot of a long conversation, which was then read again, "
            f"{_times(side.turns)}: turn {side.worst.number}, {side.worst.turn.prompt_tokens or 0:,} tokens",
            tokens_lost=side.tokens,
            seconds_lost=report.seconds(side.tokens),
            fix=side_fix(report),
        )


def _room(report: LogReport) -> Iterator[Finding]:
    if report.evictions:
        size = f", the largest {report.largest_evicted_mib:,.0f} MiB" if report.largest_evicted_mib else ""
        yield _of_server(
            "EVICTED",
            f"{report.evictions:,} cached prompts were thrown out for want of room{size}",
            fix=cache_fix(report),
        )
    large = report.too_large
    if large:
        yield _of_server(
            "EVICTED",
            f"a prompt's state takes {large.mib:,.0f} MiB and the cache {large.limit_mib:,.0f} MiB: it is "
            "never kept",
            fix=cache_fix(report),
        )
    full = report.fullest
    if full and full.limit_mib and full.mib > OVER_LIMIT * full.limit_mib:
        yield _of_server(
            "CACHE_OVER_LIMIT",
            f"the cache in memory held {full.mib:,.0f} MiB with a limit of {full.limit_mib:,.0f} MiB: the "
            "newest prompt is kept whatever it takes",
            fix=Fix("allow for it in the machine's memory, or switch the cache off", "--cache-ram 0"),
        )


def _cut(report: LogReport) -> Iterator[Finding]:
    worst = report.worst_cut
    if report.cuts and worst is not None:
        size = f"one of {worst.prompt_tokens:,} tokens" if worst.prompt_tokens else "the longest is not told"
        limit = f" to a context of {worst.limit:,}" if worst.limit else ""
        yield _of_server(
            "TRUNCATED",
            f"prompts were cut {_times(report.cuts)}, {size}{limit}: the model does not see them whole, and "
            "the next turn begins elsewhere, so nothing is reused",
            fix=context_fix(report, worst),
        )
    elif report.halves >= 2:
        context = report.contexts[-1]
        yield _of_server(
            "TRUNCATED",
            f"{report.halves} prompts have half the context of {context:,} tokens and a few more: that is "
            "what is left of a prompt that was too long",
            fix=context_fix(report, None),
        )


def _reloaded(report: LogReport) -> Iterator[Finding]:
    if report.loads <= 1:
        return
    again = report.loads - 1
    took = f", {report.load_s:.1f} s in all" if report.load_s else ""
    differ = len(set(report.contexts)) > 1
    sizes = ", ".join(f"{one:,}" for one in dict.fromkeys(report.contexts[:6]))
    how = f" with other context sizes ({sizes})" if differ else ""
    yield Finding(
        "CONTEXT_RELOADED" if differ else "RELOADED",
        Culprit.CLIENT if differ else Culprit.SERVER,
        Step.SERVER,
        f"the model was loaded anew {_times(again)}{how}{took}; each time all that was cached is gone",
        seconds_lost=report.load_s or None,
        fix=reload_fix(report, differ),
    )


def _not_stored(report: LogReport) -> Iterator[Finding]:
    for why, times in report.not_stored.most_common(3):
        yield _of_server(
            "NOT_STORED",
            f"the server could not keep or use state, {_times(times)}: {why}",
            fix=stored_fix(report, why),
        )


def _probe(report: LogReport) -> Iterator[Finding]:
    probe = report.diverged
    if probe is not None:
        yield Finding(
            "PROMPT_CHANGED",
            Culprit.CLIENT,
            Step.TOKENS,
            f"by the server's own probe the prompt parts from the stored one at token {probe.position:,}",
            token=probe.position,
            before=probe.stored,
            after=probe.prompt,
            fix=two_requests_fix(report),
        )


def _whole(report: LogReport, name: str) -> int | None:
    text = report.facts.get(name, "")
    return int(text) if text.isdecimal() else None


def _turns(count: int) -> str:
    return f"{count:,} turn" if count == 1 else f"{count:,} turns"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _about(within: int) -> str:
    return "about " if within else ""


_ALL: tuple[Callable[[LogReport], Iterator[Finding]], ...] = (
    _gap,
    _changed,
    _side,
    _never,
    _block,
    _room,
    _cut,
    _reloaded,
    _not_stored,
    _probe,
)
