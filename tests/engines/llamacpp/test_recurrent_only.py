"""A model without attention: no rows at all, checkpoints only, in both modes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headstart.engines.base import Step
from headstart.engines.llamacpp.engine import load
from headstart.engines.llamacpp.options import Batching, LlamaCppOptions
from tests.engines.equality import cold_logits, compare, random_tokens
from tests.engines.llamacpp.mamba import build_mamba


@pytest.mark.parametrize("batching", Batching)
def test_checkpoints_alone_are_enough(tmp_path: Path, batching: Batching) -> None:
    path = build_mamba(tmp_path / "mamba.gguf")
    engine = load(path, LlamaCppOptions(ctx_size=1024, max_sequences=2, batching=batching, threads=1))
    assert engine.facts.state_proved
    assert engine.layout.planes == ()
    assert engine.layout.recurrent
    random = np.random.default_rng(0)
    tokens, tail = random_tokens(random, engine, 150), random_tokens(random, engine, 30)
    seq = engine.open()
    engine.forward([Step(seq, tokens, False)])
    checkpoint = engine.checkpoint(seq)
    assert len(checkpoint) == engine.layout.checkpoint_bytes
    engine.forward([Step(seq, tail[:11], False)])
    engine.cut(seq, 150, None, checkpoint)
    cut = engine.forward([Step(seq, tail, True)])[0]
    engine.close(seq)
    restored_seq = engine.restore([], checkpoint, 150)
    restored = engine.forward([Step(restored_seq, tail, True)])[0]
    engine.close(restored_seq)
    cold = cold_logits(engine, np.concatenate([tokens, tail]), (150, 30))
    other = cold_logits(engine, np.concatenate([tokens[:-1], tail]), (149, 30))
    for logits in (cut, restored):
        assert logits is not None
        found = compare(logits, cold)
        assert found.same_bits or batching is Batching.SHARED
        assert not found.differs(0.01)
    assert compare(other, cold).differs(0.1), "the state must matter"
    engine.shutdown()
