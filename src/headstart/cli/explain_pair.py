"""Two requests and nothing else: where the later one parts from the earlier one, and why."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from headstart.blame.bodies import prompt_of
from headstart.blame.causes import Context, unknown
from headstart.blame.conversations import Turn
from headstart.blame.depth import Depth
from headstart.blame.exchange import Exchange
from headstart.blame.explanation import explanation_of
from headstart.blame.finding import Change, Finding
from headstart.blame.hashed import of_part
from headstart.blame.page import page_of
from headstart.blame.verdict import TurnVerdict, tokens_lost, verdict_of
from headstart.cli.cache_action import answer, counted
from headstart.cli.finding_words import finding_lines, place, shown, sides
from headstart.cli.new_file import write_new
from headstart.cli.readers import reader_of
from headstart.cli.terminal import Terminal

__all__ = ["show_pair"]


@dataclass(frozen=True)
class Pair:
    """Two requests compared. `place`: where they part, with no cause yet; None where the second goes on."""

    context: Context
    change: Change | None
    place: Finding | None
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def tokens_lost(self) -> int | None:
        return tokens_lost(self.context)


def show_pair(pair: tuple[Exchange, Exchange], flags: argparse.Namespace, source: str) -> None:
    """As text or JSON, and as a page where one is asked for. Raises ConfigError; ValueError where a body
    cannot be read."""
    told = compared(pair, None if flags.model is None else Depth(reader_of(flags.model)))
    if flags.html is not None:
        write_new(
            flags.html, page_of(explanation_of(_verdicts(told), None, told.notes), source), flag="--html"
        )
        Terminal().step(f"the page is {flags.html}")
    if flags.json:
        answer(_json(told))
    elif flags.html is None:
        for line in _text(told, source):
            print(line)


def compared(pair: tuple[Exchange, Exchange], depth: Depth | None) -> Pair:
    """Raises ValueError where a body cannot be read."""
    prompts = tuple(prompt_of(one.dialect, one.body) for one in pair)
    context = Context(pair[1], pair[0], prompts[1], prompts[0], pair, prompts)
    parted, findings = verdict_of(context, depth)
    where = None if parted is None else unknown.detect(parted, context)
    if where is not None and depth is not None:
        where = depth.place(context, where)
    if pair[1].digests:
        where, findings = where and of_part(where), [of_part(found) for found in findings]
    notes = () if depth is None else tuple(depth.problems)
    return Pair(context, parted, where, tuple(findings), notes)


def _verdicts(told: Pair) -> list[TurnVerdict]:
    context = told.context
    before = Turn(context.before, context.before_prompt, number=1)
    turn = Turn(context.exchange, context.prompt, number=2, before=before)
    first, rest = (told.findings[0], told.findings[1:]) if told.findings else (None, ())
    first = None if first is None else replace(first, tokens_lost=told.tokens_lost)
    return [
        TurnVerdict("A", before, context.before.usage),
        TurnVerdict("A", turn, context.exchange.usage, told.change, first, rest, told.tokens_lost),
    ]


def _text(told: Pair, source: str) -> Iterator[str]:
    prompts = (told.context.before_prompt, told.context.prompt)
    sizes = " and ".join(f"{counted(len(one.pieces), 'part')} of {one.chars:,} characters" for one in prompts)
    yield f"requests   {source} ({prompts[1].dialect.value}): {sizes}"
    for note in told.notes:
        yield f"note       {shown(note)}"
    if told.place is None:
        ends = len(prompts[1].pieces) < len(prompts[0].pieces)
        inside = "the second ends inside the first, and has nothing else"
        onward = "the second has all of the first, in its order, and goes on behind it"
        yield f"parting    none: {inside if ends else onward}"
    else:
        yield f"parting    {place(told.place)}"
        yield from (f"           {line}" for line in sides(told.place))
    if told.tokens_lost is not None:
        yield f"read again {told.tokens_lost:,} tokens, by the server's count"
    for number, found in enumerate(told.findings, 1):
        yield ""
        yield f"{number}. {found.cause} ({found.culprit.value})"
        yield from (f"   {line}" for line in finding_lines(found))
    if told.place is not None and not told.findings:
        yield ""
        yield "No cause is named: the request ends with what differs, so nothing behind it is read again."


def _json(told: Pair) -> dict[str, Any]:
    where = told.place
    return {
        "parting": None
        if where is None
        else {
            name: getattr(where, name)
            for name in ("path", "offset", "char", "token", "tokens_behind", "before", "after")
        },
        "tokens_read_again": told.tokens_lost,
        "findings": [asdict(found) for found in told.findings],
        "notes": told.notes,
    }
