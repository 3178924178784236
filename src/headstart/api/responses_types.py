"""The requests of OpenAI's Responses API as headstart takes them ("Create a model response" in its docs)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from headstart.api.message_schemas import ITEM, ITEM_TOOL
from headstart.api.openai_types import HeadstartOptions


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class ReasoningOptions(_Fields):
    effort: str | None = None
    summary: str | None = None


class TextOptions(_Fields):
    """`format`: looked at by hand."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ResponseRequest(_Fields):
    """Items of `input` are looked at by hand, so that errors name the item."""

    input: str | list[Annotated[dict[str, Any], WithJsonSchema(ITEM)]] = Field(min_length=1)
    model: str | None = None
    instructions: str | None = None
    tools: list[Annotated[dict[str, Any], WithJsonSchema(ITEM_TOOL)]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=10)
    top_p: float | None = Field(default=None, ge=0, le=1)
    stream: bool | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    metadata: dict[str, Any] | None = None
    headstart: HeadstartOptions | None = None
