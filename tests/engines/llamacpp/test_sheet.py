"""Fact sheets of GGUF files: what llama.cpp finds when it loads them, from the header alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import gguf
import pytest

from headstart.engines.fact_sheet import Kind, LayerKind
from headstart.engines.llamacpp.engine import load
from headstart.engines.llamacpp.gguf_header import GgufHeader, GgufTensor, Value
from headstart.engines.llamacpp.options import LlamaCppOptions
from headstart.engines.llamacpp.sheet import fact_sheet, sheet_of
from headstart.engines.llamacpp.source import ModelFiles
from headstart.errors import ConfigError, ModelError
from tests.fixtures.gguf_models import (
    CONTEXT_TOKENS,
    VOCABULARY,
    WINDOW,
    GgufModels,
    build_lora,
    build_with_heads_ahead,
)

KINDS = {
    "llama": (LayerKind(Kind.FULL, 3),),
    "gemma3": (LayerKind(Kind.FULL, 2), LayerKind(Kind.WINDOW, 2, WINDOW)),
    "qwen35": (LayerKind(Kind.FULL, 2), LayerKind(Kind.RECURRENT, 2)),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_llama_cpp_finds(gguf_models: GgufModels, name: str) -> None:
    path = getattr(gguf_models, name)
    found = fact_sheet(str(path))
    engine = load(path, LlamaCppOptions(ctx_size=256, max_sequences=1))
    try:
        planes, mark = engine.layout.planes, engine.layout.checkpoint_bytes
        assert found.parameters == engine.facts.parameters
        assert found.name == engine.facts.model_name
        assert found.chat_template == engine.facts.chat_template
    finally:
        engine.shutdown()
    assert found.layer_kinds == KINDS[name]
    assert found.state is not None
    rows = [plane for plane in planes if plane.name != "cells"]
    assert found.state.token_bytes == sum(plane.row_bytes for plane in rows)
    assert found.state.window_token_bytes == sum(plane.row_bytes for plane in rows if plane.window_tokens)
    assert 0 <= mark - found.state.sequence_bytes <= 100, "llama.cpp says the types beside the numbers"
    assert (found.vocabulary, found.context_tokens) == (VOCABULARY, CONTEXT_TOKENS)
    assert (found.heads, found.kv_heads, found.head_width, found.hidden_width) == (4, 2, 32, 64)


def test_the_mixture_and_what_it_is_made_of(smollm2: Path) -> None:
    found = fact_sheet("embedded")
    assert found.path == str(smollm2)
    assert found.quantisation == "Q4_1 (q4_1, q8_0, f32)"
    assert 4.5 < found.bits_per_weight < 6
    assert (found.layers, found.files, found.nbytes) == (30, 1, smollm2.stat().st_size)
    assert found.prediction_heads.words == "no"


def test_gemma_knows_its_pattern_by_its_architecture(gemma_270m: Path) -> None:
    found = fact_sheet(str(gemma_270m))
    assert found.layer_kinds == (LayerKind(Kind.FULL, 3), LayerKind(Kind.WINDOW, 15, 512))


def test_prediction_heads(tmp_path: Path) -> None:
    found = fact_sheet(str(build_with_heads_ahead(tmp_path / "ahead.gguf", layers=3, ahead=2)))
    about = found.prediction_heads
    assert (about.declared, about.shipped, about.usable) == (2, 2, False)
    assert about.words.startswith("ships 2 MTP heads, which headstart does not run")
    assert about.nbytes > 100_000
    assert found.layers == 3
    assert found.layer_kinds == (LayerKind(Kind.FULL, 3),)


def sheet(architecture: str, parts: dict[int, list[str]], **keys: Value) -> tuple[LayerKind, ...]:
    """Kinds of layers of a header with these parts of layers and keys of the architecture."""
    about = {f"{architecture}.{name.replace('__', '.')}": value for name, value in keys.items()}
    about |= {"general.architecture": architecture, f"{architecture}.block_count": len(parts)}
    tensors = tuple(
        GgufTensor(f"blk.{layer}.{name}", "f16", 64, 128) for layer, names in parts.items() for name in names
    )
    return sheet_of("m", ModelFiles((Path(__file__),)), GgufHeader(about, {}, tensors)).layer_kinds


ATTENTION, DELTA, MAMBA = ["attn_k.weight"], ["attn_qkv.weight", "ssm_a"], ["ssm_in.weight"]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (sheet("mamba", dict.fromkeys(range(3), MAMBA)), "3 recurrent"),
        (sheet("rwkv7", {0: ["time_mix_k.weight"]}), "1 recurrent"),
        (sheet("lfm2", {0: ["shortconv.conv.weight"], 1: ATTENTION}), "1 full attention, 1 recurrent"),
        (sheet("falcon-h1", {0: ATTENTION + MAMBA}), "1 full attention, 1 recurrent"),
        (sheet("qwen3next", {0: DELTA, 1: ATTENTION}), "1 full attention, 1 recurrent"),
        (sheet("phi3", {0: ["attn_qkv.weight"]}, attention__sliding_window=9), "1 full attention"),
        (
            sheet("kimi-linear", {0: [*ATTENTION, "ssm_a"], 1: ATTENTION}, attention__head_count_kv=(0, 1)),
            "1 full attention, 1 recurrent",
        ),
        (
            sheet("gpt-oss", dict.fromkeys(range(4), ATTENTION), attention__sliding_window=128),
            "2 full attention, 2 sliding window of 128 tokens",
        ),
        (
            sheet(
                "gemma4",
                dict.fromkeys(range(3), ATTENTION),
                attention__sliding_window=8,
                attention__sliding_window_pattern=(True, True, False),
                attention__shared_kv_layers=1,
            ),
            "2 sliding window of 8 tokens",
        ),
        (
            sheet("llama4", dict.fromkeys(range(4), ATTENTION)),
            "1 full attention, 3 chunked attention of 8,192 tokens",
        ),
        (
            sheet("smallthinker", dict.fromkeys(range(4), ATTENTION), attention__sliding_window=64),
            "1 full attention, 3 sliding window of 64 tokens",
        ),
    ],
)
def test_kinds_by_tensors_and_keys(kinds: tuple[LayerKind, ...], expected: str) -> None:
    assert ", ".join(one.words for one in kinds) == expected


def test_more_layers_than_can_be() -> None:
    about: dict[str, Value] = {"general.architecture": "llama", "llama.block_count": 2**32 - 1}
    header = GgufHeader(about, {}, (GgufTensor("blk.0.attn_k.weight", "f16", 64, 128),))
    with pytest.raises(ModelError, match="has 4,294,967,295 layers by its header"):
        sheet_of("m", ModelFiles((Path(__file__),)), header)


def test_a_file_that_ends_early(tiny_llama: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(tiny_llama, tmp_path / "cut.gguf"))
    os.truncate(path, path.stat().st_size - 1000)
    with pytest.raises(ModelError, match=r"cut\.gguf is cut short: .* fetch the model again"):
        fact_sheet(str(path))


@pytest.mark.parametrize("length", [4, 24, 1000, 100_000])
def test_a_header_that_ends_early(tiny_llama: Path, tmp_path: Path, length: int) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_llama.read_bytes()[:length])
    with pytest.raises(ModelError, match=r"cut\.gguf"):
        fact_sheet(str(path))


def test_what_is_no_language_model(tmp_path: Path) -> None:
    bare = tmp_path / "bare.gguf"
    writer = gguf.GGUFWriter(bare, "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelError, match="is no language model"):
        fact_sheet(str(bare))
    with pytest.raises(ModelError, match=r"is no language model, but a GGUF file \(adapter\)"):
        fact_sheet(str(build_lora(tmp_path / "lora.gguf")))


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model at"):
        fact_sheet(str(tmp_path / "none.gguf"))
    with pytest.raises(
        ModelError, match="is not in the hub cache of this machine; headstart serve --model hf:o"
    ):
        fact_sheet("hf:owner/repository/none.gguf")
    with pytest.raises(ConfigError, match="is not hf:owner/repository/file"):
        fact_sheet("hf:owner")
