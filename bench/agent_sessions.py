"""Sessions of a coding agent as data: what is sent turn by turn, and what the model replies.

Six sessions over this repository's own source, in the shapes that agents have been seen to send: files read
and edited, several calls at once with results in another order, thoughts, titles and topic checks in between,
a message edited, a request sent again, a history replaced by its summary, a last message that moves. No
dialect is in here; `agent_dialects` writes them down as clients do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent.parent / "src" / "headstart"
SYSTEM = """You are a coding agent in a terminal. Work in small steps: read before you edit, run the
tests after each edit, and say in one sentence what you found. Paths are relative to the repository. Never
invent what stands in a file. When a command fails, read its output before you try again. Keep to the style
of the file that you are in, and leave alone what nobody asked about."""
SIDE_SYSTEM = "You write titles for conversations. Answer with the title alone, in at most six words."
REMINDER = "Reminder: the working tree has changes that are not committed."


@dataclass(frozen=True)
class Call:
    """A call of a tool; `id` ties its result to it."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Message:
    """`role`: system, user, assistant or tool. `call_id`: of a tool's result."""

    role: str
    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str = ""


@dataclass(frozen=True)
class Request:
    """`messages` and `tools` are sent, `reply` is what the model says; `when`: the part of the last message
    that stands in no other. `main`: else a side request."""

    session: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...]
    reply: Message
    when: str
    main: bool = True


def _tool(name: str, what: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"name": name, "description": what, "parameters": schema}


TOOLS = (
    _tool("read_file", "The lines of a file.", path="of the file", lines="first and last, as in 1-40"),
    _tool("edit_file", "Replaces a text in a file.", path="of the file", old="what is there", new="what is"),
    _tool("run", "Runs a command in the repository.", command="with its arguments"),
    _tool("search", "Lines that a regular expression matches.", pattern="the expression", path="a folder"),
)


@dataclass
class Agent:
    """Builds a session; `sent` are its requests. `chars`: of each tool's result."""

    name: str
    chars: int
    thinks: bool = False
    said: list[Message] = field(default_factory=lambda: [Message("system", SYSTEM)])
    sent: list[Request] = field(default_factory=list)
    _results: int = 0

    def user(self, text: str) -> None:
        self.said.append(Message("user", f"{text} ({self.name} {len(self.sent)})"))

    def ask(self, reply: Message, *, last: Message | None = None) -> None:
        """Sends the conversation, with `last` behind it, and takes `reply` into it."""
        messages = (*self.said, *([last] if last else []))
        if self.thinks:
            thinking = f"Step {len(self.sent)}: the last result decides, so that comes first."
            reply = Message(reply.role, reply.text, thinking, reply.calls)
        self.sent.append(Request(self.name, messages, TOOLS, reply, self._when()))
        self.said.append(reply)

    def step(self, *names: str, last: Message | None = None) -> None:
        """The model calls tools; their results come back, the last call's first."""
        calls = tuple(self._call(name, index) for index, name in enumerate(names))
        self.ask(
            Message("assistant", "I look at that next." if len(names) == 1 else "", calls=calls), last=last
        )
        for call in reversed(calls):
            self.said.append(Message("tool", self._result(call), call_id=call.id))

    def answer(self, text: str, last: Message | None = None) -> None:
        self.ask(Message("assistant", text), last=last)

    def aside(self, system: str, text: str, reply: str) -> None:
        """A side request: a prompt of its own, without tools."""
        marked = f"{text} ({self.name} side {len(self.sent)})"
        messages = (Message("system", system), Message("user", marked))
        self.sent.append(
            Request(self.name, messages, (), Message("assistant", reply), marked[-40:], main=False)
        )

    def _call(self, name: str, index: int) -> Call:
        number = len(self.sent)
        path = _files()[(number * 7 + index * 3 + len(self.name)) % len(_files())]
        arguments: dict[str, dict[str, Any]] = {
            "read_file": {"path": path, "lines": f"1-{40 + number}"},
            "edit_file": {"path": path, "old": f"value_{number}", "new": f"value_{number + 1}"},
            "run": {"command": f"python -m pytest -q tests -k step_{number}"},
            "search": {"pattern": f"def .*{number}", "path": "src"},
        }
        return Call(f"call_{self.name}_{number}_{index}", name, arguments[name])

    def _result(self, call: Call) -> str:
        self._results += 1
        head = f"[result {self.name} {self._results}]"
        if call.name == "edit_file":
            return f"{head} the file was changed in one place."
        path = call.arguments.get("path", _files()[self._results % len(_files())])
        text = (SOURCE / path).read_text("utf-8") if (SOURCE / path).is_file() else _everything()
        start = self._results * 731 % max(1, len(text) - self.chars)
        return f"{head} {path}\n{text[start : start + self.chars]}"

    def _when(self) -> str:
        last = self.said[-1].text
        return last[: last.index("]") + 1] if last.startswith("[result") else last[-40:]


def _files() -> list[str]:
    return [
        "errors.py",
        "prefix/plan.py",
        "prefix/tree.py",
        "serving/sampling.py",
        "chat/template.py",
        "api/sse.py",
    ]


def _everything() -> str:
    return "\n".join((SOURCE / path).read_text("utf-8") for path in _files())


def explore(turns: int) -> list[Request]:
    """Long results one after the other: up to 30,000 tokens."""
    agent = Agent("explore", chars=7000)
    agent.user("How does the cache decide where to resume?")
    for _ in range(turns - 1):
        agent.step("read_file")
    agent.answer("It takes the deepest place whose state can be put back exactly.")
    return agent.sent


