"""MLX engines by the name of their model, each loaded once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headstart.engines.mlx.engine import MlxEngine, load
from headstart.engines.mlx.options import MlxOptions
from tests.fixtures.mlx_models import MlxModels

LARGEST = 80
Load = Callable[[str], MlxEngine]


def loader(models: MlxModels, seed: int | None) -> Load:
    """`name/kv8`: the model `name` with keys and values in 8 bits."""
    loaded: dict[str, MlxEngine] = {}

    def one(name: str) -> MlxEngine:
        if name not in loaded:
            model, _, bits = name.partition("/kv")
            options = MlxOptions(
                ctx_size=4096, max_step_tokens=LARGEST, kv_bits=int(bits) if bits else None, kv_group=32
            )
            loaded[name] = load(models(model, seed), options)
        return loaded[name]

    return one


@pytest.fixture(scope="session")
def engines(mlx_model: MlxModels) -> Load:
    return loader(mlx_model, None)


@pytest.fixture(scope="session")
def others(mlx_model: MlxModels) -> Load:
    """Models of the same shape with other weights."""
    return loader(mlx_model, 99)
