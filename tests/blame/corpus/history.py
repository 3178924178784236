"""What changes in messages that were sent or generated before."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from headstart.blame.exchange import Dialect, Exchange, Reply, Usage
from tests.blame.corpus.agents import (
    FILE,
    STEPS,
    Change,
    Parts,
    Result,
    Said,
    Step,
    User,
    play,
    silent,
)

CHAT, CLAUDE, ITEMS, OLLAMA = (
    Dialect.OPENAI_CHAT,
    Dialect.ANTHROPIC,
    Dialect.OPENAI_RESPONSES,
    Dialect.OLLAMA_CHAT,
)
REMINDER = "<system-reminder>\nThe plan has three open points. Keep it up to date.\n</system-reminder>"
LISTING = "These skills can be used: belts (mend a belt), stamps (print a stamp), scales (weigh a parcel)."
TAIL = "<<<BEGIN_GATE_INTERNAL>>> channel=desk; default_model=local/local-model <<<END>>>"


def edited(place: int, change: Callable[[Any], Step]) -> Change:
    """One step told otherwise."""

    def apply(parts: Parts) -> None:
        parts.steps[place] = change(parts.steps[place])

    return apply


def text(change: Callable[[str], str]) -> Callable[[Any], Step]:
    return lambda step: replace(step, text=change(step.text))


def called(*arguments: str) -> Callable[[Any], Step]:
    """The same calls with other arguments."""

    def change(step: Said) -> Step:
        pairs = zip(step.calls, arguments, strict=True)
        return replace(step, calls=tuple((id, name, text) for (id, name, _), text in pairs))

    return change


def inserted(place: int, *steps: Step) -> Change:
    def apply(parts: Parts) -> None:
        parts.steps[place:place] = list(steps)

    return apply


def dropped(*places: int) -> Change:
    def apply(parts: Parts) -> None:
        for place in sorted(places, reverse=True):
            del parts.steps[place]

    return apply


def with_steps(*changes: Change) -> Parts:
    parts = Parts()
    for change in changes:
        change(parts)
    return parts


def prefixed(note: str) -> Change:
    return edited(0, text(lambda old: f"{note}\n{old}"))


def budget_in_result(left: str) -> Change:
    return edited(2, lambda step: Result(step.id, f"{FILE}<total_tokens>{left} tokens left</total_tokens>"))


def generated_otherwise(dialect: Dialect, number: int, change: Callable[[Reply], Reply]) -> list[Exchange]:
    """The client sends back what the session says; the model had said it otherwise."""
    sent = play(dialect)
    cached = (sent[number - 1].usage.prompt or 0) - 2
    sent[number - 1] = replace(sent[number - 1], reply=change(sent[number - 1].reply))
    sent[number] = replace(sent[number], usage=replace(sent[number].usage, cached=cached))
    return sent


def spaced(reply: Reply) -> Reply:
    calls = tuple(
        replace(call, arguments=call.arguments.replace('{"', '{ "').replace('":', '" :'))
        for call in reply.calls
    )
    return replace(reply, calls=calls)


def shuffled(reply: Reply) -> Reply:
    """As a model wrote an edit: new text before old, path last."""
    call = reply.calls[0]
    given = json.loads(call.arguments)
    again = json.dumps({key: given[key] for key in reversed(given)})
    return replace(reply, calls=(replace(call, arguments=again), *reply.calls[1:]))


def moved_reminder() -> list[Exchange]:
    """The reminder is always put before the newest user message's text."""

    def put(place: int) -> Change:
        def apply(parts: Parts) -> None:
            parts.steps = [step for step in parts.steps if getattr(step, "text", "") != REMINDER]
            parts.steps.insert(place, User(REMINDER))

        return apply

    return play(CLAUDE, {6: put(10)}, parts=with_steps(put(1)))


def tail_block() -> list[Exchange]:
    """A message of the gateway's that ends every request and is kept in none."""

    def patch(body: dict[str, Any]) -> None:
        body["messages"].append({"role": "user", "content": [{"type": "text", "text": TAIL}]})

    return play(CHAT, parts=Parts(patch=patch), requests=3)


