"""One model as GGUF under llama.cpp and as an MLX folder under mlx-lm: the same tokens, rows and scores.

Weights are the same f32 numbers. llama.cpp keeps keys and values in f16 and computes attention in it,
mlx-lm in f32, so scores (of standard deviation 3) are compared within TOLERANCE; each engine's resumed
scores against its own cold ones by bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from headstart.engines.base import Engine, Logits
from headstart.engines.llamacpp.engine import load as load_gguf
from headstart.engines.llamacpp.options import LlamaCppOptions
from headstart.engines.mlx.engine import load as load_mlx
from headstart.engines.mlx.options import MlxOptions
from tests.engines.equality import (
    Chunks,
    Recording,
    Source,
    cold_logits,
    compare,
    draw_chunks,
    random_tokens,
    record,
    resume,
    resume_live,
    state_at,
)
from tests.fixtures.gguf_models import HEAD_WIDTH, GgufModels
from tests.fixtures.pairs import Tensors, as_mlx, halves

NAMES = ("llama", "gemma3", "qwen35")
TOLERANCE = 0.1
ROW_TOLERANCE = 0.02
"""Of a key or value, whose standard deviation is 1 to 2."""
LONG = 64
"""Chunks of this many tokens or more leave the same rows in llama.cpp, whatever their size."""
LARGEST = 128
CASES = 5
OPTIONS = MlxOptions(ctx_size=2048, max_step_tokens=LARGEST)
PIECES = (
    *("a", "Z", " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u2028", "\u200b", "1", "23", "\u0663", "½", "²"),
    *("'s", "don't", '"', ".", "-", "_", "é", "e\u0301", "ß", "漢", "ก", "🙂", "The quick", "<|im_end|>"),
)


@dataclass(frozen=True)
class Pair:
    """The model `name` in both engines."""

    name: str
    gguf: Engine
    mlx: Engine

    @property
    def engines(self) -> tuple[Engine, Engine]:
        return self.gguf, self.mlx


@pytest.fixture(scope="module", params=NAMES)
def pair(
    request: pytest.FixtureRequest, gguf_models: GgufModels, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    path = getattr(gguf_models, request.param)
    options = LlamaCppOptions(ctx_size=2048, max_sequences=3, threads=1, threads_batch=1)
    gguf = load_gguf(path, options)
    mlx = load_mlx(as_mlx(path, tmp_path_factory.mktemp("pairs") / request.param), OPTIONS)
    yield Pair(request.param, gguf, mlx)
    gguf.shutdown()
    mlx.shutdown()


def assert_close(mlx: Logits, gguf: Logits, where: str) -> None:
    """Scores lie within TOLERANCE and the best token is one, unless it has rivals nearer than that."""
    assert compare(mlx, gguf).difference <= TOLERANCE, where
    rivals = np.flatnonzero(gguf >= gguf.max() - TOLERANCE)
    assert mlx.argmax() in rivals, where
    assert len(rivals) > 1 or mlx.argmax() == gguf.argmax(), where


def test_texts_are_the_same_tokens(pair: Pair) -> None:
    gguf, mlx = pair.engines
    assert list(gguf.vocabulary.pieces) == list(mlx.vocabulary.pieces)
    assert gguf.vocabulary.control == mlx.vocabulary.control
    assert mlx.vocabulary.end_of_generation <= gguf.vocabulary.end_of_generation  # which adds some by name
    random = np.random.default_rng(3)
    for number in range(300):
        text, special = "".join(random.choice(PIECES, number % 11)), bool(number % 2)
        found = [engine.tokenize(text, special=special, add_bos=True).tolist() for engine in pair.engines]
        assert found[0] == found[1], (text, special)


@pytest.mark.parametrize("length", [1, 2, 17, 127, 129, 300])
def test_prompts_of_any_length_get_the_same_scores(pair: Pair, length: int) -> None:
    random = np.random.default_rng(length)
    tokens = random_tokens(random, pair.gguf, length)
    scores = [cold_logits(engine, tokens, draw_chunks(random, length, 1, LARGEST)) for engine in pair.engines]
    assert_close(scores[1], scores[0], f"{length=}")


@dataclass(frozen=True)
class Divergence:
    """A prompt read in `chunks`, then one that parts from it at `position`, read in `tail_chunks`; the whole
    of it cold in `cold_chunks`."""

    old: np.ndarray[tuple[int], np.dtype[np.int32]]
    chunks: Chunks
    position: int
    tail: np.ndarray[tuple[int], np.dtype[np.int32]]
    tail_chunks: Chunks
    cold_chunks: Chunks


def draw_divergence(random: np.random.Generator, engine: Engine) -> Divergence:
    """Chunks are such that both engines promise bits. A recurrent state is there at the end of one only."""
    position = int(random.integers(LONG, 300))
    length = position + int(random.integers(LONG, 200))
    old, tail = (
        random_tokens(random, engine, length),
        random_tokens(random, engine, int(random.integers(1, 60))),
    )
    before = draw_chunks(random, position, LONG, LARGEST)
    if engine.layout.recurrent:
        chunks = before + draw_chunks(random, length - position, LONG, LARGEST)
    else:
        chunks = draw_chunks(random, length, LONG, LARGEST)
    tail_chunks = draw_chunks(random, len(tail), 1, LARGEST)
    return Divergence(old, chunks, position, tail, tail_chunks, before + tail_chunks)


def resumed(engine: Engine, case: Divergence, source: Source, seed: int) -> Logits:
    seq = engine.open()
    recording = record(engine, seq, case.old, case.chunks, stops=[case.position])
    state = state_at(recording, case.position, case.tail)
    if source is Source.RESTORE:
        logits = resume(engine, state, case.tail_chunks, np.random.default_rng(seed))
    else:
        logits = resume_live(engine, seq, state, case.tail_chunks, source)
    engine.close(seq)
    return logits


@pytest.mark.parametrize("source", [Source.RESTORE, Source.CUT])
def test_the_same_divergences_resume_alike(pair: Pair, source: Source) -> None:
    random = np.random.default_rng([*pair.name.encode(), source is Source.CUT])
    for number in range(CASES):
        case = draw_divergence(random, pair.gguf)
        where = f"{number=} {case.position=} {case.chunks=} {case.tail_chunks=} {case.cold_chunks=}"
        whole = np.concatenate([case.old[: case.position], case.tail])
        found = []
        for engine in pair.engines:
            logits = resumed(engine, case, source, number)
            cold = cold_logits(engine, whole, case.cold_chunks)
            assert compare(logits, cold).same_bits, f"{engine.facts.engine} {where}"
            found.append(logits)
        assert_close(found[1], found[0], where)


def layer_rows(engine: Engine, recording: Recording) -> dict[str, np.ndarray[tuple[int, int], np.dtype]]:
    """Rows by "k.0" and the like, 0 being the first layer of its sort, or "window k.0"."""
    found: dict[str, np.ndarray[tuple[int, int], np.dtype]] = {}
    counts: dict[str, int] = {}
    for plane, rows in zip(engine.layout.planes, recording.rows.planes, strict=True):
        if plane.name == "cells":  # what llama.cpp knows of a cell beside its row
            continue
        sort = ("window " if plane.window_tokens else "") + ("k" if "k." in plane.name else "v")
        dtype = np.float16 if engine.facts.engine != "mlx" else np.float32
        found[f"{sort}.{counts.setdefault(sort, 0)}"] = rows.view(dtype).astype(np.float64)
        counts[sort] += 1
    return found


def test_rows_are_the_same_numbers(pair: Pair) -> None:
    """A llama's keys lie in another order within a head (see `halves`), everything else in the same."""
    tokens = random_tokens(np.random.default_rng(6), pair.gguf, 200)
    recordings = []
    for engine in pair.engines:
        seq = engine.open()
        recordings.append(layer_rows(engine, record(engine, seq, tokens, (70, 66, 64))))
        engine.close(seq)
    gguf, mlx = recordings
    assert gguf.keys() == mlx.keys() and len(gguf) >= 4
    for name, rows in gguf.items():
        same = halves(rows.T, HEAD_WIDTH).T if pair.name == "llama" and "k." in name else rows
        worst = np.abs(same - mlx[name]).max()
        assert worst <= ROW_TOLERANCE, f"{name}: {worst}"


