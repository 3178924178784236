"""What is said about a loaded model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headstart.cli.describe import (
    describe_adapters,
    describe_cache,
    describe_model,
    describe_probe,
    format_count,
    served_name,
)
from headstart.config import Settings
from headstart.engines.base import AdapterFacts
from headstart.engines.toy import ToyEngine

ENGINE = ToyEngine()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("embedded", "SmolLM2-135M-Instruct"),
        ("/models/qwen3-8b.Q4_K_M.gguf", "qwen3-8b.Q4_K_M"),
        ("/models/big-00001-of-00003.gguf", "big"),
        ("/models/gemma/", "gemma"),
        ("hf:owner/repository/sub/file.gguf", "file"),
    ],
)
def test_a_model_is_called_by_its_file(model: str, name: str) -> None:
    assert served_name(Settings(model=model), ENGINE.facts) == name
    assert served_name(Settings(model=model, model_name="mine"), ENGINE.facts) == "mine"


def test_lines_name_what_matters() -> None:
    settings = Settings(engine="toy", ram_cache_bytes=1 << 20)
    chunk = min(settings.prefill_chunk, ENGINE.max_step_tokens)
    shown = describe_model(settings, ENGINE, 2.0)
    assert f"context 4,096 tokens, read {chunk:,} at a time, loaded in 2.0 s" in shown
    smaller = Settings(engine="toy", prefill_chunk=chunk - 1)
    assert f"read {chunk - 1:,} at a time" in describe_model(smaller, ENGINE, 2.0)
    rows = (1 << 20) // ENGINE.layout.row_bytes
    assert f"1.0 MB of memory, about {rows:,} tokens" in describe_cache(settings, ENGINE)
    assert describe_cache(Settings(cache=False), ENGINE) == "off (--no-cache)"
    assert "reproducible" in describe_cache(Settings(reproducible=True), ENGINE)


def test_adapters_are_named_with_their_scales() -> None:
    adapters = (AdapterFacts("style.gguf", "ab", 1.0), AdapterFacts("facts.gguf", "cd", 0.25))
    line = describe_adapters(replace(ENGINE.facts, adapters=adapters))
    assert line == "style.gguf (scale 1), facts.gguf (scale 0.25)"


def test_the_probe_line_never_promises_what_was_not_found() -> None:
    proved = describe_probe(replace(ENGINE.facts, exact_repeat=True, restore_equals_cold=True))
    assert "gives the same bits" in proved
    assert "as a cold run does" in proved
    unequal = describe_probe(replace(ENGINE.facts, exact_repeat=False, restore_equals_cold=False))
    assert "may differ" in unequal
    assert "within rounding" in unequal
    assert "could not" in describe_probe(replace(ENGINE.facts, state_proved=False))


def test_counts_have_units() -> None:
    assert [format_count(n) for n in (7, 1500, 135 * 10**6, 8 * 10**9)] == ["7", "1.5 k", "135 M", "8 B"]
