"""Multi-token-prediction heads: whether config.json speaks of them, and whether the weights have them.

Checkpoints name them in two ways: parts of their own ("mtp.layers.0.", "model.mtp_block.0.", "mtp.0."), or
more layers than the model has ("model.layers.61." of 61, counted from 0). mlx-lm leaves both out when it
loads a model (`sanitize` of its model classes), and its conversions have them no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from headstart.engines.fact_sheet import INSTEAD, PredictionHeads, ships
from headstart.engines.mlx.weights import StoredTensor

__all__ = ["is_prediction", "prediction_heads"]

DECLARED = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_modules",
    "num_mtp_layers",
    "mtp_num_layers",
)
"""What configs of several families call their number."""
PART = re.compile(r"(?:^|\.)(?:mtp|nextn)(?:_\w+)?(?:\.|$)")
NUMBERED = re.compile(r"(?:^|\.)(?:mtp|nextn)(?:_\w+)?\.(?:layers\.)?(?P<number>\d+)(?:\.|$)")
LAYER = re.compile(r"^(?:language_model\.)?(?:model\.)?(?:language_model\.)?layers\.(?P<number>\d+)\.")


def is_prediction(tensor: str, layers: int | None) -> bool:
    """Whether a tensor of this name, in a model of so many layers, belongs to such a head."""
    if PART.search(tensor):
        return True
    layer = LAYER.match(tensor)
    return bool(layer and layers is not None and int(layer["number"]) >= layers)


def prediction_heads(
    text_config: Mapping[str, Any], tensors: Mapping[str, StoredTensor], kept: Iterable[str], mlx_lm: str
) -> PredictionHeads:
    """`text_config`: config.json, its text part on top; `tensors`: of all weight files; `kept`: names of
    parameters that mlx-lm's model has; `mlx_lm`: what it is called, with its version where that is known."""
    layers = _count(text_config, ("num_hidden_layers",)) or None
    found = [name for name in tensors if is_prediction(name, layers)]
    declared, shipped = _count(text_config, DECLARED), _shipped(found)
    words = "no"
    if shipped:
        loaded = any(is_prediction(name, layers) for name in kept)
        words = ships(shipped, f"{mlx_lm} {'loads but does not run' if loaded else 'leaves out'}")
    elif declared:
        words = f"no: config.json speaks of {declared}, the weights hold none; {INSTEAD}"
    return PredictionHeads(declared, shipped, sum(tensors[name].nbytes for name in found), False, words)


def _count(config: Mapping[str, Any], keys: Iterable[str]) -> int:
    """The first number above 0 that `config` has under one of `keys`, else 0."""
    values = (config.get(key) for key in keys)
    return next((n for n in values if isinstance(n, int) and not isinstance(n, bool) and n > 0), 0)


def _shipped(names: Iterable[str]) -> int:
    """How many heads these tensors make: those that are numbered, else one."""
    listed = list(names)
    parts = {match["number"] for name in listed if (match := NUMBERED.search(name))}
    layers = {match["number"] for name in listed if not PART.search(name) and (match := LAYER.match(name))}
    return len(parts) + len(layers) or min(1, len(listed))
