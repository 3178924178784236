"""Made-up agents: a session told in the shapes of four APIs, and a server that reuses all it can.

A session is a list of steps: what the user says, what the model says, what tools return. Whenever the next
step is the model's, a request is sent with all steps before it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headstart.blame.bodies import prompt_of
from headstart.blame.diff import common_length
from headstart.blame.exchange import Dialect, Exchange, Reply, Timing, ToolCall, Usage
from headstart.blame.generated import as_generated
from headstart.blame.prompt import Prompt

CHARS_PER_TOKEN = 4
TOKENS_PER_SECOND = 500.0

SYSTEM = (
    "You are a coding helper in a terminal. Read before you edit, keep changes small and say what you did.\n"
    "Never touch files outside the project. Ask when a task can be read in two ways.\n"
    + "".join(
        f"Rule {number}: prefer plain words, short lines and one purpose a function.\n"
        for number in range(12)
    )
    + "<env>\nWorking directory: /home/mia/parcel\nPlatform: linux\nToday's date: Mon Nov 30 2026\n</env>\n"
    "Answer in the language of the question."
)


@dataclass(frozen=True)
class User:
    text: str


@dataclass(frozen=True)
class Said:
    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    thinking: str = ""


@dataclass(frozen=True)
class Result:
    id: str
    text: str


@dataclass(frozen=True)
class System:
    """A system message among the others."""

    text: str


Step = User | Said | Result | System


def schema(name: str, about: str, **properties: str) -> dict[str, Any]:
    fields = {key: {"type": kind, "description": f"the {key}"} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": fields, "required": list(fields)}
    return {"name": name, "description": about, "parameters": parameters}


TOOLS = [
    schema("look", "Reads a file and numbers its lines.", path="string", offset="integer", limit="integer"),
    schema("change", "Replaces text in a file.", path="string", old="string", new="string"),
    schema("shell", "Runs a command and returns what it prints.", command="string", seconds="integer"),
]

FILE = "".join(f"{line}\tdef step_{line}(parcel):  # weighs, sorts and stamps it\n" for line in range(1, 60))

STEPS: list[Step] = [
    User("The parcel counter is off by one when the belt stops. Find out why and mend it, please."),
    Said(
        "I read the counter first.",
        (("call_a1", "look", '{"path": "belt/counter.py", "offset": 1, "limit": 60}'),),
        "The counter probably adds before it checks the belt, so reading it shows the order of both.",
    ),
    Result("call_a1", FILE),
    Said(
        "",
        (
            ("call_b1", "look", '{"path": "belt/stop.py", "offset": 1, "limit": 20}'),
            ("call_b2", "shell", '{"command": "grep -rn count belt", "seconds": 10}'),
        ),
        "Two places could stop the belt; both are worth a look at the same time.",
    ),
    Result("call_b1", "1\tdef stop(belt):\n2\t    belt.running = False\n3\t    belt.count += 1\n" * 8),
    Result("call_b2", "belt/counter.py:12: count += 1\nbelt/stop.py:3: belt.count += 1\n" * 6),
    Said(
        "The stop adds one of its own. I take that out.",
        (("call_c1", "change", '{"path": "belt/stop.py", "old": "belt.count += 1", "new": "pass"}'),),
        "Stopping must not count. The line in stop.py has to go and nothing else needs to change.",
    ),
    Result("call_c1", "changed 1 line in belt/stop.py"),
    Said("Done: stopping the belt no longer counts a parcel.", (), "All that is left is to say so."),
    User("Good. Now write a test for it that stops the belt twice and counts three parcels."),
    Said(
        "I write the test beside the others.",
        (("call_d1", "change", '{"path": "tests/test_stop.py", "old": "", "new": "def test_stop(): ..."}'),),
        "A test file for stops does not exist yet, so it is made.",
    ),
    Result("call_d1", "made tests/test_stop.py"),
    Said("The test is there and passes.", (), "Short answer."),
]


@dataclass
class Parts:
    """What a request is made of; a case changes it from some request on."""

    system: list[str] = field(default_factory=lambda: [SYSTEM])
    tools: list[dict[str, Any]] = field(default_factory=lambda: copy.deepcopy(TOOLS))
    steps: list[Step] = field(default_factory=lambda: list(STEPS))
    model: str = "local-model"
    top: dict[str, Any] = field(default_factory=dict)
    patch: Callable[[dict[str, Any]], None] = lambda body: None


Change = Callable[[Parts], None]


def play(
    dialect: Dialect = Dialect.OPENAI_CHAT,
    changes: Mapping[int, Change] | None = None,
    *,
    parts: Parts | None = None,
    requests: int = 6,
    **fields: Any,
) -> list[Exchange]:
    """The session's first requests. `changes`: what is changed before which request, from 1, and stays so."""
    now = parts or Parts()
    sent: list[Exchange] = []
    length = len(now.steps)
    for place, step in enumerate(list(now.steps)):
        if not isinstance(step, Said) or len(sent) == requests:
            continue
        number = len(sent) + 1
        if changes and number in changes:
            changes[number](now)
        body = body_of(dialect, replace(now, steps=now.steps[: place + len(now.steps) - length]))
        now.patch(body)
        reply = reply_of(step, dialect)
        sent.append(
            Exchange(number, 1000.0 + number, dialect, PATHS[dialect], body, reply, status=200, **fields)
        )
    return measured(sent)


