"""The exchanges of a recording sorted into conversations and side requests.

Which conversation a request goes on with is told by its messages, not by its system prompt or tools: these
are what clients change. The exchanges may come in while the sorting goes on; with `Limits` for weeks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

from headstart.blame.bodies import prompt_of
from headstart.blame.diff import common_end, common_length, key
from headstart.blame.exchange import Dialect, Exchange, Reply
from headstart.blame.generated import as_generated
from headstart.blame.prompt import Kind, Piece, Prompt
from headstart.blame.purpose import Purpose, purpose_of
from headstart.blame.threads import LIVE, RECENT_TURNS, Limits, Thread, Turn, front, messages

__all__ = ["LIVE", "Conversation", "Limits", "Sorter", "Turn", "front", "messages", "turns"]

T = TypeVar("T")
_SUMMARY_CHARS = 40
_WORTH_CHARS = 16
_SIMILAR = 0.6
_FEW = 3
_RAW = (Dialect.OPENAI_COMPLETIONS, Dialect.OLLAMA_GENERATE)
_SESSION_HEADERS = (
    "x-session-id",
    "session_id",
    "session-id",
    "x-claude-code-session-id",
    "x-session-affinity",
)

# What says what the prompt is, in any dialect; the rest of a body are options.
_PROMPT_FIELDS = (
    "messages",
    "input",
    "prompt",
    "system",
    "instructions",
    "tools",
    "template",
    "suffix",
    "images",
)
_KEPT_BETWEEN = 512
_KEPT_SEEN = 20_000
_KEPT_WORDS = 32


@dataclass(frozen=True)
class Conversation:
    """`name`: A, B, ...; empty for requests that belong to none."""

    name: str
    turns: tuple[Turn, ...]
    side: tuple[Turn, ...] = ()


def turns(exchanges: Iterable[Exchange]) -> list[Conversation]:
    """The conversations in order of their first turn; last, without a name, requests that belong to none."""
    sorter = Sorter()
    for exchange in exchanges:
        sorter.add(exchange)
    return sorter.conversations()


class Sorter:
    """Takes exchanges as they come. `add` says which conversation an exchange belongs to, and as what. With
    `limits` its memory does not grow, and `conversations` has only what is kept."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits
        self._open: list[Thread] = []
        self._named = 0
        self._stray: list[Turn] = []
        # Each with the conversation that it is a turn of; the first of them is number `_gone` of all.
        self._all: list[tuple[str, Exchange]] = []
        self._gone = 0

    def add(self, exchange: Exchange) -> tuple[str, Turn]:
        """The name of its conversation ("" for none) and the exchange as a turn of it."""
        name, turn = self._placed(exchange)
        self._all.append(
            (name if turn.number else "", exchange if self._limits is None else _options(exchange))
        )
        if self._limits is not None:
            self._forget(self._limits)
        return name, turn

    def known(self, name: str) -> list[Turn]:
        """The turns that are kept of a conversation, those that were answered."""
        turns = next((one.turns for one in self._open if one.name == name), [])
        return [turn for turn in turns if turn.answered]

    def conversations(self) -> list[Conversation]:
        found = [Conversation(one.name, tuple(one.turns), tuple(one.side)) for one in self._open]
        if self._stray:
            found.append(Conversation("", (), tuple(self._stray)))
        return found

    def _placed(self, exchange: Exchange) -> tuple[str, Turn]:
        try:
            prompt = prompt_of(exchange.dialect, exchange.body)
        except ValueError:
            return self._astray(Turn(exchange, None, Purpose.OTHER))
        head = _hashes(messages(prompt))
        found = self._find(exchange, prompt, head)
        tools = found.with_tools if found else any(one.with_tools for one in self._open)
        purpose = purpose_of(exchange.path, prompt, continues=found is not None, with_tools=tools)
        if purpose is not Purpose.TURN:
            return self._aside(found, Turn(exchange, prompt, purpose))
        if found is None:
            found = Thread(_letters(self._named))
            self._named += 1
            self._open.append(found)
        return found.name, self._next(found, exchange, prompt, head)

    def _astray(self, turn: Turn) -> tuple[str, Turn]:
        if self._limits is None:
            self._stray.append(turn)
        return "", turn

    def _aside(self, found: Thread | None, turn: Turn) -> tuple[str, Turn]:
        if found is None:
            return self._astray(turn)
        if self._limits is None:
            found.side.append(turn)
        if len(turn.exchange.reply.text) >= _SUMMARY_CHARS:
            found.summaries.append(turn.exchange.reply.text.strip())
        return found.name, turn

    def _next(self, found: Thread, exchange: Exchange, prompt: Prompt, head: list[int]) -> Turn:
        before, place = _turn_before(found, head) if found.turns else self._begun_alike(prompt)
        between: tuple[Exchange, ...] = ()
        if before is not None:
            since = self._all[max(0, place + 1 - self._gone) :]
            between = tuple(one for name, one in since if name != found.name)
        found.count += 1
        turn = Turn(exchange, prompt, Purpose.TURN, found.count, before, between)
        # What is kept for weeks must not hold on to what came before it.
        found.turns.append(turn if self._limits is None else replace(turn, before=None, between=()))
        found.heads.append(head)
        found.used = self._gone + len(self._all)
        found.places.append(found.used)
        found.sizes.append(sum(sys.getsizeof(piece.text) for piece in prompt.pieces))
        said = as_generated(prompt, exchange.reply).pieces[len(prompt.pieces) :]
        found.seen |= dict.fromkeys((*head, *_hashes(said)))
        found.sessions |= dict.fromkeys(_sessions(exchange))
        return turn

    def _begun_alike(self, prompt: Prompt) -> tuple[Turn | None, int]:
        """The first turn of the latest conversation that could share its front with a new one; its place."""
        for one in reversed(self._open[:-1]):
            first = one.turns[0]
            same = first.exchange.dialect is prompt.dialect and first.answered
            if first.prompt is not None and same and _fronts_alike(first.prompt, prompt):
                return first, one.places[0]
        return None, 0

    def _find(self, exchange: Exchange, prompt: Prompt, head: list[int]) -> Thread | None:
        best: tuple[float, int] = (0.0, -1)
        for index, one in enumerate(self._open):
            if one.turns[-1].exchange.dialect is not exchange.dialect:
                continue
            score = _likeness(one, exchange, prompt, head)
            if score > 0 and (score, index) >= best:
                best = (score, index)
        return self._open[best[1]] if best[1] >= 0 else None

    def _forget(self, limits: Limits) -> None:
        """What is beyond the limits goes: old turns, then the conversations that were not used longest."""
        gone = max(0, len(self._all) - _KEPT_BETWEEN)
        self._gone += gone
        del self._all[:gone]
        for one in self._open:
            while len(one.turns) > limits.turns + 1:
                one.forget()
            _only_last(one.seen, _KEPT_SEEN)
            _only_last(one.sessions, _KEPT_WORDS)
            del one.summaries[:-_KEPT_WORDS]
        over = sum(sum(one.sizes) for one in self._open) - limits.text_bytes
        while len(self._open) > 1 and (over > 0 or len(self._open) > limits.conversations):
            oldest = min(self._open, key=lambda one: one.used)
            over -= sum(oldest.sizes)
            self._open.remove(oldest)
        while over > 0 and self._open and len(self._open[0].turns) > 2:
            over -= self._open[0].sizes[1]
            self._open[0].forget()


