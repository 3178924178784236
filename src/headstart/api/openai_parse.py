"""From an OpenAI request to what the scheduler takes: every field honoured, refused or named.

Nothing is ignored in silence: fields that cannot change a local reply are accepted, everything
else that is not known becomes a warning in the reply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from headstart.api.chat_prompt import ChatPrompt, chat_prompt, named_tool, required_tools, room_warnings
from headstart.api.openai_errors import invalid_field
from headstart.api.openai_types import (
    MAX_REPLIES,
    ChatRequest,
    CompletionRequest,
    GenerationFields,
    ResponseFormat,
    TokenizeRequest,
)
from headstart.api.request_log import Conversation
from headstart.api.tool_results import CHAT, matched
from headstart.api.unused_fields import MAX_WARNINGS, other_model, unused_fields
from headstart.api.work import Work
from headstart.errors import RequestError
from headstart.prefix.tokens import TokenRun, token_run
from headstart.serving.models import ServedModel
from headstart.serving.request import ConstraintKind, ConstraintSpec, GenerationRequest, Sampling

_HARMLESS = frozenset(
    {
        "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "prompt_cache_options", "parallel_tool_calls",
    }
)  # fmt: skip
COMPLETION_DEFAULT_TOKENS = 16
"""OpenAI's default for `max_tokens` of the completions endpoint."""

Fields = TypeVar("Fields", bound=BaseModel)


def parse(kind: type[Fields], body: bytes) -> Fields:
    """`body` as a `kind`. Raises RequestError(400) that never repeats what was sent."""
    try:
        data = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(f"the request body is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise RequestError("the request body must be a JSON object")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise invalid_field(error) from error


def chat_work(model: ServedModel, body: ChatRequest, tenant: str) -> Work:
    """Renders and tokenizes the messages. Any thread. Raises RequestError."""
    warnings = _warnings(model, body)
    kwargs, unheard = model.thinking_kwargs(body.chat_template_kwargs or {}, effort=body.reasoning_effort)
    asked = replace(asked_of(body), kwargs=kwargs, calls=body.tool_choice != "none", tenant=tenant)
    if body.tool_choice not in (None, "auto", "none"):
        holder = body.tool_choice.get("function") if isinstance(body.tool_choice, dict) else None
        asked = required_tools(asked, named_tool(body.tool_choice, holder))
    prompt = chat_prompt(model, asked)
    warnings += [*unheard, *prompt.notes]
    limit = body.max_completion_tokens or body.max_tokens
    if body.max_tokens and body.max_completion_tokens and body.max_tokens != body.max_completion_tokens:
        warnings.append("max_tokens was not used: max_completion_tokens takes its place")
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    top = (body.top_logprobs or 0) if body.logprobs else None
    request = _request(model, body, tenant, prompt.tokens, limit=limit, top_logprobs=top)
    if prompt.constraint is not None and request.constraint is not None:
        raise RequestError("response_format: a reply cannot be held to it and to a call", param="tool_choice")
    request = replace(
        request,
        hints=prompt.hints,
        shown=prompt.shown,
        constraint=prompt.constraint or request.constraint,
    )
    warnings += room_warnings(model, [request])
    work = _work(body, [request], warnings, prompt.conversation)
    return replace(work, format=prompt.format, answered=prompt.answered, notes=prompt.notes)


def asked_of(body: ChatRequest | TokenizeRequest) -> ChatPrompt:
    """The conversation of a body. Raises RequestError for results of tools without a call."""
    sent = body.messages or []
    messages, notes = matched(sent, [f"messages[{index}]" for index in range(len(sent))], CHAT)
    return ChatPrompt(
        messages,
        body.tools,
        body.chat_template_kwargs or {},
        to_generate=body.add_generation_prompt is not False,
        notes=notes,
    )


def completion_work(model: ServedModel, body: CompletionRequest, tenant: str) -> Work:
    """Tokenizes the prompts. Any thread. Raises RequestError."""
    if body.echo:
        raise RequestError("echo is not supported: the reply never repeats the prompt", param="echo")
    if body.suffix:
        raise RequestError("suffix is not supported: text is only ever appended", param="suffix")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise RequestError("best_of is not supported: ask for several replies with n", param="best_of")
    limit = body.max_tokens or COMPLETION_DEFAULT_TOKENS
    prompts = _prompts(model, body.prompt)
    if len(prompts) * (body.n or 1) > MAX_REPLIES:
        raise RequestError(
            f"{len(prompts)} prompts with {body.n or 1} replies each; "
            f"the limit is {MAX_REPLIES} replies a request",
            param="prompt",
        )
    requests = [
        _request(model, body, tenant, prompt, limit=limit, top_logprobs=body.logprobs) for prompt in prompts
    ]
    return _work(body, requests, [*_warnings(model, body), *room_warnings(model, requests)], None)


def _prompts(model: ServedModel, prompt: Any) -> list[TokenRun]:
    if isinstance(prompt, str):
        return [_text_prompt(model, prompt)]
    if not isinstance(prompt, list) or not prompt:
        raise RequestError(
            "prompt must be a text, a list of texts, a list of token ids or a list of such lists",
            param="prompt",
        )
    if isinstance(prompt[0], int):
        return [_token_prompt(model, prompt)]
    if len(prompt) > MAX_REPLIES:
        raise RequestError(f"prompt has {len(prompt)} entries; the limit is {MAX_REPLIES}", param="prompt")
    return [
        _text_prompt(model, each) if isinstance(each, str) else _token_prompt(model, each) for each in prompt
    ]


def _text_prompt(model: ServedModel, text: str) -> TokenRun:
    prompt = model.tokenize_prompt(text)
    if not len(prompt):
        raise RequestError("prompt is empty: there is nothing to continue", param="prompt")
    return prompt


def _token_prompt(model: ServedModel, ids: Any) -> TokenRun:
    """Token ids as a prompt, exactly as given: nothing is put in front."""
    if not isinstance(ids, list) or not ids:
        raise RequestError("a prompt of token ids must be a list with at least one id", param="prompt")
    return check_tokens(ids, model.layout.vocab_size, "prompt")


def check_tokens(ids: list[Any], vocab_size: int, param: str) -> TokenRun:
    """`ids` as a token run. Raises RequestError where one is not a token of the vocabulary."""
    if any(type(token) is not int for token in ids):
        raise RequestError(f"{param}: token ids must be integers", param=param)
    if ids and (min(ids) < 0 or max(ids) >= vocab_size):
        raise RequestError(f"{param}: token ids must be from 0 to {vocab_size - 1}", param=param)
    return token_run(np.array(ids, dtype=np.int32))


def _request(
    model: ServedModel,
    body: GenerationFields,
    tenant: str,
    prompt: TokenRun,
    *,
    limit: int | None,
    top_logprobs: int | None,
) -> GenerationRequest:
    return GenerationRequest(
        prompt=prompt,
        max_tokens=limit,
        sampling=_sampling(model, body),
        stop=tuple(body.stop or ()),
        top_logprobs=top_logprobs,
        constraint=_constraint(model, body.response_format),
        ignore_end=bool(body.ignore_eos),
        tenant=tenant,
        use_cache=body.cache_prompt is not False,
    )


def _sampling(model: ServedModel, body: GenerationFields) -> Sampling:
    given = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": None if body.top_k is None else max(0, body.top_k),
        "min_p": body.min_p,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "repetition_penalty": body.repetition_penalty,
    }
    changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    bias = _logit_bias(body.logit_bias or {}, model.layout.vocab_size)
    return Sampling(logit_bias=bias, seed=body.seed, **changed)


