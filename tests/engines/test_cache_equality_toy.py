"""Through the whole PrefixCache: exact divergence, nothing read twice, and the logits of a cold run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headstart.engines.toy import ToyEngine
from headstart.engines.toy_model import LayerKind
from headstart.prefix.block import RowBytes
from headstart.prefix.cache import PrefixCache, Restored
from headstart.prefix.keys import namespace_key
from headstart.prefix.plan import PromptHints
from headstart.prefix.report import Tier
from headstart.prefix.tokens import TokenRun
from tests.engines.cached import CachedReader, Oracle, Tamper, next_prompt
from tests.engines.equality import cold_logits, compare, random_tokens

MODELS: dict[str, tuple[LayerKind, ...]] = {
    "dense": ("full", "full"),
    "window": ("window", "full"),
    "hybrid": ("recurrent", "full"),
    "all": ("full", "window", "recurrent"),
}
WINDOW = 12
LONGEST = 60
PROMPTS = 12


def toy(model: str, seed: int = 0) -> ToyEngine:
    return ToyEngine(MODELS[model], window=WINDOW, context_tokens=128, max_sequences=4, seed=seed)


def reader(engine: ToyEngine, seed: int, *, keep_live: int, block_tokens: int) -> CachedReader:
    cache = PrefixCache(engine.layout, ram_bytes=64 << 20, block_tokens=block_tokens, checkpoint_interval=23)
    return CachedReader(
        engine,
        cache,
        namespace_key(engine.facts.parts, ""),
        np.random.default_rng(seed),
        keep_live=keep_live,
        largest=engine.max_step_tokens,
    )


def cold(engine: ToyEngine, prompt: TokenRun) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    whole, rest = divmod(len(prompt), engine.max_step_tokens)
    return cold_logits(engine, prompt, (engine.max_step_tokens,) * whole + ((rest,) if rest else ()))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("keep_live", "block_tokens"), [(0, 1), (0, 16), (1, 7), (3, 16), (3, 64)])
def test_no_token_is_read_twice_and_the_logits_are_cold_ones(
    model: str, keep_live: int, block_tokens: int
) -> None:
    engine = toy(model)
    seed = keep_live * 100 + block_tokens
    asking = reader(engine, seed, keep_live=keep_live, block_tokens=block_tokens)
    oracle = Oracle(engine.layout.recurrent)
    counted = 0
    tiers = set()
    for turn in range(PROMPTS):
        prompt = next_prompt(
            asking.random, oracle.prompts, lambda n: random_tokens(asking.random, engine, n), LONGEST
        )
        before = engine.tokens_read
        starts = sorted(asking.random.integers(1, len(prompt) + 1, 2).tolist())
        answer = asking.ask(prompt, PromptHints(message_starts=tuple(starts)))
        where = f"{model=} {seed=} {turn=}"
        assert answer.plan.divergence == oracle.divergence(prompt), where
        assert answer.restored == oracle.restorable(prompt), where
        counted += answer.restored
        assert engine.tokens_read - before == answer.read == len(prompt) - answer.restored, where
        assert compare(answer.logits, cold(engine, prompt)).same_bits, where
        oracle.learn(prompt, answer.stops)
        tiers.add(answer.plan.tier)
        while len(asking.live) == engine.max_sequences:
            engine.close(asking.live.pop(0)[0])
    assert counted > PROMPTS  # that the gap is 0 says nothing where nothing could be restored
    assert keep_live or tiers <= {Tier.NONE, Tier.RAM}
    asking.close()


@pytest.mark.parametrize("model", MODELS)
def test_an_append_goes_on_in_the_live_sequence_and_a_late_edit_cuts_it(model: str) -> None:
    engine = toy(model)
    asking = reader(engine, 1, keep_live=1, block_tokens=16)
    base = random_tokens(asking.random, engine, 50)
    asking.ask(base)
    longer = np.concatenate([base, random_tokens(asking.random, engine, 10)])
    edited = np.concatenate([longer[:50], random_tokens(asking.random, engine, 9)])
    for prompt in (longer, edited):
        answer = asking.ask(prompt)
        assert (answer.plan.tier, answer.restored) == (Tier.LIVE, 50)
        assert compare(answer.logits, cold(engine, prompt)).same_bits
    asking.close()


@pytest.mark.parametrize("model", ["hybrid", "all"])
@pytest.mark.parametrize("keep_live", [0, 2])
def test_the_second_visit_of_a_divergence_replays_nothing(model: str, keep_live: int) -> None:
    engine = toy(model)
    asking = reader(engine, 5, keep_live=keep_live, block_tokens=16)
    base = random_tokens(asking.random, engine, 60)
    asking.ask(base)
    for divergence in (1, 15, 16, 17, 37, 59):
        for visit in range(3):
            token = np.int32((int(base[divergence]) + 1 + visit) % 256)  # parts from the base right there
            prompt = np.concatenate([base[:divergence], [token], random_tokens(asking.random, engine, 4)])
            answer = asking.ask(prompt)
            assert answer.plan.divergence == divergence
            if visit:
                assert answer.restored == divergence
            assert compare(answer.logits, cold(engine, prompt)).same_bits
    asking.close()


def shift_rows(restored: Restored) -> Restored:
    rows = RowBytes.join(restored.rows)
    return replace(restored, rows=[rows.cut(0, 1), rows.cut(0, len(rows) - 1)])


def one_row_too_many(restored: Restored) -> Restored:
    rows = RowBytes.join(restored.rows)
    last = rows.cut(len(rows) - 1, len(rows))
    return replace(restored, rows=[rows, last], position=restored.position + 1)


def one_row_short(restored: Restored) -> Restored:
    """Claims the right position but leaves out a row in the middle."""
    rows = RowBytes.join(restored.rows)
    middle = len(rows) - 2
    last = rows.cut(len(rows) - 1, len(rows))
    return replace(restored, rows=[rows.cut(0, middle), rows.cut(middle + 1, len(rows)), last])


def other_layers(restored: Restored) -> Restored:
    return replace(restored, rows=[RowBytes((*part.planes[2:], *part.planes[:2])) for part in restored.rows])


def other_checkpoint(restored: Restored) -> Restored:
    assert restored.checkpoint is not None
    floats = np.frombuffer(restored.checkpoint, np.float32)
    return replace(restored, checkpoint=(floats * np.float32(0.5)).tobytes())


@pytest.mark.parametrize(
    ("model", "tamper"),
    [(model, fault) for model in MODELS for fault in (shift_rows, one_row_too_many, one_row_short)]
    + [(model, other_layers) for model in ("dense", "window")]
    + [(model, other_checkpoint) for model in ("hybrid", "all")],
)
def test_a_broken_cache_is_noticed(model: str, tamper: Tamper) -> None:
    engine = toy(model)
    asking = reader(engine, 9, keep_live=0, block_tokens=16)
    base = random_tokens(asking.random, engine, 60)
    asking.ask(base)
    prompt = np.concatenate([base[:40], random_tokens(asking.random, engine, 6)])
    asking.ask(np.concatenate([base[:40], random_tokens(asking.random, engine, 6)]))
    asking.tamper = tamper
    answer = asking.ask(prompt)
    assert answer.restored in (40, 41)
    assert not compare(answer.logits, cold(engine, prompt)).same_bits


def test_state_of_other_weights_is_noticed_and_its_namespace_keeps_it_away() -> None:
    one, other = toy("all"), toy("all", seed=1)
    asking = reader(one, 3, keep_live=0, block_tokens=16)
    base = random_tokens(asking.random, one, 50)
    asking.ask(base)
    prompt = np.concatenate([base, random_tokens(asking.random, one, 5)])
    expected = cold(other, prompt)
    apart = replace(asking, engine=other, namespace=namespace_key(other.facts.parts, ""))
    answer = apart.ask(prompt)
    assert answer.restored == 0
    assert compare(answer.logits, expected).same_bits
    confused = replace(asking, engine=other)  # the weights left out of the namespace
    answer = confused.ask(prompt)
    assert answer.restored == 50
    assert not compare(answer.logits, expected).same_bits
