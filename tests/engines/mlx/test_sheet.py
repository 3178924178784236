"""Fact sheets of MLX folders: what the engine finds when it runs them, without running them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from headstart.engines.fact_sheet import FactSheet, Kind, LayerKind
from headstart.engines.mlx import sheet as sheets
from headstart.engines.mlx.engine import MlxEngine
from headstart.engines.mlx.prediction import prediction_heads
from headstart.engines.mlx.sheet import fact_sheet
from headstart.engines.mlx.source import load_lazily
from headstart.engines.mlx.weights import StoredTensor
from headstart.errors import ModelError
from tests.fixtures.mlx_models import CHUNK, LAYERS, NAMES, RECIPES, VOCABULARY, WINDOW, MlxModels

HALF = LAYERS // 2
KINDS = {
    "llama": [LayerKind(Kind.FULL, LAYERS)],
    "gemma3_text": [LayerKind(Kind.WINDOW, 3, WINDOW), LayerKind(Kind.FULL, 1)],
    "gpt_oss": [LayerKind(Kind.WINDOW, HALF, WINDOW), LayerKind(Kind.FULL, HALF)],
    "llama4": [LayerKind(Kind.CHUNKED, 3, CHUNK), LayerKind(Kind.FULL, 1)],
    "qwen3_5": [LayerKind(Kind.RECURRENT, HALF), LayerKind(Kind.FULL, HALF)],
    "qwen3_next": [LayerKind(Kind.RECURRENT, HALF), LayerKind(Kind.FULL, HALF)],
    "lfm2": [LayerKind(Kind.RECURRENT, 3), LayerKind(Kind.FULL, 1)],
    "mamba2": [LayerKind(Kind.RECURRENT, LAYERS)],
    "falcon_h1": [LayerKind(Kind.RECURRENT, 2), LayerKind(Kind.FULL, 2)],
    "deepseek_v32": [LayerKind(Kind.FULL, 2)],
}


def changed(folder: Path, copy: Path, **config: object) -> Path:
    shutil.copytree(folder, copy)
    about = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(about | config))
    return copy


def with_tensors(folder: Path, *names: str) -> Path:
    """`folder` with more tensors of 4 x 8 numbers, in their own file."""
    mx.save_safetensors(str(folder / "model-extra.safetensors"), {name: mx.ones((4, 8)) for name in names})
    return folder


@pytest.mark.parametrize(
    "name", ["llama-4bit", "gemma3_text-bfloat16", "qwen3_5", "falcon_h1", "deepseek_v32"]
)
def test_state_is_that_of_the_engine(
    mlx_model: MlxModels, engines: Callable[[str], MlxEngine], name: str
) -> None:
    found, engine = fact_sheet(str(mlx_model(name))), engines(name)
    assert found.state is not None
    planes = engine.layout.planes
    assert found.state.token_bytes == sum(plane.row_bytes for plane in planes)
    assert found.state.window_token_bytes == sum(plane.row_bytes for plane in planes if plane.window_tokens)
    assert found.state.sequence_bytes == engine.layout.checkpoint_bytes
    assert found.parameters == engine.facts.parameters


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_layers(mlx_model: MlxModels, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fact_sheet(str(mlx_model(name)))
    assert sorted(found.layer_kinds, key=str) == sorted(KINDS[name], key=str)
    assert found.resumes_at.startswith("checkpoints" if Kind.RECURRENT in str(KINDS[name]) else "any token")
    monkeypatch.setattr(sheets, "missing_package", lambda: "mlx")
    by_config = fact_sheet(str(mlx_model(name)))
    assert by_config.parameters == pytest.approx(found.parameters, rel=1e-3), "mlx-lm leaves sinks out"
    assert by_config.state is None
    assert by_config.notes[0].endswith("mlx is not installed (pip install 'headstart[mlx]')")
    assert found.notes == ()


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "gpt_oss", "qwen3_5", "qwen3_next", "mamba2"])
def test_kinds_of_layers_by_the_config_alone(
    mlx_model: MlxModels, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sheets, "missing_package", lambda: "mlx")
    assert sorted(fact_sheet(str(mlx_model(name))).layer_kinds, key=str) == sorted(KINDS[name], key=str)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("llama-")])
def test_quantised_weights_count_as_what_they_stand_for(
    mlx_model: MlxModels, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, recipe = fact_sheet(str(mlx_model(name))), RECIPES[name]
    words = "none (bf16)" if recipe.dtype == "bfloat16" else "none (f32)"
    if recipe.bits:
        group = {"affine": 32, "mxfp4": 32, "nvfp4": 16}[recipe.mode]
        words = f"{recipe.bits} bits in groups of {group} ({recipe.mode})"
        assert recipe.bits < found.bits_per_weight < recipe.bits + 3
    assert found.quantisation == words
    monkeypatch.setattr(sheets, "missing_package", lambda: "mlx")
    assert fact_sheet(str(mlx_model(name))).parameters == found.parameters


def test_no_weight_is_read(mlx_model: MlxModels) -> None:
    folder = mlx_model("qwen3_5")
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    found = fact_sheet(str(folder))
    assert mx.get_peak_memory() - before < found.nbytes / 100
    mx.eval(load_lazily(folder, "qwen3_5").parameters())
    assert mx.get_peak_memory() - before > found.nbytes / 2, "and this is how it would be seen"


def test_sizes_and_template(mlx_model: MlxModels) -> None:
    found = fact_sheet(str(mlx_model("llama")))
    assert (found.format, found.engine, found.architecture) == ("safetensors folder", "mlx", "llama")
    assert (found.layers, found.hidden_width, found.heads, found.kv_heads) == (LAYERS, 64, 4, 2)
    assert (found.head_width, found.context_tokens, found.vocabulary) == (32, 65536, VOCABULARY)
    assert found.nbytes == (mlx_model("llama") / "model.safetensors").stat().st_size
    assert "<|im_start|>" in (found.chat_template or "")
    assert found.eos == "<|im_end|>"
    assert found.prediction_heads.words == "no"
    assert fact_sheet(str(mlx_model("mamba2"))).heads is None


def heads(found: FactSheet) -> tuple[int, int, str]:
    about = found.prediction_heads
    assert not about.usable
    return about.declared, about.shipped, about.words


def test_a_prediction_head_that_mlx_lm_leaves_out(mlx_model: MlxModels, tmp_path: Path) -> None:
    folder = changed(mlx_model("qwen3_5"), tmp_path / "model", mtp_num_hidden_layers=1)
    plain = fact_sheet(str(mlx_model("qwen3_5")))
    assert heads(fact_sheet(str(folder)))[:2] == (1, 0)
    assert "config.json speaks of 1, the weights hold none" in heads(fact_sheet(str(folder)))[2]
    with_tensors(folder, "mtp.layers.0.mlp.up_proj.weight", "mtp.fc.weight", "mtp.norm.weight")
    found = fact_sheet(str(folder))
    declared, shipped, words = heads(found)
    assert (declared, shipped) == (1, 1)
    assert words.startswith("ships an MTP head, which mlx-lm 0.")
    assert words.endswith("leaves out, so it cannot speculate with it; --speculate ngram or draft works")
    assert found.prediction_heads.nbytes == 3 * 4 * 8 * 4
    assert found.parameters == plain.parameters
    assert found.state == plain.state


def test_prediction_layers_behind_the_last(mlx_model: MlxModels, tmp_path: Path) -> None:
    """As DeepSeek and GLM ship them. A llama cannot be served with them; the sheet is there."""
    folder = changed(mlx_model("llama"), tmp_path / "model", num_nextn_predict_layers=2)
    with_tensors(folder, *(f"model.layers.{LAYERS + n}.eh_proj.weight" for n in range(2)))
    found = fact_sheet(str(folder))
    assert heads(found)[:2] == (2, 2)
    assert "ships 2 MTP heads" in heads(found)[2]
    assert found.parameters == fact_sheet(str(mlx_model("llama"))).parameters
    assert found.notes[0].startswith("headstart cannot serve it: ")


@pytest.mark.parametrize(
    ("names", "shipped"),
    [
        (["model.mtp_layers.0.a.weight", "model.mtp_layers.1.a.weight"], 2),
        (["model.mtp_block.0.a.weight", "model.mtp_linear_proj.0.weight", "model.mtp_emb_norm.0.weight"], 1),
        (["mtp.0.attn.weight", "mtp.1.attn.weight", "mtp.2.attn.weight"], 3),
        (["mtp.layers.0.mlp.experts.17.up_proj.weight", "mtp.layers.0.norm.weight"], 1),
        (["language_model.model.layers.4.enorm.weight", "language_model.model.layers.3.norm.weight"], 1),
        (["model.layers.3.mtproj.weight", "vision_tower.layers.9.weight", "smtp.weight"], 0),
    ],
)
def test_names_of_prediction_heads(names: list[str], shipped: int) -> None:
    tensors = {name: StoredTensor("F32", (1,), 4) for name in names}
    assert prediction_heads({"num_hidden_layers": 4}, tensors, (), "mlx-lm").shipped == shipped


def test_a_head_that_mlx_lm_would_keep_is_no_use_either() -> None:
    tensors = {"mtp.fc.weight": StoredTensor("F32", (1,), 4)}
    assert "loads but does not run" in prediction_heads({}, tensors, ["mtp.fc.weight"], "mlx-lm").words


@pytest.mark.parametrize("value", ["4", None, True, -1, 2.5, [4]])
def test_odd_configs_are_no_accident(mlx_model: MlxModels, tmp_path: Path, value: object) -> None:
    keys = ("num_hidden_layers", "num_attention_heads", "head_dim", "vocab_size", "mtp_num_hidden_layers")
    folder = changed(
        mlx_model("llama"), tmp_path / "model", **dict.fromkeys(keys, value), layer_types=[1, {}]
    )
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": [value], "eos_token": value}))
    found = fact_sheet(str(folder))
    assert found.notes[0].startswith("headstart cannot serve it: ")
    assert found.chat_template is None


def test_a_type_that_mlx_lm_does_not_know(mlx_model: MlxModels, tmp_path: Path) -> None:
    found = fact_sheet(str(changed(mlx_model("llama"), tmp_path / "model", model_type="gpt9")))
    assert "does not know the model type 'gpt9'" in found.notes[0]
    assert found.layers == LAYERS
    assert found.state is None


def test_a_folder_that_is_not_whole(mlx_model: MlxModels, tmp_path: Path) -> None:
    folder = changed(mlx_model("llama"), tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="has no weights"):
        fact_sheet(str(folder))


def test_a_repository_is_not_fetched() -> None:
    with pytest.raises(ModelError, match="no such repository in the hub cache"):
        fact_sheet("hf:owner/not-there")
