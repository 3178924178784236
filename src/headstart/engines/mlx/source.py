"""An MLX model from its folder: found, checked, loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from headstart.engines.base import AdapterFacts, Vocabulary
from headstart.engines.mlx.options import MlxOptions
from headstart.prefix.tokens import TokenRun

__all__ = ["Loaded", "Tokenize", "load_model_directory"]


class Tokenize(Protocol):
    def __call__(self, text: str, *, special: bool, add_bos: bool) -> TokenRun: ...


@dataclass(frozen=True)
class Loaded:
    """A model in memory, its weights evaluated, and all that its folder says of it.

    `model`: an mlx-lm model (nn.Module); `config`: config.json as mlx-lm read it. `tokenize` may be
    called from any thread. `vocabulary.pieces` has as many entries as the logits. `weights_digest`
    covers the weights and config.json. `model_name`: that of the folder or the repository.
    """

    model: Any
    config: dict[str, Any]
    directory: Path
    vocabulary: Vocabulary
    tokenize: Tokenize
    chat_template: str | None
    weights_digest: str
    adapters: tuple[AdapterFacts, ...]
    model_name: str
    architecture: str
    parameters: int


def load_model_directory(
    path: str | Path, options: MlxOptions, progress: Callable[[int, int], None] | None = None
) -> Loaded:
    """Loads the model at `path`: a folder, the name of a repository in the hub cache
    (owner/name), or hf:owner/name, which downloads it where it is not there yet.

    `progress` gets bytes read and bytes in all while the weights' digest is taken.
    Raises ModelError, with what to do, where the model or its adapter cannot be used.
    """
    raise NotImplementedError
