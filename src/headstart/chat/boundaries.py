"""Where messages start in a rendered prompt, in characters and then in tokens.

Recurrent layers can be resumed only where a checkpoint was taken, so the places where prompts are
likely to part are worth knowing before the prompt is read: the end of the head (system messages
and tools), the start of every message, the end of the body before the generation suffix.

Templates are programs, so nothing is parsed. A message starts where the rendering of all messages
before it ends, if that rendering is the beginning of the full text. Where it is not (templates
that drop old reasoning, or refuse a conversation without a user), the message is rendered with a
marker as its content, and what stands before the marker is compared instead.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from threading import Lock
from typing import Any

import numpy as np
from blake3 import blake3

from headstart.chat.messages import Message
from headstart.chat.template import ChatTemplate
from headstart.engines.base import Vocabulary
from headstart.errors import RequestError
from headstart.prefix.plan import PromptHints
from headstart.prefix.tokens import TokenRun

_MARK = "\u2042headstart\u2042"
_HEAD_ROLES = ("system", "developer")
_DIGEST_BYTES = 16
LAST_PLACES = 128
SPREAD_PLACES = 64
MIN_POSITION_TOKENS = 16
"""Places nearer to the start than this are not worth a checkpoint: reading them is as quick."""


@dataclass(frozen=True)
class Rendered:
    """A prompt's text and places in it as character offsets.

    `head_end`: end of leading system messages and tools. `message_starts[i]`: start of
    `messages[i]`, None where it is not known. `body_end`: end of the messages, before the suffix
    that asks for a reply.
    """

    text: str
    head_end: int | None = None
    message_starts: tuple[int | None, ...] = ()
    body_end: int | None = None

    def moved(self, text: str, where: Callable[[int], int]) -> Rendered:
        """The same places in another spelling of it."""

        def place(char: int | None) -> int | None:
            return None if char is None else where(char)

        starts = tuple(place(start) for start in self.message_starts)
        return Rendered(text, place(self.head_end), starts, place(self.body_end))


@dataclass(frozen=True)
class _Beginning:
    """A text known by its length in characters and its digest; `chars` -1 where rendering failed."""

    chars: int
    digest: bytes = b""


_FAILED = _Beginning(-1)


class BoundaryMemo:
    """Lengths and digests of rendered beginnings, by the digest of the messages they come from.

    Thread-safe; holds the `entries` used last (about 150 bytes each), so a conversation that
    grows renders only beginnings that are new.
    """

    def __init__(self, entries: int = 16_384) -> None:
        self._entries = entries
        self._known: OrderedDict[bytes, _Beginning] = OrderedDict()
        self._lock = Lock()

    def get(self, key: bytes) -> _Beginning | None:
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def put(self, key: bytes, beginning: _Beginning) -> None:
        with self._lock:
            self._known[key] = beginning
            while len(self._known) > self._entries:
                self._known.popitem(last=False)

    def __len__(self) -> int:
        return len(self._known)


class _Conversation:
    """One conversation's beginnings, rendered on demand."""

    def __init__(
        self,
        template: ChatTemplate,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        kwargs: Mapping[str, Any],
        memo: BoundaryMemo,
    ) -> None:
        self.messages = messages
        self._template = template
        self._tools = tools
        self._kwargs = kwargs
        self._memo = memo
        root = template.fingerprint + _digest([tools, kwargs])
        self._chain = list(accumulate(messages, lambda key, m: _digest_bytes(key + _digest(m)), initial=root))

    def before(self, count: int) -> _Beginning:
        """The rendering of the first `count` messages."""
        key = b"whole" + self._chain[count]
        return self._remember(key, lambda: self._render(self.messages[:count]))

    def up_to_content(self, count: int) -> _Beginning:
        """What stands before the content of message `count`."""
        role = str(self.messages[count].get("role"))
        marked = {"role": role, "content": _MARK}

        def render() -> str:
            text = self._render([*self.messages[:count], marked])
            head, mark, _ = text.partition(_MARK)
            if not mark:
                raise RequestError("the template does not show this content")
            return head

        return self._remember(b"marked" + self._chain[count] + role.encode(), render)

    def _render(self, messages: Sequence[Message]) -> str:
        if not messages:
            return ""
        return self._template.render(messages, tools=self._tools, add_generation_prompt=False, **self._kwargs)

    def _remember(self, key: bytes, render: Any) -> _Beginning:
        found = self._memo.get(key)
        if found is None:
            try:
                text = render()
                found = _Beginning(len(text), _digest_bytes(text.encode()))
            except RequestError:
                found = _FAILED
            self._memo.put(key, found)
        return found


