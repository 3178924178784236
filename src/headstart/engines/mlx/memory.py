"""How much memory a model needs while it reads, and what is done so that it is never exceeded.

Upper bounds: the weights; rows of all sequences, twice while a buffer grows; and what one chunk of prefill
works with: scores of its attention, and a few copies of its activations, or more where a trial at the start
has taken more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import psutil

from headstart.engines.mlx.options import MlxOptions
from headstart.errors import ConfigError, ModelError

__all__ = [
    "TRIAL_TOKENS",
    "Needs",
    "at_least",
    "chunk_now",
    "chunk_tokens",
    "limited_context",
    "memory_limit_bytes",
    "needs_of",
    "peak_bytes",
    "set_limits",
    "usable_bytes",
]

HEADROOM = 0.9
SMALLEST_CONTEXT = 512
SMALLEST_CHUNK = 16
FALLBACK_CONTEXT = 4096
ACTIVATIONS = 12
"""Copies of a chunk's widest activations that are alive at once, at most."""


TRIAL_TOKENS = 64
TRIAL_MARGIN = 1.5


@dataclass(frozen=True)
class Needs:
    """Bytes. `row_bytes`: all planes of a token; `fixed_bytes`: recurrent state of a sequence; `token_bytes`:
    work of one token of a chunk, attention aside; `pair_bytes`: that of it and one token before it."""

    weights_bytes: int
    sequences: int
    row_bytes: int
    fixed_bytes: int
    token_bytes: int
    pair_bytes: int

    def state_bytes(self, context: int) -> int:
        """One sequence may be put back or grow: its rows are there three times then."""
        return (self.sequences + 2) * context * self.row_bytes + self.sequences * self.fixed_bytes

    def chunk_bytes(self, context: int, chunk: int) -> int:
        return chunk * (self.token_bytes + context * self.pair_bytes)

    def total_bytes(self, context: int, chunk: int) -> int:
        return self.weights_bytes + self.state_bytes(context) + self.chunk_bytes(context, chunk)


def needs_of(config: Mapping[str, Any], *, weights: int, row: int, fixed: int, sequences: int) -> Needs:
    """What a model with this config.json needs."""
    text = {**config, **config.get("text_config", {})}
    hidden = int(text.get("hidden_size", text.get("d_model", 4096)))
    widest = max(hidden, int(text.get("intermediate_size") or 0))
    heads = int(text.get("num_attention_heads") or 1)
    return Needs(
        weights_bytes=weights,
        sequences=sequences,
        row_bytes=row,
        fixed_bytes=fixed,
        token_bytes=ACTIVATIONS * widest * 4,
        pair_bytes=heads * 4 if row else 0,
    )


def at_least(needs: Needs, first_bytes: int, second_bytes: int) -> Needs:
    """`needs`, raised to what trials took: TRIAL_TOKENS read after as many, and once more after these. The
    second sees TRIAL_TOKENS more tokens before each of its own; that is all that parts them."""
    more = max(0, second_bytes - first_bytes) if needs.row_bytes else 0
    pair = max(needs.pair_bytes, int(TRIAL_MARGIN * more / TRIAL_TOKENS**2))
    token = max(needs.token_bytes, int(TRIAL_MARGIN * first_bytes / TRIAL_TOKENS))
    return replace(needs, token_bytes=token, pair_bytes=pair)


def peak_bytes(work: Callable[[], None]) -> int:
    """How much more memory MLX had in use while `work` was done than before it."""
    before = int(mx.get_active_memory())
    mx.reset_peak_memory()
    work()
    return int(mx.get_peak_memory()) - before