def files_before_last() -> list[Exchange]:
    """Files stand behind the history and before the newest words."""
    files = "I added these files to the chat:\nbelt/stop.py\n" + FILE[:600]

    def patch(body: dict[str, Any]) -> None:
        last = body["messages"].pop()
        body["messages"] += [
            {"role": "user", "content": files},
            {"role": "assistant", "content": "Ok."},
            last,
        ]

    steps: list[Step] = [
        User("Why does the belt count one too many?"),
        Said("Because the stop counts as well."),
        User("Then list the functions in stop.py."),
        Said("There is one: stop."),
    ]
    return play(CHAT, parts=Parts(steps=steps, tools=[], patch=patch))


def listing_moves() -> list[Exchange]:
    """On resume a listing goes from the first message to the newest one, inside their texts."""

    def without(parts: Parts) -> None:
        parts.steps[0] = STEPS[0]
        parts.steps[9] = User(f"{LISTING}\n{STEPS[9].text}")  # type: ignore[union-attr]

    return play(CHAT, {5: without}, parts=with_steps(prefixed(LISTING)))


def aider_map() -> list[Exchange]:
    """A map of the repository before the history, made anew for every request."""
    about = "Some files in short. Before you edit them, ask me to *add them to the chat* first.\n"

    def before(listing: str) -> Change:
        return lambda parts: parts.steps.__setitem__(0, User(about + listing))

    steps: list[Step] = [
        User(about + "calc.py:\n│def add(a, b):\n"),
        Said("Ok."),
        User("Add a greeting to the program."),
        Said("I would put it into app.py."),
        User("Go on."),
        Said("It is in."),
    ]
    return play(
        CHAT, {3: before("app.py:\n│def greet(name):\n│def main():\n")}, parts=Parts(steps=steps, tools=[])
    )


def stub(parts: Parts) -> None:
    parts.steps[2] = Result("call_a1", "[Old tool result content cleared]")


def cut(parts: Parts) -> None:
    parts.steps[2] = Result("call_a1", FILE[:200] + "\n... (truncated)")


def compacted(parts: Parts) -> None:
    """The history is one summary now."""
    parts.steps[:9] = [
        User("What did we do so far?"),
        Said("We found that stopping the belt counted a parcel and took that line out of stop.py."),
    ]


def compacted_keeping_first(parts: Parts) -> None:
    parts.steps[1:9] = [User("Summary of what was done: the stop no longer counts; only a test is missing.")]


def unthought(dialect: Dialect, number: int) -> list[Exchange]:
    """All thinking is left out from some request on."""

    def strip(parts: Parts) -> None:
        parts.steps = [replace(step, thinking="") if isinstance(step, Said) else step for step in parts.steps]

    return play(dialect, {number: strip})


def never_thought(count: bool) -> list[Exchange]:
    """The client keeps no thinking at all, though the model thinks in every turn."""
    steps = [replace(step, thinking="") if isinstance(step, Said) else step for step in STEPS]
    thoughts = [step.thinking for step in STEPS if isinstance(step, Said)]
    sent = play(CHAT, parts=Parts(steps=steps))
    found = [replace(one, reply=replace(one.reply, thinking=thoughts[one.number - 1])) for one in sent]
    if not count:
        return silent(found)
    usage = [
        replace(one.usage, completion=(one.usage.completion or 0) + 60, cached=(before.usage.prompt or 0) - 1)
        for before, one in pairwise(sent)
    ]
    return [found[0], *(replace(one, usage=told) for one, told in zip(found[1:], usage, strict=True))]


def inline_thinking() -> list[Exchange]:
    thought = "<think>The stop adds one. I take it out.</think>\n"
    return play(
        OLLAMA,
        {5: edited(6, text(lambda old: old.replace(thought, "")))},
        parts=Parts(
            steps=[*STEPS[:6], replace(STEPS[6], text=thought + STEPS[6].text), *STEPS[7:]]  # type: ignore[union-attr]
        ),
    )


def blocks(count: int) -> Change:
    """The first user message cut into so many blocks."""

    def patch(body: dict[str, Any]) -> None:
        place = 0 if "system" in body else 1
        whole = STEPS[0].text  # type: ignore[union-attr]
        size = len(whole) // count + 1
        parts = [whole[start : start + size] for start in range(0, len(whole), size)]
        body["messages"][place]["content"] = [{"type": "text", "text": part} for part in parts]

    return lambda parts: setattr(parts, "patch", patch)


def usage_of(sent: list[Exchange], number: int, cached: int) -> list[Exchange]:
    return [
        replace(one, usage=Usage(one.usage.prompt, cached, one.usage.completion))
        if one.number == number
        else one
        for one in sent
    ]
