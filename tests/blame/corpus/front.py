"""What changes at the front: billing lines, clocks, tools, system prompts."""

from __future__ import annotations

import copy
from typing import Any

from headstart.blame.exchange import Dialect, Exchange
from tests.blame.corpus.agents import SYSTEM, TOOLS, Change, Parts, System, User, play, schema

CHAT, CLAUDE, ITEMS, OLLAMA = (
    Dialect.OPENAI_CHAT,
    Dialect.ANTHROPIC,
    Dialect.OPENAI_RESPONSES,
    Dialect.OLLAMA_CHAT,
)
BILL = "x-anthropic-billing-header: cc_version=2.1.332.{}; cc_entrypoint=cli; cch={};"


def with_system(*texts: str) -> Parts:
    return Parts(system=list(texts))


def set_system(*texts: str) -> Change:
    def change(parts: Parts) -> None:
        parts.system = list(texts)

    return change


def swapped(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new, 1)


def drifting(dialect: Dialect, template: str, values: dict[int, str]) -> list[Exchange]:
    """A system prompt with one place that is another from some requests on."""
    first = template.format(values[1])
    changes = {number: set_system(template.format(value)) for number, value in values.items() if number > 1}
    return play(dialect, changes, parts=with_system(first))


def billed(version: str, digits: str) -> list[str]:
    return [BILL.format(version, digits), SYSTEM]


def billing_each_turn() -> list[Exchange]:
    digits = {1: "36ee5", 2: "36ea1", 3: "0b11f", 4: "9c07d"}
    changes = {number: set_system(*billed("01c", value)) for number, value in digits.items() if number > 1}
    return play(CLAUDE, changes, parts=with_system(*billed("01c", digits[1])), requests=4)


def billing_of_another_prompt() -> list[Exchange]:
    """Another session of the same project; its first words only differ in the middle."""
    one = play(CLAUDE, parts=with_system(*billed("3b2", "00000")), requests=1)
    steps = [User("The parcel counter is off by two when the belt stops. Find out why and mend it, please.")]
    body = copy.deepcopy(one[0].body)
    body["system"][0]["text"] = BILL.format("d2e", "00000")
    body["messages"][0]["content"][0]["text"] = steps[0].text
    return [one[0], Exchange(2, 1100.0, CLAUDE, one[0].path, body, status=200)]


def billing_gone() -> list[Exchange]:
    return play(CLAUDE, {3: set_system(SYSTEM)}, parts=with_system(*billed("01c", "36ee5")))


def billing_in_one_text() -> list[Exchange]:
    old, new = (f"{BILL.format('01c', digits)}\n{SYSTEM}" for digits in ("11aaa", "11bbb"))
    return play(CHAT, {4: set_system(new)}, parts=with_system(old))


def tools_set(*, make: Any) -> Change:
    def change(parts: Parts) -> None:
        parts.tools = make(copy.deepcopy(TOOLS))

    return change


def schema_reordered(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    fields = tools[1]["parameters"]["properties"]
    tools[1]["parameters"]["properties"] = {key: fields[key] for key in ("new", "old", "path")}
    return tools


def required_reordered(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tools[0]["parameters"]["required"] = ["limit", "offset", "path"]
    return tools


def tool_keys_reordered(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tools[2] = {key: tools[2][key] for key in ("description", "name", "parameters")}
    return tools


def described(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tools[2]["description"] += " It stops after a while."
    return tools


def deferred_tools() -> list[Exchange]:
    """A client that loads a tool when it is first wanted."""
    tools = [*copy.deepcopy(TOOLS), schema("ToolSearch", "Finds and loads more tools.", query="string")]

    def load(parts: Parts) -> None:
        parts.tools = [*parts.tools, schema("WebFetch", "Reads a page.", url="string")]

    return play(CLAUDE, {4: load}, parts=Parts(tools=tools))


def variants() -> list[Exchange]:
    """Two run types of a gateway that take turns."""
    other = "You announce results to a channel. Be brief and friendly; never run tools.\n" * 6
    return play(OLLAMA, {3: set_system(other), 4: set_system(SYSTEM), 5: set_system(other)})


def planning() -> list[Exchange]:
    plan = "Plan mode is on. You may read, but you must not change anything.\n" * 14
    return play(CHAT, {4: set_system(plan)})


def small_variant() -> list[Exchange]:
    """Only one line more, but both prompts were used before."""
    more = SYSTEM + "\nThis run was started by a schedule; nobody reads along."
    return play(CHAT, {2: set_system(more), 3: set_system(SYSTEM), 4: set_system(more)}, requests=4)


def model(name: str) -> Change:
    def change(parts: Parts) -> None:
        parts.model = name

    return change


def hoisted() -> list[Exchange]:
    """A gateway that puts every system message it finds to the front."""
    note = "The user opened belt/stop.py in the editor; it may matter for the task."

    def late(parts: Parts) -> None:

        parts.steps.insert(3, System(note))

    def lift(parts: Parts) -> None:
        parts.steps = [step for step in parts.steps if getattr(step, "text", "") != note]
        parts.system = [*parts.system, note]

    return play(CHAT, {2: late, 4: lift})


def hoisted_into_one() -> list[Exchange]:
    note = "The user asked for short answers from now on, whatever the task may be."

    def late(parts: Parts) -> None:

        parts.steps.insert(3, System(note))

    def lift(parts: Parts) -> None:
        parts.steps = [step for step in parts.steps if getattr(step, "text", "") != note]
        parts.system = [parts.system[0] + "\n\n" + note]

    return play(OLLAMA, {2: late, 3: lift})


CLOCK = "You answer for a house.\nCurrent time: {}\n" + SYSTEM
STATUS = (
    "You work in a repository.\ngitStatus: a snapshot from the start of the conversation.\n"
    "Current branch: main\nMain branch: main\n\nStatus:\n{}\n\nRecent commits:\n4f81a2b Three small files\n"
)
QWEN = (
    SYSTEM + "\n```text\ngit: Current branch: main\ngit: Status:\ngit: {}\ngit: Recent commits:\n"
    "git: 4f81a2b one\n```"
)
MEMORY = "Notes you keep:\nMEMORY [{} chars]\n- the belt stops twice\n" + SYSTEM
