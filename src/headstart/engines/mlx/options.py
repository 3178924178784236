"""Settings of the MLX engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from headstart.errors import ConfigError

__all__ = ["MlxOptions", "Together"]

KV_BITS = (None, 4, 8)
KV_GROUPS = (32, 64, 128)


class Together(StrEnum):
    """Whether single tokens of several sequences are read in one pass over the weights: never, where every
    bit stays what it is alone, or wherever the model's code can do it."""

    NEVER = "never"
    EXACT = "exact"
    SHARED = "shared"


@dataclass(frozen=True)
class MlxOptions:
    """What to load and how to run it.

    `ctx_size`: tokens a sequence may hold; 0 takes the model's own context. `max_step_tokens`: most
    tokens one step reads. `kv_bits`: keys and values of full attention are kept quantised to so many
    bits, in groups of `kv_group` numbers; None: as the model makes them. `adapter`: a folder as
    `mlx_lm.lora` writes it (adapters.safetensors, adapter_config.json). `digest_memo`: file that
    remembers digests of weights, so that unchanged files are not read again; None: no such file.
    `memory_bytes`: most memory the engine may plan with; 0 asks the device. `cache_bytes`: most freed
    memory that MLX keeps for reuse; None leaves MLX's own limit. `read_ahead`: where a reply takes the
    likeliest token, that is begun before it is asked for.
    """

    ctx_size: int = 0
    max_sequences: int = 4
    max_step_tokens: int = 512
    kv_bits: int | None = None
    kv_group: int = 64
    adapter: Path | None = None
    digest_memo: Path | None = None
    memory_bytes: int = 0
    cache_bytes: int | None = None
    read_ahead: bool = True
    together: Together = Together.EXACT

    def __post_init__(self) -> None:
        for name, low in (("ctx_size", 0), ("max_sequences", 1), ("max_step_tokens", 1), ("memory_bytes", 0)):
            value = getattr(self, name)
            if value < low:
                raise ConfigError(f"{name} is {value}; expected {low} or more")
        if self.kv_bits not in KV_BITS:
            raise ConfigError(f"kv_bits is {self.kv_bits}; expected 4 or 8, or none for whole")
        if self.kv_group not in KV_GROUPS:
            raise ConfigError(f"kv_group is {self.kv_group}; expected one of 32, 64, 128")
        if self.cache_bytes is not None and self.cache_bytes < 0:
            raise ConfigError(f"cache_bytes is {self.cache_bytes}; expected 0 or more")
