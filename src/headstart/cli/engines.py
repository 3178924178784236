"""From settings to an engine: which one, with what options, and what it cannot honour."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.cli.terminal import Terminal
from headstart.config import Settings
from headstart.engines.base import Engine
from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.engines.mlx.options import MlxOptions

__all__ = ["engine_for", "engine_of_model", "follows_another_rank", "load_draft_engine", "load_engine"]

TOY_CONTEXT_TOKENS = 4096
KV_BITS = {"f16": None, "q8_0": 8, "q4_0": 4}
"""Bits of keys and values in MLX, where f16 is what the model computes in."""
HUB_REPOSITORY = re.compile(r"^hf:[^/]+/[^/]+$")
NAME = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")


def load_engine(settings: Settings, progress: Callable[[int, int], None]) -> Engine:
    """The engine `settings` ask for, its model loaded and probed. Raises ModelError, ConfigError.

    `progress` gets the bytes of the model read so far and in all.
    """
    engine = engine_for(settings)
    if engine == "toy":
        return _toy(settings)
    return _mlx(settings, progress) if engine == "mlx" else _llamacpp(settings, progress)


def load_draft_engine(settings: Settings, terminal: Terminal) -> Engine | None:
    """The engine that drafts, where one is used. Raises as `load_engine` does."""
    if settings.draft_model is None:
        return None
    if settings.speculate != "draft":
        terminal.step(f"--draft-model is not used: --speculate is {settings.speculate}")
        return None
    terminal.step(f"loading {settings.draft_model} to draft")
    alone = replace(
        settings,
        model=settings.draft_model,
        draft_model=None,
        speculate="off",
        lora=(),
        batching="exact",
        distributed=False,
        sharding=None,
    )
    return load_engine(alone, terminal.progress)


def step_scores(settings: Settings) -> int:
    """Of how many tokens of a step the scores are asked at most: that of the last, and of every draft."""
    return 1 if settings.speculate == "off" else 1 + settings.draft_tokens


def engine_for(settings: Settings) -> str:
    """The engine by name. With `auto`, mlx for the folder or hub repository of an MLX model, llamacpp
    for everything else: GGUF files, folders of them, the embedded model."""
    if settings.engine != "auto":
        return settings.engine
    return engine_of_model(settings.model)


def engine_of_model(model: str) -> str:
    """The engine that runs the model these words name, as far as they and what lies there tell."""
    return "mlx" if _is_mlx_model(model) else "llamacpp"


def _is_mlx_model(model: str) -> bool:
    if HUB_REPOSITORY.match(model):
        return True
    path = Path(model).expanduser()
    if not path.is_dir():
        return not path.exists() and _in_hub_cache(model)
    if any(path.glob("*.safetensors")):
        return True
    return (path / "config.json").is_file() and not any(path.glob("*.gguf"))


def _in_hub_cache(name: str) -> bool:
    """Whether `name` is owner/name of a model that huggingface_hub has fetched before."""
    if not NAME.match(name):
        return False
    try:
        from huggingface_hub import try_to_load_from_cache
    except ModuleNotFoundError:
        return False
    return isinstance(try_to_load_from_cache(name, "config.json"), str)


def _toy(settings: Settings) -> Engine:
    from headstart.engines.toy import ToyEngine

    return ToyEngine(
        context_tokens=settings.ctx_size or TOY_CONTEXT_TOKENS,
        max_sequences=settings.max_concurrent_requests,
        shares_rows=settings.batching == "shared",
    )


def _llamacpp(settings: Settings, progress: Callable[[int, int], None]) -> Engine:
    from headstart.engines.llamacpp.engine import load
    from headstart.engines.llamacpp.options import Batching, KvType, LlamaCppOptions, LoraAdapter

    options = LlamaCppOptions(
        ctx_size=settings.ctx_size or 0,
        max_sequences=settings.max_concurrent_requests,
        batching=Batching(settings.batching),
        kv_type=KvType(settings.kv_type),
        n_gpu_layers=settings.gpu_layers,
        threads=settings.threads or 0,
        threads_batch=settings.threads or 0,
        flash_attention=settings.flash_attention,
        digest_memo=settings.base_directory / "digests.json",
        adapters=tuple(LoraAdapter(Path(file.path), file.scale) for file in settings.lora),
        step_scores=step_scores(settings),
    )
    return load(settings.model, options, progress=progress)


def follows_another_rank(settings: Settings, progress: Callable[[int, int], None]) -> bool:
    """Whether this process is a rank that does not serve; it has then done its work, and the first rank has
    ended. Raises ModelError, ConfigError."""
    if not settings.distributed:
        if settings.sharding is not None:
            raise ConfigError(
                f"--sharding {settings.sharding} goes with --distributed, under mlx.launch: add that, "
                "or leave it out"
            )
        return False
    if engine_for(settings) != "mlx":
        raise ConfigError("--distributed is for MLX models: leave it out, or give an MLX model folder")
    options = _mlx_options(settings)
    from headstart.engines.mlx.distributed import follow_first, is_first

    if is_first():
        return False
    follow_first(settings.model, options, settings.sharding, progress)
    return True


def _mlx(settings: Settings, progress: Callable[[int, int], None]) -> Engine:
    options = _mlx_options(settings)
    if settings.distributed:
        from headstart.engines.mlx.distributed import load_first

        return load_first(settings.model, options, settings.sharding, progress)
    from headstart.engines.mlx.engine import load

    return load(settings.model, options, progress=progress)


def _mlx_options(settings: Settings) -> MlxOptions:
    _check_mlx(settings)
    from headstart.engines.mlx.packages import import_mlx

    import_mlx()
    from headstart.engines.mlx.options import MlxOptions, Together

    return MlxOptions(
        ctx_size=settings.ctx_size or 0,
        max_sequences=settings.max_concurrent_requests,
        max_step_tokens=settings.prefill_chunk,
        kv_bits=KV_BITS[settings.kv_type],
        adapter=Path(settings.lora[0].path) if settings.lora else None,
        digest_memo=settings.base_directory / "digests.json",
        together=Together.NEVER if settings.distributed else Together(settings.batching),
    )


def _check_mlx(settings: Settings) -> None:
    """Raises ConfigError for what the MLX engine cannot honour."""
    refused = (
        ("--gpu-layers", settings.gpu_layers != 0, "MLX computes the whole model on its device"),
        ("--threads", settings.threads is not None, "MLX chooses its threads itself"),
        ("--no-flash-attention", not settings.flash_attention, "MLX has its own attention"),
    )
    for flag, given, why in refused:
        if given:
            raise ConfigError(f"{flag} is for llama.cpp only ({why}): leave it out, or use a GGUF model")
    if settings.batching == "shared" and settings.distributed:
        raise ConfigError("--batching shared cannot be used with --distributed: leave one of them out")
    if settings.lora and settings.distributed:
        raise ConfigError("--lora cannot be used with --distributed: fuse the adapter first (mlx_lm.fuse)")
    if len(settings.lora) > 1:
        raise ConfigError(f"--lora is given {len(settings.lora)} times; the MLX engine takes one adapter")
    for adapter in settings.lora:
        if adapter.scale != 1:
            raise ConfigError(
                f"--lora {adapter.path}={adapter.scale:g}: the MLX engine applies an adapter at the scale "
                "of its adapter_config.json; change it there, and leave '=' and the number out here"
            )
