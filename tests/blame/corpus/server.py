"""Bodies that only go on, and a server that reads again nevertheless."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from headstart.blame.exchange import Exchange, Reply, Timing, Usage
from tests.blame.corpus.agents import STEPS, Parts, System, counted, play
from tests.blame.corpus.case import Case
from tests.blame.corpus.history import CHAT, CLAUDE, OLLAMA, inserted

TITLE = {
    "model": "local-model",
    "messages": [
        {"role": "system", "content": "You write a title of at most six words for a conversation."},
        {"role": "user", "content": "The parcel counter is off by one."},
    ],
}


def scaled(sent: list[Exchange], factor: int) -> list[Exchange]:
    """The same session as if every text were longer."""
    found = []
    for one in sent:
        usage = Usage(
            *((value or 0) * factor for value in (one.usage.prompt, one.usage.cached, one.usage.completion))
        )
        found.append(replace(one, usage=usage))
    return found


def resuming_at(step: int, less: int, *numbers: int) -> list[Exchange]:
    """A server that can only go back to multiples of `step`."""
    sent = scaled(play(CHAT), 20)
    lower = {one.number: max(0, (one.usage.cached or 0) // step * step - less) for one in sent}
    return counted(
        sent, {number: value for number, value in lower.items() if not numbers or number in numbers}
    )


def loaded(number: int, seconds: float, **options: Any) -> list[Exchange]:
    def patch(body: dict[str, Any]) -> None:
        body["options"] = dict(options)

    sent = play(OLLAMA, {number: lambda parts: setattr(parts, "patch", patch)} if options else None)
    sent = counted(sent, {number: 0})
    return [
        replace(one, timing=replace(one.timing, load=seconds if one.number == number else 0.03))
        for one in sent
    ]


def between(*numbers: int) -> list[Exchange]:
    """A session with a title request put before these turns, and what the server then still had: nothing."""
    sent: list[Exchange] = []
    lost = set()
    for one in play(CHAT):
        if one.number in numbers:
            side = Exchange(
                len(sent) + 1,
                one.started,
                CHAT,
                one.path,
                copy.deepcopy(TITLE),
                Reply("Off by one"),
                status=200,
            )
            sent.append(replace(side, usage=Usage(30, 0, 5)))
        sent.append(replace(one, number=len(sent) + 1))
        if one.number in numbers:
            lost.add(len(sent))
    return counted(sent, dict.fromkeys(lost, 3))


def two_conversations() -> list[Exchange]:
    """Two agents take turns on one slot; the one that comes back finds nothing but the common head."""
    one = play(CHAT, requests=3)
    other = play(
        CHAT,
        requests=2,
        parts=Parts(
            system=["You sort letters by the colour of their stamps."],
            steps=[
                replace(STEPS[0], text="Sort the letters on the desk, the red stamps first."),
                *STEPS[1:],  # type: ignore[type-var]
            ],
        ),
    )
    order = [one[0], one[1], other[0], one[2], other[1]]
    sent = [replace(exchange, number=index + 1) for index, exchange in enumerate(order)]
    return counted(sent, {4: 20, 5: 20})


def cut(to: int, number: int = 5) -> list[Exchange]:
    """The server cuts prompts down to so many tokens."""
    found = []
    for one in play(OLLAMA):
        usage = one.usage
        if one.number >= number:
            usage = Usage(to, 5, usage.completion)
        found.append(replace(one, usage=usage))
    return found


def cut_to_half() -> list[Exchange]:
    def patch(body: dict[str, Any]) -> None:
        body["options"] = {"num_ctx": 2048}

    sent = play(OLLAMA, parts=Parts(patch=patch))
    return [replace(one, usage=Usage(1026, 0, 20)) if one.number >= 4 else one for one in sent]


def template_hoists() -> list[Exchange]:
    """A system message comes in late, and the template renders it first."""
    note = System("From now on answer in one sentence.")
    return counted(play(CHAT, {5: inserted(9, note)}), {5: 8})


def template_hoists_claude() -> list[Exchange]:
    note = System("The user has opened another file in the editor.")
    return counted(play(CLAUDE, {4: inserted(8, note)}, requests=4), {4: 0})


def late_change_and_reload() -> list[Exchange]:
    """The reply came back otherwise, but it is the reload that cost everything."""
    sent = loaded(4, 6.2)
    return [
        replace(one, reply=replace(one.reply, text="Other words.")) if one.number == 3 else one
        for one in sent
    ]


def other_request_between(**fields: Any) -> list[Exchange]:
    sent = [replace(one, number=one.number + (one.number > 3)) for one in play(OLLAMA)]
    body: dict[str, Any] = {
        "model": "local-model",
        "messages": [{"role": "user", "content": "Suggest a title for this chat."}],
    }
    body |= fields
    side = Exchange(4, 1003.5, OLLAMA, "/api/chat", body, Reply("Belts"), status=200)
    sent.insert(3, replace(side, usage=Usage(12, 0, 4)))
    sent = counted(sent, {5: 0})
    return [
        replace(one, timing=Timing(first_token=1.0, load=4.4 if one.number == 5 else 0.02)) for one in sent
    ]


CASES = [
    Case("blocks of 2,048", "SERVER_GAP", 5, lambda: resuming_at(2048, 0), said="multiples of 2,048"),
    Case(
        "steps of 8,192 less one",
        "SERVER_GAP",
        4,
        lambda: resuming_at(8192, 1),
        said="8,192 tokens, less one",
    ),
    Case("one turn without a restore point", "SERVER_GAP", 5, lambda: resuming_at(4096, 0, 5)),
    Case(
        "nothing is ever reused",
        "SERVER_NEVER_HITS",
        3,
        lambda: counted(play(CHAT), dict.fromkeys(range(1, 7), 0)),
    ),
    Case(
        "nothing is ever reused, Anthropic",
        "SERVER_NEVER_HITS",
        6,
        lambda: counted(play(CLAUDE), dict.fromkeys(range(1, 7), 0)),
    ),
    Case("loaded anew", "CONTEXT_RELOADED", 4, lambda: loaded(4, 7.5), said="7.5 s"),
    Case(
        "another context length",
        "CONTEXT_RELOADED",
        3,
        lambda: loaded(3, 5.0, num_ctx=16384),
        said="the server's -> 16384",
    ),
    Case("loaded anew and the reply changed", "CONTEXT_RELOADED", 4, late_change_and_reload),
    Case(
        "another model in between",
        "CONTEXT_RELOADED",
        5,
        lambda: other_request_between(model="small-model"),
        said="small-model was used",
    ),
    Case(
        "another context length in between",
        "CONTEXT_RELOADED",
        5,
        lambda: other_request_between(options={"num_ctx": 16384}),
        said="asked for a context of 16384",
    ),
    Case("cut in the middle of a session", "TRUNCATED", 5, lambda: cut(700)),
    Case("cut to half of the context", "TRUNCATED", 5, cut_to_half, said="half of num_ctx 2,048"),
    Case("title before turn 4", "SIDE_REQUEST_EVICTED", 5, lambda: between(4), said="request 4"),
    Case("titles before turns 3 and 5", "SIDE_REQUEST_EVICTED", 4, lambda: between(3, 5)),
    Case("two agents on one slot", "SIDE_REQUEST_EVICTED", 4, two_conversations),
    Case("system message rendered first", "SYSTEM_HOISTED", 5, template_hoists),
    Case("system message rendered first, Anthropic", "SYSTEM_HOISTED", 4, template_hoists_claude),
]
