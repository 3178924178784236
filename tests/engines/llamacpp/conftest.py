"""Engines of the tests below, loaded once a session. One thread: other work on the machine must not
stretch the barriers between threads, and the numbers are about bits, not speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from headstart.engines.llamacpp.engine import LlamaCppEngine, load
from headstart.engines.llamacpp.options import Batching, KvType, LlamaCppOptions
from tests.fixtures.gguf_models import GgufModels

CONTEXT_TOKENS = 2048

LoadTiny = Callable[..., LlamaCppEngine]


@pytest.fixture(scope="session")
def load_tiny(gguf_models: GgufModels) -> Iterator[LoadTiny]:
    """Loads one of the tiny models by name; the same arguments give the same engine."""
    loaded: list[LlamaCppEngine] = []

    @cache
    def loader(
        model: str, batching: Batching = Batching.EXACT, kv_type: KvType = KvType.F16, max_sequences: int = 3
    ) -> LlamaCppEngine:
        options = LlamaCppOptions(
            ctx_size=CONTEXT_TOKENS,
            max_sequences=max_sequences,
            batching=batching,
            kv_type=kv_type,
            threads=1,
        )
        engine = load(getattr(gguf_models, model), options)
        loaded.append(engine)
        return engine

    yield loader
    for engine in loaded:
        engine.shutdown()


@pytest.fixture(scope="module")
def smollm2_engine(smollm2: Path) -> Iterator[LlamaCppEngine]:
    engine = load(smollm2, LlamaCppOptions(ctx_size=1024, max_sequences=2, threads=1))
    yield engine
    engine.shutdown()


@pytest.fixture(scope="module")
def gemma_engine(gemma_270m: Path) -> Iterator[LlamaCppEngine]:
    engine = load(gemma_270m, LlamaCppOptions(ctx_size=2048, max_sequences=2, threads=1))
    yield engine
    engine.shutdown()