def swapped(*names: str) -> Callable[[Tensors], Tensors]:
    """The tensors `names` in each other's places."""

    def change(tensors: Tensors) -> Tensors:
        first, second = names
        return tensors | {first: tensors[second], second: tensors[first]}

    return change


def rows_reversed(name: str, width: int) -> Callable[[Tensors], Tensors]:
    """Heads of `width` rows of a tensor in reverse order."""

    def change(tensors: Tensors) -> Tensors:
        value = tensors[name]
        heads = value.reshape(-1, width, *value.shape[1:])[::-1]
        return tensors | {name: heads.reshape(value.shape)}

    return change


def shifted(name: str) -> Callable[[Tensors], Tensors]:
    """A norm with its 1 added twice."""
    return lambda tensors: tensors | {name: tensors[name] + 1}


def neighbours(*names: str) -> Callable[[Tensors], Tensors]:
    """Queries' and keys' rows as mlx-lm rotates them already."""

    def change(tensors: Tensors) -> Tensors:
        return tensors | {name: halves(tensors[name], HEAD_WIDTH) for name in names}

    return change


FAULTS = {
    "llama: keys of two layers": swapped("blk.0.attn_k.weight", "blk.1.attn_k.weight"),
    "llama: queries and keys rotated otherwise": neighbours("blk.2.attn_q.weight", "blk.2.attn_k.weight"),
    "gemma3: values of a window and a full layer": swapped("blk.0.attn_v.weight", "blk.1.attn_v.weight"),
    "gemma3: a norm": shifted("blk.3.post_ffw_norm.weight"),
    "qwen35: keys of two layers": swapped("blk.1.attn_k.weight", "blk.3.attn_k.weight"),
    "qwen35: decays of other heads": rows_reversed("blk.2.ssm_a", 1),
    "qwen35: gates of other heads": rows_reversed("blk.0.attn_gate.weight", HEAD_WIDTH),
}


def test_a_fault_of_the_converter_is_seen(pair: Pair, gguf_models: GgufModels, tmp_path: Path) -> None:
    tokens = random_tokens(np.random.default_rng(8), pair.gguf, 100)
    scores = cold_logits(pair.gguf, tokens, (60, 40))
    assert_close(cold_logits(pair.mlx, tokens, (60, 40)), scores, "no fault")
    faults = [fault for fault in FAULTS if fault.startswith(pair.name)]
    for number, fault in enumerate(faults):
        folder = as_mlx(getattr(gguf_models, pair.name), tmp_path / str(number), FAULTS[fault])
        wrong = load_mlx(folder, OPTIONS)
        difference = compare(cold_logits(wrong, tokens, (60, 40)), scores).difference
        assert difference > 3 * TOLERANCE, f"{fault}: {difference}"
        wrong.shutdown()
    assert len(faults) >= 2
