"""Which formats a model writes its thoughts and calls in, told by the markers in its chat template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headstart.chat.replies import deepseek, gemma, hermes, llama3, mistral, pythonic, tagged
from headstart.chat.replies.reading import Read
from headstart.errors import ConfigError


@dataclass(frozen=True)
class Syntax:
    """`tools`, `reasoning`: names of the formats, "none" where there is none. `marked`: readers by the
    marker that begins a call anywhere; `at_start`: the same at the start of an answer only. `thinking`:
    the markers around thoughts. `id_chars`: length of call ids where the template asks for one."""

    tools: str = "none"
    reasoning: str = "none"
    marked: Mapping[str, Read] = field(default_factory=dict)
    at_start: Mapping[str, Read] = field(default_factory=dict)
    thinking: tuple[str, str] | None = None
    id_chars: int = 0


_HERMES: Mapping[str, Read] = {hermes.BEGIN: hermes.read}
TOOL_FORMATS: Mapping[str, Syntax] = {
    "none": Syntax(),
    "hermes": Syntax(marked=_HERMES),
    "qwen-xml": Syntax(marked={"<tool_call>": tagged.qwen_xml, "<function=": tagged.qwen_function}),
    "glm": Syntax(marked={"<tool_call>": tagged.glm}),
    "llama3-json": Syntax(marked={llama3.PYTHON_TAG: llama3.marked}, at_start={"{": llama3.bare}),
    "pythonic": Syntax(at_start={"[": pythonic.listed}),
    "mistral": Syntax(marked={mistral.BEGIN: mistral.read}, id_chars=9),
    "deepseek": Syntax(marked={deepseek.BEGIN: deepseek.read}),
    "gemma-python": Syntax(marked={pythonic.FENCE: pythonic.fenced}),
    "gemma-function": Syntax(
        marked={"<start_function_call>": gemma.reader("<escape>", "<end_function_call>")}
    ),
    "gemma4": Syntax(marked={"<|tool_call>": gemma.reader('<|"|>', "<tool_call|>")}),
}
REASONING_FORMATS: Mapping[str, tuple[str, str] | None] = {
    "none": None,
    "think": ("<think>", "</think>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "gemma4": ("<|channel>thought", "<channel|>"),
}

TOOL_MARKERS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<|tool_call>",), "gemma4"),
    (("<start_function_call>",), "gemma-function"),
    (("<arg_key>",), "glm"),
    (("<function=", "<parameter="), "qwen-xml"),
    (("<｜tool▁calls▁begin｜>",), "deepseek"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<tool_call>",), "hermes"),
    (("tool_code",), "gemma-python"),
    (("func_name1(params_name1=",), "pythonic"),
    (("<|python_tag|>",), "llama3-json"),
    (('"parameters": ', "<|start_header_id|>"), "llama3-json"),
)
"""The first row whose markers all stand in the template says the format."""
REASONING_MARKERS: tuple[tuple[str, str], ...] = (
    ("<|channel>", "gemma4"),
    ("[THINK]", "mistral"),
    ("</think>", "think"),
)


def syntax_of(template: str, *, tools: str | None = None, reasoning: str | None = None) -> Syntax:
    """How a model with this chat template writes; `tools` and `reasoning` are formats' names that
    take the place of what the template says. Raises ConfigError for a name that is none."""
    if tools is None:
        tools = next(
            (name for marks, name in TOOL_MARKERS if all(mark in template for mark in marks)), "none"
        )
    if reasoning is None:
        reasoning = next((name for mark, name in REASONING_MARKERS if mark in template), "none")
    _check(tools, TOOL_FORMATS, "--tool-parser")
    _check(reasoning, REASONING_FORMATS, "--reasoning-parser")
    chosen = TOOL_FORMATS[tools]
    return Syntax(
        tools, reasoning, chosen.marked, chosen.at_start, REASONING_FORMATS[reasoning], chosen.id_chars
    )


def _check(name: str, known: Mapping[str, object], flag: str) -> None:
    if name not in known:
        raise ConfigError(f"{flag} {name}: no such format; there are {', '.join(known)}")
