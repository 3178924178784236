"""Resumed sequences of the llama.cpp engine against cold ones: same bits where the engine says so.

`facts.restore_equals_cold` says bits for prompts read in any chunks of at least LONG tokens (shorter
ones take another path through llama.cpp's arithmetic), `facts.exact_repeat` for those read in the
same chunks. Everywhere else the yardstick is the floor: how far cold runs of one prompt in other
chunks lie apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from headstart.engines.base import Engine
from headstart.engines.llamacpp.engine import load
from headstart.engines.llamacpp.options import Batching, LlamaCppOptions
from headstart.errors import EngineError
from headstart.prefix.cache import PrefixCache
from headstart.prefix.keys import namespace_key
from headstart.prefix.plan import PromptHints
from headstart.prefix.tokens import TokenRun
from tests.engines.cached import CachedReader, Oracle, next_prompt
from tests.engines.equality import (
    Chunks,
    Fault,
    Source,
    cold_logits,
    compare,
    compare_corrupted,
    corrupt,
    draw_chunks,
    floor,
    random_tokens,
    record,
    resume,
    resume_live,
    state_at,
)
from tests.fixtures.gguf_models import build_gemma3, build_llama, build_qwen35

LONG = 64
"""Chunks of this many tokens or more leave the same rows, whatever their size."""
GROUP = 4
TIMES_FLOOR = 3.0
CASES = 5
BUILDERS: dict[str, Callable[..., Path]] = {
    "llama": build_llama,
    "gemma3": build_gemma3,
    "qwen35": build_qwen35,
}


@dataclass(frozen=True)
class Loaded:
    """An engine, one of the same shape with other weights, and the floor of the first."""

    engine: Engine
    foreign: Engine
    floor: float

    def limit(self, *, long_chunks: bool, same_chunks: bool) -> float:
        """How far a right restore may lie from a cold run."""
        facts = self.engine.facts
        same_bits = facts.exact_repeat if same_chunks else facts.restore_equals_cold and long_chunks
        exact = not self.engine.batches_sequences  # in a shared context cells lie elsewhere
        return 0.0 if same_bits and exact else TIMES_FLOOR * self.floor


def options(batching: Batching) -> LlamaCppOptions:
    sequences = 3 if batching is Batching.EXACT else 4
    return LlamaCppOptions(
        ctx_size=2048, max_sequences=sequences, batching=batching, threads=1, threads_batch=1
    )


@pytest.fixture(
    scope="module",
    params=[(name, batching) for batching in Batching for name in BUILDERS],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    name, batching = request.param
    directory = tmp_path_factory.mktemp("equality")
    engine = load(BUILDERS[name](directory / "model.gguf"), options(batching))
    foreign = load(BUILDERS[name](directory / "foreign.gguf", seed=77), options(batching))
    assert engine.facts.state_proved
    yield Loaded(engine, foreign, measured_floor(engine))
    engine.shutdown()
    foreign.shutdown()


def measured_floor(engine: Engine) -> float:
    """Over several prompts: long chunks, short ones, any, and token by token."""
    random = np.random.default_rng(4)
    floors = []
    for length in (130, 200, 270):
        tokens = random_tokens(random, engine, length)
        chunkings = [
            draw_chunks(random, length, LONG, engine.max_step_tokens),
            draw_chunks(random, length, 1, 40),
            draw_chunks(random, length, 1, engine.max_step_tokens),
            (1,) * length,
        ]
        floors.append(floor(engine, tokens, chunkings))
    assert max(floors) > 0.0, "two cold runs in different chunks were bit-equal: no floor to measure by"
    return max(floors)


def prefix_chunks(
    engine: Engine, random: np.random.Generator, stops: tuple[int, ...], smallest: int
) -> Chunks:
    """Chunks that end at every one of `stops`, the last of which is the end."""
    chunks: Chunks = ()
    start = 0
    for stop in stops:
        chunks += draw_chunks(random, stop - start, smallest, engine.max_step_tokens) if stop > start else ()
        start = stop
    return chunks


@pytest.mark.parametrize("smallest", [LONG, 1], ids=["long chunks", "any chunks"])
@pytest.mark.parametrize("source", Source)
def test_resumed_logits_are_those_of_a_cold_run(loaded: Loaded, source: Source, smallest: int) -> None:
    engine = loaded.engine
    if source is Source.FORK and not engine.shares_rows:
        seq = engine.open()
        with pytest.raises(EngineError, match="restore"):
            engine.fork(seq, 0, None, None)
        engine.close(seq)
        return
    random = np.random.default_rng(list(Source).index(source) * 2 + (smallest == 1))
    for case in range(CASES):
        position = int(random.integers(LONG, 300))
        length = position + int(random.integers(LONG, 200))
        old = random_tokens(random, engine, length)
        tail = random_tokens(random, engine, int(random.integers(1, 100)))
        stops = (position, length) if engine.layout.recurrent else (length,)
        chunks = prefix_chunks(engine, random, stops, smallest)
        tail_chunks = draw_chunks(random, len(tail), 1, engine.max_step_tokens)
        seq = engine.open()
        recording = record(engine, seq, old, chunks, stops=[position])
        state = state_at(recording, position, tail)
        if source is Source.RESTORE:
            logits = resume(engine, state, tail_chunks, random)
        else:
            logits = resume_live(engine, seq, state, tail_chunks, source)
        engine.close(seq)
        same_chunks = engine.layout.recurrent and smallest == LONG
        if same_chunks:
            before = chunks[: int(np.searchsorted(np.cumsum(chunks), position)) + 1]
        else:
            before = draw_chunks(random, position, smallest, engine.max_step_tokens)
        cold = cold_logits(engine, np.concatenate([old[:position], tail]), before + tail_chunks)
        comparison = compare(logits, cold)
        limit = loaded.limit(long_chunks=smallest == LONG, same_chunks=same_chunks)
        where = f"{case=} {length=} {position=} {chunks=} {tail_chunks=}"
        assert not comparison.differs(limit), f"{comparison} {limit=} {where}"


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_is_noticed(loaded: Loaded, fault: Fault) -> None:
    engine = loaded.engine
    random = np.random.default_rng(11)
    position, length = 203, 300
    old = random_tokens(random, engine, length)
    tail = random_tokens(random, engine, 3)
    stops = (position - 1, position, position + 1, length) if engine.layout.recurrent else (length,)
    chunks = prefix_chunks(engine, random, stops, LONG)
    recordings = []
    for each in (engine, loaded.foreign):
        seq = each.open()
        recordings.append(record(each, seq, old, chunks, stops=stops))
        each.close(seq)
    good = state_at(recordings[0], position, tail)
    spoiled = corrupt(engine, fault, good, *recordings)
    before = chunks[: int(np.searchsorted(np.cumsum(chunks), position)) + 1]
    if not engine.layout.recurrent:
        before = draw_chunks(random, position, LONG, engine.max_step_tokens)
    cold = cold_logits(engine, np.concatenate([old[:position], tail]), (*before, 1, 1, 1))
    limit = loaded.limit(long_chunks=True, same_chunks=engine.layout.recurrent)
    right = compare_corrupted(engine, good, (1, 1, 1), cold)
    assert not right.differs(limit)
    if right.same_bits:  # alone in the engine a shared context repeats too: then every bit counts
        limit = 0.0
    if spoiled is None:
        assert fault is Fault.LOST_WINDOW_ROW or ("checkpoint" in fault and not engine.layout.recurrent)
        return
    comparison = compare_corrupted(engine, spoiled, (1,) * len(spoiled.tail), cold)
    assert comparison.differs(limit), f"{comparison} with a limit of {limit}"


def test_a_repeat_is_bit_equal_where_the_engine_says_so(loaded: Loaded) -> None:
    engine = loaded.engine
    random = np.random.default_rng(5)
    prompts = [random_tokens(random, engine, 200) for _ in range(2)]
    chunks = draw_chunks(random, 200, LONG, engine.max_step_tokens)
    first, _, again = (cold_logits(engine, prompt, chunks) for prompt in (*prompts, prompts[0]))
    assert not compare(again, first).differs(loaded.limit(long_chunks=True, same_chunks=True))


@pytest.mark.parametrize("keep_live", [0, 1])
def test_through_the_cache_no_token_is_read_twice(loaded: Loaded, keep_live: int) -> None:
    engine = loaded.engine
    random = np.random.default_rng(20 + keep_live)
    cache = PrefixCache(engine.layout, ram_bytes=512 << 20, block_tokens=64, checkpoint_interval=150)
    namespace = namespace_key(engine.facts.parts, "")
    asking = CachedReader(
        engine, cache, namespace, random, keep_live=keep_live, largest=engine.max_step_tokens
    )
    oracle = Oracle(engine.layout.recurrent)
    counted = 0
    for turn in range(10):
        prompt = next_prompt(random, oracle.prompts, lambda n: random_tokens(random, engine, n), 400)
        starts = sorted(random.integers(1, len(prompt) + 1, 2).tolist())
        answer = asking.ask(prompt, PromptHints(message_starts=tuple(starts)))
        assert answer.plan.divergence == oracle.divergence(prompt), f"{turn=}"
        assert answer.restored == oracle.restorable(prompt), f"{turn=}"
        assert answer.read == len(prompt) - answer.restored
        assert not compare(answer.logits, cold(engine, prompt)).differs(TIMES_FLOOR * loaded.floor), (
            f"{turn=}"
        )
        oracle.learn(prompt, answer.stops)
        counted += answer.restored
    assert counted > 400
    asking.close()


def cold(engine: Engine, prompt: TokenRun) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    random = np.random.default_rng(len(prompt))
    return cold_logits(engine, prompt, draw_chunks(random, len(prompt), 1, engine.max_step_tokens))


@pytest.mark.parametrize("position", [152, 151])
@pytest.mark.parametrize("model", ["smollm2", "gemma_270m"])
def test_trained_models_continue_like_a_cold_run(
    trained: Callable[[str], Engine], model: str, position: int
) -> None:
    """Restored inside a chunk of the recording, and cut there.

    llama.cpp multiplies some quantized weights with groups of GROUP rows, and the rows left over at a
    chunk's end by another kernel: where all chunks are whole groups, bits are equal in any case.
    """
    engine = trained(model)
    random = np.random.default_rng(3)
    old, tail = random_tokens(random, engine, 232), random_tokens(random, engine, 5)
    seq = engine.open()
    state = state_at(record(engine, seq, old, (100, 132)), position, tail)
    resumed = [resume(engine, state, (5,), random), resume_live(engine, seq, state, (5,), Source.CUT)]
    engine.close(seq)
    new = np.concatenate([old[:position], tail])
    cold = cold_logits(engine, new, (80, position - 80, 5))
    limit = 0.0
    if position % GROUP and not engine.facts.restore_equals_cold:
        limit = TIMES_FLOOR * compare(cold_logits(engine, new, (position + 5,)), cold).difference
    for logits in resumed:
        assert not compare(logits, cold).differs(limit), f"{compare(logits, cold)} {limit=}"


@pytest.fixture(scope="module")
def trained(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Engine]]:
    """Loads a trained model by its fixture's name, once."""
    engines: dict[str, Engine] = {}

    def loader(name: str) -> Engine:
        if name not in engines:
            engines[name] = load(
                request.getfixturevalue(name), LlamaCppOptions(ctx_size=1024, max_sequences=2, threads=1)
            )
        return engines[name]

    yield loader
    for engine in engines.values():
        engine.shutdown()
