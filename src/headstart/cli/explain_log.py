"""`headstart explain SERVER-LOG`: turns and findings, as text or JSON."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from headstart.blame.finding import Finding
from headstart.blame.log_findings import findings_of
from headstart.blame.log_report import LogReport, report_of
from headstart.blame.log_tallies import NumberedTurn
from headstart.blame.logs.reading import FORMATS, LogReader, Tally, events_of
from headstart.cli.cache_action import answer, counted, printable
from headstart.cli.terminal import Terminal, format_bytes
from headstart.errors import ConfigError, HeadstartError

__all__ = ["FORMATS", "run"]

SHOWN_TURNS = 20
QUIET_S = 1.0
_HEADS = ("TURN", "SLOT", "PROMPT", "REUSED", "READ", "SHARED", "GAP", "SECONDS")
_WIDTHS = (6, 5, 9, 9, 9, 9, 8, 9)


def run(flags: argparse.Namespace) -> int:
    """Reads the log and says what it amounts to. Raises ConfigError for a file that cannot be opened,
    HeadstartError for one that no format fits."""
    name = flags.words[0]
    reader = LogReader(flags.format)
    with _opened(name) as (stream, nbytes):
        report = report_of(events_of(stream, reader, _progress(Terminal(), nbytes)))
    if not reader.tally.understood.total():
        raise HeadstartError(_nothing(name, reader))
    findings = findings_of(report)
    if flags.json:
        answer(_json(report, findings, reader))
    else:
        for line in _text(report, findings, reader):
            print(line)
    return 0


@contextmanager
def _opened(name: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """The log and its size, where it has one."""
    if name == "-":
        yield sys.stdin.buffer, None
        return
    try:
        with Path(name).open("rb") as file:
            yield file, Path(name).stat().st_size
    except OSError as error:
        raise ConfigError(
            f"{name} cannot be read: {error.strerror or error}; give the path of a recording or of a log"
        ) from error


def _progress(terminal: Terminal, nbytes: int | None) -> Callable[[int], None]:
    """Tells how far it is once a second, from the second second on."""
    last = time.monotonic()

    def tell(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= QUIET_S:
            last = now
            terminal.step(f"read {format_bytes(done)}" + (f" of {format_bytes(nbytes)}" if nbytes else ""))

    return tell


def _nothing(name: str, reader: LogReader) -> str:
    tally = reader.tally
    if not tally.lines:
        return f"{name} is empty"
    kind = f"is no log of {reader.format}" if reader.format else "is no log that is known"
    return (
        f"{name} {kind}: none of its {counted(tally.lines, 'line')} was understood; known are "
        f"{', '.join(FORMATS)}"
    )


def _text(report: LogReport, findings: list[Finding], reader: LogReader) -> Iterator[str]:
    yield from _heading(report, reader)
    rows = report.turns[:SHOWN_TURNS]
    if rows:
        yield ""
        shown = f", the {len(rows)} that read most" if report.totals.turns > len(rows) else ", by tokens read"
        yield f"{counted(report.totals.turns, 'turn')}{shown}:"
        yield "".join(f"{head:>{width}}" for head, width in zip(_HEADS, _WIDTHS, strict=True))
        yield from (_row(row) for row in rows)
    yield ""
    yield f"{counted(len(findings), 'finding')}{', the most expensive first' if len(findings) > 1 else ''}"
    for number, finding in enumerate(findings, 1):
        yield from _finding(number, finding)


def _heading(report: LogReport, reader: LogReader) -> Iterator[str]:
    tally, totals = reader.tally, report.totals
    by = ", ".join(f"{name} {count:,}" for name, count in tally.understood.most_common())
    unknown = f"; not understood {tally.unknown:,}" if tally.unknown else ""
    yield f"log       {format_bytes(tally.nbytes)}, {counted(tally.lines, 'line')}: {by}{unknown}"
    facts = "; ".join(f"{_label(name)}: {printable(value)}" for name, value in report.facts.items())
    if facts:
        yield f"server    {facts}"
    if totals.counted:
        share = 100 * totals.cached / totals.prompt_tokens if totals.prompt_tokens else 0.0
        yield f"reuse     {totals.cached:,} of {totals.prompt_tokens:,} prompt tokens ({share:.1f} %)"
    speed = totals.ms_a_token
    if speed:
        took = f"{totals.timed_read:,} tokens in {totals.read_ms / 1000:,.1f} s"
        yield f"reading   {took}, {1000 / speed:,.0f} a second"
    grain = report.grain.tokens
    if grain:
        yield f"resumes   at multiples of {grain:,} tokens"
    yield from _happened(report)


def _happened(report: LogReport) -> Iterator[str]:
    points, seen = report.points, report.intervals
    if points.made or points.restored:
        apart = f", {points.spacing:,} tokens apart on average" if points.spacing else ""
        span = f", from token {points.least:,} to {points.most:,}" if points.least is not None else ""
        yield (
            f"points    {counted(points.made, 'checkpoint')} made, {points.erased:,} erased, "
            f"{points.restored:,} restored{apart}{span}"
        )
    if seen.last_hit_share is not None:
        yield f"hit rate  {100 * seen.last_hit_share:.1f} %, as the server last said"
    events = [
        counted(number, word)
        for number, word in (
            (report.evictions, "eviction"),
            (report.cuts, "cut prompt"),
            (max(0, report.loads - 1), "reload"),
            (report.hints, "notice of a full re-read"),
        )
        if number
    ]
    if events:
        false = f"; {report.false_hints} of the notices stood beside a reuse" if report.false_hints else ""
        yield f"events    {', '.join(events)}{false}"


def _row(row: NumberedTurn) -> str:
    turn = row.turn
    shared = "" if turn.shared is None else f"{'~' if turn.shared_within else ''}{turn.shared:,}"
    if turn.shared is None and turn.shared_most is not None and (turn.cached or 0) <= turn.shared_most:
        shared = f"<{turn.shared_most:,}"
    cells = (
        f"{row.number}",
        _number(turn.slot),
        _number(turn.prompt_tokens),
        _number(turn.cached),
        _number(turn.read),
        shared or "-",
        _number(row.gap),
        "-" if turn.prompt_ms is None else f"{turn.prompt_ms / 1000:,.2f}",
    )
    marks = (" cut" if turn.truncated else "") + (" full re-read?" if turn.hint else "")
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)) + marks


def _finding(number: int, finding: Finding) -> Iterator[str]:
    yield ""
    yield f"{number}. {finding.cause} ({finding.culprit.value}){_price(finding)}"
    yield f"   {printable(finding.said)}."
    if finding.before or finding.after:
        yield f"   before: {printable(finding.before)}"
        yield f"   after:  {printable(finding.after)}"
    if finding.fix.text:
        yield f"   fix: {finding.fix.text}"
    if finding.fix.command:
        yield f"        {finding.fix.command}"


def _price(finding: Finding) -> str:
    parts = []
    if finding.tokens_lost:
        parts.append(f"{finding.tokens_lost:,} tokens")
    if finding.seconds_lost:
        parts.append(f"{finding.seconds_lost:,.1f} s")
    return f": {', '.join(parts)}" if parts else ""


def _label(name: str) -> str:
    return name.replace("_mib", ", MiB").replace("_tokens", ", tokens").replace("_", " ")


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _json(report: LogReport, findings: list[Finding], reader: LogReader) -> dict[str, Any]:
    totals, points = report.totals, report.points
    return {
        "format": reader.format,
        "lines": _lines(reader.tally),
        "facts": report.facts,
        "turns": totals.turns,
        "prompt_tokens": totals.prompt_tokens,
        "cached_tokens": totals.cached,
        "read_tokens": totals.read,
        "read_seconds": totals.read_ms / 1000,
        "lost_tokens": {
            "gap": report.gap.tokens,
            "changed": report.changed.tokens + report.replaced.tokens,
            "side_requests": report.side.tokens,
        },
        "granularity_tokens": report.grain.tokens,
        "checkpoints": {
            "made": points.made,
            "erased": points.erased,
            "restored": points.restored,
            "spacing_tokens": points.spacing,
            "span_tokens": None if points.least is None else [points.least, points.most],
        },
        "hit_share": report.intervals.last_hit_share,
        "evictions": report.evictions,
        "truncations": report.cuts,
        "reloads": max(0, report.loads - 1),
        "full_reread_notices": report.hints,
        "most_expensive_turns": [_turn_json(row) for row in report.turns],
        "findings": [finding_json(finding) for finding in findings],
    }


def _lines(tally: Tally) -> dict[str, Any]:
    return {
        "all": tally.lines,
        "bytes": tally.nbytes,
        "understood": dict(tally.understood),
        "not_understood": tally.unknown,
        "too_long": tally.too_long,
    }


def _turn_json(row: NumberedTurn) -> dict[str, Any]:
    turn = row.turn
    return {
        "number": row.number,
        "server": turn.server,
        "slot": turn.slot,
        "task": turn.task,
        "prompt_tokens": turn.prompt_tokens,
        "cached_tokens": turn.cached,
        "read_tokens": turn.read,
        "prompt_ms": turn.prompt_ms,
        "shared_tokens": turn.shared,
        "shared_within": turn.shared_within,
        "shared_at_most": turn.shared_most,
        "gap_tokens": row.gap,
        "changed_tokens": row.changed,
        "truncated": turn.truncated,
        "full_reread_notice": turn.hint,
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """A finding for a program."""
    return {
        "cause": finding.cause,
        "culprit": finding.culprit.value,
        "step": finding.step.value,
        "said": finding.said,
        "token": finding.token,
        "tokens_lost": finding.tokens_lost,
        "seconds_lost": finding.seconds_lost,
        "before": finding.before,
        "after": finding.after,
        "fix": {"text": finding.fix.text, "command": finding.fix.command},
    }
