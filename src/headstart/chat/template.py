"""Chat templates: a model's own Jinja source turned into the text its prompt is made of.

Rendering follows what Hugging Face's `apply_chat_template` offers to templates (transformers,
"Chat templates" guide): a sandbox with trim_blocks and lstrip_blocks, loop controls, `tojson`
that keeps non-ASCII characters, `raise_exception`, `strftime_now`, the `generation` block.
The same messages give the same text, byte for byte, all day: `strftime_now` stands at the start
of the present day, because a clock in the head of a prompt would make every prefix new.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headstart.chat.messages import ContentForms, Message, prepare_messages
from headstart.errors import ModelError, RequestError

MAX_LOOP_STEPS = 200_000
"""Loop iterations one rendering may take: seconds of work; a conversation takes a few a message."""
_PROBE_LOOP_STEPS = 2_000
MAX_REPEAT_CHARS = 1_000_000
MAX_EXPONENT = 64
_TICK = "headstart_loop_step"


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks assistant tokens for training; here its body only."""

    tags = {"generation"}  # noqa: RUF012  (the attribute's type is set by jinja2)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox, with loops counted and repetition bounded."""

    intercepted_binops = frozenset({"*", "**"})

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            step = nodes.Call(nodes.Name(_TICK, "load"), [], [], None, None, lineno=loop.lineno)
            loop.body.insert(0, nodes.ExprStmt(step, lineno=loop.lineno))
        tree.set_environment(self)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and (not isinstance(right, int | float) or abs(right) > MAX_EXPONENT):
            raise SecurityError(f"an exponent is limited to {MAX_EXPONENT}")
        if operator == "*":
            for repeated, times in ((left, right), (right, left)):
                if not isinstance(repeated, str | list | tuple) or not isinstance(times, int):
                    continue
                if len(repeated) * times > MAX_REPEAT_CHARS:
                    raise SecurityError(f"a repetition is limited to {MAX_REPEAT_CHARS} characters")
        return super().call_binop(context, operator, left, right)


class _RefusalError(TemplateError):
    """What a template said through raise_exception."""


_RENDER_ERRORS = (
    TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)


def _explain(error: BaseException) -> str:
    """What a failed rendering is told to the client, in the template's own words where it has any."""
    if isinstance(error, _RefusalError):
        return (
            f"the chat template refused the messages: {error} - send them as it takes them, "
            "or start the server with another --chat-template"
        )
    if isinstance(error, SecurityError):
        return f"the chat template was stopped: {error}"
    if isinstance(error, RecursionError | MemoryError):
        return "the chat template was stopped: it ran out of stack or memory"
    words = str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"
    return f"the chat template failed on these messages: {words}"


def _raise_exception(message: Any) -> None:
    raise _RefusalError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes: the signature Hugging Face gives to templates."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _today() -> datetime:
    return datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)


class _LoopBudget:
    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.left = steps

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise SecurityError(f"its loops took more than {self.steps} steps")


class ChatTemplate:
    """One compiled chat template. Thread-safe.

    `bos` and `eos` are the spelled tokens, "" where the model has none; `now` is the clock of
    `strftime_now`. Raises ModelError where the source cannot be compiled.
    """

    def __init__(self, source: str, *, bos: str, eos: str, now: Callable[[], datetime] = _today) -> None:
        self.source = source
        self.bos = bos
        self.eos = eos
        self._now = now
        environment = _Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: self._now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise ModelError(
                f"the chat template cannot be compiled: line {error.lineno}: {error.message}. "
                "Give another one with --chat-template."
            ) from error
        except (TemplateError, RecursionError, SyntaxError) as error:
            raise ModelError(
                f"the chat template cannot be compiled: {error}. Give another one with --chat-template."
            ) from error
        self._environment = environment
        self._forms = _probe_forms(self._render_prepared, source)

    def asks_for(self) -> frozenset[str]:
        """Names that the template takes from outside: of these, chat_template_kwargs can set some."""
        return frozenset(meta.find_undeclared_variables(self._environment.parse(self.source))) - {_TICK}

    @property
    def fingerprint(self) -> bytes:
        """Digest of all that rendering depends on besides its arguments; changes with the day."""
        parts = (self.source, self.bos, self.eos, self._now().strftime("%Y-%m-%d"))
        return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """The prompt text of `messages`.

        Raises RequestError(400): in the template's own words where it refuses the messages, or
        naming the content part that is not text.
        """
        prepared = prepare_messages(messages, self._forms)
        offered = list(tools) if tools else None
        try:
            text = self._render_prepared(prepared, offered, add_generation_prompt, kwargs)
            text.encode()  # a lone surrogate is the sender's mistake and is told to it here
        except _RENDER_ERRORS as error:
            raise RequestError(_explain(error), param="messages") from error
        return text

    def _render_prepared(
        self,
        messages: list[dict[str, Any]],
        tools: list[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        kwargs: Mapping[str, Any],
        loop_steps: int = MAX_LOOP_STEPS,
    ) -> str:
        values = dict(kwargs)
        values.update(
            messages=messages,
            tools=tools,
            documents=values.get("documents"),
            add_generation_prompt=add_generation_prompt,
            bos_token=self.bos,
            eos_token=self.eos,
        )
        values[_TICK] = _LoopBudget(loop_steps)
        return self._template.render(values)


_Render = Callable[..., str]


def _probe_forms(render: _Render, source: str) -> ContentForms:
    """Which of the message forms in use the template takes, found by trying each once."""

    def shows(messages: list[dict[str, Any]], wanted: str) -> bool:
        try:
            text = render(messages, None, False, {}, _PROBE_LOOP_STEPS)
        except _RENDER_ERRORS:
            return False
        return wanted in text

    mark = "headstartprobe"
    user = {"role": "user", "content": mark}
    parts = {"role": "user", "content": [{"type": "text", "text": mark}]}

    def call(content: str | None, arguments: Any) -> list[dict[str, Any]]:
        function = {"name": mark, "arguments": arguments}
        calls = [{"id": "call000000", "type": "function", "function": function}]
        first = parts if not shows([user], mark) else user
        return [first, {"role": "assistant", "content": content, "tool_calls": calls}]

    null_fails = not shows(call(None, {"a": 1}), mark) or shows(call(None, {"a": 1}), "None")
    return ContentForms(
        only_parts=not shows([user], mark) and shows([parts], mark),
        null_content=not null_fails,
        object_arguments=shows(call("", {"a": 1}), mark) or not shows(call("", '{"a": 1}'), mark),
        developer_role="developer" in source,
    )
