"""The fact sheet of an MLX model folder, from its config and the headers of its weights; no tensor is read.

Where mlx-lm is installed, the model's class is made too, without a number of it computed: its caches tell
the kinds of layers and the size of their state exactly. Without it, config.json tells the kinds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.engines.fact_sheet import FactSheet, Kind, LayerKind, StateSize, resumes_at
from headstart.engines.mlx.folder import find_folder, read_config
from headstart.engines.mlx.packages import import_mlx, missing_package, versions
from headstart.engines.mlx.prediction import is_prediction, prediction_heads
from headstart.engines.mlx.templates import read_chat_template, read_tokenizer_config
from headstart.engines.mlx.weights import StoredTensor, read_tensors, weight_files
from headstart.errors import ModelError

__all__ = ["Shape", "fact_sheet"]

LAYER_TYPES = {
    "full_attention": Kind.FULL,
    "attention": Kind.FULL,
    "sliding_attention": Kind.WINDOW,
    "local_attention": Kind.WINDOW,
    "chunked_attention": Kind.CHUNKED,
    "linear_attention": Kind.RECURRENT,
    "conv": Kind.RECURRENT,
    "mamba": Kind.RECURRENT,
    "recurrent": Kind.RECURRENT,
}
"""What `layer_types` of a config calls them."""
RECURRENT_TYPES = re.compile(r"^(mamba|rwkv)")
PACKED_BITS = 32
"""Of the numbers that mlx packs quantised weights in."""


@dataclass(frozen=True)
class Shape:
    """What is known of a model's state and size. `kept`: names of the parameters that mlx-lm's model has."""

    layer_kinds: tuple[LayerKind, ...]
    state: StateSize | None
    parameters: int
    vocabulary: int | None
    kept: Sequence[str] = ()
    notes: tuple[str, ...] = field(default=())


def fact_sheet(source: str) -> FactSheet:
    """The sheet of the model that `source` names: a folder, owner/name, or hf:owner/name, both in the hub
    cache; nothing is fetched. Raises ModelError, ConfigError."""
    directory, name = find_folder(source, fetch=False)
    config = read_config(directory)
    files = weight_files(directory)
    tensors = {name: tensor for path in files for name, tensor in read_tensors(path).items()}
    nested = config.get("text_config")
    text = {**config, **(nested if isinstance(nested, dict) else {})}
    shape = _shape(directory, config, text, tensors)
    nbytes = sum(path.stat().st_size for path in files)
    heads = _number(text, "num_attention_heads", "n_heads", "num_heads")
    attends = any(one.kind is not Kind.RECURRENT for one in shape.layer_kinds)
    return FactSheet(
        model=source,
        path=str(directory),
        name=name,
        format="MLX folder" if _is_mlx(config) else "safetensors folder",
        engine="mlx",
        architecture=str(config["model_type"]),
        parameters=shape.parameters,
        files=len(files),
        nbytes=nbytes,
        quantisation=_quantisation(config, tensors),
        bits_per_weight=8
        * sum(one.nbytes for one in tensors.values())
        / max(1, _parameters(tensors, config)),
        layers=_number(text, "num_hidden_layers", "n_layers"),
        hidden_width=_number(text, "hidden_size", "d_model"),
        heads=heads if attends else None,
        kv_heads=(_number(text, "num_key_value_heads") or heads) if attends else None,
        head_width=_head_width(text, heads) if attends else None,
        context_tokens=_number(text, "max_position_embeddings", "max_seq_len", "n_positions"),
        vocabulary=shape.vocabulary or _number(text, "vocab_size"),
        **_chat(directory),
        layer_kinds=shape.layer_kinds,
        resumes_at=resumes_at(shape.layer_kinds),
        state=shape.state,
        prediction_heads=prediction_heads(text, tensors, shape.kept, _mlx_lm()),
        notes=shape.notes,
    )


def _shape(
    directory: Path, config: Mapping[str, Any], text: Mapping[str, Any], tensors: Mapping[str, StoredTensor]
) -> Shape:
    """By mlx-lm's own model where it is there and knows this one, else by the config."""
    missing = missing_package()
    if missing is not None:
        why = f"the size of the state is not known: {missing} is not installed (pip install 'headstart[mlx]')"
    else:
        try:
            import_mlx()
            from headstart.engines.mlx.measured import measured

            return measured(directory, str(config["model_type"]))
        except ModelError as error:
            why = f"headstart cannot serve it: {error}"
    layers = _number(text, "num_hidden_layers", "n_layers")
    own = {name: tensor for name, tensor in tensors.items() if not is_prediction(name, layers)}
    return Shape(_kinds(text, layers or 0), None, _parameters(own, config), None, notes=(why,))


