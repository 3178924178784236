"""Sends the arguments of calls back as the model wrote them: spacing, escapes, order of keys, and without the
defaults that a client filled in. Where a client says something else than the model did, it stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from headstart.blame.exchange import Dialect, ToolCall
from headstart.blame.repairs.seen import Seen, messages_key, objects, plain_id, with_item

_DEFAULTS: tuple[Any, ...] = (None, False, "", [], {}, 0)


def apply(dialect: Dialect, body: Any, seen: Seen) -> tuple[Any, tuple[str, ...]]:
    if not seen.calls:
        return body, ()
    replay = _Replay(seen)
    key = messages_key(body)
    for place, message in objects(body.get(key)):
        after = replay.message(message, f"{key}[{place}]")
        if after is not message:
            body = {**body, key: with_item(body[key], place, after)}
    return body, tuple(replay.notes)


_Item = dict[str, Any]


class _Replay:
    """Looks through messages for calls that were generated; `notes` says which came back otherwise."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self.notes: list[str] = []

    def message(self, message: _Item, path: str) -> _Item:
        if message.get("type") == "function_call":
            return self._call(message, message.get("call_id"), "arguments", path)
        if message.get("role") != "assistant":
            return message
        message = self._within(message, "tool_calls", self._chat_call, path)
        return self._within(message, "content", self._block, path)

    def _within(self, message: _Item, name: str, one: Callable[[_Item, str], _Item], path: str) -> _Item:
        for place, item in objects(message.get(name)):
            after = one(item, f"{path}.{name}[{place}]")
            if after is not item:
                message = {**message, name: with_item(message[name], place, after)}
        return message

    def _chat_call(self, call: _Item, path: str) -> _Item:
        function = call.get("function")
        if not isinstance(function, dict):
            return call
        after = self._call(function, call.get("id"), "arguments", f"{path}.function")
        return call if after is function else {**call, "function": after}

    def _block(self, block: _Item, path: str) -> _Item:
        if block.get("type") != "tool_use":
            return block
        return self._call(block, block.get("id"), "input", path)

    def _call(self, holder: _Item, identity: Any, name: str, path: str) -> _Item:
        """`holder` with its arguments, in field `name`, as they were generated."""
        for call in reversed(self._seen.calls.get(plain_id(identity), ())):
            if name not in holder or call.name != holder.get("name"):
                continue
            better = generated(call, holder[name])
            if better is not None:
                self.notes.append(f"{path}.{name} is sent as it was generated")
                return {**holder, name: better}
        return holder


def generated(call: ToolCall, replayed: Any) -> Any:
    """What was generated, in the form of `replayed`; None where that is it, or says something else."""
    try:
        wrote = json.loads(call.arguments)
        came = json.loads(replayed) if isinstance(replayed, str) else replayed
    except (ValueError, RecursionError):
        return None
    if not isinstance(wrote, dict) or not isinstance(came, dict):
        return None
    extra = [came[key] for key in came if key not in wrote]
    if not all(_is_default(value) for value in extra):
        return None
    if not all(key in came and same(value, came[key]) for key, value in wrote.items()):
        return None
    if isinstance(replayed, str):
        return call.arguments if call.exact and call.arguments != replayed else None
    return None if json.dumps(wrote) == json.dumps(came) else wrote


def _is_default(value: Any) -> bool:
    return any(type(value) is type(one) and value == one for one in _DEFAULTS)


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values say the same, whatever the order of keys and however numbers are written."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)
