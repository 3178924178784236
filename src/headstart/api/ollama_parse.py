"""From a request of Ollama's API to what the scheduler takes: every option honoured, refused or named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headstart.api.chat_prompt import ChatPrompt, Prompted, chat_prompt, room_warnings
from headstart.api.ollama_types import AskFields, ChatAsk, GenerateAsk
from headstart.api.tool_results import OLLAMA, matched
from headstart.api.unused_fields import MAX_WARNINGS, other_model, unused_fields
from headstart.api.work import Work
from headstart.errors import RequestError
from headstart.serving.models import ServedModel
from headstart.serving.request import ConstraintKind, ConstraintSpec, GenerationRequest, Sampling

__all__ = ["chat_work", "generate_work"]

# The defaults of Ollama's own runners, where they are not "off" (docs/modelfile.mdx, "PARAMETER").
DEFAULTS: Mapping[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}
# Option: the field of Sampling, the least and the most that is taken.
_SAMPLING: Mapping[str, tuple[str, float, float]] = {
    "temperature": ("temperature", 0, 10),
    "top_p": ("top_p", 0, 1),
    "min_p": ("min_p", 0, 1),
    "repeat_penalty": ("repetition_penalty", 0.01, 10),
    "presence_penalty": ("presence_penalty", -2, 2),
    "frequency_penalty": ("frequency_penalty", -2, 2),
}
_OTHER = ("top_k", "seed", "stop", "num_predict", "num_ctx")
_MAX_STOPS = 16
_LEAST_SEED, _MOST_SEED = -(2**63), 2**64 - 1


def chat_work(model: ServedModel, body: ChatAsk, tenant: str) -> Work:
    """Renders and tokenizes the messages. Any thread. Raises RequestError."""
    sent = [_message(message, index) for index, message in enumerate(body.messages)]
    messages, notes = matched(sent, [f"messages[{index}]" for index in range(len(sent))], OLLAMA)
    kwargs, unheard = _switches(model, body)
    asked = ChatPrompt(messages, body.tools or None, kwargs, tenant=tenant, notes=notes)
    return _work(model, body, chat_prompt(model, asked), tenant, warnings=_warnings(model, body) + unheard)


def generate_work(model: ServedModel, body: GenerateAsk, tenant: str) -> Work:
    """A prompt through the template, or as it is where `raw`. Raises RequestError."""
    for name, why in (
        ("suffix", "text is only ever appended"),
        ("template", "start the server with --chat-template FILE"),
        ("images", "this model is served for text only"),
    ):
        if getattr(body, name):
            raise RequestError(f"{name} is not supported: {why}", param=name)
    text, warnings = body.prompt or "", _warnings(model, body)
    if body.raw:
        return _work(model, body, Prompted(model.tokenize_prompt(text)), tenant, warnings=warnings)
    system = [{"role": "system", "content": body.system}] if body.system else []
    kwargs, unheard = _switches(model, body)
    asked = ChatPrompt([*system, {"role": "user", "content": text}], None, kwargs, tenant=tenant)
    return _work(model, body, chat_prompt(model, asked), tenant, warnings=warnings + unheard)


def _work(model: ServedModel, body: AskFields, prompt: Prompted, tenant: str, *, warnings: list[str]) -> Work:
    options = body.options or {}
    limit = _whole(options, "num_predict", -2, 2**31)
    request = GenerationRequest(
        prompt=prompt.tokens,
        max_tokens=limit if limit and limit > 0 else None,
        sampling=_sampling(options),
        stop=_stops(options),
        constraint=_constraint(model, body.format),
        hints=prompt.hints,
        tenant=tenant,
        shown=prompt.shown,
    )
    warnings += [*prompt.notes, *room_warnings(model, [request])]
    return Work(
        (request,),
        warnings=tuple(warnings[:MAX_WARNINGS]),
        stream=body.stream is not False,
        report=bool(body.headstart and body.headstart.report),
        conversation=prompt.conversation,
        format=prompt.format,
        answered=prompt.answered,
        notes=prompt.notes,
    )


def _message(message: dict[str, Any], index: int) -> dict[str, Any]:
    """In OpenAI's form: calls have their arguments as text, thinking stands in `reasoning_content`, the role
    is in small letters, which Ollama does not ask for."""
    where = f"messages[{index}]"
    if message.get("images"):
        raise RequestError(f"{where}.images: this model is served for text only", param=f"{where}.images")
    changed = {name: value for name, value in message.items() if name not in ("thinking", "tool_calls")}
    if isinstance(message.get("role"), str):
        changed["role"] = message["role"].lower()
    if message.get("thinking"):
        changed["reasoning_content"] = message["thinking"]
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise RequestError(f"{where}.tool_calls must be a list", param=f"{where}.tool_calls")
    if calls:
        changed["tool_calls"] = [_call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(calls)]
    return changed


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RequestError(f"{where} needs a function with a name", param=where)
    arguments = function.get("arguments") or {}
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {
        "id": str(call.get("id") or ""),
        "type": "function",
        "function": {"name": function["name"], "arguments": text},
    }


def _switches(model: ServedModel, body: AskFields) -> tuple[dict[str, Any], list[str]]:
    """What `think` sets in the template, and a sentence where it knows no such switch."""
    effort = body.think if isinstance(body.think, str) else None
    enable = body.think if isinstance(body.think, bool) else None
    return model.thinking_kwargs({}, enable=enable, effort=effort)


def _sampling(options: Mapping[str, Any]) -> Sampling:
    given = {**DEFAULTS, **{name: value for name, value in options.items() if value is not None}}
    chosen: dict[str, Any] = {
        field: _number(given, name, least, most)
        for name, (field, least, most) in _SAMPLING.items()
        if name in given
    }
    top_k = _whole(given, "top_k", -1, 2**31)
    seed = _whole(given, "seed", _LEAST_SEED, _MOST_SEED)
    return Sampling(top_k=max(0, top_k or 0), seed=seed, **chosen)


def _number(options: Mapping[str, Any], name: str, least: float, most: float) -> float:
    value = options[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise RequestError(
            f"options.{name} must be a number from {least:g} to {most:g}", param=f"options.{name}"
        )
    return float(value)


def _whole(options: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RequestError(f"options.{name} must be a whole number, {least} or more", param=f"options.{name}")
    return value


def _stops(options: Mapping[str, Any]) -> tuple[str, ...]:
    stops = options.get("stop") or []
    stops = [stops] if isinstance(stops, str) else stops
    if (
        not isinstance(stops, list)
        or len(stops) > _MAX_STOPS
        or not all(isinstance(stop, str) and stop for stop in stops)
    ):
        raise RequestError(
            f"options.stop must be a list of at most {_MAX_STOPS} texts that are not empty",
            param="options.stop",
        )
    return tuple(stops)


def _constraint(model: ServedModel, form: str | dict[str, Any] | None) -> ConstraintSpec | None:
    if form is None or form == "":
        return None
    if isinstance(form, str) and form != "json":
        raise RequestError('format must be "json" or a JSON schema', param="format")
    schema = form if isinstance(form, dict) else {"type": "object"}
    spec = ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    model.constraints.compile(spec, "format")
    return spec


def _warnings(model: ServedModel, body: AskFields) -> list[str]:
    """A sentence for everything that changes nothing here."""
    warnings = other_model(model, body.model and body.model.removesuffix(":latest"))
    options, extra = body.options or {}, body.model_extra or {}
    context = _whole(options, "num_ctx", 0, 2**31)
    if context and context != model.layout.context_tokens:
        warnings.append(
            f"options.num_ctx: the context has {model.layout.context_tokens} tokens, whatever is asked for; "
            "--ctx-size sets it when the server starts"
        )
    if body.keep_alive is not None:
        warnings.append("keep_alive: the model stays loaded while the server runs, whatever is asked for")
    # Nothing is cut or shifted here: a prompt that does not fit is refused.
    asks_nothing = {name for name in ("truncate", "shift") if extra.get(name) is False}
    asks_nothing |= {name for name, value in extra.items() if value in ([], {})}
    known = {*_SAMPLING, *_OTHER}
    return [*warnings, *unused_fields(options, known, "options."), *unused_fields(extra, asks_nothing)]
