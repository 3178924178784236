"""The equality suite on every tiny MLX model: bits, not closeness, on the CPU backend, and every fault."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from headstart.engines.mlx.engine import MlxEngine
from tests.engines.equality import (
    Chunks,
    Fault,
    Source,
    cold_logits,
    compare,
    compare_corrupted,
    corrupt,
    draw_chunks,
    random_tokens,
    record,
    resume,
    resume_live,
    state_at,
)
from tests.engines.test_equality_toy import could_happen
from tests.fixtures.mlx_models import CHUNK, NAMES

KINDS = [*NAMES, "llama/kv8", "qwen3_next/kv4"]
"""Models, some with quantised keys and values."""
DISTINCT = [
    name for name in KINDS if name not in ("llama-8bit", "llama-mxfp4", "llama-nvfp4", "llama-scaled")
]
"""Of those that leave the same behind, one."""
BY_CHUNKS = {"mamba2", "falcon_h1", "deepseek_v32"}
"""Their own code computes a single token, or a chunk, another way: bits repeat with the same chunks only."""
CASES = 4
LARGEST = 80
Load = Callable[[str], MlxEngine]


def cold_chunks(name: str, random: np.random.Generator, total: int, as_read: Chunks) -> Chunks:
    return as_read if name in BY_CHUNKS else draw_chunks(random, total, 1, LARGEST)


@pytest.mark.parametrize("name", KINDS)
def test_the_probe_says_what_holds(name: str, engines: Load) -> None:
    facts = engines(name).facts
    assert facts.state_proved and facts.exact_repeat
    assert facts.restore_equals_cold is (name not in BY_CHUNKS)
    notes = [note for note in facts.notes if "one after the other" not in note]
    assert bool(notes) is (name in BY_CHUNKS)


@pytest.mark.parametrize("source", [Source.RESTORE, Source.CUT])
@pytest.mark.parametrize("name", KINDS)
def test_resumed_logits_are_bit_equal(name: str, source: Source, engines: Load) -> None:
    engine = engines(name)
    random = np.random.default_rng([*name.encode(), source is Source.CUT])
    for case in range(CASES):
        length = int(random.integers(2, 200))
        position = int(random.integers(1, length + 1))
        old = random_tokens(random, engine, length)
        tail = random_tokens(random, engine, int(random.integers(1, 60)))
        stops = draw_chunks(random, position, 1, LARGEST)
        chunks = stops + (draw_chunks(random, length - position, 1, LARGEST) if length > position else ())
        seq = engine.open()
        recording = record(engine, seq, old, chunks, stops=[position])
        tail_chunks = draw_chunks(random, len(tail), 1, LARGEST)
        state = state_at(recording, position, tail)
        if source is Source.RESTORE:
            logits = resume(engine, state, tail_chunks, random)
        else:
            logits = resume_live(engine, seq, state, tail_chunks, source)
        engine.close(seq)
        new = np.concatenate([old[:position], tail])
        cold = cold_logits(engine, new, cold_chunks(name, random, len(new), stops + tail_chunks))
        assert compare(logits, cold).same_bits, f"{case=} {length=} {position=} {chunks=} {tail_chunks=}"


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_those_of_a_run_in_other_chunks(name: str, engines: Load) -> None:
    """Every byte, those of single tokens too."""
    engine = engines(name)
    random = np.random.default_rng(1)
    tokens = random_tokens(random, engine, 130)
    first = draw_chunks(random, 130, 1, 20)
    seqs = [engine.open(), engine.open()]
    one = record(engine, seqs[0], tokens, first)
    other = record(engine, seqs[1], tokens, cold_chunks(name, random, 130, first))
    assert [a.tobytes() for a in one.rows.planes] == [a.tobytes() for a in other.rows.planes]
    assert one.checkpoints == other.checkpoints
    for seq in seqs:
        engine.close(seq)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("name", DISTINCT)
def test_every_fault_is_noticed(name: str, fault: Fault, engines: Load, others: Load) -> None:
    engine, other = engines(name), others(name)
    random = np.random.default_rng(2)
    position = 2 * CHUNK - 1 if name == "llama4" else 40  # the last token that sees its whole chunk
    old = random_tokens(random, engine, position + 20)
    tail = random_tokens(random, engine, 5)
    chunks = (position - 1, 1, 1, 19)
    stops = [position - 1, position, position + 1]
    seqs = (engine.open(), other.open())
    recording = record(engine, seqs[0], old, chunks, stops)
    foreign = record(other, seqs[1], old, chunks, stops)
    engine.close(seqs[0])
    other.close(seqs[1])
    good = state_at(recording, position, tail)
    spoiled = corrupt(engine, fault, good, recording, foreign)
    cold = cold_logits(engine, np.concatenate([old[:position], tail]), (position - 1, *(1,) * 6))
    assert compare_corrupted(engine, good, (1,) * 5, cold).same_bits
    if spoiled is None:
        assert not could_happen(engine, fault)
    else:
        assert compare_corrupted(engine, spoiled, (1,) * len(spoiled.tail), cold).differs(0.0)