def render_with_boundaries(
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    memo: BoundaryMemo,
    text: str | None = None,
) -> Rendered:
    """The prompt of `messages`, ready for a reply, with the places where it may part from others. `text`: the
    prompt, where it is rendered already.

    Raises RequestError where the template refuses the messages; never because of a boundary.
    """
    options = dict(kwargs or {})
    if text is None:
        text = template.render(messages, tools=tools, **options)
    return Rendered(text, *_places(text, _Conversation(template, messages, tools, options, memo)))


def _places(text: str, talk: _Conversation) -> tuple[int | None, tuple[int | None, ...], int | None]:
    count = len(talk.messages)
    heads = len(_leading(talk.messages))
    looked_at = _looked_at(count)
    whole = [talk.before(k) if k in looked_at or k <= heads else _FAILED for k in range(count + 1)]
    confirmed = _confirm(text, whole)
    if heads and talk.up_to_content(heads - 1).chars < 0:
        confirmed[1 : heads + 1] = [False] * heads  # system text is shown only inside the first turn
    asked = [
        k
        for k in range(count)
        if k in looked_at and not (k and confirmed[k]) and talk.messages[k].get("role") == "user"
    ]
    marked = {k: talk.up_to_content(k) for k in asked}
    confirmed_marked = dict(zip(asked, _confirm(text, [marked[k] for k in asked]), strict=True))

    def place(k: int) -> int | None:
        if k < len(whole) and confirmed[k] and (k or not confirmed_marked.get(0)):
            return whole[k].chars
        return marked[k].chars if confirmed_marked.get(k) else None

    starts = tuple(0 if k == 0 else place(k) for k in range(count))
    head_end = place(heads) if heads <= count else None
    body_end = whole[count].chars if confirmed[count] else None
    return head_end or None, starts, body_end


def _looked_at(count: int) -> frozenset[int]:
    """Of that many messages, those whose start is looked for: the last ones, where a conversation goes on or
    is edited, and some spread over the rest, the same ones while it grows. Each is a rendering of all before
    it, so all of a long conversation would be quadratic work."""
    first = max(0, count - LAST_PLACES)
    stride = 1 << max(0, (first // SPREAD_PLACES).bit_length())
    return frozenset((*range(0, first, stride), *range(first, count + 1)))


def _leading(messages: Sequence[Message]) -> Sequence[Message]:
    for index, message in enumerate(messages):
        if message.get("role") not in _HEAD_ROLES:
            return messages[:index]
    return messages


def _confirm(text: str, beginnings: Sequence[_Beginning]) -> list[bool]:
    """Which of `beginnings` the text really begins with; one pass over the text."""
    answers = [False] * len(beginnings)
    hasher, at = blake3(), 0
    for index in sorted(range(len(beginnings)), key=lambda i: beginnings[i].chars):
        beginning = beginnings[index]
        if 0 <= beginning.chars <= len(text):
            hasher.update(text[at : beginning.chars].encode())
            at = beginning.chars
            answers[index] = hasher.digest(_DIGEST_BYTES) == beginning.digest
    return answers


def _digest(value: Any) -> bytes:
    return _digest_bytes(json.dumps(value, sort_keys=False, default=str).encode())


def _digest_bytes(data: bytes) -> bytes:
    return blake3(data).digest(_DIGEST_BYTES)


def prompt_hints(rendered: Rendered, tokens: TokenRun, vocabulary: Vocabulary) -> PromptHints:
    """The places of `rendered` as token positions of the prompt `tokens`.

    A place inside a token becomes that token's start. No hints where the tokens' bytes are not
    the text's (a tokenizer that normalizes): a wrong position would cost more than none.
    """
    pieces = [vocabulary.pieces[token] for token in tokens.tolist()]
    text = rendered.text.encode()
    lead = 0
    if pieces and tokens[0] == vocabulary.bos and not text.startswith(pieces[0]):
        lead = len(pieces[0])
    if b"".join(pieces)[lead:] != text:
        return PromptHints()
    ends = np.cumsum([0, *(len(piece) for piece in pieces)]) - lead
    known = sorted({place for place in rendered.message_starts if place})
    offsets = _byte_offsets(rendered.text, [*known, rendered.head_end, rendered.body_end])

    def position(place: int | None) -> int | None:
        if place is None:
            return None
        return int(np.searchsorted(ends, offsets[place], side="right")) - 1

    starts = {position(place) for place in known}
    head_end = position(rendered.head_end)
    return PromptHints(
        head_end=head_end if head_end and head_end >= MIN_POSITION_TOKENS else None,
        message_starts=tuple(sorted(start for start in starts if start and start >= MIN_POSITION_TOKENS)),
        body_end=position(rendered.body_end),
    )


def _byte_offsets(text: str, places: Sequence[int | None]) -> dict[int, int]:
    """UTF-8 offsets of character offsets."""
    offsets, at, offset = {}, 0, 0
    for place in sorted({place for place in places if place is not None}):
        offset += len(text[at:place].encode())
        at = place
        offsets[place] = offset
    return offsets
