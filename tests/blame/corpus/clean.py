"""Sessions in which nobody is to be blamed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headstart.blame.exchange import Exchange, Reply, Usage
from tests.blame.corpus.agents import STEPS, Parts, Result, Said, User, counted, play, silent
from tests.blame.corpus.history import CHAT, CLAUDE, ITEMS, OLLAMA
from tests.blame.corpus.server import TITLE

MARK = {"type": "ephemeral"}


def patched(change: Callable[[dict[str, Any], int], None], dialect: Any = CLAUDE) -> list[Exchange]:
    """A session whose bodies are each changed by number."""
    sent = play(dialect)
    for one in sent:
        change(one.body, one.number)
    return sent


def marked_last(body: dict[str, Any], number: int) -> None:
    """The cache marker stands on the last block of every request, and on two system blocks."""
    body["system"][0]["cache_control"] = MARK
    body["tools"][-1]["cache_control"] = MARK
    body["messages"][-1]["content"][-1]["cache_control"] = MARK


def text_or_block(body: dict[str, Any], number: int) -> None:
    """What is last is a block; what was last is a string again."""
    for message in body["messages"][:-1]:
        content = message["content"]
        if len(content) == 1 and content[0]["type"] == "text":
            message["content"] = content[0]["text"]


def result_blocks(body: dict[str, Any], number: int) -> None:
    """Tool results come as a list of one text, or as a string, by turns."""
    for message in body["messages"]:
        if message["role"] == "tool" and number % 2:
            message["content"] = [{"type": "text", "text": message["content"]}]


def empty_or_null(body: dict[str, Any], number: int) -> None:
    for message in body["messages"]:
        if message["role"] == "assistant" and not message["content"]:
            message["content"] = "" if number % 2 else None


def other_ids(body: dict[str, Any], number: int) -> None:
    for message in body["messages"]:
        for call in message.get("tool_calls", ()):
            call["id"] = f"{call['id'].replace('_', '')}{number}"
        if "tool_call_id" in message:
            message["tool_call_id"] = f"{message['tool_call_id'].replace('_', '')}{number}"


def item_ids(body: dict[str, Any], number: int) -> None:
    for index, item in enumerate(body["input"]):
        item["id"] = f"msg_{number:04x}-{index:04x}"
        item["status"] = "completed" if number % 2 else None
    body["client_metadata"] = {"turn": f"{number}"}
    body["prompt_cache_key"] = "3f1c"


def sampling(body: dict[str, Any], number: int) -> None:
    body |= {
        "temperature": number / 10,
        "max_completion_tokens": 1000 * number,
        "seed": number,
        "stream": number > 1,
    }
    body["metadata"] = {"user_id": f"someone-{number}"}


def signatures(body: dict[str, Any], number: int) -> None:
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] == "thinking":
                block["signature"] = f"c2ln{number}"
    body["output_config"] = {"effort": "medium"}


def results_in_their_own_order() -> list[Exchange]:
    """Two results come in the order in which they were done."""
    steps = [*STEPS[:4], STEPS[5], STEPS[4], *STEPS[6:]]
    return play(CLAUDE, parts=Parts(steps=steps))


def arguments_as_objects() -> list[Exchange]:
    """The model wrote arguments with spaces; the API carries objects, so nothing was lost."""
    sent = play(CLAUDE)
    spaced = [
        replace(
            one,
            reply=replace(
                one.reply,
                calls=tuple(
                    replace(call, arguments=json.dumps(json.loads(call.arguments), separators=(",", ":")))
                    for call in one.reply.calls
                ),
            ),
        )
        for one in sent
    ]
    return silent(spaced)


def trimmed_but_reused() -> list[Exchange]:
    """The reply's last line end is trimmed, and the template trims it too: nothing was read again."""
    sent = play(CHAT)
    return [replace(one, reply=replace(one.reply, text=one.reply.text + "\n")) for one in sent]


def gone_back() -> list[Exchange]:
    """The user goes back to an earlier turn and asks it again."""
    sent = play(CHAT, requests=4)
    again = replace(sent[1], number=5, body=copy.deepcopy(sent[1].body))
    return [*sent, replace(again, usage=Usage(sent[1].usage.prompt, (sent[1].usage.prompt or 0) - 1, 20))]


