"""What the MLX engine says of a loaded model."""

from __future__ import annotations

import mlx.core as mx

from headstart.engines.base import EngineFacts
from headstart.engines.mlx.options import MlxOptions
from headstart.engines.mlx.packages import versions
from headstart.engines.mlx.probe import Proof
from headstart.engines.mlx.source import Loaded
from headstart.engines.mlx.states import RowStates, SnapshotStates

__all__ = ["facts_of"]

STATE_VERSION = "1"
"""Raised whenever the meaning of a plane's or checkpoint's bytes changes."""


def facts_of(
    loaded: Loaded,
    options: MlxOptions,
    proof: Proof,
    *,
    states: RowStates | SnapshotStates,
    most: int,
    notes: tuple[str, ...],
) -> EngineFacts:
    """What was found out about the model, and what its state depends on. `most`: tokens a step may carry."""
    bits = "model" if options.kv_bits is None else f"{options.kv_bits} in groups of {options.kv_group}"
    parts = {
        "weights": loaded.weights_digest,
        "architecture": loaded.architecture,
        "kv_type": bits,
        "engine": " ".join(f"{name} {version}" for name, version in versions().items()),
        "device": str(mx.default_device()),
        "state_version": STATE_VERSION,
        "state_kind": "rows" if isinstance(states, RowStates) else "snapshots",
    }
    if loaded.adapters:
        parts["adapters"] = ", ".join(f"{one.digest} x {one.scale!r}" for one in loaded.adapters)
    return EngineFacts(
        engine="mlx",
        model_name=loaded.model_name,
        architecture=loaded.architecture,
        parameters=loaded.parameters,
        state_proved=proof.state_proved,
        exact_repeat=proof.exact_repeat,
        restore_equals_cold=proof.restore_equals_cold,
        parts=parts,
        chat_template=loaded.chat_template,
        notes=notes,
        adapters=loaded.adapters,
        step_scores=most,
    )