def fix(turns: int) -> list[Request]:
    """Thoughts, two calls at once, edits and test runs."""
    agent = Agent("fix", chars=1200, thinks=True)
    agent.user("A test of the planner fails since yesterday. Find out why and mend it.")
    kinds = (("read_file", "search"), ("edit_file",), ("run",))
    for turn in range(turns - 1):
        agent.step(*kinds[turn % len(kinds)])
    agent.answer("The bound was off by one; the tests pass now.")
    return agent.sent


def sides(turns: int) -> list[Request]:
    """A title before anything else, a topic check every third turn, a summary at the end."""
    agent = Agent("sides", chars=1000)
    agent.aside(SIDE_SYSTEM, "Title for: tidy up the sampling code", "Tidying the sampling code")
    agent.user("Tidy up the sampling code.")
    for turn in range(turns - 1):
        if turn % 3 == 2:
            agent.aside(SIDE_SYSTEM, f"Is this a new topic: step {turn}?", "No.")
        agent.step("read_file" if turn % 2 else "edit_file")
    agent.answer("It is tidy.")
    agent.aside("You sum up.", "Sum up: the sampling code was tidied.", "The sampling code was tidied.")
    return agent.sent


def rethink(turns: int) -> list[Request]:
    """A request sent again, and a user's message that is edited after the conversation went on."""
    agent = Agent("rethink", chars=900)
    agent.user("Which errors does a client see when the disk is full?")
    agent.step("search")
    agent.sent.append(agent.sent[-1])
    agent.step("read_file")
    agent.user("And in the log?")
    kept = list(agent.said[:-1])
    for _ in range(turns // 2 - 2):
        agent.step("read_file")
    agent.said = kept
    agent.user("And in the metrics, not in the log?")
    for _ in range(turns // 2 - 2):
        agent.step("read_file")
    agent.answer("A counter of refused writes grows.")
    return agent.sent


def compact(turns: int) -> list[Request]:
    """Half-way the history is replaced by its summary."""
    agent = Agent("compact", chars=1400)
    agent.user("Move the template code into a module of its own.")
    for _ in range(turns // 2):
        agent.step("read_file")
    asked = Message("user", f"Sum up the work so far for whoever goes on with it. ({agent.name} sum)")
    summary = Message("assistant", "The template code is found; three functions are to be moved.")
    agent.sent.append(Request(agent.name, (*agent.said, asked), (), summary, asked.text[-40:], main=False))
    agent.said = [*agent.said[:2], summary]
    agent.user("Go on.")
    for _ in range(turns - turns // 2 - 2):
        agent.step("edit_file")
    agent.answer("The module is there.")
    return agent.sent


def moving(turns: int) -> list[Request]:
    """A reminder ends each request and is not in the next one."""
    agent = Agent("moving", chars=1000)
    agent.user("Look for functions without a docstring.")
    last = Message("user", REMINDER)
    for _ in range(turns - 1):
        agent.step("search", last=last)
    agent.answer("There are none.", last=last)
    return agent.sent


SESSIONS: dict[str, Callable[[int], list[Request]]] = {
    "explore": explore,
    "fix": fix,
    "sides": sides,
    "rethink": rethink,
    "compact": compact,
    "moving": moving,
}
TURNS = {"explore": 15, "fix": 24, "sides": 18, "rethink": 18, "compact": 18, "moving": 15}


def sessions(names: Sequence[str], turns: int | None = None) -> Iterator[list[Request]]:
    """The requests of each session, in the order in which they are sent. `turns`: instead of its own."""
    for name in names:
        yield SESSIONS[name](turns or TURNS[name])


def spoken(reply: Message) -> str:
    """A reply as the template's model writes it: thoughts, text, calls as JSON between marks."""
    thinking = f"<think>\n{reply.thinking}\n</think>\n\n" if reply.thinking else ""
    calls = [
        "<tool_call>\n" + json.dumps({"name": call.name, "arguments": call.arguments}) + "\n</tool_call>"
        for call in reply.calls
    ]
    return thinking + "\n".join([*([reply.text] if reply.text else []), *calls])


TEMPLATE = """\
{{- bos_token if bos_first else '' }}
{%- for message in messages -%}
<|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{% if message.role == 'tool' %}<tool_response>
{{ message.content }}
</tool_response>
{%- else %}
{%- if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}
{{- message.content if message.content else '' }}
{%- for call in message.tool_calls or [] %}
{{- '\\n' if message.content or not loop.first else '' }}<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}
{%- if loop.first and tools %}

# Tools
{% for tool in tools %}
{{ tool | tojson }}
{%- endfor %}

Call them as <tool_call>
{"name": NAME, "arguments": ARGUMENTS}
</tool_call>
{%- endif %}
{%- endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""ChatML with calls, results and thoughts, all of them kept."""


def template(model: str) -> str:
    """The template in the turns of a model: Gemma has its own marks, and begins with a token."""
    if model != "gemma3":
        return TEMPLATE.replace("{{- bos_token if bos_first else '' }}\n", "")
    gemma = TEMPLATE.replace("{{- bos_token if bos_first else '' }}", "{{- bos_token }}")
    gemma = gemma.replace("'user' if message.role == 'tool' else message.role", "roles[message.role]")
    roles = "{%- set roles = {'system': 'user', 'user': 'user', 'tool': 'user', 'assistant': 'model'} %}\n"
    gemma = gemma.replace("<|im_start|>assistant", "<|im_start|>model")
    return roles + gemma.replace("<|im_start|>", "<start_of_turn>").replace("<|im_end|>", "<end_of_turn>")
