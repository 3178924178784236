"""The proof at load fails when rows are wrong, and then whole snapshots serve instead, loudly."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.engines.base import Step
from headstart.engines.llamacpp import codec, examine
from headstart.engines.llamacpp.codec import CodecError
from headstart.engines.llamacpp.engine import LlamaCppEngine, load
from headstart.engines.llamacpp.options import Batching, LlamaCppOptions
from headstart.engines.llamacpp.transfer import RowTransfer
from headstart.errors import EngineError
from headstart.prefix.block import RowBytes
from tests.engines.equality import cold_logits, compare, random_tokens

MODELS = ("llama", "gemma3", "qwen35")


def loaded(path: Path, batching: Batching) -> LlamaCppEngine:
    return load(path, LlamaCppOptions(ctx_size=2048, max_sequences=2, batching=batching, threads=1))


def swapped(rows: RowBytes) -> RowBytes:
    """Two planes of one kind change places."""
    planes = list(rows.planes)
    planes[-1], planes[-2] = planes[-2], planes[-1]
    return RowBytes(tuple(planes))


def rolled(rows: RowBytes) -> RowBytes:
    return RowBytes(tuple(np.roll(plane, 1, axis=0) for plane in rows.planes))


@pytest.mark.parametrize("wrong", [swapped, rolled])
@pytest.mark.parametrize(("model", "batching"), list(product(MODELS, Batching)))
def test_wrong_rows_are_not_proved(  # noqa: PLR0917
    model: str,
    batching: Batching,
    wrong: Any,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An engine that hands out other rows than llama.cpp holds must not pass its own probe."""
    right = RowTransfer.rows_out

    def spoiled(self: RowTransfer, sequence: int, start: int, stop: int) -> RowBytes:
        return wrong(right(self, sequence, start, stop))

    monkeypatch.setattr(RowTransfer, "rows_out", spoiled)
    with caplog.at_level(logging.WARNING):
        engine = loaded(request.getfixturevalue(f"tiny_{model}"), batching)
    assert not engine.facts.state_proved
    assert not engine.facts.exact_repeat
    assert "cannot be cut and put back" in caplog.text
    assert any("cannot be cut" in note for note in engine.facts.notes)
    assert engine.facts.parts["state_kind"] == "snapshots"
    engine.shutdown()


def refuse(*_: object) -> None:
    raise CodecError("a layout from the future")


def refuse_restore(self: RowTransfer, sequence: int, rows: Sequence[RowBytes], position: int) -> None:
    raise EngineError("refused")


@pytest.mark.parametrize("batching", Batching)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fault", ["unknown layout", "refused restore"])
def test_snapshots_serve_where_rows_cannot(
    model: str,
    batching: Batching,
    fault: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if fault == "unknown layout":
        monkeypatch.setattr(examine.codec, "discover", refuse)
    else:
        monkeypatch.setattr(RowTransfer, "rows_in", refuse_restore)
    engine = loaded(request.getfixturevalue(f"tiny_{model}"), batching)
    assert not engine.facts.state_proved
    assert engine.layout.planes == ()
    assert engine.layout.recurrent, "the cache must ask for a checkpoint at the exact position"

    random = np.random.default_rng(1)
    tokens, tail = random_tokens(random, engine, 900), random_tokens(random, engine, 20)
    seq = engine.open()
    for start in range(0, 900, 100):
        engine.forward([Step(seq, tokens[start : start + 100], False)])
    snapshot = engine.checkpoint(seq)
    assert len(engine.rows(seq, 0, 900)) == 0
    engine.forward([Step(seq, tail[:7], False)])
    engine.cut(seq, 900, None, snapshot)
    cut = engine.forward([Step(seq, tail, True)])[0]
    engine.close(seq)
    seq = engine.restore([], snapshot, 900)
    restored = engine.forward([Step(seq, tail, True)])[0]
    engine.close(seq)
    with pytest.raises(EngineError, match="stands at 900"):
        engine.restore([], snapshot, 899)
    cold = cold_logits(engine, np.concatenate([tokens, tail]), (100,) * 9 + (20,))
    for logits in (cut, restored):
        assert logits is not None
        assert not compare(logits, cold).differs(0.1)
    engine.shutdown()


def test_the_same_tokens_are_probed_every_time(tiny_llama: Path) -> None:
    facts = [loaded(tiny_llama, Batching.EXACT).facts for _ in range(2)]
    assert facts[0] == facts[1]


def test_a_blob_with_other_positions_is_unknown() -> None:
    with pytest.raises(CodecError):
        codec.discover(np.zeros(100, np.uint8), np.arange(5, dtype=np.int32))
