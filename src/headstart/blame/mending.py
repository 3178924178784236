"""Repairs requests as they pass, knowing the conversation each belongs to."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from headstart.blame.conversations import Limits, Sorter, Turn
from headstart.blame.exchange import Exchange, Reply, ToolCall
from headstart.blame.proxy.passing import Passing
from headstart.blame.proxy.taking import by_name, parsed, reply_of
from headstart.blame.repairs import Seen, dates, repair, tools
from headstart.blame.repairs.seen import plain_id

_KEPT_CALLS = 20_000
_KEPT_SEEN = 200
_KEPT_BYTES = 64 << 20
# Requests alone are sorted here, and only the last ones of a conversation matter.
_LIMITS = Limits(turns=2, conversations=_KEPT_SEEN, text_bytes=_KEPT_BYTES)


class Mender:
    """`names`: the repairs it makes."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._sorter = Sorter(_LIMITS)
        self._number = 0
        self._seen: OrderedDict[str, tuple[Seen, int]] = OrderedDict()
        self._calls: OrderedDict[str, tuple[ToolCall, ...]] = OrderedDict()

    def learn(self, reply: Reply) -> None:
        """Takes note of the calls that a reply has."""
        for call in reply.calls:
            key = plain_id(call.id)
            if key and call.arguments:
                self._calls[key] = (*self._calls.pop(key, ())[-3:], call)
        while len(self._calls) > _KEPT_CALLS:
            self._calls.popitem(last=False)

    def mended(self, passing: Passing, body: bytes) -> bytes:
        """The body to send: `body` itself where nothing was repaired. What was repaired is noted."""
        headers = by_name(passing.head)
        encoding = headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            passing.notes.append(f"fix: a body compressed as {encoding} is not repaired")
            return body
        value, problem = parsed(body, None)
        if problem is not None or passing.dialect is None or not isinstance(value, dict):
            return body
        name, turn = self._place(passing, headers, value)
        known = self._seen.get(name, (Seen(), 0))[0]
        after, notes = repair(passing.dialect, value, replace(known, calls=self._calls), self.names)
        if turn.number:
            self._keep(name, self._next(known, after), len(body))
        if not notes:
            return body
        passing.notes += notes
        sent = as_bytes(after)
        passing.request, passing.request_bytes = [], 0
        passing.sent(sent)
        return sent

    def _place(self, passing: Passing, headers: Mapping[str, str], value: Any) -> tuple[str, Turn]:
        """The conversation of a request, and whether it is a turn of it: a request for a title, say, has the
        conversation's tools at most, and is not what later ones are put in order by."""
        assert passing.dialect is not None
        self._number += 1
        asked = Exchange(self._number, passing.started, passing.dialect, passing.path, value, headers=headers)
        return self._sorter.add(asked)

    def _keep(self, name: str, seen: Seen, nbytes: int) -> None:
        self._seen.pop(name, None)
        self._seen[name] = seen, nbytes
        while len(self._seen) > 1 and (
            len(self._seen) > _KEPT_SEEN or sum(one for _, one in self._seen.values()) > _KEPT_BYTES
        ):
            self._seen.popitem(last=False)

    def _next(self, seen: Seen, body: Any) -> Seen:
        order = tools.known(seen.tools, tools.names(body) or ())
        dated = {**dates.dated(body), **seen.dated} if "date" in self.names else {}
        return replace(seen, tools=order, before=body, dated=dated, calls={})


class Mending:
    """Mends what passes, once the replies before it were learnt from, in a thread of its own."""

    def __init__(self, mender: Mender) -> None:
        self._mender = mender
        self._pool = ThreadPoolExecutor(1, "headstart-watch-fix")
        self._last: Future[None] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self._mender.names

    def finished(self, passing: Passing) -> None:
        """Learns from a reply. Returns at once."""
        if "arguments" in self._mender.names:
            self._last = self._pool.submit(self._learn, passing)

    async def mend(self, passing: Passing, body: bytes) -> bytes:
        """The body to send in place of `body`."""
        last = self._last
        if last is not None and not last.done():
            await asyncio.wrap_future(last)
        try:
            return self._mender.mended(passing, body)
        except Exception as problem:  # noqa: BLE001 - a request goes out as it came before it is lost
            passing.notes.append(f"fix: nothing was repaired: {problem!r}")
            return body

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _learn(self, passing: Passing) -> None:
        reply = reply_of(passing)
        if reply is not None:
            self._mender.learn(reply.reply)


def as_bytes(value: Any) -> bytes:
    """Compact JSON in UTF-8; what UTF-8 has no form for is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
