"""The requests of Ollama's API as headstart takes them (docs/api.md in its repository)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from headstart.api.message_schemas import CHAT_TOOL, OLLAMA_MESSAGE
from headstart.api.openai_types import HeadstartOptions


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


Think = bool | Literal["low", "medium", "high"] | None


class AskFields(_Fields):
    """What both generating endpoints take. `options` are looked at by hand. `stream` is true where it is not
    said."""

    model: str | None = None
    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    think: Think = None
    keep_alive: str | int | float | None = None
    headstart: HeadstartOptions | None = None


class ChatAsk(AskFields):
    messages: list[Annotated[dict[str, Any], WithJsonSchema(OLLAMA_MESSAGE)]] = Field(default_factory=list)
    tools: list[Annotated[dict[str, Any], WithJsonSchema(CHAT_TOOL)]] | None = None


class GenerateAsk(AskFields):
    prompt: str | None = None
    system: str | None = None
    raw: bool | None = None
    suffix: str | None = None
    template: str | None = None
    images: list[str] | None = None


class ShowAsk(_Fields):
    model: str | None = None
    name: str | None = None
