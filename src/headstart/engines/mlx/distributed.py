"""A model over the ranks that `mlx.launch` started: which part each has, and who serves."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.utils import get_total_parameters

from headstart.engines.mlx.engine import MlxEngine, load
from headstart.engines.mlx.options import MlxOptions
from headstart.engines.mlx.ranks import FirstRank, follow
from headstart.engines.mlx.wire import MlxWire
from headstart.errors import ConfigError, EngineError, ModelError

__all__ = ["divide", "follow_first", "is_first", "load_first"]

Progress = Callable[[int, int], None]
LAST_S = 150.0
"""Longer than the first rank may take to write what is left."""


def is_first() -> bool:
    """Whether this process is the rank that serves. By what `mlx.launch` has set, before MLX is imported."""
    return os.environ.get("MLX_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")) == "0"


def load_first(
    model: str | Path, options: MlxOptions, sharding: str | None = None, progress: Progress | None = None
) -> FirstRank:
    """The engine of all ranks, on the first. `sharding`: "tensor", "pipeline", or None for the first of them
    that the model can. Raises ModelError, ConfigError."""
    group = _group()
    local, kind = _load_part(model, options, sharding, group, progress)
    try:
        return FirstRank(local, MlxWire(group), kind)
    except EngineError as error:
        raise ModelError(str(error)) from error


def follow_first(
    model: str | Path, options: MlxOptions, sharding: str | None = None, progress: Progress | None = None
) -> None:
    """Loads this rank's part and does what the first rank tells, until it ends. A signal to all ranks is
    meant for the first, which still has to write; this one waits for its word, up to LAST_S."""
    _wait_for_the_first()
    group = _group()
    local, _ = _load_part(model, options, sharding, group, progress)
    follow(local, MlxWire(group))


def _load_part(
    model: str | Path,
    options: MlxOptions,
    sharding: str | None,
    group: mx.distributed.Group,
    progress: Progress | None,
) -> tuple[MlxEngine, str]:
    """This rank's engine, with the facts of the whole model, and how that was divided."""
    found: list[tuple[int, str]] = []

    def prepare(module: Any) -> None:
        found.append((int(get_total_parameters(module)), divide(module, group, sharding)))

    local = load(model, options, progress=progress, prepare=prepare)
    [(parameters, kind)] = found
    local.facts = replace(local.facts, parameters=parameters)
    if local.facts.parts["state_kind"] != "rows":
        raise ModelError(
            "this model's state is kept whole, which cannot be done over several ranks: "
            + "; ".join(local.facts.notes or ("run it on one machine",))
        )
    return local, kind


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


def divide(model: Any, group: mx.distributed.Group, sharding: str | None) -> str:
    """Leaves of `model` what this rank of `group` computes; answers with how: "tensor" or "pipeline". Raises
    ModelError where mlx-lm cannot divide it so."""
    can = {"tensor": getattr(model, "shard", None), "pipeline": _pipeline_of(model)}
    kinds = [kind for kind, call in can.items() if call is not None]
    if sharding is not None and sharding not in kinds:
        instead = f"--sharding {kinds[0]} works" if kinds else "run it on one machine"
        raise ModelError(f"mlx-lm has no {sharding} sharding for a model of type {_type(model)}: {instead}")
    if not kinds:
        raise ModelError(f"mlx-lm cannot divide a model of type {_type(model)} among ranks")
    kind = sharding or kinds[0]
    try:
        can[kind](group)  # type: ignore[misc]
    except ValueError as error:
        raise ModelError(
            f"this model cannot be divided among {group.size()} ranks by --sharding {kind}: {error}"
        ) from error
    return kind


def _pipeline_of(model: Any) -> Callable[[mx.distributed.Group], None] | None:
    """The method that deals layers out, of the part that has them; in some a language model within."""
    for whole in (model, getattr(model, "language_model", None)):
        found = getattr(getattr(whole, "model", None), "pipeline", None)
        if found is not None:
            return found  # type: ignore[no-any-return]
    return None


def _type(model: Any) -> str:
    return str(getattr(model, "model_type", type(model).__module__))
