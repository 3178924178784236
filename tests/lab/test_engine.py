"""The engine that recalls answers from its own state, whoever put it there."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.engines.base import Logits, SeqId, Step
from headstart.engines.toy_model import LayerKind
from headstart.engines.toy_vocabulary import IM_END, IM_START
from headstart.lab.defects.state import shifted
from headstart.lab.engine import LEAST_MATCH, RecallEngine, recall
from headstart.prefix.tokens import TokenRun, token_run

HEADER = [IM_END, *b"\n", IM_START, *b"assistant\n"]
LAYERS: tuple[tuple[LayerKind, ...], ...] = (("full",), ("full", "window"), ("full", "window", "recurrent"))
TEXT = token_run(
    list(b"EARLY=48213. " + b"once upon a time there was a mill by the river " * 4 + b"\nEARLY=")
)


def ids(text: bytes, *more: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([*text, *more], dtype=np.int64)


def test_it_says_what_followed_the_last_time() -> None:
    assert recall(ids(b"EARLY=1 and EARLY=2 and EARLY=")) == ord("2")


def test_the_longest_suffix_decides() -> None:
    assert recall(ids(b"mind EARLY=1, told EARLY=2, mind EARLY=")) == ord("1")


def test_a_short_suffix_is_no_memory() -> None:
    assert recall(ids(b"EARLY=1 and " + b"EARLY="[-LEAST_MATCH + 1 :])) is None
    assert recall(ids(b"")) is None


def test_a_reply_goes_on_from_the_text_before_its_header() -> None:
    assert recall(ids(b"EARLY=48 and EARLY=", *HEADER)) == ord("4")
    assert recall(ids(b"EARLY=48 and EARLY=", *HEADER, *b"4")) == ord("8")


def read(engine: RecallEngine, seq: SeqId, tokens: TokenRun) -> Logits:
    logits: Logits | None = None
    while len(tokens):
        step, tokens = tokens[: engine.max_step_tokens], tokens[engine.max_step_tokens :]
        (logits,) = engine.forward([Step(seq, step, wants_logits=not len(tokens))])
    assert logits is not None
    return logits


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("at", [1, 60, 120])
def test_restored_state_goes_on_as_if_it_had_been_read(layers: tuple[LayerKind, ...], at: int) -> None:
    engine = RecallEngine(layers)
    whole, part = engine.open(), engine.open()
    logits = read(engine, whole, TEXT)
    read(engine, part, TEXT[:at])
    checkpoint = engine.checkpoint(part) if "recurrent" in layers else None
    again = engine.restore([engine.rows(part, 0, at)] if at else [], checkpoint, at)
    assert int(logits.argmax()) == ord("4")
    assert np.array_equal(read(engine, again, TEXT[at:]), logits)


@pytest.mark.parametrize("layers", LAYERS)
def test_wrong_rows_give_other_scores(layers: tuple[LayerKind, ...]) -> None:
    engine = RecallEngine(layers)
    seq = engine.open()
    read(engine, seq, TEXT[:100])
    checkpoint = engine.checkpoint(seq) if "recurrent" in layers else None
    rows = engine.rows(seq, max(0, engine.window_start(seq)), 100)
    right = engine.restore([rows], checkpoint, 100)
    wrong = engine.restore(shifted([rows]), checkpoint, 100)
    rest = TEXT[100:101]
    assert np.abs(read(engine, right, rest) - read(engine, wrong, rest)).max() > 1
