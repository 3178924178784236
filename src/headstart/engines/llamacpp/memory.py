"""How much memory a model needs, and how long a context fits into what there is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from headstart.errors import ConfigError, ModelError

__all__ = ["Needs", "available_bytes", "context_tokens"]

CELLS_STEP = 256
"""llama.cpp rounds a context up to a multiple of this (llama_context: GGML_PAD(n_ctx, 256))."""
SMALLEST_CONTEXT = 512
HEADROOM = 0.9
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Needs:
    """Bytes: weights, then for each of `contexts`: a part that grows with its cells and one that does not."""

    weights_bytes: int
    contexts: int
    cell_bytes: int
    fixed_bytes: int

    def total_bytes(self, cells: int) -> int:
        return self.weights_bytes + self.contexts * (cells * self.cell_bytes + self.fixed_bytes)

    def most_cells(self, bytes_available: int) -> int:
        left = bytes_available - self.weights_bytes - self.contexts * self.fixed_bytes
        cells = left // (self.contexts * self.cell_bytes) if self.cell_bytes else CELLS_STEP << 20
        return max(0, cells // CELLS_STEP * CELLS_STEP)


def available_bytes() -> int:
    """Memory that can be taken now, the limit of the control group included."""
    available = int(psutil.virtual_memory().available)
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return available
    return min(available, max(0, int(limit) - used)) if limit.isdigit() else available


def context_tokens(asked: int, trained: int, needs: Needs, bytes_available: int) -> tuple[int, str | None]:
    """Tokens a context gets, and a note where that is not what the model allows.

    `asked` 0: the training context, or as much as fits. Raises ConfigError where `asked` tokens do
    not fit, ModelError where no useful context does.
    """
    usable = int(bytes_available * HEADROOM)
    if asked:
        cells = _rounded(asked)
        if needs.total_bytes(cells) > usable:
            raise ConfigError(
                f"a context of {asked} tokens for {needs.contexts} sequences needs "
                f"{_gb(needs.total_bytes(cells))} with the weights, {_gb(usable)} can be used; "
                f"{needs.most_cells(usable)} tokens would fit. Lower --ctx-size or the number of sequences."
            )
        note = f"the context of {asked} tokens is longer than the {trained} the model was trained on"
        return cells, note if trained and asked > trained else None
    wanted = _rounded(trained or SMALLEST_CONTEXT)
    fits = needs.most_cells(usable)
    if fits >= wanted:
        return wanted, None
    if fits < SMALLEST_CONTEXT:
        raise ModelError(
            f"the model needs {_gb(needs.total_bytes(SMALLEST_CONTEXT))} with its shortest useful context, "
            f"{_gb(usable)} can be used"
        )
    return fits, f"the context is {fits} tokens, not {wanted}: {_gb(usable)} of memory can be used"


def _rounded(tokens: int) -> int:
    return -(-tokens // CELLS_STEP) * CELLS_STEP


def _gb(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB"
