"""The requests of Anthropic's Messages API as headstart takes them.

Names and meanings are those of its API reference ("Create a Message", "Count tokens in a Message").
`cache_control`, `metadata` and betas are taken and change nothing: everything that was read is kept anyway.
Blocks are looked at by hand, in `anthropic_parse`, so that errors name the block.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from headstart.api.message_schemas import MESSAGE, MESSAGE_TOOL
from headstart.api.openai_types import MAX_STOPS, HeadstartOptions, StopString


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class ThinkingOptions(_Fields):
    """`budget_tokens` is not held: a local model thinks as long as it does."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None


class ToolChoice(_Fields):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class MessageCountRequest(_Fields):
    """What is counted: the prompt, without a reply."""

    model: str | None = None
    messages: list[Annotated[dict[str, Any], WithJsonSchema(MESSAGE)]] = Field(min_length=1)
    system: str | list[dict[str, Any]] | None = None
    tools: list[Annotated[dict[str, Any], WithJsonSchema(MESSAGE_TOOL)]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingOptions | None = None


class MessageRequest(MessageCountRequest):
    max_tokens: int = Field(ge=1)
    stream: bool | None = None
    stop_sequences: Annotated[list[StopString], Field(max_length=MAX_STOPS)] | None = None
    temperature: float | None = Field(default=None, ge=0, le=10)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    metadata: dict[str, Any] | None = None
    headstart: HeadstartOptions | None = None