def chunk_now(needs: Needs, longest: int, wanted: int, free_bytes: int) -> int:
    """`wanted`, halved until a chunk that follows `longest` tokens works in `free_bytes`, though not below
    SMALLEST_CHUNK: what little that takes is tried."""
    chunk = wanted
    while chunk > SMALLEST_CHUNK and needs.chunk_bytes(longest + chunk, chunk) > free_bytes:
        chunk = max(SMALLEST_CHUNK, chunk // 2)
    return chunk


def chunk_tokens(needs: Needs, context: int, wanted: int, limit_bytes: int) -> int:
    """The largest chunk up to `wanted`, halved as often as needed, with which a prompt as long as the context
    is read within `limit_bytes`; 0 where not even the smallest can."""
    chunk = wanted
    while chunk >= min(SMALLEST_CHUNK, wanted):
        if needs.total_bytes(context, chunk) <= limit_bytes:
            return chunk
        chunk //= 2
    return 0


def limited_context(
    options: MlxOptions, config: Mapping[str, Any], needs: Needs
) -> tuple[int, int, str | None]:
    """Tokens a sequence gets, tokens a chunk gets, and a note where they are not what was wanted.

    Raises ConfigError where the context asked for does not fit, ModelError where no useful one does.
    """
    limit = usable_bytes(options)
    text = {**config, **config.get("text_config", {})}
    trained = int(text.get("max_position_embeddings") or FALLBACK_CONTEXT)
    context = options.ctx_size or trained
    wanted = options.max_step_tokens
    chunk = chunk_tokens(needs, context, min(wanted, context), limit)
    if not chunk and options.ctx_size:
        fits = _longest(needs, options.ctx_size, wanted, limit)
        raise ConfigError(
            f"a context of {context} tokens for {needs.sequences} sequences needs "
            f"{_gb(needs.total_bytes(context, SMALLEST_CHUNK))} with the weights, {_gb(limit)} can be used; "
            f"{fits} tokens would fit. Lower --ctx-size or --max-concurrent-requests."
        )
    if not chunk:
        context = _longest(needs, trained, wanted, limit)
        if context < SMALLEST_CONTEXT:
            raise ModelError(
                f"the model needs {_gb(needs.total_bytes(SMALLEST_CONTEXT, SMALLEST_CHUNK))} with its "
                f"shortest useful context, {_gb(limit)} can be used"
            )
        chunk = chunk_tokens(needs, context, min(wanted, context), limit)
    notes = []
    if context < trained and not options.ctx_size:
        notes.append(f"the context is {context} tokens, not {trained}: {_gb(limit)} of memory can be used")
    if context > trained:
        notes.append(f"the context of {context} tokens is longer than the {trained} the model was trained on")
    if chunk < min(wanted, context):
        notes.append(f"prompts are read {chunk} tokens at a time, not {wanted}: {_gb(limit)} can be used")
    return context, chunk, "; ".join(notes) or None


def _longest(needs: Needs, most: int, wanted: int, limit: int) -> int:
    """The longest context, in steps of 256, that the smallest chunk can be read with; 0 where none can."""
    low, high = 0, most // 256
    while low < high:
        middle = (low + high + 1) // 2
        if chunk_tokens(needs, middle * 256, min(wanted, SMALLEST_CHUNK), limit):
            low = middle
        else:
            high = middle - 1
    return low * 256


def usable_bytes(options: MlxOptions) -> int:
    """What is planned with: the limit, less a reserve."""
    return int((options.memory_bytes or memory_limit_bytes()) * HEADROOM)


def memory_limit_bytes() -> int:
    """What may be used: the working set that Metal recommends, elsewhere the memory that is free now or in
    use by MLX already."""
    if mx.metal.is_available():
        return int(mx.device_info()["max_recommended_working_set_size"])
    return int(psutil.virtual_memory().available) + int(mx.get_active_memory())


def set_limits(options: MlxOptions) -> None:
    """Tells MLX how much it may take, keep wired (Metal), and keep for reuse."""
    if mx.metal.is_available():
        limit = options.memory_bytes or memory_limit_bytes()
        mx.set_memory_limit(limit)
        mx.set_wired_limit(limit)
    if options.cache_bytes is not None:
        mx.set_cache_limit(options.cache_bytes)


def _gb(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB"
