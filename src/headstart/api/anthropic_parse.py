"""From a request of Anthropic's Messages API to what the scheduler takes.

Messages become OpenAI's form, which chat templates are written for: results of tools are messages of their
own, before what else their message says; thinking stands in `reasoning_content`; a system message among the
others stays where it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from headstart.api.anthropic_types import MessageCountRequest, MessageRequest, ToolChoice
from headstart.api.chat_prompt import ChatPrompt, chat_prompt, required_tools, room_warnings
from headstart.api.tool_results import MESSAGES, matched
from headstart.api.unused_fields import MAX_WARNINGS, other_model, unused_fields
from headstart.api.work import Work
from headstart.errors import RequestError
from headstart.serving.models import ServedModel
from headstart.serving.request import GenerationRequest, Sampling

__all__ = ["message_work", "prompt_of"]

BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n?")
"""The first line of Claude Code's system prompt: it differs between sessions and is for Anthropic alone."""
_ROLES = ("user", "assistant", "system")
_HARMLESS = frozenset(
    {"metadata", "service_tier", "container", "context_management", "betas", "mcp_servers", "output_config"}
)
_PLACES = {"tool_use": "an assistant", "thinking": "an assistant", "tool_result": "a user"}
Block = Mapping[str, Any]


def message_work(model: ServedModel, body: MessageRequest, tenant: str) -> Work:
    """Renders and tokenizes the messages. Any thread. Raises RequestError."""
    asked, warnings = prompt_of(model, body)
    if not asked.continued:
        _check_last(asked.messages[-1], f"messages[{len(body.messages) - 1}]", harmony=model.harmony)
    prompt = chat_prompt(model, replace(asked, tenant=tenant))
    warnings += prompt.notes
    request = GenerationRequest(
        prompt=prompt.tokens,
        max_tokens=body.max_tokens,
        sampling=_sampling(body),
        constraint=prompt.constraint,
        stop=tuple(body.stop_sequences or ()),
        hints=prompt.hints,
        tenant=tenant,
        shown=prompt.shown,
    )
    warnings += room_warnings(model, [request])
    return Work(
        requests=(request,),
        warnings=tuple(warnings[:MAX_WARNINGS]),
        stream=bool(body.stream),
        report=bool(body.headstart and body.headstart.report),
        conversation=prompt.conversation,
        format=prompt.format,
        answered=prompt.answered,
        notes=prompt.notes,
    )


def prompt_of(model: ServedModel, body: MessageCountRequest) -> tuple[ChatPrompt, list[str]]:
    """The conversation of a body, and a sentence for everything in it that changes nothing here."""
    warnings = [*other_model(model, body.model), *unused_fields(body.model_extra, _HARMLESS)]
    system, left_out = _system(body.system)
    placed = [each for index, one in enumerate(body.messages) for each in _messages(one, index)]
    messages, moved = matched([message for _, message in placed], [where for where, _ in placed], MESSAGES)
    tools = [_tool(tool, index) for index, tool in enumerate(body.tools or ())]
    wish = None if body.thinking is None else body.thinking.type != "disabled"
    kwargs, unheard = model.thinking_kwargs({}, enable=wish)
    last = messages[-1]
    empty = last["role"] == "assistant" and not _last_text(last) and set(last) == {"role", "content"}
    messages = messages[:-1] if empty and len(messages) > 1 else messages
    continued = last["role"] == "assistant" and not empty and _obstacle(last, harmony=model.harmony) is None
    calls = body.tool_choice is None or body.tool_choice.type != "none"
    notes = (*_notes(body, left_out=left_out, unthought=continued and bool(wish)), *moved)
    asked = ChatPrompt(
        [*system, *messages], tools or None, kwargs, calls=calls, continued=continued, notes=notes
    )
    if body.tool_choice is not None and body.tool_choice.type in ("any", "tool"):
        asked = required_tools(asked, _named_tool(body.tool_choice))
    return asked, [*warnings, *unheard]


def _notes(body: MessageCountRequest, *, left_out: bool, unthought: bool) -> Iterator[str]:
    """What was done to the conversation. `left_out`: the billing line; `unthought`: thoughts."""
    if left_out:
        yield "system: the billing line of the client was left out of the prompt"
    if any(_failed(message) for message in body.messages):
        yield "is_error: templates have no place for it; the results of tools are read as they are written"
    if any(_text_first(message) for message in body.messages):
        yield "tool_result: rendered before the text of its message, which came first"
    if unthought:
        yield "thinking: the reply goes on with the last message, so no thoughts come before it"


def _text_first(message: Mapping[str, Any]) -> bool:
    """Whether a message says something before a result of a tool."""
    blocks = message.get("content")
    if not isinstance(blocks, list):
        return False
    results = [block["type"] == "tool_result" for block in blocks]
    return results != sorted(results, reverse=True)


def _failed(message: Mapping[str, Any]) -> bool:
    """Whether a message has the result of a tool that failed."""
    blocks = message.get("content")
    return isinstance(blocks, list) and any(block.get("is_error") for block in blocks)


def _check_last(last: Mapping[str, Any], where: str, *, harmony: bool) -> None:
    """Raises RequestError where a reply would have to go on with the last message and cannot."""
    obstacle = _obstacle(last, harmony=harmony) if last["role"] == "assistant" else None
    if obstacle is not None:
        said = f"{where}: no reply can go on with this assistant message; {obstacle}"
        raise RequestError(said, param=where)


