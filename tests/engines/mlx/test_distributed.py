"""Which part of a model a rank keeps, and what cannot be divided. Ranks that compute are in tests/e2e."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import pytest

from headstart.engines.mlx.distributed import divide
from headstart.engines.mlx.source import load_lazily
from headstart.errors import ModelError
from tests.fixtures.mlx_models import RECIPES, MlxModels


@dataclass
class Group:
    """As much of a group of ranks as dealing layers out looks at."""

    number: int
    count: int

    def rank(self) -> int:
        return self.number

    def size(self) -> int:
        return self.count


def divided(
    models: MlxModels, name: str, sharding: str | None, rank: int, size: int
) -> tuple[str, list[int]]:
    """How it was divided, and which layers this rank runs."""
    model = load_lazily(models(name), RECIPES[name].model_type)
    every = list(model.layers)
    kind = divide(model, Group(rank, size), sharding)  # type: ignore[arg-type]
    return kind, [index for index, layer in enumerate(every) if any(layer is kept for kept in model.layers)]


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_next"])
def test_a_pipeline_deals_out_the_layers(mlx_model: MlxModels, name: str) -> None:
    """The first rank, which serves, has the last of them."""
    assert divided(mlx_model, name, "pipeline", 0, 2) == ("pipeline", [2, 3])
    assert divided(mlx_model, name, "pipeline", 1, 2) == ("pipeline", [0, 1])
    assert divided(mlx_model, name, "pipeline", 0, 3) == ("pipeline", [2, 3])
    assert divided(mlx_model, name, "pipeline", 2, 3) == ("pipeline", [0])


def test_what_is_taken_where_nothing_is_said(mlx_model: MlxModels) -> None:
    assert divided(mlx_model, "qwen3_next", None, 0, 2)[0] == "pipeline"
    model = load_lazily(mlx_model("qwen3_5"), "qwen3_5")
    assert divide(model, mx.distributed.init(), None) == "tensor"


def test_what_cannot_be_divided_so(mlx_model: MlxModels) -> None:
    with pytest.raises(ModelError, match=r"no pipeline sharding .* of type llama: --sharding tensor works"):
        divided(mlx_model, "llama", "pipeline", 0, 2)
    with pytest.raises(ModelError, match=r"no tensor sharding .* qwen3_next: --sharding pipeline works"):
        divided(mlx_model, "qwen3_next", "tensor", 0, 2)
    with pytest.raises(ModelError, match=r"no tensor sharding .* gemma3_text: run it on one machine"):
        divided(mlx_model, "gemma3_text", "tensor", 0, 2)
    with pytest.raises(ModelError, match="cannot divide a model of type gemma3_text among ranks"):
        divided(mlx_model, "gemma3_text", None, 0, 2)
    with pytest.raises(ModelError, match="cannot be divided among 5 ranks by --sharding pipeline: split"):
        divided(mlx_model, "qwen3_5", "pipeline", 0, 5)