def _options(exchange: Exchange) -> Exchange:
    """An exchange without its prompt and reply."""
    body = exchange.body
    if isinstance(body, Mapping):
        body = {name: value for name, value in body.items() if name not in _PROMPT_FIELDS}
    return replace(exchange, body=body, reply=Reply(), headers={}, reply_headers={}, digests={})


def _only_last(kept: dict[T, None], most: int) -> None:
    for name in list(kept)[: max(0, len(kept) - most)]:
        del kept[name]


def _runs(pieces: Sequence[Piece]) -> list[tuple[int, str]]:
    """Hash and text of every run of pieces that only differ in how a message is cut into blocks."""
    found = []
    for name, run in groupby(pieces, key=lambda piece: (piece.message, piece.id, *key(piece)[:3])):
        text = "".join(piece.text for piece in run)
        found.append((hash((*name[2:], text)), text))
    return found


def _hashes(pieces: Sequence[Piece]) -> list[int]:
    return [name for name, _ in _runs(pieces)]


def _likeness(one: Thread, exchange: Exchange, prompt: Prompt, head: Sequence[int]) -> float:
    """How surely a request goes on with a conversation: messages shared from the first on, else 0 to 1."""
    pieces, last = messages(prompt), one.turns[-1].prompt
    if any(summary in piece.text for summary in one.summaries for piece in pieces[:8]):
        return 0.8
    if prompt.dialect in _RAW:
        alike = last is not None and last.dialect is prompt.dialect and _goes_on(last, prompt)
        return 0.5 if alike else 0.0
    if _fresh(pieces):
        return 0.6 if _asks_the_same(one, prompt) else 0.0
    lead = max((_shared(head, other) for other in _compared(one.heads)), default=0)
    return float(lead) if lead else _kinship(one, exchange, prompt)


