"""A conversation on its way to a prompt: what every dialect's parser ends in.

Messages are in OpenAI's form, which chat templates are written for, whatever dialect they came in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headstart.api.request_log import Conversation
from headstart.chat.boundaries import prompt_hints, render_with_boundaries
from headstart.chat.continuing import render_continued
from headstart.chat.history import Meaning, meaning_of, spliced, splices
from headstart.chat.messages import ROLES
from headstart.chat.replies.forced import call_grammar
from headstart.chat.replies.format import PLAIN, ReplyFormat
from headstart.chat.replies.syntax import Syntax
from headstart.chat.template import ChatTemplate
from headstart.chat.thinking import opens_thinking
from headstart.errors import RequestError
from headstart.prefix.plan import PromptHints
from headstart.prefix.tokens import TokenRun
from headstart.serving.models import ServedModel
from headstart.serving.request import ConstraintKind, ConstraintSpec, GenerationRequest

__all__ = ["ChatPrompt", "Prompted", "chat_prompt", "chat_text"]
__all__ += ["named_tool", "required_tools", "room_warnings"]

_RESERVED_KWARGS = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "self"})


@dataclass(frozen=True)
class ChatPrompt:
    """`kwargs`: what else the template is given. `to_generate`: the prompt ends where a reply begins.
    `calls`: whether the tools may be called; where not, they are in the prompt all the same, so that it
    stays the same. `required`: the reply must be a call of one of these tools; None where it need not be.
    `continued`: the reply goes on with the text of the last message. `notes`: what its dialect left out of it
    or moved, a sentence each. `field`: where it came in, for errors."""

    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]] | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    to_generate: bool = True
    calls: bool = True
    required: tuple[str, ...] | None = None
    tenant: str = ""
    continued: bool = False
    notes: tuple[str, ...] = ()
    field: str = "messages"


@dataclass(frozen=True)
class Prompted:
    """A conversation as a prompt. `hints` only where the layout can use them; `format`: how replies to it
    are taken apart; `shown`: the control tokens that this needs to see. `notes`: what was done
    to the conversation, a sentence each. `answered`: the rendered prompt, under which replies are kept."""

    tokens: TokenRun
    hints: PromptHints = field(default_factory=PromptHints)
    conversation: Conversation | None = None
    format: ReplyFormat = PLAIN
    shown: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    constraint: ConstraintSpec | None = None
    answered: str | None = None


def named_tool(choice: object, holder: object) -> str | None:
    """The tool that `tool_choice` names in `holder`, an object of it; None for "required". Raises
    RequestError for what is neither."""
    if isinstance(holder, Mapping) and isinstance(holder.get("name"), str):
        return str(holder["name"])
    if choice != "required":
        raise RequestError(
            "tool_choice must be none, auto, required, or an object that names a function",
            param="tool_choice",
        )
    return None


def required_tools(asked: ChatPrompt, name: str | None) -> ChatPrompt:
    """`asked` with a reply that must be a call: of the tool `name`, or of any. Raises RequestError where
    there is no such tool."""
    names = tuple(_schemas(asked))
    if not names:
        raise RequestError("tool_choice: a call is required, but no tools are offered", param="tool_choice")
    if name is not None and name not in names:
        raise RequestError(
            f"tool_choice: there is no tool {name[:80]!r}; offered are {', '.join(names)}",
            param="tool_choice",
        )
    return replace(asked, required=names if name is None else (name,))


def chat_prompt(model: ServedModel, asked: ChatPrompt) -> Prompted:
    """Any thread. Raises RequestError."""
    asked, notes = _in_order(model, asked)
    template, kwargs = _template(model, asked)
    text = _rendered(template, asked, kwargs)
    format_ = _format(model, asked, text)
    prompt, spelled, where = _faithful(model, asked, text, format_)
    hints = PromptHints()
    # What does not fit is refused later; where its messages start is not worth the work.
    if model.layout.recurrent and asked.to_generate and len(prompt) <= model.layout.context_tokens:
        rendered = render_with_boundaries(
            template, asked.messages, tools=asked.tools, kwargs=kwargs, memo=model.boundaries, text=text
        )
        hints = prompt_hints(rendered.moved(spelled, where), prompt, model.vocabulary)
    conversation = Conversation(asked.messages, asked.tools, kwargs, len(text))
    plain = format_.syntax.thinking is None and not format_.tools and not format_.harmony
    shown = frozenset[int]() if plain else model.marking_tokens
    return Prompted(
        prompt,
        hints,
        conversation,
        format_,
        shown,
        (*asked.notes, *notes),
        constraint=_constraint(model, asked, format_),
        answered=text if asked.to_generate else None,
    )


def _faithful(
    model: ServedModel, asked: ChatPrompt, text: str, format_: ReplyFormat
) -> tuple[TokenRun, str, Callable[[int], int]]:
    """Tokens of the rendered conversation, replies in it as they were generated; the text they spell, and
    where characters of `text` stand in that."""
    answers = [] if model.chat.literal or model.harmony else model.history.answers(asked.tenant, text)
    if not answers:
        return model.tokenize_prompt(text), text, lambda char: char
    missing = not model.thinking.drops_earlier or model.chat.preserve_thinking is True

    def same(start: int, generated: str, came_back: str) -> bool:
        one = replace(format_, thinking=opens_thinking(text[:start]))
        meant, back = (_meaning(one, reply) for reply in (generated, came_back))
        return meant.same(back, thoughts_may_be_missing=missing)

    def tokenize(part: str, first: bool) -> TokenRun:
        return model.tokenize_prompt(part) if first else model.tokenize(part, special=True, add_bos=False)

    return spliced(text, splices(text, answers, model.turn_ends, same), tokenize)


def _meaning(format_: ReplyFormat, reply: str) -> Meaning:
    splitter = format_.splitter(hold=True)
    return meaning_of([*splitter.feed(reply), *splitter.end()], format_.tools)


def _in_order(model: ServedModel, asked: ChatPrompt) -> tuple[ChatPrompt, tuple[str, ...]]:
    """The conversation with its tools in the order in which the same ones came first."""
    if not asked.tools or model.chat.tools_as_sent:
        return asked, ()
    tools, moved = model.tool_order.arranged(asked.tools, asked.tenant)
    if not moved:
        return asked, ()
    note = (
        "tools: rendered in the order in which the same ones were first sent (--tool-order as-sent: as sent)"
    )
    return replace(asked, tools=[dict(tool) for tool in tools]), (note,)


def _format(model: ServedModel, asked: ChatPrompt, text: str) -> ReplyFormat:
    """With `calls` false, or without tools, what looks like a call is text."""
    tools = _schemas(asked) if asked.calls else {}
    return ReplyFormat(model.syntax, tools, opens_thinking(text), model.harmony)


def _schemas(asked: ChatPrompt) -> dict[str, Any]:
    """The arguments' schema of each tool by its name."""
    found: dict[str, Any] = {}
    for tool in asked.tools or ():
        function = tool.get("function")
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            found[function["name"]] = function.get("parameters")
    return found