PATHS = {
    Dialect.OPENAI_CHAT: "/v1/chat/completions",
    Dialect.OPENAI_COMPLETIONS: "/v1/completions",
    Dialect.OPENAI_RESPONSES: "/v1/responses",
    Dialect.ANTHROPIC: "/v1/messages?beta=true",
    Dialect.OLLAMA_CHAT: "/api/chat",
    Dialect.OLLAMA_GENERATE: "/api/generate",
}


def reply_of(step: Said, dialect: Dialect) -> Reply:
    thinking = "" if dialect is Dialect.OLLAMA_CHAT else step.thinking
    calls = tuple(ToolCall(id, name, text) for id, name, text in step.calls)
    return Reply(step.text, thinking, calls, "tool_calls" if calls else "stop")


def body_of(dialect: Dialect, parts: Parts) -> dict[str, Any]:
    makers = {
        Dialect.OPENAI_CHAT: _chat,
        Dialect.ANTHROPIC: _claude,
        Dialect.OPENAI_RESPONSES: _responses,
        Dialect.OLLAMA_CHAT: _ollama,
    }
    body: dict[str, Any] = {"model": parts.model, "stream": True, **makers[dialect](parts), **parts.top}
    return body


def _chat(parts: Parts) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": text} for text in parts.system]
    for step in parts.steps:
        if isinstance(step, Said):
            message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
            if step.thinking:
                message["reasoning_content"] = step.thinking
            if step.calls:
                message["tool_calls"] = [
                    {"id": id, "type": "function", "function": {"name": name, "arguments": text}}
                    for id, name, text in step.calls
                ]
            messages.append(message)
        elif isinstance(step, Result):
            messages.append({"role": "tool", "tool_call_id": step.id, "content": step.text})
        else:
            messages.append({"role": "user" if isinstance(step, User) else "system", "content": step.text})
    tools = [{"type": "function", "function": tool} for tool in parts.tools]
    return {"messages": messages, "max_completion_tokens": 4096} | ({"tools": tools} if tools else {})


def _claude(parts: Parts) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for step in parts.steps:
        if isinstance(step, Said):
            blocks: list[dict[str, Any]] = []
            if step.thinking:
                blocks.append({"type": "thinking", "thinking": step.thinking, "signature": "c2lnbmVk"})
            if step.text:
                blocks.append({"type": "text", "text": step.text})
            blocks += [
                {"type": "tool_use", "id": id, "name": name, "input": json.loads(text)}
                for id, name, text in step.calls
            ]
            messages.append({"role": "assistant", "content": blocks})
        elif isinstance(step, Result):
            block = {"type": "tool_result", "tool_use_id": step.id, "content": step.text}
            if messages[-1]["role"] == "user" and isinstance(messages[-1]["content"], list):
                messages[-1]["content"].append(block)
            else:
                messages.append({"role": "user", "content": [block]})
        else:
            role = "user" if isinstance(step, User) else "system"
            messages.append({"role": role, "content": [{"type": "text", "text": step.text}]})
    tools = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
        for tool in parts.tools
    ]
    system = [{"type": "text", "text": text} for text in parts.system]
    return {"system": system, "tools": tools, "messages": messages, "max_tokens": 32000}


