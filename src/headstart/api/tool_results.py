"""Results of tools and the calls they answer, told apart as each dialect's own server does.

OpenAI's chat completions and Anthropic's Messages take results only right behind the turn that made the
calls, found by their ids, one for each call. OpenAI's Responses take an output anywhere behind its call.
Ollama looks at neither: its clients make ids of their own or none, so a result there is found by id, by the
tool's name, or as the first that is missing.

Many templates write results without their ids, in the order of the messages. So results that stand beside
each other are put in the order of their calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstart.errors import RequestError

__all__ = ["CHAT", "MESSAGES", "OLLAMA", "RESPONSES", "Matching", "matched"]

REORDERED = "tool results: rendered in the order of their calls, which is not the order they came in"
_MOST_NAMED = 80
Message = dict[str, Any]


@dataclass(frozen=True)
class Matching:
    """How a dialect finds the call of a result. `behind_turn`: only among those of the turn it stands behind;
    where `users_end_it`, a message of another role ends that. `once`: a call has one result. `loose`: by name
    or order, too. `missing`, `remedy`: what a result without a call is told."""

    missing: str
    remedy: str
    behind_turn: bool = False
    users_end_it: bool = False
    once: bool = False
    loose: bool = False


CHAT = Matching(
    "the assistant message before the results has no call with the id",
    "put a tool message right behind the assistant message whose tool_calls have its tool_call_id, "
    "or leave it out",
    behind_turn=True,
    users_end_it=True,
    once=True,
)
MESSAGES = Matching(
    "the assistant turn before it has no tool_use block with the id",
    "put a tool_result into the user message right behind the tool_use it answers, or leave it out",
    behind_turn=True,
    once=True,
)
RESPONSES = Matching(
    "no item before it is a call with the call_id",
    "put the function_call item before its output, go on from the response that made the call with "
    "previous_response_id, or leave the output out",
)
OLLAMA = Matching(
    "no call that still waits for a result stands before it:",
    "put a tool message behind the assistant message whose tool_calls it answers, or leave it out",
    loose=True,
)


@dataclass(frozen=True)
class _Call:
    """`number` counts the calls of a conversation."""

    number: int
    id: str
    name: str


class _Open:
    """The calls that a result may answer at one place of a conversation."""

    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self._made = 0
        self._answered: set[int] = set()
        self._behind_results = False
        self.close()

    def close(self) -> None:
        self._by_id: dict[str, deque[_Call]] = {}
        self._by_name: dict[str, deque[_Call]] = {}
        self._in_order: deque[_Call] = deque()

    def message(self, message: Message) -> Message:
        """Takes a message that is no result; gives it back, its calls with ids where those are made up."""
        role = message.get("role")
        if role == "assistant":
            if self._matching.behind_turn and (self._behind_results or self._matching.users_end_it):
                self.close()
            self._behind_results = False
            return self._calls(message)
        if self._matching.users_end_it:
            self.close()
        self._behind_results = self._behind_results or role == "user"
        return message

    def _calls(self, message: Message) -> Message:
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or not calls:
            return message
        kept = [self._call(call) if isinstance(call, Mapping) else call for call in calls]
        return {**message, "tool_calls": kept} if self._matching.loose else message

    def _call(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        function = call.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        given = call.get("id")
        known = given if isinstance(given, str) else ""
        one = _Call(self._made, known or f"call{self._made:05d}", name if isinstance(name, str) else "")
        self._made += 1
        if known or self._matching.loose:
            self._by_id.setdefault(one.id, deque()).append(one)
        self._by_name.setdefault(one.name, deque()).append(one)
        self._in_order.append(one)
        return call if known else {**call, "id": one.id}

    def answered(self, result: Message, place: str) -> _Call:
        """The call of a result. Raises RequestError where there is none."""
        self._behind_results = True
        sought = result.get("tool_call_id")
        call = self._with_id(sought) if isinstance(sought, str) else None
        if call is None and self._matching.loose:
            call = self._likely(result)
        if call is None:
            named = sought if isinstance(sought, str) else _name(result) or "tool"
            raise RequestError(
                f"{place}: {self._matching.missing} {named[:_MOST_NAMED]!r}; {self._matching.remedy}",
                param=place,
            )
        if self._matching.once and call.number in self._answered:
            raise RequestError(
                f"{place}: the call {call.id[:_MOST_NAMED]!r} has a result already; send one for each call",
                param=place,
            )
        self._answered.add(call.number)
        return call

    def _with_id(self, sought: str) -> _Call | None:
        """Of calls with one id the first that is open, or the last."""
        calls = self._by_id.get(sought, deque())
        while len(calls) > 1 and calls[0].number in self._answered:
            calls.popleft()
        return calls[0] if calls else None

    def _likely(self, result: Message) -> _Call | None:
        """The first open call of the result's tool, or the first of all."""
        for calls in (self._by_name.get(_name(result) or "", deque()), self._in_order):
            while calls and calls[0].number in self._answered:
                calls.popleft()
            if calls:
                return calls[0]
        return None


def matched(
    messages: Sequence[Message], places: Sequence[str], matching: Matching
) -> tuple[list[Message], tuple[str, ...]]:
    """`messages` in OpenAI's form with results in the order of their calls, and a sentence where that is
    another order. `places`: where each message came from, for errors. Raises RequestError(400) for a result
    without a call."""
    calls = _Open(matching)
    arranged: list[Message] = []
    run: list[tuple[int, Message]] = []
    moved = False
    for message, place in zip(messages, places, strict=True):
        if message.get("role") == "tool":
            call = calls.answered(message, place)
            run.append((call.number, _named(message, call) if matching.loose else message))
            continue
        moved = _put(run, arranged) or moved
        arranged.append(calls.message(message))
    moved = _put(run, arranged) or moved
    return arranged, (REORDERED,) if moved else ()


def _put(run: list[tuple[int, Message]], arranged: list[Message]) -> bool:
    """Moves a run of results behind `arranged`; whether their order had to change."""
    ordered = sorted(run, key=lambda one: one[0])
    moved = ordered != run
    arranged.extend(message for _, message in ordered)
    run.clear()
    return moved


def _named(result: Message, call: _Call) -> Message:
    """A result with what templates look for in it."""
    return {**result, "tool_call_id": call.id, "name": result.get("name") or call.name}


def _name(result: Message) -> str | None:
    """The tool that a result says it is of."""
    for field in ("tool_name", "name"):
        if isinstance(result.get(field), str) and result[field]:
            return str(result[field])
    return None
