"""A model over the ranks that `mlx.launch` started: which part each has, and who serves."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from headstart.engines.mlx.engine import load
from headstart.engines.mlx.options import MlxOptions
from headstart.engines.mlx.ranks import FirstRank, follow
from headstart.engines.mlx.wire import MlxWire
from headstart.errors import ConfigError, EngineError, ModelError

__all__ = ["follow_first", "is_first", "load_first"]

Progress = Callable[[int, int], None]
LAST_S = 150.0
"""Longer than the first rank may take to write what is left."""


def is_first() -> bool:
    """Whether this process is the rank that serves. By what `mlx.launch` has set, before MLX is imported."""
    return os.environ.get("MLX_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")) == "0"


def load_first(model: str | Path, options: MlxOptions, progress: Progress | None = None) -> FirstRank:
    """The engine of all ranks, on the first. Raises ModelError, ConfigError."""
    group = _group()
    local = load(model, options, progress=progress, prepare=lambda module: _shard(module, group))
    try:
        return FirstRank(local, MlxWire(group))
    except EngineError as error:
        raise ModelError(str(error)) from error


def follow_first(model: str | Path, options: MlxOptions, progress: Progress | None = None) -> None:
    """Loads this rank's part and does what the first rank tells, until it ends. A signal to all ranks is
    meant for the first, which still has to write; this one waits for its word, up to LAST_S."""
    _wait_for_the_first()
    group = _group()
    local = load(model, options, progress=progress, prepare=lambda module: _shard(module, group))
    follow(local, MlxWire(group))


def _wait_for_the_first() -> None:
    """Takes signals in a thread of their own: the engine's waits inside MLX, where none is seen."""
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)

    def last() -> None:
        signal.sigwait(ends)
        time.sleep(LAST_S)
        os._exit(1)

    threading.Thread(target=last, daemon=True).start()


def _group() -> mx.distributed.Group:
    group = mx.distributed.init()
    if group.size() < 2:
        raise ConfigError(
            "--distributed needs several ranks: mlx.launch -n 2 --backend ring -- headstart serve "
            "--distributed ..., or --hosts A,B for two machines"
        )
    return group


def _shard(model: Any, group: mx.distributed.Group) -> None:
    """Every layer cut over the ranks where the model can do that, else the layers dealt out to them."""
    try:
        if hasattr(model, "shard"):
            model.shard(group)
        elif hasattr(model, "model") and hasattr(model.model, "pipeline"):
            model.model.pipeline(group)
        else:
            raise ModelError(f"mlx-lm cannot divide a model of type {model.model_type} among ranks")
    except ValueError as error:
        raise ModelError(f"this model cannot be divided among {group.size()} ranks: {error}") from error
