"""From a request of OpenAI's Responses API to what the scheduler takes.

All that a model said in a row (reasoning, a message, calls) is one assistant message, as it was one reply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headstart.api.chat_prompt import ChatPrompt, chat_prompt, named_tool, required_tools, room_warnings
from headstart.api.responses_types import ResponseRequest
from headstart.api.tool_results import RESPONSES, matched
from headstart.api.unused_fields import MAX_WARNINGS, other_model, unused_fields
from headstart.api.work import Work
from headstart.chat.messages import texts_of
from headstart.errors import RequestError
from headstart.serving.models import ServedModel
from headstart.serving.request import ConstraintKind, ConstraintSpec, GenerationRequest, Sampling

__all__ = ["items_of", "response_work"]

Item = Mapping[str, Any]
_HARMLESS = frozenset(
    {"user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "include"}
    | {"parallel_tool_calls", "truncation", "background", "stream_options", "client_metadata"}
)
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
_ROLES = ("user", "assistant", "system", "developer")


def items_of(body: ResponseRequest) -> tuple[dict[str, Any], ...]:
    """The input as items."""
    if isinstance(body.input, str):
        return ({"type": "message", "role": "user", "content": body.input},)
    return tuple(body.input)


def response_work(model: ServedModel, body: ResponseRequest, items: Sequence[Item], tenant: str) -> Work:
    """Renders and tokenizes. `items`: the conversation, with what a stored response had before. Any thread.
    Raises RequestError."""
    warnings = [*other_model(model, body.model), *unused_fields(body.model_extra, _HARMLESS)]
    effort = body.reasoning.effort if body.reasoning else None
    kwargs, unheard = model.thinking_kwargs({}, effort=effort)
    system = [{"role": "system", "content": body.instructions}] if body.instructions else []
    tools, odd = _tools(body.tools or ())
    messages, notes = _messages(items, len(items) - len(items_of(body)))
    asked = ChatPrompt(
        [*system, *messages],
        tools or None,
        kwargs,
        calls=body.tool_choice != "none",
        tenant=tenant,
        notes=notes,
        field="input",
    )
    if body.tool_choice not in (None, "auto", "none"):
        asked = required_tools(asked, named_tool(body.tool_choice, body.tool_choice))
    prompt = chat_prompt(model, asked)
    constraint = _constraint(model, body.text.format if body.text else None)
    if prompt.constraint is not None and constraint is not None:
        raise RequestError("text.format: a reply cannot be held to it and to a call", param="tool_choice")
    chosen = {"temperature": body.temperature, "top_p": body.top_p}
    changed: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    request = GenerationRequest(
        prompt=prompt.tokens,
        max_tokens=body.max_output_tokens,
        sampling=Sampling(**changed),
        constraint=prompt.constraint or constraint,
        hints=prompt.hints,
        tenant=tenant,
        shown=prompt.shown,
    )
    warnings += [*unheard, *odd, *prompt.notes, *room_warnings(model, [request])]
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


def _messages(items: Sequence[Item], stored: int) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Items as messages, and what of them was moved. The first `stored` items were not sent this time."""
    placed: list[tuple[str, dict[str, Any]]] = []
    said: dict[str, Any] | None = None
    for index, item in enumerate(items, -stored):
        where = f"input[{index}]"
        kind = item.get("type") or "message"
        if kind in _RESULTS:
            said = None
            placed.append((where, _result(item, where)))
        elif kind == "message" and item.get("role") != "assistant":
            said = None
            placed.append((where, _message(item, where)))
        elif kind in ("message", "reasoning", *_CALLS):
            if said is None or (kind == "message" and said["content"] is not None):
                said = {"role": "assistant", "content": None}
                placed.append((where, said))
            _add(said, kind, item, where)
        else:
            raise RequestError(
                f"{where} is of type {str(kind)[:40]}, which is not known here; expected message, reasoning, "
                "function_call or function_call_output",
                param=where,
            )
    for _, message in placed:
        if message["role"] == "assistant" and message["content"] is None and "tool_calls" not in message:
            message["content"] = ""
    return matched([message for _, message in placed], [where for where, _ in placed], RESPONSES)


