"""Replies held to a language: JSON schema, regular expression or Lark grammar, through llguidance.

llguidance (github.com/guidance-ai/llguidance) turns a grammar and a vocabulary into a mask of the
tokens that may come next. Its own limits bound the work of compiling and of each mask.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from headstart.engines.base import Vocabulary
from headstart.errors import EngineError, RequestError
from headstart.serving.request import ConstraintKind, ConstraintSpec

MAX_SOURCE_CHARS = 256 * 1024
_KEPT_GRAMMARS = 32
_WHITESPACE = r"[\x20\x0A\x0D\x09]{1,128}"
"""Between JSON tokens: room for any sane indentation, and no way to write blanks for ever."""
_PARAM = {
    ConstraintKind.JSON_SCHEMA: "response_format.json_schema.schema",
    ConstraintKind.GRAMMAR: "response_format.grammar",
    ConstraintKind.REGEX: "response_format.pattern",
}


class _VocabularyTokenizer:
    """A Vocabulary in the form llguidance's TokenizerWrapper asks for."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        vocab_size: int,
        tokenize: Callable[[str], list[int]],
        ends: Sequence[int],
    ) -> None:
        missing = vocab_size - len(vocabulary.pieces)
        self.eos_token_id = ends[0]
        self.bos_token_id = vocabulary.bos
        self.tokens = [*vocabulary.pieces[:vocab_size], *[b""] * missing]
        self.special_token_ids = sorted(vocabulary.control | vocabulary.end_of_generation)
        self.is_tokenizer_wrapper = True
        self._tokenize = tokenize

    def __call__(self, text: bytes | str) -> list[int]:
        return self._tokenize(text if isinstance(text, str) else text.decode("utf-8", "replace"))


class ConstraintCompiler:
    """Compiles constraints for one model. Thread-safe; keeps the grammars used last.

    `tokenize` gives the ids of plain text (no control tokens, nothing put in front).
    """

    def __init__(self, vocabulary: Vocabulary, vocab_size: int, tokenize: Callable[[str], list[int]]) -> None:
        self._vocabulary = vocabulary
        self._vocab_size = vocab_size
        self._tokenize = tokenize
        self._lock = Lock()
        self._tokenizer: LLTokenizer | None = None
        self._kept: OrderedDict[ConstraintSpec, Any] = OrderedDict()
        ends = sorted(vocabulary.end_of_generation)
        if not ends and vocabulary.eos is not None:
            ends = [vocabulary.eos]
        self._ends = ends

    def compile(self, spec: ConstraintSpec, field: str | None = None) -> Constraint:
        """A fresh constraint for one reply. `field`: what errors call it; None as chat completions do.

        Raises RequestError(400) with the compiler's reason where `spec` cannot be compiled.
        """
        with self._lock:
            matcher = self._kept.get(spec)
            if matcher is not None:
                self._kept.move_to_end(spec)
                return self._fresh(matcher)
            tokenizer = self._tokenizer or self._make_tokenizer()
            self._tokenizer = tokenizer
        matcher = _compile(tokenizer, spec, field or _PARAM[spec.kind])
        with self._lock:
            self._kept[spec] = matcher
            while len(self._kept) > _KEPT_GRAMMARS:
                self._kept.popitem(last=False)
        return self._fresh(matcher)

    def _fresh(self, matcher: Any) -> Constraint:
        return Constraint(matcher.deep_copy(), self._vocab_size, self._ends)

    def _make_tokenizer(self) -> LLTokenizer:
        if not self._ends:
            raise RequestError(
                "this model names no end-of-generation token, so a constrained reply could not end"
            )
        shim = _VocabularyTokenizer(self._vocabulary, self._vocab_size, self._tokenize, self._ends)
        return LLTokenizer(shim, n_vocab=self._vocab_size, eos_token=list(self._ends))  # type: ignore[arg-type]


class Constraint:
    """Where one reply stands in its grammar. `done`: nothing but an end token may follow."""

    def __init__(self, matcher: Any, vocab_size: int, ends: Sequence[int]) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._ends = np.array(ends, dtype=np.intp)
        self._end_ids = frozenset(ends)
        self.done = False

    def mask(self) -> npt.NDArray[np.bool_]:
        """Tokens that may come next, shape (vocab_size,); end tokens only where the reply may end.

        Raises EngineError where the grammar became too complex to follow.
        """
        if self.done:
            allowed = np.zeros(self._vocab_size, dtype=np.bool_)
            allowed[self._ends] = True
            return allowed
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        allowed = np.unpackbits(bits, count=self._vocab_size, bitorder="little").view(np.bool_)
        allowed[self._ends] = self._matcher.is_accepting()
        return allowed

    def accept(self, token: int) -> None:
        """The reply goes on with `token`. Raises EngineError where the grammar does not allow it."""
        if token in self._end_ids:
            self.done = True
            return
        if not self._matcher.consume_token(token):
            self._check()
            raise EngineError(f"token {token} is not allowed by the constraint of this reply")
        self.done = bool(self._matcher.is_stopped())
        if self.done:
            self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise EngineError(f"the constraint of this reply failed: {_reason(self._matcher.get_error())}")


def compiled(spec: ConstraintSpec | None, compiler: ConstraintCompiler | None) -> Constraint | None:
    """A fresh constraint for one reply; None where it is held to nothing.

    Raises RequestError where `spec` cannot be compiled, EngineError where there is no compiler.
    """
    if spec is None:
        return None
    if compiler is None:
        raise EngineError("this scheduler was started without a constraint compiler")
    return compiler.compile(spec)


def _compile(tokenizer: LLTokenizer, spec: ConstraintSpec, param: str) -> Any:
    if len(spec.source) > MAX_SOURCE_CHARS:
        raise RequestError(
            f"{param} has {len(spec.source)} characters; the limit is {MAX_SOURCE_CHARS}", param=param
        )
    try:
        matcher = LLMatcher(
            tokenizer, _grammar(spec), log_level=0, limits=LLParserLimits(verbose_errors=False)
        )
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{param} cannot be compiled: {_reason(str(error))}", param=param) from error
    if matcher.is_error():
        raise RequestError(f"{param} cannot be compiled: {_reason(matcher.get_error())}", param=param)
    return matcher


def _grammar(spec: ConstraintSpec) -> str:
    if spec.kind is ConstraintKind.JSON_SCHEMA:
        json.loads(spec.source)
        options: Any = {"whitespace_pattern": _WHITESPACE}
        return LLMatcher.grammar_from_json_schema(spec.source, defaults=options)
    if spec.kind is ConstraintKind.REGEX:
        return LLMatcher.grammar_from_regex(spec.source)
    return LLMatcher.grammar_from_lark(spec.source)


def _reason(words: str) -> str:
    """llguidance's message on one line, at most 300 characters."""
    line = " ".join(words.split()) or "no reason was given"
    return line if len(line) <= 300 else line[:300] + " ..."
