"""The requests of the OpenAI API as headstart takes them.

Field names and meanings are those of OpenAI's API reference ("Create chat completion", "Create
completion"), with the extensions other local servers have made common: top_k, min_p,
repetition_penalty, cache_prompt, ignore_eos, chat_template_kwargs. Types are strict: a number in
quotes is an error, not a number.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from headstart.api.message_schemas import CHAT_MESSAGE, CHAT_TOOL, PROMPT

MAX_REPLIES = 16
MAX_STOPS = 16
MAX_STOP_CHARS = 512
MAX_TOP_LOGPROBS = 20

ChatMessage = Annotated[dict[str, Any], WithJsonSchema(CHAT_MESSAGE)]
ChatTool = Annotated[dict[str, Any], WithJsonSchema(CHAT_TOOL)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]


def _listed(stop: object) -> object:
    """One stop string as a list of one."""
    return [stop] if isinstance(stop, str) else stop


_Stops = Annotated[list[StopString], Field(max_length=MAX_STOPS)]
StopStrings = Annotated[_Stops, BeforeValidator(_listed, json_schema_input_type=StopString | _Stops)]


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class StreamOptions(_Fields):
    include_usage: bool = False


class HeadstartOptions(_Fields):
    """`report`: put the whole CacheReport into the reply."""

    report: bool = False


class JsonSchemaFormat(_Fields):
    """OpenAI's `json_schema` object. Constrained decoding holds any schema strictly."""

    name: str | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(_Fields):
    """`regex` and `grammar` (Lark) are headstart's additions to OpenAI's three kinds."""

    type: Literal["text", "json_object", "json_schema", "regex", "grammar"]
    json_schema: JsonSchemaFormat | None = None
    pattern: str | None = None
    grammar: str | None = None


class GenerationFields(_Fields):
    """What both completion endpoints take."""

    model: str | None = None
    temperature: float | None = Field(default=None, ge=0, le=10)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=10)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    stop: StopStrings | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    n: int | None = Field(default=None, ge=1, le=MAX_REPLIES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logit_bias: dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    cache_prompt: bool | None = None
    ignore_eos: bool | None = None
    headstart: HeadstartOptions | None = None


class ChatRequest(GenerationFields):
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[ChatTool] | None = None
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    reasoning_effort: str | None = None


class CompletionRequest(GenerationFields):
    """`prompt`: text, texts, token ids or lists of token ids; looked at by hand, for speed."""

    prompt: Annotated[Any, WithJsonSchema(PROMPT)]
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


class TokenizeRequest(_Fields):
    """`content` as llama.cpp's server calls it, `prompt` as vLLM does, or `messages`."""

    model: str | None = None
    content: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    tools: list[ChatTool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special: bool | None = None
    add_special_tokens: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None
    add_generation_prompt: bool | None = None


class DetokenizeRequest(_Fields):
    model: str | None = None
    tokens: list[int]
