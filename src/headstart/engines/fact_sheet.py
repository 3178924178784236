"""What a model is, read from its files without loading it: the same sheet for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

__all__ = ["FactSheet", "Kind", "LayerKind", "PredictionHeads", "StateSize", "resumes_at", "ships"]

CHECKPOINTS = "checkpoints: message starts and ends, every divergence seen before, a grid between"
INSTEAD = "--speculate ngram or draft works"


class Kind(StrEnum):
    """How a layer looks back."""

    FULL = "full attention"
    WINDOW = "sliding window"
    CHUNKED = "chunked attention"
    RECURRENT = "recurrent"
    UNKNOWN = "unknown to headstart"


@dataclass(frozen=True)
class LayerKind:
    """So many layers of one kind. `reach_tokens`: of a window or chunk; 0: to the beginning."""

    kind: Kind
    count: int
    reach_tokens: int = 0

    @property
    def words(self) -> str:
        reach = f" of {self.reach_tokens:,} tokens" if self.reach_tokens else ""
        return f"{self.count} {self.kind}{reach}"


@dataclass(frozen=True)
class StateSize:
    """Bytes that one token leaves behind, of them in layers that look back a window or chunk only
    (`window_token_bytes`), and that a sequence has whatever its length, which is the size of a checkpoint.
    `source`: what it was worked out from."""

    token_bytes: int
    window_token_bytes: int
    sequence_bytes: int
    source: str


@dataclass(frozen=True)
class PredictionHeads:
    """Multi-token-prediction heads. `declared`: how many the config or header speaks of; `shipped`: how many
    have weights in the files, `nbytes` in all. `usable`: whether headstart can speculate with them. `words`:
    all that in a sentence."""

    declared: int
    shipped: int
    nbytes: int
    usable: bool
    words: str


@dataclass(frozen=True)
class FactSheet:
    """`model`: the words that name it; `path`: its folder or first file. `nbytes`: of its files of weights.
    `bits_per_weight`: of all of them. `heads`, `kv_heads`, `head_width`: of attention layers, the most
    where layers differ; None where the model has none. `layer_kinds` may count fewer than `layers` (layers
    that leave nothing behind) or more (two kinds in one layer). None anywhere else: not said in the files.
    """

    model: str
    path: str
    name: str
    format: str
    engine: str
    architecture: str
    parameters: int
    files: int
    nbytes: int
    quantisation: str
    bits_per_weight: float
    layers: int | None
    hidden_width: int | None
    heads: int | None
    kv_heads: int | None
    head_width: int | None
    context_tokens: int | None
    vocabulary: int | None
    chat_template: str | None
    bos: str
    eos: str
    layer_kinds: tuple[LayerKind, ...]
    resumes_at: str
    state: StateSize | None
    prediction_heads: PredictionHeads
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain values; the chat template's text is left out."""
        plain = asdict(self)
        for name in ("chat_template", "bos", "eos"):
            del plain[name]
        return plain


def resumes_at(kinds: Sequence[LayerKind]) -> str:
    """Where a prompt can go on from what an earlier one left behind."""
    found = {one.kind for one in kinds}
    if not found:
        return "not known"
    if Kind.UNKNOWN in found:
        return "message ends: whole states are kept"
    if Kind.RECURRENT in found:
        return CHECKPOINTS
    if found & {Kind.WINDOW, Kind.CHUNKED}:
        return "any token; of windows and chunks the last one is put back"
    return "any token"


def ships(heads: int, why_not: str) -> str:
    """The sentence for a model whose files have prediction heads: `why_not` follows "which"."""
    some, them = ("an MTP head", "it") if heads == 1 else (f"{heads} MTP heads", "them")
    return f"ships {some}, which {why_not}, so it cannot speculate with {them}; {INSTEAD}"
