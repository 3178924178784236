"""Which engine runs a model, what it is told, and what is refused before anything loads."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import huggingface_hub
import pytest

from headstart.cli.engines import engine_for, follows_another_rank, load_engine
from headstart.config import Settings, resolve
from headstart.errors import ConfigError, ModelError
from headstart.options import ScaledFile


def nothing(done: int, total: int) -> None:
    pass


def folder(tmp_path: Path, *names: str) -> str:
    for name in names:
        (tmp_path / name).write_bytes(b"{}")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("files", "engine"),
    [
        (("config.json", "model.safetensors"), "mlx"),
        (("config.json",), "mlx"),
        (("model.safetensors",), "mlx"),
        (("config.json", "model.safetensors", "m.gguf"), "mlx"),
        (("config.json", "m.gguf"), "llamacpp"),
        (("m.gguf",), "llamacpp"),
        ((), "llamacpp"),
    ],
)
def test_auto_looks_at_the_folder(tmp_path: Path, files: tuple[str, ...], engine: str) -> None:
    assert engine_for(resolve({"model": folder(tmp_path, *files)}, {})) == engine


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        ("embedded", "llamacpp"),
        ("/nowhere/m.gguf", "llamacpp"),
        ("hf:owner/repository/m.gguf", "llamacpp"),
        ("hf:owner/repository", "mlx"),
        ("owner/repository", "llamacpp"),
    ],
)
def test_auto_looks_at_the_name(model: str, engine: str) -> None:
    assert engine_for(resolve({"model": model}, {})) == engine


def test_a_repository_in_the_hub_cache_is_an_mlx_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {("owner/repository", "config.json"): str(tmp_path / "config.json")}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *asked: found.get(asked))
    assert engine_for(resolve({"model": "owner/repository"}, {})) == "mlx"
    assert engine_for(resolve({"model": "owner/other"}, {})) == "llamacpp"


def test_the_named_engine_is_taken(tmp_path: Path) -> None:
    model = folder(tmp_path, "config.json", "model.safetensors")
    assert engine_for(resolve({"model": model, "engine": "llamacpp"}, {})) == "llamacpp"
    with pytest.raises(ModelError, match="use --engine mlx"):
        (tmp_path / "model.safetensors").unlink()
        load_engine(resolve({"model": model, "engine": "llamacpp"}, {}), nothing)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ({"gpu_layers": "-1"}, "--gpu-layers is for llama.cpp only"),
        ({"threads": "2"}, "--threads is for llama.cpp only"),
        ({"flash_attention": False}, "--no-flash-attention is for llama.cpp only"),
        ({"batching": "shared", "distributed": True}, "--batching shared cannot be used with --distributed"),
        ({"lora": ["/a", "/b"]}, "--lora is given 2 times; the MLX engine takes one"),
        ({"lora": ["/a=0.5"]}, "--lora /a=0.5: the MLX engine applies an adapter at the scale of its"),
    ],
)
def test_mlx_refuses_what_it_cannot_honour(tmp_path: Path, flags: dict[str, Any], part: str) -> None:
    for engine in ("mlx", "auto"):
        settings = resolve({"model": folder(tmp_path, "config.json"), "engine": engine, **flags}, {})
        with pytest.raises(ConfigError) as raised:
            load_engine(settings, nothing)
        assert part in str(raised.value)


@pytest.mark.parametrize("name", ["mlx", "mlx_lm"])
def test_without_mlx_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    for engine in ("mlx", "auto"):
        settings = resolve({"model": folder(tmp_path, "config.json"), "engine": engine}, {})
        with pytest.raises(ModelError, match=rf"{name}, which is not .*: pip install 'headstart\[mlx\]'"):
            load_engine(settings, nothing)


def test_mlx_is_told_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    engine = ModuleType("headstart.engines.mlx.engine")
    engine.load = lambda model, options, *, progress: calls.append((model, options))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, engine.__name__, engine)
    model = folder(tmp_path, "config.json")
    flags = {
        "model": model,
        "ctx_size": "512",
        "max_concurrent_requests": "3",
        "prefill_chunk": "64",
        "kv_type": "q4_0",
        "lora": ["/adapter"],
        "base_path": str(tmp_path),
    }
    load_engine(resolve(flags, {}), nothing)
    [(given, options)] = calls
    assert given == model
    assert (options.ctx_size, options.max_sequences, options.max_step_tokens) == (512, 3, 64)
    assert (options.kv_bits, options.adapter) == (4, Path("/adapter"))
    assert options.digest_memo == tmp_path / "digests.json"


def test_an_adapter_over_several_ranks_is_refused(tmp_path: Path) -> None:
    """It would be laid over a model that is cut already."""
    settings = Settings(
        model=str(tmp_path), engine="mlx", distributed=True, lora=(ScaledFile(str(tmp_path), 1.0),)
    )
    with pytest.raises(ConfigError, match="--lora cannot be used with --distributed"):
        load_engine(settings, lambda done, total: None)


def test_sharding_goes_with_distributed() -> None:
    with pytest.raises(ConfigError, match="--sharding pipeline goes with --distributed"):
        follows_another_rank(resolve({"sharding": "pipeline"}, {}), nothing)
    with pytest.raises(ConfigError, match=r"--sharding 'both': .*tensor"):
        resolve({"sharding": "both", "distributed": True}, {})
    assert not follows_another_rank(resolve({}, {}), nothing)
