"""A token read ahead changes nothing that anybody can see, but for the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from headstart.engines.base import Logits, SeqId, Step
from headstart.engines.mlx import ahead
from headstart.engines.mlx.engine import MlxEngine
from tests.engines.equality import random_tokens
from tests.fixtures.mlx_models import NAMES

Load = Callable[[str], MlxEngine]
START = 70
STEPS = 90


def decode(engine: MlxEngine, seq: SeqId, token: int, *, greedy: bool) -> Logits:
    (scores,) = engine.forward([Step(seq, np.array([token], np.int32), 1, greedy)])
    assert scores is not None
    return scores


def look_around(engine: MlxEngine, seq: SeqId, deed: int) -> bytes:
    """One of what a cache asks of a sequence while it decodes."""
    position, layout = engine.position(seq), engine.layout
    if deed == 0 and layout.recurrent:
        return engine.checkpoint(seq)
    if deed == 1:
        return engine.window_start(seq).to_bytes(4, "little")
    start = max(engine.window_start(seq), position - 40)
    return b"".join(plane.tobytes() for plane in engine.rows(seq, start, position).planes)


def reply(engine: MlxEngine, random: np.random.Generator, *, greedy: bool) -> Iterator[bytes]:
    """Most tokens are the likeliest, some are not; rows and checkpoints are taken between; it is cut back."""
    seq = engine.open()
    engine.forward([Step(seq, random_tokens(random, engine, START), wants_logits=False)])
    token = 5
    for step in range(STEPS):
        scores = decode(engine, seq, token, greedy=greedy)
        yield scores.tobytes()
        token = int(scores.argmax()) if random.random() < 0.8 else int(random.integers(0, 200))
        if random.random() < 0.3:
            yield look_around(engine, seq, int(random.integers(0, 3)))
        if step == STEPS // 2 and not engine.layout.recurrent:
            position = engine.position(seq)
            first = max(0, position - 10 - engine.layout.window_tokens)
            if engine.window_start(seq) <= first:
                engine.cut(seq, position - 10, None, None)
        if step % 20 == 19:
            chunk = random_tokens(random, engine, 3)
            engine.forward([Step(seq, chunk, wants_logits=False)])
    assert engine.position(seq) >= START + STEPS
    engine.close(seq)


@pytest.mark.parametrize("name", [*NAMES, "llama/kv8", "qwen3_next/kv4"])
def test_every_bit_is_that_of_a_run_without(name: str, engines: Load) -> None:
    engine = engines(name)
    runs = [list(reply(engine, np.random.default_rng(3), greedy=greedy)) for greedy in (False, True)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", ["gemma3_text", "gpt_oss"])
def test_windows_that_move_while_reading_ahead(
    name: str, engines: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.engines.mlx.window.SLACK", 3)
    engine = engines(name)
    runs = [list(reply(engine, np.random.default_rng(4), greedy=greedy)) for greedy in (False, True)]
    assert runs[0] == runs[1]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of all tokens that are read one at a time."""
    shapes: list[tuple[int, ...]] = []
    real = ahead.queue

    def queue(model: Any, caches: Any, tokens: Any) -> ahead.Queued:
        shapes.append(tuple(tokens.shape))
        return real(model, caches, tokens)

    monkeypatch.setattr("headstart.engines.mlx.engine.queue", queue)
    monkeypatch.setattr("headstart.engines.mlx.ahead.queue", queue)
    return shapes


def test_the_likeliest_token_is_read_once(engines: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engines("gemma3_text")
    read = counted(monkeypatch)
    seq, token = engine.open(), 5
    for step in range(20):
        scores = decode(engine, seq, token, greedy=step < 19)
        token = int(scores.argmax())
        engine.rows(seq, step, step + 1)
    assert len(read) == 20
    wrong = (token + 1) % 200
    decode(engine, seq, token, greedy=True)
    decode(engine, seq, wrong, greedy=True)
    assert len(read) == 24, "one guess was wrong, another one is not asked for yet"
    engine.close(seq)


def test_nothing_is_read_behind_the_context(engines: Load) -> None:
    engine = engines("llama")
    seq = engine.open()
    room = engine.layout.context_tokens
    while engine.position(seq) < room - 2:
        count = min(engine.max_step_tokens, room - 2 - engine.position(seq))
        engine.forward([Step(seq, np.ones(count, np.int32), wants_logits=False)])
    token = int(decode(engine, seq, 5, greedy=True).argmax())
    decode(engine, seq, token, greedy=True)
    assert engine.position(seq) == room
    engine.close(seq)
