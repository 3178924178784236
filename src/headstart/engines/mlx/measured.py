"""Layers, state and size of a model as mlx-lm makes it, its weights described and never read: MLX computes
an array when it is asked for its numbers, and here shapes are all that is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import get_total_parameters

from headstart.engines.fact_sheet import Kind, LayerKind, StateSize
from headstart.engines.mlx.kinds import ArraysLeaf, RowsLeaf, UnknownKind, converted, describe, leaves
from headstart.engines.mlx.sheet import Shape
from headstart.engines.mlx.source import load_lazily, vocab_size
from headstart.engines.mlx.window import ChunkCache

__all__ = ["measured"]

SOURCE = "mlx-lm's caches for this model"


def measured(directory: Path, architecture: str) -> Shape:
    """What the model in `directory` is. Raises ModelError where mlx-lm cannot make it."""
    model = load_lazily(directory, architecture)
    length = vocab_size(model, directory)

    def make() -> list[Any]:
        return converted(make_prompt_cache(model), None, 64)

    def read(caches: Sequence[Any], count: int) -> None:
        model(mx.zeros((1, count), mx.int32), cache=caches)

    parameters: list[tuple[str, Any]] = tree_flatten(model.parameters())  # type: ignore[assignment]
    state, kinds, note = _state(read, make)
    return Shape(
        layer_kinds=kinds,
        state=state,
        parameters=int(get_total_parameters(model)),
        vocabulary=length,
        kept=[name for name, _ in parameters],
        notes=() if note is None else (note,),
    )


def _state(
    read: Callable[[Sequence[Any], int], None], make: Callable[[], list[Any]]
) -> tuple[StateSize | None, tuple[LayerKind, ...], str | None]:
    try:
        found = describe(read, make)
    except UnknownKind as unknown:
        kinds = (LayerKind(Kind.UNKNOWN, len(make())),)
        return None, kinds, f"headstart does not know {unknown}, a kind of cache: whole states are kept"
    planes = [plane for leaf in found if isinstance(leaf, RowsLeaf) for plane in leaf.planes]
    state = StateSize(
        token_bytes=sum(plane.row_bytes for plane in planes),
        window_token_bytes=sum(plane.row_bytes for plane in planes if plane.window_tokens),
        sequence_bytes=sum(leaf.nbytes for leaf in found if isinstance(leaf, ArraysLeaf)),
        source=SOURCE,
    )
    return state, _layer_kinds(make(), found), None


def _layer_kinds(caches: Sequence[Any], found: Sequence[RowsLeaf | ArraysLeaf]) -> tuple[LayerKind, ...]:
    """Each kind of a layer counts once for it; a layer may have several."""
    described = iter(found)
    counts: Counter[tuple[Kind, int]] = Counter()
    for cache in caches:
        counts.update({_kind(next(described), leaf) for leaf in leaves([cache])})
    return tuple(LayerKind(kind, count, reach) for (kind, reach), count in counts.items())


def _kind(described: RowsLeaf | ArraysLeaf, leaf: Any) -> tuple[Kind, int]:
    if isinstance(described, ArraysLeaf):
        return Kind.RECURRENT, 0
    if not described.window:
        return Kind.FULL, 0
    return (Kind.CHUNKED if isinstance(leaf, ChunkCache) else Kind.WINDOW), described.window
