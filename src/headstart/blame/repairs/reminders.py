"""Puts a system reminder back that an agent took out of an earlier message and put into a later one."""

from __future__ import annotations

from typing import Any

from headstart.blame.exchange import Dialect
from headstart.blame.repairs.seen import Seen, messages_key, objects, with_item

_OPEN, _CLOSE = "<system-reminder>", "</system-reminder>"


def apply(dialect: Dialect, body: Any, seen: Seen) -> tuple[Any, tuple[str, ...]]:
    """A reminder is a text block of its own, from tag to tag: what the user said is never in one."""
    if not isinstance(seen.before, dict):
        return body, ()
    notes: list[str] = []
    key = messages_key(body)
    for place, message in objects(seen.before.get(key)):
        now = body.get(key)
        if not isinstance(now, list) or place >= len(now) or not isinstance(now[place], dict):
            break
        if now[place].get("role") != message.get("role"):
            break
        body = _put_back(body, key, place, message, notes)
    return body, tuple(notes)


def is_reminder(block: Any) -> bool:
    """Whether a block is a reminder and nothing else."""
    text = block.get("text") if isinstance(block, dict) else None
    if not isinstance(text, str):
        return False
    inner = text.strip()
    return inner.startswith(_OPEN) and inner.endswith(_CLOSE) and inner.count(_OPEN) == 1


def blocks(content: Any) -> list[Any]:
    """Content as blocks; a text is one."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content) if isinstance(content, list) else []


def _put_back(body: Any, key: str, place: int, before: dict[str, Any], notes: list[str]) -> Any:
    old, new = blocks(before.get("content")), blocks(body[key][place].get("content"))
    for index, block in enumerate(old):
        if not is_reminder(block) or _index(new, block) is not None:
            continue
        rest = [one for one in old if not is_reminder(one)]
        if not _same(rest, [one for one in new if not is_reminder(one)]):
            break
        found = _later(body[key], place, block)
        if found is None:
            continue
        message, at = found
        later = body[key][message]
        moved = [one for n, one in enumerate(later["content"]) if n != at]
        new = [*new[:index], {"type": "text", "text": block["text"]}, *new[index:]]
        messages = with_item(body[key], message, {**later, "content": moved})
        messages = with_item(messages, place, {**messages[place], "content": new})
        body = {**body, key: messages}
        notes.append(f"moved the reminder at {key}[{message}] back to {key}[{place}].content[{index}]")
    return body


def _later(messages: list[Any], place: int, block: dict[str, Any]) -> tuple[int, int] | None:
    """Where the same reminder stands in a later message that says more than that."""
    for index, message in objects(messages):
        if index > place and isinstance(message.get("content"), list):
            at = _index(message["content"], block)
            if at is not None and len(message["content"]) > 1:
                return index, at
    return None


def _index(found: list[Any], block: dict[str, Any]) -> int | None:
    return next((n for n, one in enumerate(found) if _said(one) == _said(block)), None)


def _same(one: list[Any], other: list[Any]) -> bool:
    return [_said(block) for block in one] == [_said(block) for block in other]


def _said(block: Any) -> Any:
    """A block without its cache marker, which may move and says nothing."""
    if not isinstance(block, dict):
        return block
    return {name: value for name, value in block.items() if name != "cache_control"}
