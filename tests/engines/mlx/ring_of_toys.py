"""Run by `mlx.launch` on every rank: the ranks' wire over MLX's ring, with a toy engine a rank.

The first rank prints `right` where rows, checkpoints and logits of a restored sequence are a cold one's.
"""

from __future__ import annotations

import sys

import mlx.core as mx
import numpy as np

from headstart.engines.base import Step
from headstart.engines.mlx.ranks import FirstRank, follow
from headstart.engines.mlx.wire import MlxWire
from headstart.engines.toy import ToyEngine


def main() -> None:
    wire = MlxWire(mx.distributed.init(backend="ring", strict=True))
    local = ToyEngine(("full", "window", "recurrent"), seed=wire.rank, context_tokens=4096)
    if wire.rank:
        follow(local, wire)
        return
    engine = FirstRank(local, wire)
    tokens = np.arange(1200, dtype=np.int32) % 200  # the message of a step may be longer than one exchange
    cold = engine.open()
    rows = []
    for start in range(0, 1200, 24):
        engine.forward([Step(cold, tokens[start : start + 24], wants_logits=False)])
        rows.append(engine.rows(cold, start, start + 24))
    warm = engine.restore(rows, engine.checkpoint(cold), 1200)
    logits = [engine.forward([Step(seq, tokens[:5], wants_logits=True)])[0] for seq in (cold, warm)]
    same = engine.checkpoint(cold) == engine.checkpoint(warm)
    print("right" if same and np.array_equal(*logits) else "wrong", len(engine.layout.planes))
    engine.shutdown()


if __name__ == "__main__":
    sys.exit(main())
