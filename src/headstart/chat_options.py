"""Settings of `headstart serve` about chats: see `config`."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.options import one_of, option, parse_text

__all__ = ["ChatSettings"]


@dataclass(frozen=True)
class ChatSettings:
    """How conversations become prompts, and replies are taken apart."""

    chat_template: str | None = option(
        None,
        parse_text,
        "chat",
        "Chat template to use in place of the model's own: a file with Jinja in it, or the Jinja itself.",
        metavar="FILE|JINJA",
        shown="the model's own",
    )
    tool_parser: str | None = option(
        None,
        parse_text,
        "chat",
        "How the model writes calls of tools: hermes, qwen-xml, glm, llama3-json, pythonic, mistral, "
        "deepseek, gemma-python, gemma-function, gemma4, or none to leave them in the text.",
        metavar="NAME",
        shown="by the template's markers",
    )
    reasoning_parser: str | None = option(
        None,
        parse_text,
        "chat",
        "How the model writes its thoughts: think, mistral, gemma4, or none to leave them in the text.",
        metavar="NAME",
        shown="by the template's markers",
    )
    preserve_thinking: str = option(
        "template",
        one_of("template", "on", "off"),
        "chat",
        "Whether thoughts of earlier turns stay in the prompt, where clients send them back and the template "
        "can keep them. template: as it says.",
        metavar="template|on|off",
    )
    history: str = option(
        "faithful",
        one_of("faithful", "literal"),
        "chat",
        "faithful: a reply that comes back and means what was generated keeps the tokens it was made of. "
        "literal: it is read as it is written.",
        metavar="faithful|literal",
    )
    tool_order: str = option(
        "first-seen",
        one_of("first-seen", "as-sent"),
        "chat",
        "first-seen: the same tools in another order are rendered as they were first seen, so that nothing "
        "is read again for it.",
        metavar="first-seen|as-sent",
    )