def _kinship(one: Thread, exchange: Exchange, prompt: Prompt) -> float:
    """How surely a request whose first message is another goes on with a conversation."""
    runs = _runs(messages(prompt))
    worth = [name for name, text in runs if len(text) >= _WORTH_CHARS]
    common = sum(name in one.seen for name in worth)
    names = {name for name, _ in runs}
    if (worth and common >= len(worth) / 2) or len(names & one.seen.keys()) >= max(_FEW, len(names) / 2):
        return 0.9
    if one.sessions.keys() & _sessions(exchange):
        return 0.7
    last = one.turns[-1].prompt
    return 0.5 if common and last is not None and front(last) == front(prompt) else 0.0


def _fresh(pieces: Sequence[Piece]) -> bool:
    """Whether the model has said nothing yet: the first request of a conversation."""
    return bool(pieces) and all(piece.role != "assistant" for piece in pieces)


def _asks_the_same(one: Thread, prompt: Prompt) -> bool:
    """Whether the first words are those a conversation began with, but for a stamp or an id."""
    first = one.turns[0].prompt
    return first is not None and (_similar(first, prompt) or _words(first) == _words(prompt))


def _words(prompt: Prompt) -> str:
    return next((piece.text for piece in reversed(prompt.pieces) if piece.role == "user"), "")


def _goes_on(before: Prompt, after: Prompt) -> bool:
    """Whether most lines of a raw prompt are in the next one."""
    one, other = ("\n".join(piece.text for piece in prompt.pieces) for prompt in (before, after))
    return other.startswith(one) or _lines_kept(one, other) >= _SIMILAR


def _lines_kept(one: str, other: str) -> float:
    """Share of the first text that stands in lines of the second."""
    known = set(other.split("\n"))
    return sum(len(line) + 1 for line in one.split("\n") if line in known) / (len(one) + 1)


def _fronts_alike(before: Prompt, after: Prompt) -> bool:
    """Whether both have the same tools by name and mostly the same system prompt."""
    pair = front(before), front(after)
    names = [sorted(piece.name for piece in pieces if piece.kind is Kind.TOOL) for pieces in pair]
    if not all(pair) or names[0] != names[1] or before.model != after.model:
        return False
    texts = ["\n".join(piece.text for piece in pieces if piece.kind is Kind.SYSTEM) for pieces in pair]
    return min(_lines_kept(*texts), _lines_kept(*reversed(texts))) >= _SIMILAR


def _similar(before: Prompt, after: Prompt) -> bool:
    """Whether the words the user began with are nearly alike: only a stamp or an id differs."""
    one, other = _words(before), _words(after)
    start = common_length(one, other)
    longest = max(len(one), len(other))
    return longest >= _WORTH_CHARS and start + common_end(one, other, start) >= _SIMILAR * longest


def _turn_before(found: Thread, head: Sequence[int]) -> tuple[Turn | None, int]:
    """The latest answered turn where this one goes on with all its messages, else that which shares most
    messages from the first on, of several the latest; and its place."""
    best: tuple[int, Turn | None, int] = (-1, None, 0)
    compared = zip(_compared(found.turns), _compared(found.heads), _compared(found.places), strict=True)
    for turn, other, place in reversed([one for one in compared if one[0].answered]):
        shared = _shared(head, other)
        if best[1] is None and shared == len(other):
            return turn, place
        if shared > best[0]:
            best = (shared, turn, place)
    return best[1:]


def _compared(values: Sequence[T]) -> Sequence[T]:
    return values if len(values) <= RECENT_TURNS + 1 else [values[0], *values[-RECENT_TURNS:]]


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    count = min(len(one), len(other))
    if one[:count] == other[:count]:
        return count
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _sessions(exchange: Exchange) -> set[str]:
    """What the client calls its session, where it does."""
    headers = {name.lower(): value for name, value in exchange.headers.items()}
    found = {headers[name] for name in _SESSION_HEADERS if headers.get(name)}
    body: Mapping[str, object] = exchange.body if isinstance(exchange.body, Mapping) else {}
    if isinstance(body.get("prompt_cache_key"), str):
        found.add(str(body["prompt_cache_key"]))
    return {name for name in found if "redacted" not in name.lower()}


def _letters(index: int) -> str:
    """A to Z, AA, AB, ..."""
    name = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        name = chr(ord("A") + rest) + name
    return name
