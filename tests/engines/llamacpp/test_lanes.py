"""Lanes: what is restored or cut goes on bit for bit as a cold run in the same chunks does."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from headstart.engines.base import Engine, Step
from headstart.engines.llamacpp.engine import LlamaCppEngine
from headstart.errors import EngineError, EngineFull
from headstart.prefix.block import RowBytes
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
from tests.engines.llamacpp.conftest import LoadTiny

MODELS = ("llama", "gemma3", "qwen35")
RING = 768
"""Cells of the tiny gemma3's window in a lane: 128 tokens and a batch of 512, rounded up to 256."""


def recorded(
    engine: Engine, random: np.random.Generator, length: int
) -> tuple[Recording, tuple[int, ...], Chunks]:
    """A recording of `length` random tokens, the ends of its chunks, and the chunks."""
    tokens = random_tokens(random, engine, length)
    chunks = draw_chunks(random, length, 1, 512)
    ends = tuple(np.cumsum(chunks).tolist())
    seq = engine.open()
    recording = record(engine, seq, tokens, chunks, ends)
    engine.close(seq)
    return recording, ends, chunks


def up_to(ends: tuple[int, ...], position: int) -> Chunks:
    return tuple(b - a for a, b in pairwise((0, *ends)) if b <= position)


@pytest.mark.parametrize("length", [40, RING - 1, RING, RING + 1, 1900])
@pytest.mark.parametrize("model", MODELS)
def test_a_restored_sequence_has_the_bits_of_a_cold_one(load_tiny: LoadTiny, model: str, length: int) -> None:
    engine = load_tiny(model)
    random = np.random.default_rng(length)
    recording, ends, _ = recorded(engine, random, length)
    for position in {ends[0], ends[len(ends) // 2], ends[-1]}:
        tail = random_tokens(random, engine, int(random.integers(1, min(100, 2048 - position))))
        chunks = draw_chunks(random, len(tail), 1, 60)
        cold = cold_logits(
            engine, np.concatenate([recording.tokens[:position], tail]), up_to(ends, position) + chunks
        )
        got = compare(resume(engine, state_at(recording, position, tail), chunks, random), cold)
        assert got.same_bits, (position, len(tail), got)


@pytest.mark.parametrize(
    "position", [RING - 1, RING, RING + 1, RING + 50, 2 * RING - 3, 2 * RING, 2 * RING + 130]
)
def test_window_rows_lie_in_the_very_cells_of_a_cold_run(load_tiny: LoadTiny, position: int) -> None:
    """A long chunk goes through attention in tiles of cells: one cell further and bits differ."""
    engine = load_tiny("gemma3")
    random = np.random.default_rng(position)
    tokens = random_tokens(random, engine, position + 200)
    sizes = draw_chunks(random, position, 64, 512)
    seq = engine.open()
    recording = record(engine, seq, tokens[:position], sizes)
    engine.close(seq)
    runs = []
    for cold in (True, False):
        seq = engine.open() if cold else engine.restore([recording.rows], None, position)
        for start, stop in pairwise((0, *np.cumsum(sizes).tolist())) if cold else ():
            engine.forward([Step(seq, tokens[start:stop], False)])
        steps = [tokens[position : position + 100], tokens[position + 100 : position + 101], tokens[-99:]]
        runs.append([engine.forward([Step(seq, step, True)])[0] for step in steps])
        engine.close(seq)
    assert all(np.array_equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("back", [1, 5, 300, 1100])
@pytest.mark.parametrize("model", MODELS)
def test_a_cut_sequence_has_the_bits_of_a_cold_one(load_tiny: LoadTiny, model: str, back: int) -> None:
    """Cut by `back` tokens, read another tail, cut again: window rows given only where they are gone."""
    engine = load_tiny(model)
    random = np.random.default_rng(back)
    position = 800
    prefix = random_tokens(random, engine, position)
    seq = engine.open()
    recording = record(engine, seq, prefix, (300, 500), (300, 800))
    for turn in range(3):
        filler = random_tokens(random, engine, back)
        parts = draw_chunks(random, back, 1, 512)
        start = position
        for size in parts:
            engine.forward([Step(seq, filler[start - position : start - position + size], False)])
            start += size
        tail = random_tokens(random, engine, 20 + turn)
        cold = cold_logits(engine, np.concatenate([prefix, tail]), (300, 500, len(tail)))
        got = resume_live(engine, seq, state_at(recording, position, tail), (len(tail),), Source.CUT)
        assert compare(got, cold).same_bits, turn
        engine.cut(
            seq,
            position,
            recording.rows.cut(position - engine.layout.window_tokens, position),
            recording.checkpoints.get(position),
        )
    engine.close(seq)


@pytest.mark.parametrize("model", MODELS)
def test_an_exact_repeat_decodes_the_same_bits(load_tiny: LoadTiny, model: str) -> None:
    """Rows that decoding made are stored and put back like any others."""
    engine = load_tiny(model)
    random = np.random.default_rng(3)
    recording, _, _ = recorded(engine, random, RING + 150)
    reply = random_tokens(random, engine, 40)
    runs = []
    for _ in range(3):
        state = state_at(recording, len(recording.tokens), reply)
        seq = engine.restore([state.rows], state.checkpoint, state.position)
        runs.append([engine.forward([Step(seq, reply[i : i + 1], True)])[0] for i in range(len(reply))])
        rows = engine.rows(seq, state.position, state.position + len(reply))
        runs[-1].extend(plane.view(np.uint8) for plane in rows.planes)
        engine.close(seq)
    assert all(np.array_equal(a, b) for a, b in zip(runs[0], runs[1], strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(runs[0], runs[2], strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_rows_come_out_as_they_went_in(load_tiny: LoadTiny, model: str) -> None:
    """Any range, window rows across the end of the ring too; the sequence is not disturbed."""
    engine = load_tiny(model)
    random = np.random.default_rng(4)
    tokens = random_tokens(random, engine, 1000)
    seq = engine.open()
    recording = record(engine, seq, tokens, (400, 400, 200), (1000,))
    low = engine.window_start(seq)
    assert low == (1000 - RING if engine.layout.window_tokens else 0)
    for start, stop in [(low, 1000), (low + 3, low + 4), (700, 900), (999, 1000), (1000, 1000)]:
        rows = engine.rows(seq, start, stop)
        assert len(rows) == stop - start
        for got, expected in zip(rows.planes, recording.rows.cut(start, stop).planes, strict=True):
            assert np.array_equal(got, expected)
    before = engine.forward([Step(seq, tokens[:1], True)])[0]
    engine.close(seq)
    cold = cold_logits(engine, np.concatenate([tokens, tokens[:1]]), (400, 400, 200, 1))
    assert before is not None
    assert compare(before, cold).same_bits


@pytest.mark.parametrize("model", MODELS)
def test_a_restored_sequence_holds_the_rows_it_was_given(load_tiny: LoadTiny, model: str) -> None:
    """All planes, the extra bytes of cells among them, and the checkpoint."""
    engine = load_tiny(model)
    random = np.random.default_rng(11)
    recording, _, _ = recorded(engine, random, 900)
    seq = engine.restore([recording.rows], recording.checkpoints.get(900), 900)
    start = engine.window_start(seq)
    for got, given in zip(engine.rows(seq, start, 900).planes, recording.rows.planes, strict=True):
        assert np.array_equal(got, given[start:])
    if engine.layout.recurrent:
        assert engine.checkpoint(seq) == recording.checkpoints[900]
    engine.close(seq)


def test_rows_that_are_gone_or_made_up_are_not_given_out(load_tiny: LoadTiny) -> None:
    """After a restore the ring holds stand-ins for masked rows; they must not come out as rows."""
    engine = load_tiny("gemma3")
    random = np.random.default_rng(5)
    recording, _, _ = recorded(engine, random, 900)
    seq = engine.restore([recording.rows], None, 900)
    first = 900 - engine.layout.window_tokens
    assert engine.window_start(seq) == first
    assert np.array_equal(engine.rows(seq, first, 900).planes[-1], recording.rows.planes[-1][first:900])
    with pytest.raises(EngineError, match="are not there"):
        engine.rows(seq, first - 1, 900)
    with pytest.raises(EngineError, match="are gone"):
        engine.cut(seq, 850, None, None)
    with pytest.raises(KeyError):
        engine.position(seq)  # a cut that failed leaves nothing half done behind


def test_window_rows_before_the_last_window_are_not_looked_at(load_tiny: LoadTiny) -> None:
    engine = load_tiny("gemma3")
    random = np.random.default_rng(6)
    recording, ends, _ = recorded(engine, random, 900)
    tail = random_tokens(random, engine, 30)
    cold = cold_logits(engine, np.concatenate([recording.tokens, tail]), (*up_to(ends, 900), 30))
    spoiled = []
    for plane, array in zip(engine.layout.planes, recording.rows.planes, strict=True):
        copy = array.copy()
        if plane.window_tokens:
            copy[: 900 - plane.window_tokens] = 255
        spoiled.append(copy)
    seq = engine.restore([RowBytes(tuple(spoiled))], None, 900)
    got = engine.forward([Step(seq, tail, True)])[0]
    engine.close(seq)
    assert got is not None
    assert compare(got, cold).same_bits


def test_a_lane_is_used_again_from_its_first_cell(load_tiny: LoadTiny) -> None:
    engine = load_tiny("llama")
    tokens = random_tokens(np.random.default_rng(7), engine, 200)
    first = cold_logits(engine, tokens, (200,))
    seq = engine.open()
    engine.forward([Step(seq, tokens[:77], False)])
    engine.close(seq)
    assert compare(cold_logits(engine, tokens, (200,)), first).same_bits


def test_lanes_end_and_contexts_end(load_tiny: LoadTiny) -> None:
    engine = load_tiny("llama")
    tokens = random_tokens(np.random.default_rng(8), engine, 512)
    opened = [engine.open() for _ in range(engine.max_sequences)]
    with pytest.raises(EngineFull, match="live sequences are taken"):
        engine.open()
    for seq in opened[1:]:
        engine.close(seq)
    for _ in range(4):
        engine.forward([Step(opened[0], tokens, False)])
    other = engine.open()
    with pytest.raises(EngineFull, match="pass the end of the context of 2048 tokens"):
        engine.forward([Step(other, tokens[:9], False), Step(opened[0], tokens[:1], True)])
    assert engine.position(other) == 0, "nothing may have changed for any step"
    engine.cut(opened[0], 2047, None, None)
    assert engine.forward([Step(opened[0], tokens[2047 % 512 :][:1], True)])[0] is not None
    engine.close(opened[0])
    engine.close(other)


def test_a_wrong_checkpoint_is_refused_and_leaves_nothing_open(load_tiny: LoadTiny) -> None:
    engine = load_tiny("qwen35")
    random = np.random.default_rng(9)
    recording, _, _ = recorded(engine, random, 100)
    checkpoint = recording.checkpoints[100]
    for wrong, words in ((checkpoint[:-4], "expected"), (None, "expected"), (checkpoint, "stands at 100")):
        with pytest.raises(EngineError, match=words):
            engine.restore([recording.rows], wrong, 100 if wrong is not checkpoint else 99)
    free = [engine.open() for _ in range(engine.max_sequences)]
    for seq in free:
        engine.close(seq)


def test_a_step_that_is_too_long_is_refused(load_tiny: LoadTiny) -> None:
    engine = load_tiny("llama")
    seq = engine.open()
    for count in (0, engine.max_step_tokens + 1):
        with pytest.raises(EngineError, match="expected 1 to"):
            engine.forward([Step(seq, np.zeros(count, np.int32), False)])
    engine.close(seq)


@pytest.mark.parametrize("fixture", ["smollm2_engine", "gemma_engine"])
def test_real_models_repeat_bit_for_bit(fixture: str, request: pytest.FixtureRequest) -> None:
    """Restored at a chunk's end, and cut back to it: Gemma's ring has gone round by then (1024 cells)."""
    engine: LlamaCppEngine = request.getfixturevalue(fixture)
    random = np.random.default_rng(10)
    sizes = (400,) if engine.layout.window_tokens == 0 else (512, 512, 76)
    position = sum(sizes)
    tokens = random_tokens(random, engine, position + 24)
    seq = engine.open()
    recording = record(engine, seq, tokens[:position], sizes, (position,))
    assert engine.facts.exact_repeat
    assert engine.facts.restore_equals_cold is (engine.layout.window_tokens == 0), "Gemma's are repacked"
    expected = [
        engine.forward([Step(seq, tokens[i : i + 8], True)])[0] for i in range(position, position + 24, 8)
    ]

    engine.cut(seq, position, None, None)
    again = [
        engine.forward([Step(seq, tokens[i : i + 8], True)])[0] for i in range(position, position + 24, 8)
    ]
    assert all(np.array_equal(a, b) for a, b in zip(expected, again, strict=True))
    engine.close(seq)

    seq = engine.restore([recording.rows], None, position)
    again = [
        engine.forward([Step(seq, tokens[i : i + 8], True)])[0] for i in range(position, position + 24, 8)
    ]
    assert all(np.array_equal(a, b) for a, b in zip(expected, again, strict=True))
    engine.close(seq)