def _responses(parts: Parts) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for step in parts.steps:
        if isinstance(step, Said):
            if step.thinking:
                content = [{"type": "reasoning_text", "text": step.thinking}]
                items.append(
                    {"type": "reasoning", "summary": [], "content": content, "encrypted_content": "eHg="}
                )
            if step.text:
                items.append({"role": "assistant", "content": [{"type": "output_text", "text": step.text}]})
            items += [
                {"type": "function_call", "call_id": id, "name": name, "arguments": text}
                for id, name, text in step.calls
            ]
        elif isinstance(step, Result):
            items.append({"type": "function_call_output", "call_id": step.id, "output": step.text})
        else:
            role = "user" if isinstance(step, User) else "developer"
            content = [{"type": "input_text", "text": step.text}]
            items.append({"type": "message", "role": role, "content": content})
    tools = [{"type": "function", **tool, "strict": False} for tool in parts.tools]
    return {"instructions": "\n".join(parts.system), "tools": tools, "input": items, "store": False}


def _ollama(parts: Parts) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": text} for text in parts.system]
    names = {}
    for step in parts.steps:
        if isinstance(step, Said):
            message: dict[str, Any] = {"role": "assistant", "content": step.text}
            if step.calls:
                message["tool_calls"] = [
                    {"function": {"name": name, "arguments": json.loads(text)}}
                    for _, name, text in step.calls
                ]
                names |= {id: name for id, name, _ in step.calls}
            messages.append(message)
        elif isinstance(step, Result):
            messages.append({"role": "tool", "tool_name": names.get(step.id, ""), "content": step.text})
        else:
            messages.append({"role": "user" if isinstance(step, User) else "system", "content": step.text})
    tools = [{"type": "function", "function": tool} for tool in parts.tools]
    return {"messages": messages, "tools": tools, "options": {}, "think": False, "truncate": False}


def flat(exchange: Exchange) -> str:
    """A prompt as one text, with a mark for every piece."""
    return rendered(prompt_of(exchange.dialect, exchange.body))


def rendered(prompt: Prompt) -> str:
    return "".join(f"\x01{piece.kind}{piece.role}{piece.name}\x02{piece.text}" for piece in prompt.pieces)


def said(reply: Reply) -> int:
    return len(reply.text) + len(reply.thinking) + sum(len(call.arguments) for call in reply.calls)


def measured(sent: list[Exchange]) -> list[Exchange]:
    """With the counts of a server that keeps every prompt and resumes at the token where prompts part."""
    known: list[tuple[str, str]] = []
    found = []
    for exchange in sent:
        text, model = flat(exchange), exchange.body.get("model", "")
        shared = max((common_length(text, old) for old, its in known if its == model), default=0)
        prompt, cached = len(text) // CHARS_PER_TOKEN, min(shared, len(text) - 1) // CHARS_PER_TOKEN
        usage = Usage(prompt, cached, said(exchange.reply) // CHARS_PER_TOKEN)
        timing = Timing(first_token=(prompt - cached) / TOKENS_PER_SECOND + 0.01)
        found.append(replace(exchange, usage=usage, timing=timing))
        generated = as_generated(prompt_of(exchange.dialect, exchange.body), exchange.reply)
        known.append((rendered(generated), model))
    return found


def counted(sent: list[Exchange], cached: Mapping[int, int | None]) -> list[Exchange]:
    """With other reused counts for some exchanges, by number."""
    found = []
    for exchange in sent:
        usage = exchange.usage
        if exchange.number in cached:
            usage = replace(usage, cached=cached[exchange.number])
        found.append(replace(exchange, usage=usage))
    return found


def silent(sent: list[Exchange]) -> list[Exchange]:
    """As a server tells it that counts nothing."""
    return [replace(exchange, usage=Usage(), timing=Timing()) for exchange in sent]
