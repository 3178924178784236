"""A loaded model as the APIs see it: what it is, how its text becomes tokens, who serves it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headstart.chat.boundaries import BoundaryMemo
from headstart.chat.choices import ChatChoices
from headstart.chat.history import History, Said
from headstart.chat.replies.format import is_harmony, marking_tokens
from headstart.chat.replies.syntax import Syntax, syntax_of
from headstart.chat.template import ChatTemplate
from headstart.chat.thinking import Thinking, thinking_kwargs, thinking_of
from headstart.chat.tool_order import ToolOrder
from headstart.engines.base import EngineFacts, Vocabulary
from headstart.engines.spelling import tokenize_prompt
from headstart.prefix.block import StateLayout
from headstart.prefix.tokens import TokenRun
from headstart.serving.constraint import ConstraintCompiler
from headstart.serving.request import Event, GenerationRequest


class Tokenize(Protocol):
    """Text to token ids; any thread. The engine port's `tokenize`."""

    def __call__(self, text: str, *, special: bool, add_bos: bool) -> TokenRun: ...


class Generates(Protocol):
    """The part of the scheduler that an API uses. Tickets are the scheduler's own."""

    def submit(self, request: GenerationRequest, sink: Callable[[Event], None]) -> Any: ...

    def cancel(self, ticket: Any) -> None: ...


@dataclass(frozen=True, eq=False)
class ServedModel:
    """One model under the name clients ask for it by.

    `template` is None where the model has none and none was given. `created`: Unix time of loading.
    `load_s`: how long loading took, in seconds. `speculate`: where drafts come from.
    """

    name: str
    engine_facts: EngineFacts
    layout: StateLayout
    vocabulary: Vocabulary
    tokenize: Tokenize
    template: ChatTemplate | None
    scheduler: Generates
    constraints: ConstraintCompiler
    created: int
    load_s: float = 0.0
    speculate: str = "off"
    boundaries: BoundaryMemo = field(default_factory=BoundaryMemo)
    chat: ChatChoices = field(default_factory=ChatChoices)
    tool_order: ToolOrder = field(default_factory=ToolOrder)
    history: History = field(default_factory=History)

    @cached_property
    def syntax(self) -> Syntax:
        """How the model writes calls and thoughts, by its template's markers."""
        if self.template is None:
            return Syntax()
        chosen = self.chat
        return syntax_of(self.template.source, tools=chosen.tool_parser, reasoning=chosen.reasoning_parser)

    @cached_property
    def thinking(self) -> Thinking:
        """What the template does about thinking."""
        return Thinking() if self.template is None else thinking_of(self.template)

    def thinking_kwargs(
        self, given: Mapping[str, Any], *, enable: bool | None = None, effort: str | None = None
    ) -> tuple[dict[str, Any], list[str]]:
        """The template's arguments for what a request wishes of thinking, and a sentence for each wish that
        changes nothing; earlier thoughts are as --preserve-thinking says. `given`: chat_template_kwargs."""
        return thinking_kwargs(
            self.thinking, given, enable=enable, effort=effort, preserve=self.chat.preserve_thinking
        )

    @cached_property
    def harmony(self) -> bool:
        """Whether replies are written in gpt-oss's channels, and nobody has said otherwise."""
        chosen = self.chat.tool_parser or self.chat.reasoning_parser
        return self.template is not None and chosen is None and is_harmony(self.template.source)

    @cached_property
    def turn_ends(self) -> tuple[str, ...]:
        """How tokens that end a reply are spelled."""
        pieces = (self.vocabulary.pieces[token] for token in self.vocabulary.end_of_generation)
        return tuple(sorted({piece.decode("utf-8", "replace") for piece in pieces if piece}))

    @cached_property
    def marking_tokens(self) -> frozenset[int]:
        """Control tokens that calls and thoughts are written with."""
        return marking_tokens(self.vocabulary, harmony=self.harmony)

    @cached_property
    def piece_bytes(self) -> npt.NDArray[np.int64]:
        """How many bytes of text each token stands for."""
        pieces = self.vocabulary.pieces
        return np.fromiter((len(piece) for piece in pieces), dtype=np.int64, count=len(pieces))

    @cached_property
    def fingerprint(self) -> str:
        """OpenAI's system_fingerprint: changes with whatever may change the replies."""
        parts = sorted(self.engine_facts.parts.items())
        return "fp_" + hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()

    def tokenize_prompt(self, text: str) -> TokenRun:
        """`text` as a prompt: control tokens where they are spelled, one beginning-of-sequence token."""
        return tokenize_prompt(self.vocabulary, self.tokenize, text)

    def text_of(self, tokens: TokenRun) -> str:
        """The text of `tokens`, control tokens spelled, broken characters as U+FFFD."""
        pieces = self.vocabulary.pieces
        return b"".join(pieces[token] for token in tokens.tolist()).decode("utf-8", "replace")

    def remember_reply(self, tenant: str, prompt: str, tokens: Sequence[int]) -> None:
        """Notes what was generated for a rendered prompt, so that it keeps its tokens when it comes back."""
        made = [token for token in tokens if token not in self.vocabulary.end_of_generation]
        try:
            text = b"".join(self.vocabulary.pieces[token] for token in made).decode("utf-8")
        except UnicodeDecodeError:
            return  # A reply that was cut inside a character comes back as another one.
        if made and not any(end in text for end in self.turn_ends):
            self.history.remember(tenant, prompt, Said(text, np.array(made, np.int32)))