def _logit_bias(bias: Mapping[str, Any], vocab_size: int) -> dict[int, float]:
    checked = {}
    for token, value in bias.items():
        if not (token.isascii() and token.isdigit() and len(token) < 10 and int(token) < vocab_size):
            raise RequestError(
                f"logit_bias: every key must be a token id from 0 to {vocab_size - 1}", param="logit_bias"
            )
        if type(value) not in (int, float) or not -100 <= value <= 100:
            raise RequestError(
                "logit_bias: every value must be a number from -100 to 100", param="logit_bias"
            )
        checked[int(token)] = float(value)
    return checked


def _constraint(model: ServedModel, form: ResponseFormat | None) -> ConstraintSpec | None:
    """The constraint of a response_format, compiled once so that a bad one is refused here."""
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        spec = ConstraintSpec(ConstraintKind.JSON_SCHEMA, '{"type": "object"}')
    elif form.type == "json_schema":
        schema = form.json_schema.schema_ if form.json_schema else None
        if schema is None:
            raise RequestError(
                "response_format of type json_schema needs its schema in json_schema.schema",
                param="response_format.json_schema",
            )
        spec = ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    else:
        field, kind = (
            ("pattern", ConstraintKind.REGEX) if form.type == "regex" else ("grammar", ConstraintKind.GRAMMAR)
        )
        source = getattr(form, field)
        if not source:
            raise RequestError(f"response_format of type {form.type} needs {field}", param="response_format")
        spec = ConstraintSpec(kind, source)
    model.constraints.compile(spec)
    return spec


def _work(
    body: GenerationFields,
    requests: list[GenerationRequest],
    warnings: list[str],
    conversation: Conversation | None,
) -> Work:
    """Every request `n` times, each with a seed of its own where one was given."""
    count = body.n or 1
    options = body.stream_options
    if options is not None and not body.stream:
        raise RequestError("stream_options needs stream to be true", param="stream_options")
    return Work(
        requests=tuple(_reseeded(request, reply) for request in requests for reply in range(count)),
        replies_a_prompt=count,
        warnings=tuple(warnings[:MAX_WARNINGS]),
        stream=bool(body.stream),
        include_usage=bool(options and options.include_usage),
        report=bool(body.headstart and body.headstart.report),
        conversation=conversation,
    )


def _reseeded(request: GenerationRequest, reply: int) -> GenerationRequest:
    seed = request.sampling.seed
    if seed is None or reply == 0:
        return request
    return replace(request, sampling=replace(request.sampling, seed=seed + reply))


def _warnings(model: ServedModel, body: GenerationFields) -> list[str]:
    """One sentence for every field that changes nothing here."""
    only_text = (body.model_extra or {}).get("modalities") == ["text"]
    harmless = _HARMLESS | {"modalities"} if only_text else _HARMLESS
    parts: list[tuple[str, BaseModel | None]] = [
        ("", body),
        ("stream_options.", body.stream_options),
        ("response_format.", body.response_format),
        ("headstart.", body.headstart),
    ]
    warnings = other_model(model, body.model)
    for prefix, part in parts:
        warnings += unused_fields(part.model_extra if part is not None else None, harmless, prefix)
    return warnings
