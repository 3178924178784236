"""Speculation on MLX models of every kind: what is sent and stored is, bit for bit, what it is without."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.engines.mlx.engine import load
from headstart.engines.mlx.options import MlxOptions
from headstart.prefix.tokens import token_run
from tests.fixtures.mlx_models import MlxModels
from tests.serving.harness import GREEDY, Server, prompt_of
from tests.serving.test_speculation import SAMPLED, Scripted, conversation, speculating


@pytest.mark.parametrize("name", ["gemma3_text", "qwen3_next"])
def test_reply_and_store_are_those_without_speculation(name: str, mlx_model: MlxModels) -> None:
    def server() -> Server:
        return Server(load(mlx_model(name), MlxOptions(ctx_size=1024, max_step_tokens=128)))

    prompt = (prompt_of(70) + 300).astype(np.int32)
    for sampling in (GREEDY, SAMPLED):
        plain = conversation(server(), prompt, sampling)
        reply = token_run([delta.token for delta in plain[0][-1][0]])
        drafter = Scripted(np.concatenate([prompt, reply]).astype(np.int32), 2)
        found = conversation(speculating(server(), lambda drafter=drafter: drafter), prompt, sampling)  # type: ignore[misc]
        assert found[0] == plain[0]
        assert found[1] == plain[1]
        drafted, accepted = found[2]
        assert drafted > accepted > 4
