"""Recordings without texts (`watch --no-bodies`), read as far as hashes go.

Of every leaf of a body its SHA-256 is known by its path. Put together again with hashes in place of texts,
bodies still show which part is another one, which tools came in which order, and what was taken out; not what
it said. What is no text of anybody's (roles, types, flags, small numbers) is known by its hash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from headstart.blame.causes import SERVER_CAUSES, truncated, unknown
from headstart.blame.causes.context import SMALL_TOKENS
from headstart.blame.exchange import Dialect, Exchange, Reply, ToolCall
from headstart.blame.finding import Finding
from headstart.blame.json_paths import digest
from headstart.blame.prompt import Kind
from headstart.blame.verdict import TurnVerdict

__all__ = ["of_part", "readable", "texts_kept", "without_letters"]

_MARK = "sha256:"
_REPLY = "$reply"
_STEP = re.compile(r'\.?([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')
_WORDS = """
system user assistant tool developer function text thinking redacted_thinking tool_use tool_result
image image_url input_text output_text summary_text message function_call function_call_output reasoning
object string integer number boolean array ephemeral auto none required any low medium high minimal
enabled disabled json json_object json_schema base64 url stop length tool_calls end_turn
"""
_LONG_HASH = re.compile(rf"({_MARK}[0-9a-f]{{8}})[0-9a-f]*(?:\.\.\.)?")
_LENGTH = re.compile(r" (?:of|by) [\d,]+ characters")
# Deeper bodies are no requests, and would be too deep for what reads them.
_MOST_STEPS = 100
_MOST_NUMBER = 4096
_LARGE = (1 << 20, 1 << 10)
# What these say rests on whole parts, or on the server's counts.
_BY_PARTS = {"MODEL_SWITCHED", "TOOLS_REORDERED", "TOOLS_CHANGED", "BLOCK_MOVED", "THINKING_STRIPPED"} | {
    cause.CODE for cause in SERVER_CAUSES
}
_OBJECTS = (Dialect.ANTHROPIC, Dialect.OLLAMA_CHAT)


def texts_kept(exchange: Exchange) -> bool:
    """Whether the exchange has its texts, and not only their hashes."""
    return exchange.body is not None or not exchange.digests


def readable(exchange: Exchange) -> Exchange:
    """`exchange` with a body and reply of hashes, where it has no texts. A path that is none gives a note."""
    if texts_kept(exchange):
        return exchange
    digests = exchange.digests if isinstance(exchange.digests, Mapping) else {"digests": None}
    asked = {path: told for path, told in digests.items() if not path.startswith(_REPLY)}
    said = {path: told for path, told in digests.items() if path.startswith(_REPLY)}
    body, strange = _built(asked)
    told, _ = _built({path.removeprefix(_REPLY).lstrip("."): one for path, one in said.items()})
    notes = exchange.notes
    if strange:
        notes = (*notes, f"{strange} hashes have no place in the body and were passed over")
    return replace(exchange, body=body, reply=_reply(exchange, told), notes=notes)


def without_letters(verdict: TurnVerdict) -> TurnVerdict:
    """`verdict` on a turn of hashes: names no cause that only letters tell, and no place within a part."""
    found = verdict.finding
    if found is not None and found.cause == truncated.CODE and not _surely_cut(verdict):
        found = None
    also = tuple(of_part(one) for one in verdict.also)
    return replace(verdict, finding=found and of_part(found), also=also)


def _surely_cut(verdict: TurnVerdict) -> bool:
    """Whether the server's counts alone say so: hashes are all of one length, and a template may drop
    thinking of any."""
    turn, before = verdict.turn, verdict.turn.before
    if turn.prompt is None or before is None or before.prompt is None:
        return False
    thought = any(piece.kind is Kind.THINKING for piece in before.prompt.pieces)
    had, now = before.exchange.usage.prompt or 0, verdict.usage.prompt or 0
    return bool(truncated.half(turn.prompt, now)) or (not thought and had - now > SMALL_TOKENS)


def of_part(found: Finding) -> Finding:
    """What `found` says of texts that are known by their hashes."""
    said = _LONG_HASH.sub(r"\1", _LENGTH.sub("", found.said))
    blank = replace(
        found, said=said, offset=None, char=None, token=None, tokens_behind=None, before="", after=""
    )
    if found.cause in _BY_PARTS:
        return blank
    said = "this part is another one than in the turn before; what it says was not recorded"
    return replace(blank, cause=unknown.CODE, said=said, fix=unknown.FIX)


def _reply(exchange: Exchange, told: Any) -> Reply:
    """What was said, in hashes. Arguments that came as an object cannot be compared with their text."""
    if not isinstance(told, Mapping):
        return exchange.reply
    listed = told.get("calls")
    calls = tuple(
        ToolCall(str(call.get("id", "")), str(call.get("name", "")), str(call.get("arguments", "")))
        for call in (listed if isinstance(listed, list) else ())
        if isinstance(call, Mapping)
    )
    if calls and exchange.dialect in _OBJECTS:
        return exchange.reply
    text, thinking = (str(told.get(name) or "") for name in ("text", "thinking"))
    return replace(exchange.reply, text=text, thinking=thinking, calls=calls)


def _built(digests: Mapping[str, Any]) -> tuple[Any, int]:
    """The document whose leaves have these hashes, and how many paths lead nowhere."""
    root: dict[str, Any] = {}
    strange = 0
    for path, told in digests.items():
        steps = _steps(path) if isinstance(told, str) else None
        if steps is None or not _put(root, steps, _known().get(told, f"{_MARK}{told}")):
            strange += 1
    return _plain(root).get("", {}) if isinstance(root, dict) else {}, strange


def _steps(path: str) -> list[str | int] | None:
    """The keys and indexes of a path; None where it is none."""
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or len(steps) == _MOST_STEPS:
            return None
        name, index, quoted = match.groups()
        try:
            steps.append(name or (int(index) if index is not None else json.loads(quoted)))
        except ValueError:
            return None
        at = match.end()
    return steps


def _put(root: dict[Any, Any], steps: Iterable[str | int], leaf: Any) -> bool:
    """Lists are kept as objects with numbers for keys until all is there."""
    here: Any = root
    *way, last = ["", *steps]
    for step in way:
        here = here.setdefault(step, {})
        if not isinstance(here, dict):
            return False
    if last in here:
        return False
    here[last] = leaf
    return True


def _plain(value: Any) -> Any:
    """Objects with numbers for keys as lists, in the order of the numbers."""
    if not isinstance(value, dict) or not value:
        return value
    parts = {key: _plain(one) for key, one in value.items()}
    if all(isinstance(key, int) for key in parts):
        return [parts[key] for key in sorted(parts)]
    return {str(key): one for key, one in parts.items()}


@cache
def _known() -> dict[str, Any]:
    """Values that are recognised by their hash."""
    numbers = [*range(_MOST_NUMBER), *range(_LARGE[1], _LARGE[0] + 1, _LARGE[1])]
    shares = [number / 100 for number in range(201)]
    values: list[Any] = [*_WORDS.split(), "", "{}", {}, [], True, False, None, *numbers, *shares]
    return {digest(value): value for value in reversed(values)}