def _kinds(text: Mapping[str, Any], layers: int) -> tuple[LayerKind, ...]:
    """Kinds of layers as far as config.json says them."""
    listed = text.get("layer_types")
    window = _number(text, "sliding_window") or 0
    reach = {Kind.WINDOW: window, Kind.CHUNKED: _number(text, "attention_chunk_size") or 0}
    if isinstance(listed, list) and listed:
        kinds = Counter(LAYER_TYPES.get(str(one), Kind.UNKNOWN) for one in listed)
    elif RECURRENT_TYPES.match(str(text.get("model_type"))):
        kinds = Counter({Kind.RECURRENT: layers})
    elif interval := _number(text, "full_attention_interval"):
        kinds = Counter({Kind.FULL: layers // interval, Kind.RECURRENT: layers - layers // interval})
    elif window and (pattern := _number(text, "sliding_window_pattern")):
        kinds = Counter({Kind.FULL: layers // pattern, Kind.WINDOW: layers - layers // pattern})
    elif window and text.get("use_sliding_window", True):
        kinds = Counter({Kind.WINDOW: layers})
    else:
        kinds = Counter({Kind.FULL: layers})
    return tuple(LayerKind(kind, count, reach.get(kind, 0)) for kind, count in kinds.items() if count)


def _number(config: Mapping[str, Any], *keys: str) -> int | None:
    """The first whole number that `config` has under one of `keys`."""
    found = (config.get(key) for key in keys)
    return next((n for n in found if isinstance(n, int) and not isinstance(n, bool)), None)


def _head_width(text: Mapping[str, Any], heads: int | None) -> int | None:
    width = _number(text, "hidden_size", "d_model")
    return _number(text, "head_dim") or (width // heads if width and heads else None)


def _is_mlx(config: Mapping[str, Any]) -> bool:
    """Whether mlx-lm wrote it, which its config.json says of quantised models only."""
    return isinstance(config.get("quantization"), dict)


def _quantisation(config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> str:
    """How weights are quantised, or the type of numbers that most of them are."""
    about = config.get("quantization")
    if not isinstance(about, dict):
        about = config.get("quantization_config")
    if isinstance(about, dict) and isinstance(about.get("bits"), int):
        own = sum(isinstance(value, dict) for value in about.values())
        mode = about.get("mode", "affine")
        several = f"; {own} parts otherwise" if own else ""
        return f"{about['bits']} bits in groups of {about.get('group_size')} ({mode}){several}"
    if isinstance(about, dict) and "quant_method" in about:
        return str(about["quant_method"])
    sizes: Counter[str] = Counter()
    for tensor in tensors.values():
        sizes[tensor.dtype] += tensor.nbytes
    return f"none ({sizes.most_common(1)[0][0].lower()})" if sizes else "none"


def _parameters(tensors: Mapping[str, StoredTensor], config: Mapping[str, Any]) -> int:
    """Numbers in all tensors; of quantised ones those that they stand for, without scales and biases."""
    total = 0
    for name, tensor in tensors.items():
        stem, _, last = name.rpartition(".")
        packed = tensors.get(f"{stem}.weight")
        quantised = packed is not None and packed.dtype == "U32" and f"{stem}.scales" in tensors
        if quantised and last in ("scales", "biases"):
            continue
        count = math.prod(tensor.shape)
        total += count * PACKED_BITS // _bits(config, stem) if quantised and last == "weight" else count
    return total


def _bits(config: Mapping[str, Any], part: str) -> int:
    """Of one number in `part`, which is quantised."""
    about = config.get("quantization")
    about = about if isinstance(about, dict) else {}
    own = about.get(part)
    return (_number(own, "bits") if isinstance(own, dict) else None) or _number(about, "bits") or 4


def _chat(directory: Path) -> dict[str, Any]:
    """The chat template, and how the tokens at the ends are spelled."""
    about = read_tokenizer_config(directory)
    return {
        "chat_template": read_chat_template(directory),
        "bos": _spelled(about.get("bos_token")),
        "eos": _spelled(about.get("eos_token")),
    }


def _spelled(token: object) -> str:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _mlx_lm() -> str:
    return f"mlx-lm {versions()['mlx-lm']}" if missing_package() is None else "mlx-lm"