def _constraint(model: ServedModel, asked: ChatPrompt, format_: ReplyFormat) -> ConstraintSpec | None:
    """What holds a reply to a call, compiled once so that a schema that cannot be is refused here."""
    if asked.required is None:
        return None
    syntax = Syntax(tools="harmony") if format_.harmony else format_.syntax
    tools = {name: format_.tools[name] for name in asked.required}
    spec = ConstraintSpec(ConstraintKind.GRAMMAR, call_grammar(syntax, tools, thinking=format_.thinking))
    try:
        model.constraints.compile(spec, "the grammar made of them")
    except RequestError as error:
        raise RequestError(
            f"tool_choice: the tools' schemas cannot be held: {error}", param="tools"
        ) from None
    return spec


def chat_text(model: ServedModel, asked: ChatPrompt) -> str:
    """The conversation as the model's template writes it. Raises RequestError."""
    asked, _ = _in_order(model, asked)
    template, kwargs = _template(model, asked)
    return _rendered(template, asked, kwargs)


def room_warnings(model: ServedModel, requests: list[GenerationRequest]) -> list[str]:
    """Says so where the context ends before max_tokens does."""
    room = min(model.layout.context_tokens - len(request.prompt) for request in requests)
    if all((request.max_tokens or 0) <= room for request in requests) or room <= 0:
        return []
    return [f"max_tokens: the context of {model.layout.context_tokens} tokens leaves room for {room}"]


def _rendered(template: ChatTemplate, asked: ChatPrompt, kwargs: Mapping[str, Any]) -> str:
    try:
        if asked.continued:
            return render_continued(template, asked.messages, tools=asked.tools, kwargs=kwargs)
        return template.render(
            asked.messages, tools=asked.tools, add_generation_prompt=asked.to_generate, **kwargs
        )
    except RequestError as error:
        param = asked.field if error.param == "messages" else error.param
        raise RequestError(str(error), status=error.status, param=param, code=error.code) from error


def _template(model: ServedModel, asked: ChatPrompt) -> tuple[ChatTemplate, dict[str, Any]]:
    """The model's template, and what is set in it."""
    if model.template is None:
        raise RequestError(
            "this model has no chat template: start the server with --chat-template FILE, "
            "or use /v1/completions",
            param=asked.field,
        )
    _check_messages(asked.messages)
    kwargs = dict(asked.kwargs)
    reserved = sorted(_RESERVED_KWARGS & kwargs.keys())
    if reserved:
        raise RequestError(
            f"{reserved[0]} cannot be set here; it has a field of its own or is the model's",
            param=f"chat_template_kwargs.{reserved[0]}",
        )
    return model.template, kwargs


def _check_messages(messages: Sequence[dict[str, Any]]) -> None:
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if message.get("role") not in ROLES:
            raise RequestError(
                f"{where}.role is not known here; it must be one of {', '.join(ROLES)}", param=f"{where}.role"
            )
        calls = message.get("tool_calls")
        if calls is not None and not isinstance(calls, list):
            raise RequestError(f"{where}.tool_calls must be a list", param=f"{where}.tool_calls")