def _obstacle(last: Mapping[str, Any], *, harmony: bool) -> str | None:
    """Why no reply can go on with a message of the assistant, and what to do; None where one can. An empty
    one asks for no more than a reply."""
    text = _last_text(last)
    if last.get("tool_calls"):
        return "it calls tools: send their results in a user message behind it"
    if not text and "reasoning_content" in last:
        return "it ends with thinking: put text behind it, or leave the message out"
    if text != text.rstrip():
        return "its text ends with white space: leave that out"
    if text and harmony:
        return "this model writes in channels, inside which no reply can begin: end with a user message"
    return None


def _last_text(message: Mapping[str, Any]) -> str:
    """The text that a message ends with."""
    content = message["content"]
    return content if isinstance(content, str) else str((content or [_part("")])[-1]["text"])


def _named_tool(choice: ToolChoice) -> str | None:
    """The tool that `tool_choice` names; None for any."""
    if choice.type == "tool" and choice.name is None:
        raise RequestError("tool_choice of type tool needs the name of one", param="tool_choice.name")
    return choice.name if choice.type == "tool" else None


def _sampling(body: MessageRequest) -> Sampling:
    given = {"temperature": body.temperature, "top_p": body.top_p, "top_k": body.top_k}
    changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return Sampling(**changed)


def _system(system: str | list[dict[str, Any]] | None) -> tuple[list[dict[str, Any]], bool]:
    """The system field as a message, and whether a billing line was left out of it."""
    if system is None:
        return [], False
    blocks = [system] if isinstance(system, str) else None
    texts = blocks or [_text(block, f"system[{index}]") for index, block in enumerate(system or ())]
    kept = [BILLING.sub("", text) for text in texts]
    said = [text for text, whole in zip(kept, texts, strict=True) if text or not whole]
    if not any(said):
        return [], kept != texts
    content = said[0] if blocks else [_part(text) for text in said]
    return [{"role": "system", "content": content}], kept != texts


def _messages(message: dict[str, Any], index: int) -> Iterable[tuple[str, dict[str, Any]]]:
    """One message of the body as those of a template, each with its place in the body."""
    where = f"messages[{index}]"
    role, content = message.get("role"), message.get("content")
    if role not in _ROLES:
        raise RequestError(f"{where}.role must be user, assistant or system", param=f"{where}.role")
    if isinstance(content, str):
        return [(where, {"role": role, "content": content})]
    if not isinstance(content, list):
        raise RequestError(f"{where}.content must be a string or a list of blocks", param=f"{where}.content")
    blocks = [_block(block, f"{where}.content[{at}]") for at, block in enumerate(content)]
    if role == "assistant":
        return [(where, _assistant(blocks, f"{where}.content"))]
    results, said = [], []
    for at, block in enumerate(blocks):
        place = f"{where}.content[{at}]"
        if block["type"] == "tool_result" and role == "user":
            results.append((place, _result(block, place)))
        else:
            said.append(_part(_text(block, place)))
    return [*results, (where, {"role": role, "content": said})] if said or not results else results


def _assistant(blocks: list[Block], where: str) -> dict[str, Any]:
    texts: list[dict[str, Any]] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        if block["type"] == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
        elif block["type"] == "tool_use":
            calls.append(_call(block, f"{where}[{at}]"))
        elif block["type"] != "redacted_thinking":
            texts.append(_part(_text(block, f"{where}[{at}]")))
    message: dict[str, Any] = {"role": "assistant", "content": texts or None if calls else texts}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: Block, where: str) -> dict[str, Any]:
    name, given = block.get("name"), block.get("input")
    if not isinstance(name, str) or not isinstance(given, dict):
        raise RequestError(f"{where}: tool_use needs a name and an input object", param=where)
    arguments = json.dumps(given, ensure_ascii=False)
    return {
        "id": str(block.get("id") or ""),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _result(block: Block, place: str) -> dict[str, Any]:
    content = block.get("content")
    if not isinstance(block.get("tool_use_id"), str):
        raise RequestError(f"{place}: tool_result needs the tool_use_id of its call", param=place)
    if isinstance(content, list):
        parts = [
            _part(_text(_block(one, f"{place}.content[{n}]"), f"{place}.content[{n}]"))
            for n, one in enumerate(content)
        ]
        return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": parts}
    if content is not None and not isinstance(content, str):
        raise RequestError(f"{place}.content must be a string or a list of blocks", param=f"{place}.content")
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content or ""}


def _block(block: Any, where: str) -> Block:
    if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
        raise RequestError(f'{where} must be an object with a "type"', param=where)
    return block


def _text(block: Any, where: str) -> str:
    kind = _block(block, where)["type"]
    if kind in _PLACES:
        raise RequestError(
            f"{where} is of type {kind}, which stands in {_PLACES[kind]} message; move it there", param=where
        )
    if kind != "text":
        raise RequestError(
            f"{where} is of type {kind[:40]}; this model is served for text only. Send blocks of type text.",
            param=where,
        )
    if not isinstance(block.get("text"), str):
        raise RequestError(f'{where} needs its text as a string in "text"', param=where)
    return str(block["text"])


def _part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _tool(tool: dict[str, Any], index: int) -> dict[str, Any]:
    """A tool in OpenAI's form, its schema as it came."""
    where = f"tools[{index}]"
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise RequestError(
            f"{where} is of type {str(kind)[:40]}, which Anthropic's servers run; leave it out here",
            param=where,
        )
    if not isinstance(tool.get("name"), str):
        raise RequestError(f"{where}.name must be a string", param=f"{where}.name")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise RequestError(f"{where}.input_schema must be an object", param=f"{where}.input_schema")
    about = {"description": tool["description"]} if isinstance(tool.get("description"), str) else {}
    return {"type": "function", "function": {"name": tool["name"], **about, "parameters": schema}}
