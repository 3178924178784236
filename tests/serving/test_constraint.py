"""Constrained replies stay in their language, end only where it allows, and cannot hang the server."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from headstart.engines.base import Vocabulary
from headstart.engines.toy_vocabulary import BOS, IM_END, IM_START, toy_vocabulary
from headstart.errors import EngineError, RequestError
from headstart.serving.constraint import MAX_SOURCE_CHARS, Constraint, ConstraintCompiler
from headstart.serving.request import ConstraintKind, ConstraintSpec, Sampling
from headstart.serving.sampling import Sampler

VOCAB = 300
WORDS = toy_vocabulary(VOCAB, adds_bos=False)
INTEGER = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def compiler() -> ConstraintCompiler:
    return ConstraintCompiler(WORDS, VOCAB, lambda text: list(text.encode()))


def schema(value: Any) -> ConstraintSpec:
    return ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(value))


def follow(constraint: Constraint, text: str) -> None:
    for byte in text.encode():
        assert constraint.mask()[byte], f"{chr(byte)!r} was not allowed in {text!r}"
        constraint.accept(byte)


def test_schema_is_followed_and_ends_only_when_complete(compiler: ConstraintCompiler) -> None:
    constraint = compiler.compile(schema(INTEGER))
    mask = constraint.mask()
    assert mask.shape == (VOCAB,)
    assert mask.dtype == np.bool_
    assert np.flatnonzero(mask).tolist() == [ord("{")]
    follow(constraint, '{"a": 1')
    assert not constraint.mask()[[BOS, IM_END]].any()
    assert not constraint.done
    follow(constraint, "}")
    assert constraint.done
    assert sorted(np.flatnonzero(constraint.mask())) == [BOS, IM_END]


def test_end_tokens_are_allowed_wherever_the_reply_may_stop(compiler: ConstraintCompiler) -> None:
    constraint = compiler.compile(ConstraintSpec(ConstraintKind.REGEX, "[0-9]{2,4}"))
    follow(constraint, "1")
    assert not constraint.mask()[IM_END]
    follow(constraint, "2")
    mask = constraint.mask()
    assert mask[[BOS, IM_END]].all()
    assert mask[ord("3")]
    constraint.accept(IM_END)
    assert constraint.done


def test_control_tokens_are_never_part_of_a_reply(compiler: ConstraintCompiler) -> None:
    constraint = compiler.compile(ConstraintSpec(ConstraintKind.REGEX, "(.|\n)*"))
    mask = constraint.mask()
    assert not mask[IM_START]
    assert not mask[259:].any()
    assert mask[ord("<")]


def test_lark_grammar(compiler: ConstraintCompiler) -> None:
    constraint = compiler.compile(ConstraintSpec(ConstraintKind.GRAMMAR, 'start: "yes" | "no"'))
    assert sorted(np.flatnonzero(constraint.mask())) == [ord("n"), ord("y")]
    follow(constraint, "no")
    assert constraint.done


def test_whitespace_cannot_go_on_for_ever(compiler: ConstraintCompiler) -> None:
    constraint = compiler.compile(schema(INTEGER))
    follow(constraint, '{\n    "a":' + " " * 128)
    assert not constraint.mask()[ord(" ")]
    assert constraint.mask()[ord("7")]


def test_random_replies_are_valid(compiler: ConstraintCompiler) -> None:
    value = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 5}, "tags": {"enum": ["x", "y"]}},
        "required": ["name", "tags"],
        "additionalProperties": False,
    }
    logits = np.zeros(VOCAB, dtype=np.float32)
    for seed in range(20):
        sampler = Sampler(Sampling(seed=seed), VOCAB, np.empty(0, dtype=np.int32))
        constraint = compiler.compile(schema(value))
        reply = bytearray()
        while not constraint.done:
            token = sampler.choose(logits, constraint.mask())
            constraint.accept(token)
            if token < 256:
                reply.append(token)
        parsed = json.loads(reply)
        assert set(parsed) == {"name", "tags"}
        assert len(parsed["name"]) <= 5


def test_token_that_is_not_allowed_is_an_error(compiler: ConstraintCompiler) -> None:
    constraint = compiler.compile(schema(INTEGER))
    with pytest.raises(EngineError, match=r"constraint"):
        constraint.accept(ord("x"))


def test_replies_of_one_grammar_do_not_share_their_place(compiler: ConstraintCompiler) -> None:
    one, other = compiler.compile(schema(INTEGER)), compiler.compile(schema(INTEGER))
    follow(one, '{"a"')
    assert np.flatnonzero(other.mask()).tolist() == [ord("{")]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (schema({"type": "nonsense"}), "nonsense"),
        (schema({"$ref": "#/nowhere"}), "nowhere"),
        (schema(3), "compiled"),
        (ConstraintSpec(ConstraintKind.JSON_SCHEMA, "{not json"), "compiled"),
        (ConstraintSpec(ConstraintKind.JSON_SCHEMA, "[" * 100_000), "compiled"),
        (ConstraintSpec(ConstraintKind.REGEX, "((("), "regex"),
        (ConstraintSpec(ConstraintKind.GRAMMAR, "start: missing"), "missing"),
    ],
)
def test_what_cannot_compile_is_a_bad_request_with_the_reason(
    compiler: ConstraintCompiler, spec: ConstraintSpec, words: str
) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        compiler.compile(spec)
    assert caught.value.status == 400
    assert caught.value.param is not None
    assert caught.value.param.startswith("response_format")
    assert len(str(caught.value)) < 500


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        value = {"type": "array", "items": value}
    return value


@pytest.mark.parametrize(
    "spec",
    [
        schema({"properties": {f"p{i}": {"pattern": "^(foo|bar){1,99}[a-z]{1,99}$"} for i in range(900)}}),
        schema(nested(900)),
        schema({"type": "string", "pattern": "(a|aa){1,900}" * 30}),
        schema({"type": "array", "items": {"type": "integer"}, "minItems": 10**8}),
        ConstraintSpec(ConstraintKind.REGEX, "a{1,99999}{1,99999}"),
        ConstraintSpec(ConstraintKind.GRAMMAR, "start: " + " | ".join(f'"{i}"' for i in range(20_000))),
        ConstraintSpec(ConstraintKind.REGEX, "a" * (MAX_SOURCE_CHARS + 1)),
    ],
)
def test_huge_constraints_take_bounded_time(compiler: ConstraintCompiler, spec: ConstraintSpec) -> None:
    started_s = time.perf_counter()
    try:
        constraint = compiler.compile(spec)
        constraint.mask()
    except (RequestError, EngineError) as error:
        assert str(error)
    assert time.perf_counter() - started_s < 20


def test_compiling_on_many_threads(compiler: ConstraintCompiler) -> None:
    specs = [schema({"const": f"value {i % 5}"}) for i in range(40)]
    with ThreadPoolExecutor(8) as threads:
        for i, constraint in enumerate(threads.map(compiler.compile, specs)):
            follow(constraint, json.dumps(f"value {i % 5}"))
            assert constraint.done


def test_vocabulary_shorter_than_the_logits() -> None:
    padded = ConstraintCompiler(WORDS, VOCAB + 20, lambda text: list(text.encode()))
    assert padded.compile(schema(INTEGER)).mask().shape == (VOCAB + 20,)


def test_model_that_cannot_end_a_reply_is_told_so() -> None:
    endless = Vocabulary(WORDS.pieces, WORDS.control, frozenset(), bos=None, eos=None, adds_bos=False)
    with pytest.raises(RequestError, match="end-of-generation"):
        ConstraintCompiler(endless, VOCAB, lambda text: list(text.encode())).compile(schema(INTEGER))
