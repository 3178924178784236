"""The toy engine keeps every promise of the port, exactly, and is sensitive to every row it holds."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import jinja2
import numpy as np
import pytest

from headstart.engines.base import Engine, Logits, SeqId, Step
from headstart.engines.toy import ToyEngine
from headstart.engines.toy_model import LayerKind
from headstart.engines.toy_vocabulary import IM_END, IM_START
from headstart.errors import EngineError, EngineFull
from headstart.prefix.block import RowBytes
from headstart.prefix.tokens import TokenRun, token_run

MIXTURES: tuple[tuple[LayerKind, ...], ...] = (
    ("full",),
    ("window",),
    ("recurrent",),
    ("full", "window"),
    ("full", "recurrent"),
    ("full", "window", "recurrent"),
)
WINDOW = 24


def prompt(count: int, seed: int = 0) -> TokenRun:
    return token_run(np.random.default_rng(seed).integers(0, 256, count))


def toy(layers: Sequence[LayerKind] = MIXTURES[-1], **options: object) -> ToyEngine:
    return ToyEngine(layers, window=WINDOW, context_tokens=256, **options)  # type: ignore[arg-type]


def read(engine: Engine, seq: SeqId, tokens: TokenRun, chunk: int | np.random.Generator = WINDOW) -> Logits:
    """Reads all of `tokens` in chunks of one size, or of random sizes; logits after the last."""
    logits = None
    while len(tokens):
        size = chunk if isinstance(chunk, int) else int(chunk.integers(1, WINDOW + 1))
        size = min(size, engine.max_step_tokens, len(tokens))
        logits = engine.forward([Step(seq, tokens[:size], wants_logits=size == len(tokens))])[0]
        tokens = tokens[size:]
    assert logits is not None
    return logits


def read_keeping_rows(engine: Engine, seq: SeqId, tokens: TokenRun) -> RowBytes:
    """Reads `tokens` and copies their rows out step by step, as windowed rows are lost afterwards."""
    parts = []
    for start in range(0, len(tokens), engine.max_step_tokens):
        step = tokens[start : start + engine.max_step_tokens]
        at = engine.position(seq)
        engine.forward([Step(seq, step, wants_logits=False)])
        parts.append(engine.rows(seq, at, at + len(step)))
    return RowBytes.join(parts)


def same(a: Logits, b: Logits) -> bool:
    return a.tobytes() == b.tobytes()


@pytest.mark.parametrize("layers", MIXTURES)
def test_bits_do_not_depend_on_chunking(layers: tuple[LayerKind, ...]) -> None:
    engine, tokens = toy(layers), prompt(150)
    random = np.random.default_rng(7)
    first = read(engine, engine.open(), tokens, 1)
    for _ in range(3):
        seq = engine.open()
        assert same(read(engine, seq, tokens, random), first)
        engine.close(seq)
    assert np.isfinite(first).all()


def test_bits_do_not_depend_on_the_batch() -> None:
    engine, a, b = toy(), prompt(100, 1), prompt(100, 2)
    alone = read(engine, engine.open(), a)
    first, second = engine.open(), engine.open()
    for start in range(0, 100, 10):
        steps = [Step(second, b[start : start + 10], False), Step(first, a[start : start + 10], True)]
        unasked, together = engine.forward(steps)
    assert unasked is None
    assert together is not None
    assert same(together, alone)


def test_rows_do_not_depend_on_chunking() -> None:
    engine, tokens = toy(), prompt(20)
    seqs = [engine.open(), engine.open()]
    read(engine, seqs[0], tokens, 20)
    read(engine, seqs[1], tokens, 3)
    one, other = (engine.rows(seq, 0, 20) for seq in seqs)
    assert all((x == y).all() for x, y in zip(one.planes, other.planes, strict=True))
    assert engine.checkpoint(seqs[0]) == engine.checkpoint(seqs[1])


@pytest.mark.parametrize("layers", MIXTURES)
def test_every_layer_and_early_token_moves_the_logits(layers: tuple[LayerKind, ...]) -> None:
    """Otherwise the engine could not show a lost row."""
    engine, tokens = toy(layers), prompt(60)
    before = read(engine, engine.open(), tokens)
    first = 0 if "full" in layers or "recurrent" in layers else 60 - WINDOW
    for changed in (first, 59):
        other = tokens.copy()
        other[changed] ^= 1
        seq = engine.open()
        assert np.abs(read(engine, seq, other) - before).max() > 1e-3
        engine.close(seq)


@pytest.mark.parametrize("layers", MIXTURES)
@pytest.mark.parametrize("position", [1, 7, 24, 25, 77])
def test_restored_rows_continue_bit_equal(layers: tuple[LayerKind, ...], position: int) -> None:
    engine, tokens = toy(layers), prompt(90)
    source = engine.open()
    rows = read_keeping_rows(engine, source, tokens[:position])
    checkpoint = engine.checkpoint(source) if engine.layout.recurrent else None
    cold = read(engine, source, tokens[position:])
    half = position // 2
    seq = engine.restore([rows.cut(0, half), rows.cut(half, position)], checkpoint, position)
    assert engine.position(seq) == position
    assert same(read(engine, seq, tokens[position:]), cold)


def test_restore_looks_at_window_rows_of_the_last_window_only() -> None:
    engine, tokens = toy(("full", "window")), prompt(90)
    source = engine.open()
    rows = read_keeping_rows(engine, source, tokens[:80])
    cold = read(engine, source, tokens[80:81])

    def restored(spoiled: int) -> Logits:
        planes = [plane.copy() for plane in rows.planes]
        for plane, array in zip(engine.layout.planes, planes, strict=True):
            if plane.window_tokens:
                array[:spoiled] ^= 1
        seq = engine.restore([RowBytes(tuple(planes))], None, 80)
        logits = read(engine, seq, tokens[80:81])
        engine.close(seq)
        return logits

    assert same(restored(80 - WINDOW), cold)
    assert not same(restored(80 - WINDOW + 1), cold)


@pytest.mark.parametrize("layers", MIXTURES[2:])
@pytest.mark.parametrize("source", ["cut", "fork"])
@pytest.mark.parametrize("position", [0, 1, 24, 25, 60, 100])
def test_cut_and_fork_continue_bit_equal(layers: tuple[LayerKind, ...], source: str, position: int) -> None:
    engine = toy(layers, shares_rows=True)
    old, new = prompt(100, 1), prompt(30, 2)
    seq, checkpoint = engine.open(), None
    if position:
        kept = read_keeping_rows(engine, seq, old[:position])
        if engine.layout.recurrent and position < 100:  # at 100 the sequence stands there already
            checkpoint = engine.checkpoint(seq)
    if position < 100:
        end = read(engine, seq, old[position:])
    window_rows = None
    if "window" in layers and position and engine.window_start(seq) > max(0, position - WINDOW):
        window_rows = kept.cut(max(0, position - WINDOW), position)
    taken = seq
    if source == "cut":
        engine.cut(seq, position, window_rows, checkpoint)
    else:
        taken = engine.fork(seq, position, window_rows, checkpoint)
        assert engine.position(seq) == 100
    cold = engine.open()
    assert same(read(engine, taken, new), read(engine, cold, np.concatenate([old[:position], new]), 5))
    if source == "fork" and position < 100:
        again = engine.open()
        read(engine, again, np.concatenate([old, new]), 9)
        read(engine, seq, new)
        assert same(read(engine, seq, new[:1]), read(engine, again, new[:1]))
        assert not same(end, read(engine, seq, new[:1]))


def test_window_rows_are_really_dropped() -> None:
    engine = toy(("full", "window"))
    seq = engine.open()
    read(engine, seq, prompt(60))
    assert engine.window_start(seq) == 60 - WINDOW
    assert len(engine.rows(seq, 60 - WINDOW, 60)) == WINDOW
    with pytest.raises(EngineError, match=r"holds 36\.\.60"):
        engine.rows(seq, 35, 60)
    with pytest.raises(EngineError, match=r"needs window rows 16\.\.40"):
        engine.cut(seq, 40, None, None)
    assert engine.position(seq) == 60


def test_a_step_never_loses_its_own_window_rows() -> None:
    engine = toy(("full", "window"))
    assert engine.max_step_tokens == WINDOW
    seq = engine.open()
    read(engine, seq, prompt(60 - WINDOW))
    read(engine, seq, prompt(WINDOW))
    assert engine.window_start(seq) <= 60 - WINDOW
    assert toy(("full",), max_step_tokens=100).max_step_tokens == 100


def test_what_does_not_fit_is_refused() -> None:
    engine = toy()
    seq = engine.open()
    rows = read_keeping_rows(engine, seq, prompt(20))
    checkpoint = engine.checkpoint(seq)
    bad_plane = RowBytes((rows.planes[0][:, 1:], *rows.planes[1:]))
    for given, saved, position, message in (
        ([rows], checkpoint, 21, "needs 21 rows, not 20"),
        ([rows], checkpoint, 19, "needs 19 rows, not 20"),
        ([rows], None, 20, "without a checkpoint"),
        ([rows], checkpoint[:-1], 20, "a checkpoint is"),
        ([bad_plane], checkpoint, 20, "must be uint8"),
        ([RowBytes(rows.planes[1:])], checkpoint, 20, "3 planes, the layout 4"),
        ([rows], checkpoint, 1000, "context holds 256"),
    ):
        with pytest.raises(EngineError, match=message):
            engine.restore(given, saved, position)
    with pytest.raises(EngineError, match="cannot go back to 21"):
        engine.cut(seq, 21, None, None)
    with pytest.raises(EngineError, match="without a checkpoint"):
        engine.cut(seq, 10, None, None)
    with pytest.raises(EngineError, match="does not share rows"):
        engine.fork(seq, 20, None, None)
    with pytest.raises(EngineError, match=r"1\.\.24 tokens, not 25"):
        engine.forward([Step(seq, prompt(25), True)])
    with pytest.raises(EngineError, match="token ids are 0"):
        engine.forward([Step(seq, token_run([260]), True)])
    with pytest.raises(EngineError, match="one step a sequence"):
        engine.forward([Step(seq, prompt(1), True), Step(seq, prompt(1), True)])
    with pytest.raises(EngineError, match="no recurrent layers"):
        attention = toy(("full",))
        attention.checkpoint(attention.open())
    engine.close(seq)
    with pytest.raises(EngineError, match="not open"):
        engine.position(seq)
    assert engine.restore([], None, 0) is not None  # refusals left nothing open


def test_full_is_refused_before_anything_changes() -> None:
    engine = toy(("full",), max_sequences=2, cells=100)
    a, b = engine.open(), engine.open()
    with pytest.raises(EngineFull, match="all 2 sequences are open"):
        engine.open()
    read(engine, a, prompt(50))
    read(engine, b, prompt(40))
    with pytest.raises(EngineFull, match="90 of 100 are in use"):
        engine.forward([Step(a, prompt(6), False), Step(b, prompt(6), False)])
    assert (engine.position(a), engine.position(b)) == (50, 40)
    engine.cut(a, 20, None, None)
    engine.forward([Step(b, prompt(40), False)])
    engine.close(b)
    read(engine, a, prompt(80))
    with pytest.raises(EngineFull, match="exceed the context of 256"):
        long = toy(("full",))
        read(long, long.open(), prompt(257))


def test_forks_share_cells() -> None:
    engine = toy(("full",), cells=100, shares_rows=True)
    a = engine.open()
    read(engine, a, prompt(80))
    b = engine.fork(a, 70, None, None)
    read(engine, b, prompt(20))
    with pytest.raises(EngineFull):
        read(engine, a, prompt(1))
    engine.close(a)  # frees the 10 rows that b does not share
    read(engine, b, prompt(10))


def test_text_round_trips_and_control_tokens_are_single_ids() -> None:
    engine = toy()
    text = "<|im_start|>user\nhé 漢<|im_end|>"
    ids = engine.tokenize(text, special=True, add_bos=True)
    assert ids[0] == IM_START
    assert ids[-1] == IM_END
    assert b"".join(engine.vocabulary.pieces[token] for token in ids).decode() == text
    assert set(engine.tokenize(text, special=False, add_bos=False)) <= set(range(256))
    assert list(toy(adds_bos=True).tokenize("a", special=True, add_bos=True)) == [256, 97]
    assert list(toy(adds_bos=True).tokenize("a", special=True, add_bos=False)) == [97]


def test_the_chat_template_renders() -> None:
    environment = jinja2.Environment()
    environment.filters["tojson"] = json.dumps
    source = toy().facts.chat_template
    assert source is not None
    messages = [{"role": "user", "content": "hi"}]
    template = environment.from_string(source)
    assert template.render(messages=messages) == "<|im_start|>user\nhi<|im_end|>\n"
    with_tools = template.render(messages=messages, tools=[{"a": 1}], add_generation_prompt=True)
    assert with_tools.startswith('<|im_start|>tools\n[{"a": 1}]<|im_end|>\n<|im_start|>user')
    assert with_tools.endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_facts_tell_models_apart() -> None:
    parts = [toy(layers, seed=seed).facts.parts for layers in MIXTURES for seed in (0, 1)]
    assert len({tuple(sorted(part.items())) for part in parts}) == len(parts)
    assert toy(seed=1).facts.parts == toy(seed=1).facts.parts


def test_it_can_be_slow() -> None:
    engine = toy(step_delay_s=0.02)
    seq = engine.open()
    started = time.monotonic()
    engine.forward([Step(seq, prompt(1), False)])
    assert time.monotonic() - started >= 0.02
    assert (engine.forward_calls, engine.tokens_read) == (1, 1)
