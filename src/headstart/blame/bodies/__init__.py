"""Request bodies taken apart, one file a dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headstart.blame.bodies import anthropic, ollama, openai_chat, openai_completions, openai_responses
from headstart.blame.exchange import Dialect
from headstart.blame.prompt import Prompt

__all__ = ["dialect_of", "prompt_of"]

_PARSERS: dict[Dialect, Callable[[Mapping[str, Any]], Prompt]] = {
    Dialect.OPENAI_CHAT: openai_chat.prompt_of,
    Dialect.OPENAI_COMPLETIONS: openai_completions.prompt_of,
    Dialect.OPENAI_RESPONSES: openai_responses.prompt_of,
    Dialect.ANTHROPIC: anthropic.prompt_of,
    Dialect.OLLAMA_CHAT: ollama.chat_prompt_of,
    Dialect.OLLAMA_GENERATE: ollama.generate_prompt_of,
}

# The first ending that fits counts: /chat/completions is no /completions.
_ENDINGS = (
    ("/chat/completions", Dialect.OPENAI_CHAT),
    ("/completions", Dialect.OPENAI_COMPLETIONS),
    ("/completion", Dialect.OPENAI_COMPLETIONS),
    ("/responses", Dialect.OPENAI_RESPONSES),
    ("/messages", Dialect.ANTHROPIC),
    ("/messages/count_tokens", Dialect.ANTHROPIC),
    ("/api/chat", Dialect.OLLAMA_CHAT),
    ("/api/generate", Dialect.OLLAMA_GENERATE),
)
_ANTHROPIC_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})
_OLLAMA_FIELDS = ("options", "keep_alive", "think", "format", "truncate", "shift")


def prompt_of(dialect: Dialect, body: Any) -> Prompt:
    """What `body` says, piece by piece.

    Raises ValueError with a sentence for the user where the body is no JSON object or its parts are not
    of the kind that the API defines.
    """
    if not isinstance(body, Mapping):
        raise ValueError(
            f"the request body is {_named(body)}; expected a JSON object for the {dialect.value} API, "
            "so nothing in it was compared."
        )
    return _PARSERS[dialect](body)


def dialect_of(path: str, body: Any = None) -> Dialect | None:
    """The API that a request is for: by the end of its path, else by what the body looks like.

    None: neither says so, and nothing is to be looked for in it.
    """
    plain = path.split("?", 1)[0].rstrip("/")
    for ending, dialect in _ENDINGS:
        if plain.endswith(ending):
            return dialect
    if plain or not isinstance(body, Mapping):
        return None
    return _by_body(body)


def _by_body(body: Mapping[str, Any]) -> Dialect | None:
    if "input" in body:
        return Dialect.OPENAI_RESPONSES
    if "messages" in body:
        if _looks_anthropic(body):
            return Dialect.ANTHROPIC
        return Dialect.OLLAMA_CHAT if any(name in body for name in _OLLAMA_FIELDS) else Dialect.OPENAI_CHAT
    if "prompt" in body:
        native = any(name in body for name in (*_OLLAMA_FIELDS, "raw", "system"))
        return Dialect.OLLAMA_GENERATE if native else Dialect.OPENAI_COMPLETIONS
    return None


def _looks_anthropic(body: Mapping[str, Any]) -> bool:
    if "system" in body or "anthropic_version" in body:
        return True
    tools = body.get("tools")
    if isinstance(tools, list) and any(
        isinstance(tool, Mapping) and "input_schema" in tool for tool in tools
    ):
        return True
    messages = body["messages"] if isinstance(body["messages"], list) else []
    blocks = [
        block
        for message in messages
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        for block in message["content"]
    ]
    return any(isinstance(block, Mapping) and block.get("type") in _ANTHROPIC_BLOCKS for block in blocks)


def _named(body: Any) -> str:
    names = {type(None): "missing or no JSON", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(body), "a number")
