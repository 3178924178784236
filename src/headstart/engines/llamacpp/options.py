"""Settings of the llama.cpp engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from headstart.errors import ConfigError

__all__ = ["Batching", "KvType", "LlamaCppOptions", "LoraAdapter"]


class Batching(StrEnum):
    """How running sequences share the model.

    EXACT: a context of its own for every running sequence, so that its cells always start at 0 and
    its bits repeat. SHARED: one context for all, forks without copying and batched decodes.
    """

    EXACT = "exact"
    SHARED = "shared"


class KvType(StrEnum):
    """Number format of the attention keys and values."""

    F16 = "f16"
    Q8_0 = "q8_0"
    Q4_0 = "q4_0"


@dataclass(frozen=True)
class LoraAdapter:
    """A LoRA adapter in a GGUF file, and the factor of what it adds to the weights."""

    path: Path
    scale: float = 1.0


@dataclass(frozen=True)
class LlamaCppOptions:
    """What to load and how to run it.

    `ctx_size`: tokens a sequence may hold (and, with SHARED, all sequences together); 0 takes the
    model's training context, or as much of it as fits in memory. `ubatch_tokens`: most tokens one
    graph computes. `n_gpu_layers`: layers on the GPU, -1 for all. `threads` and `threads_batch`:
    for one token and for many; 0 takes the number of physical cores. `digest_memo`: file that
    remembers digests of weights, so that unchanged files are not read again; None: no such file.
    `step_scores`: most tokens of one step whose scores can be asked for.
    `adapters`: applied to the model, all of them at once.
    """

    ctx_size: int = 0
    max_sequences: int = 4
    batching: Batching = Batching.EXACT
    kv_type: KvType = KvType.F16
    n_gpu_layers: int = 0
    threads: int = 0
    threads_batch: int = 0
    ubatch_tokens: int = 512
    flash_attention: bool = True
    digest_memo: Path | None = None
    adapters: tuple[LoraAdapter, ...] = ()
    step_scores: int = 1

    def __post_init__(self) -> None:
        for name, low in (("ctx_size", 0), ("max_sequences", 1), ("threads", 0), ("ubatch_tokens", 1)):
            value = getattr(self, name)
            if value < low:
                raise ConfigError(f"{name} is {value}; expected {low} or more")
        for adapter in self.adapters:
            if not math.isfinite(adapter.scale):
                raise ConfigError(f"the scale of {adapter.path} is {adapter.scale}; expected a finite number")
        if self.max_sequences > 254:
            raise ConfigError(f"max_sequences is {self.max_sequences}; llama.cpp can hold 254 at most")
        if not self.flash_attention:
            raise ConfigError(
                "flash_attention is off; without it llama.cpp stores values transposed, "
                "so rows cannot be cut at a token. Leave it on."
            )
