"""Loading: what a good model says of itself, and what a user is told of a bad one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from headstart.engines.llamacpp.engine import load
from headstart.engines.llamacpp.options import Batching, KvType, LlamaCppOptions
from headstart.errors import ConfigError, ModelError
from tests.engines.equality import cold_logits, compare, random_tokens, record, resume, state_at
from tests.engines.llamacpp.broken import embedding_model, spoil
from tests.engines.llamacpp.conftest import LoadTiny

SMALL = LlamaCppOptions(ctx_size=512, max_sequences=1, threads=1)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("empty", "is not a GGUF file"),
        ("text", "is not a GGUF file: it starts with b'This'"),
        ("only a magic number", "failed to read header"),
        ("cut in the metadata", "failed to read key-value pairs"),
        ("cut in the weights", "corrupted or incomplete"),
        ("one byte short", "corrupted or incomplete"),
        ("future version", "version 9"),
        ("unknown architecture", "unknown model architecture: 'zebra'"),
        ("missing tensor", "'blk.1.attn_q.weight' not found"),
    ],
)
def test_a_broken_file_is_named_with_its_reason(
    tiny_llama: Path, tmp_path: Path, how: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = spoil(tiny_llama, tmp_path, how)
    with pytest.raises(ModelError, match=words) as raised:
        load(path, SMALL)
    assert str(path) in str(raised.value)
    assert capfd.readouterr() == ("", ""), "llama.cpp's log must not reach the terminal"


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(ModelError, match=r"there is no model at /nowhere/model\.gguf"):
        load("/nowhere/model.gguf", SMALL)


def test_an_embedding_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"bert.*does not write text"):
        load(embedding_model(tmp_path / "bert.gguf"), SMALL)


def test_a_context_larger_than_memory_is_an_error_with_both_numbers(tiny_llama: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs [\d.]+ GB with the weights, [\d.]+ GB can be used"):
        load(tiny_llama, LlamaCppOptions(ctx_size=2_000_000_000, threads=1))


def test_a_model_can_be_loaded_after_one_that_failed(tiny_llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        load(spoil(tiny_llama, tmp_path, "cut in the weights"), SMALL)
    engine = load(tiny_llama, SMALL)
    assert engine.facts.state_proved
    engine.shutdown()


@pytest.mark.parametrize(
    ("model", "planes", "window", "recurrent"),
    [("llama", 6, 0, False), ("gemma3", 8, 127, False), ("qwen35", 5, 0, True)],
)
def test_facts_and_layout(load_tiny: LoadTiny, model: str, planes: int, window: int, recurrent: bool) -> None:
    engine = load_tiny(model)
    facts, layout = engine.facts, engine.layout
    assert (facts.engine, facts.architecture) == ("llamacpp", model)
    assert facts.state_proved and facts.exact_repeat
    assert facts.parameters > 100_000
    assert facts.chat_template is not None and "im_start" in facts.chat_template
    assert len(layout.planes) == planes
    assert layout.window_tokens == window
    assert layout.recurrent is recurrent
    assert (layout.context_tokens, layout.vocab_size) == (2048, 4096)
    assert engine.max_step_tokens == 512


def test_the_parts_of_the_namespace(load_tiny: LoadTiny, tiny_llama: Path) -> None:
    parts = load_tiny("llama").facts.parts
    assert parts["weights"] == blake3(tiny_llama.read_bytes()).hexdigest()
    assert parts["kv_type"] == "f16"
    assert parts["engine"].startswith("llamacpp 0.3.")
    assert load_tiny("llama", Batching.SHARED).facts.parts == parts, "rows of both modes are the same"
    assert load_tiny("llama", kv_type=KvType.Q8_0).facts.parts != parts
    assert load_tiny("gemma3").facts.parts["weights"] != parts["weights"]


@pytest.mark.parametrize("model", ["llama", "gemma3", "qwen35"])
@pytest.mark.parametrize("kv_type", [KvType.Q8_0, KvType.Q4_0])
def test_quantized_rows_are_cut_and_put_back(load_tiny: LoadTiny, model: str, kv_type: KvType) -> None:
    engine = load_tiny(model, kv_type=kv_type)
    whole = load_tiny(model)
    bits = {KvType.Q8_0: 8.5, KvType.Q4_0: 4.5}[kv_type]
    for plane, f16 in zip(engine.layout.planes, whole.layout.planes, strict=True):
        assert plane.name == "cells" or plane.row_bytes == f16.row_bytes * bits / 16
    random = np.random.default_rng(1)
    tokens, tail = random_tokens(random, engine, 900), random_tokens(random, engine, 30)
    seq = engine.open()
    recording = record(engine, seq, tokens, (500, 400), (900,))
    engine.close(seq)
    cold = cold_logits(engine, np.concatenate([tokens, tail]), (500, 400, 30))
    assert compare(resume(engine, state_at(recording, 900, tail), (30,), random), cold).same_bits


def test_the_training_context_is_the_default(tiny_llama: Path) -> None:
    engine = load(tiny_llama, LlamaCppOptions(max_sequences=1, threads=1))
    assert engine.layout.context_tokens == 8192
    engine.shutdown()


def test_a_longer_context_than_trained_is_said(tiny_llama: Path) -> None:
    engine = load(tiny_llama, LlamaCppOptions(ctx_size=9000, max_sequences=1, threads=1))
    assert any("longer than the 8192" in note for note in engine.facts.notes)
    assert engine.layout.context_tokens == 9216
    engine.shutdown()


@pytest.mark.parametrize(
    "wrong", [{"ctx_size": -1}, {"max_sequences": 0}, {"max_sequences": 300}, {"flash_attention": False}]
)
def test_options_that_cannot_be_honoured_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        LlamaCppOptions(**wrong)  # type: ignore[arg-type]


TEAMS = """
import sys, threading, time
from pathlib import Path
import psutil
from blake3 import blake3
from headstart.engines.base import Step
from headstart.engines.llamacpp.engine import load
from headstart.engines.llamacpp.options import LlamaCppOptions
from headstart.prefix.tokens import token_run

blake3(bytes(1 << 22), max_threads=blake3.AUTO)  # the digest's own threads, which sleep
threads = psutil.Process().num_threads
before = threads()
engine = load(Path(sys.argv[1]), LlamaCppOptions(ctx_size=256, max_sequences=1, threads=2))
deadline_s = time.monotonic() + 2
while threads() > before and time.monotonic() < deadline_s:
    time.sleep(0.01)  # threads that were told to end are still counted for a moment
after_load = threads()
found = []
def compute():
    engine.forward([Step(engine.open(), token_run([1] * 32), wants_logits=True)])
    found.append(threads())
worker = threading.Thread(target=compute)
worker.start()
worker.join()
print(after_load - before, found[0] - before)
"""


def test_loading_leaves_no_threads_that_compete_with_the_engine_thread(tiny_llama: Path) -> None:
    """More OpenMP threads than processors sleep at every barrier: decoding was a third slower."""
    command = [sys.executable, "-c", TEAMS, str(tiny_llama)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    after_load, computing = map(int, done.stdout.split())
    assert after_load == 0
    assert computing <= 2, "the thread that computes and its one helper"