def blocks_of_the_server() -> list[Exchange]:
    """Paged by 16 tokens, and some tokens are always read again."""
    sent = play(OLLAMA)
    return counted(sent, {one.number: (one.usage.cached or 0) // 16 * 16 for one in sent})


def title_first() -> list[Exchange]:
    sent = [replace(one, number=one.number + 1) for one in play(CHAT)]
    title = Exchange(
        1, 999.0, CHAT, "/v1/chat/completions", copy.deepcopy(TITLE), Reply("Counter"), status=200
    )
    return [replace(title, usage=Usage(40, 0, 4)), *sent]


def two_sessions() -> list[Exchange]:
    """Two unlike conversations by turns on a server with room for both."""
    other = [
        User("Which stamps are the oldest?"),
        Said("The blue ones, from 1861."),
        User("And the red ones?"),
        Said("From 1870 on."),
    ]
    one, two = (
        play(CHAT, requests=2),
        play(CHAT, parts=Parts(system=["Short answers."], tools=[], steps=other)),
    )
    order = [one[0], two[0], one[1], two[1]]
    return [replace(exchange, number=index + 1) for index, exchange in enumerate(order)]


def failed_once() -> list[Exchange]:
    """The server was busy; the client asked again."""
    sent = play(CHAT)
    busy = replace(sent[2], number=3, status=503, reply=Reply(), usage=Usage(), error="busy")
    return [*sent[:2], busy, *(replace(one, number=one.number + 1) for one in sent[2:])]


def media() -> list[Exchange]:
    """A picture in the first message, sent as it was every time; its detail is not rendered."""

    def patch(body: dict[str, Any], number: int) -> None:
        first = body["messages"][1]
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        first["content"] = [{"type": "text", "text": first["content"]}, picture]

    return patched(patch, CHAT)


def stamps_that_stay() -> list[Exchange]:
    """Every user message has a stamp of its own, and keeps it."""
    steps = [
        replace(step, text=f"[Mon 2026-11-30 14:{31 + place} UTC] {step.text}")
        if isinstance(step, User)
        else step
        for place, step in enumerate(STEPS)
    ]
    return play(CHAT, parts=Parts(steps=steps))


def budgets_that_stay() -> list[Exchange]:
    steps = [
        Result(step.id, f"{step.text}<total_tokens>{15_000_000 - 977 * place} tokens left</total_tokens>")
        if isinstance(step, Result)
        else step
        for place, step in enumerate(STEPS)
    ]
    return play(CLAUDE, parts=Parts(steps=steps))


def unread() -> list[Exchange]:
    """Bodies that are not kept, or are no JSON objects."""
    sent = play(CHAT, requests=2)
    broken = [
        replace(sent[0], number=number, body=body)
        for number, body in ((3, None), (4, [1]), (5, {"messages": 7}))
    ]
    return [*sent, *broken]


CLEAN: dict[str, Callable[[], list[Exchange]]] = {
    "appended, chat": lambda: play(CHAT),
    "appended, Anthropic": lambda: play(CLAUDE),
    "appended, responses": lambda: play(ITEMS),
    "appended, Ollama": lambda: play(OLLAMA),
    "appended, no counts": lambda: silent(play(CHAT)),
    "cache marker moves": lambda: patched(marked_last),
    "string or block": lambda: patched(text_or_block),
    "results as blocks or strings": lambda: patched(result_blocks, CHAT),
    "content empty or null": lambda: patched(empty_or_null, CHAT),
    "other call ids": lambda: patched(other_ids, CHAT),
    "other item ids": lambda: patched(item_ids, ITEMS),
    "other sampling": lambda: patched(sampling, CHAT),
    "other signatures": lambda: patched(signatures),
    "results in their own order": results_in_their_own_order,
    "arguments as objects": arguments_as_objects,
    "trimmed but reused": trimmed_but_reused,
    "gone back": gone_back,
    "blocks of 16": blocks_of_the_server,
    "title first": title_first,
    "two sessions": two_sessions,
    "failed once": failed_once,
    "a picture": media,
    "stamps that stay": stamps_that_stay,
    "budgets that stay": budgets_that_stay,
    "bodies that cannot be read": unread,
}
