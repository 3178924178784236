"""A store on disk under changing adapters: what one left behind is used under it alone, and kept for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.engines.llamacpp.engine import load
from headstart.engines.llamacpp.options import Batching, LlamaCppOptions, LoraAdapter
from headstart.prefix.report import CacheReport, Reason, Tier
from tests.fixtures.gguf_models import build_lora
from tests.serving.harness import prompt_of
from tests.serving.test_scheduler_ssd import Restarted

PROMPT = prompt_of(100)
REPLY_TOKENS = 6

Adapters = tuple[LoraAdapter, ...]


def asked(model: Path, store: Path, adapters: Adapters, batching: Batching) -> tuple[list[int], CacheReport]:
    """The reply and its report of a server that starts, answers once and stops."""
    options = LlamaCppOptions(ctx_size=512, max_sequences=2, threads=1, batching=batching, adapters=adapters)
    engine = load(model, options)
    try:
        with Restarted(engine, store) as server:
            reply, done = server.ask(PROMPT, REPLY_TOKENS)
            return reply.tokens, done.report
    finally:
        engine.shutdown()


@pytest.mark.parametrize("batching", Batching)
def test_a_store_goes_with_its_adapters(tiny_llama: Path, tmp_path: Path, batching: Batching) -> None:
    path = build_lora(tmp_path / "style.gguf")
    other = build_lora(tmp_path / "other.gguf", seed=5)
    served: list[Adapters] = [
        (),
        (LoraAdapter(path),),
        (LoraAdapter(path, 0.5),),
        (LoraAdapter(other),),
    ]
    first = {}
    for index, adapters in enumerate(served):
        alone, _ = asked(tiny_llama, tmp_path / f"store-{index}", adapters, batching)
        first[adapters], report = asked(tiny_llama, tmp_path / "store", adapters, batching)
        assert first[adapters] == alone, "what the store held of others changed nothing"
        assert (report.restored, report.divergence, report.tier) == (0, 0, Tier.NONE)
        assert report.reason in (None, Reason.NO_PREFIX), report
    assert len({tuple(tokens) for tokens in first.values()}) == len(served)
    for adapters in reversed(served):
        tokens, report = asked(tiny_llama, tmp_path / "store", adapters, batching)
        assert tokens == first[adapters]
        assert (report.restored, report.tier) == (len(PROMPT), Tier.SSD)


def test_an_adapter_trained_anew_under_its_name_is_another(tiny_llama: Path, tmp_path: Path) -> None:
    path = build_lora(tmp_path / "style.gguf")
    before, _ = asked(tiny_llama, tmp_path / "store", (LoraAdapter(path),), Batching.EXACT)
    build_lora(path, seed=5)
    after, report = asked(tiny_llama, tmp_path / "store", (LoraAdapter(path),), Batching.EXACT)
    assert after != before
    assert (report.restored, report.tier) == (0, Tier.NONE)