def _add(said: dict[str, Any], kind: str, item: Item, where: str) -> None:
    """Adds what an item says to the message of the model it belongs to."""
    if kind == "message":
        said["content"] = _content(item, where)
    elif kind == "reasoning":
        blocks = item.get("content") or item.get("summary") or ()
        texts = [str(block.get("text") or "") for block in blocks if isinstance(block, Mapping)]
        if any(texts):
            before = [said["reasoning_content"]] if "reasoning_content" in said else []
            said["reasoning_content"] = "\n".join([*before, *texts])
    else:
        said.setdefault("tool_calls", []).append(_call(item, where))


def _message(item: Item, where: str) -> dict[str, Any]:
    if item.get("role") not in _ROLES:
        raise RequestError(f"{where}.role must be one of {', '.join(_ROLES)}", param=f"{where}.role")
    return {"role": item["role"], "content": _content(item, where)}


def _content(item: Item, where: str) -> Any:
    return _texts(item.get("content"), f"{where}.content")


def _texts(content: Any, where: str) -> Any:
    """`content` as it came. Raises RequestError where it is not text."""
    if content is None:
        raise RequestError(f"{where} must be a string or a list of parts", param=where)
    texts_of(content, where)
    return content


def _call(item: Item, where: str) -> dict[str, Any]:
    name = item.get("name")
    custom = item.get("type") == "custom_tool_call"
    text = json.dumps({"input": item.get("input")}) if custom else item.get("arguments")
    if not isinstance(name, str) or not isinstance(text, str):
        raise RequestError(f"{where}: a call needs a name, and its arguments as text", param=where)
    return {
        "id": str(item.get("call_id") or item.get("id") or ""),
        "type": "function",
        "function": {"name": name, "arguments": text},
    }


def _result(item: Item, where: str) -> dict[str, Any]:
    if not isinstance(item.get("call_id"), str):
        raise RequestError(f"{where}: an output needs the call_id of its call", param=where)
    output = _texts(item.get("output"), f"{where}.output")
    return {"role": "tool", "tool_call_id": item["call_id"], "content": output}


def _tools(tools: Sequence[Item]) -> tuple[list[dict[str, Any]], list[str]]:
    """Tools in the form of chat completions, and a sentence for each that cannot be offered."""
    found: list[dict[str, Any]] = []
    odd: list[str] = []
    for index, tool in enumerate(tools):
        kind = tool.get("type")
        inner = tool.get("tools")
        if kind == "namespace" and isinstance(inner, list):
            more, strange = _tools([one for one in inner if isinstance(one, Mapping)])
            found, odd = [*found, *more], [*odd, *strange]
        elif kind in ("function", "custom"):
            if not isinstance(tool.get("name"), str):
                raise RequestError(f"tools[{index}].name must be a string", param=f"tools[{index}].name")
            found.append(_tool(tool))
        else:
            odd.append(f"tools: {str(kind)[:40]} runs at OpenAI and was left out")
    return found, odd


def _tool(tool: Item) -> dict[str, Any]:
    about = {"description": tool["description"]} if isinstance(tool.get("description"), str) else {}
    if tool.get("type") == "custom":
        text = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        return {"type": "function", "function": {"name": tool["name"], **about, "parameters": text}}
    schema = tool.get("parameters")
    function = {"name": tool["name"], **about, "parameters": schema if isinstance(schema, Mapping) else {}}
    return {"type": "function", "function": function}


def _constraint(model: ServedModel, form: Item | None) -> ConstraintSpec | None:
    if form is None or form.get("type") in (None, "text"):
        return None
    if form.get("type") not in ("json_object", "json_schema"):
        raise RequestError(
            "text.format must be of type text, json_object or json_schema", param="text.format"
        )
    schema = form.get("schema") if form.get("type") == "json_schema" else {"type": "object"}
    if not isinstance(schema, Mapping):
        raise RequestError("text.format of type json_schema needs a schema", param="text.format.schema")
    spec = ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    model.constraints.compile(spec, "text.format.schema")
    return spec
