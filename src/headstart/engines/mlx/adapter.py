"""An adapter in a folder as `mlx_lm.lora` writes it, applied to a loaded model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlx_lm.tuner.utils import load_adapters

from headstart.engines.base import AdapterFacts
from headstart.engines.digests import content_digest, identity, remembered
from headstart.engines.mlx.weights import check_safetensors, read_json
from headstart.errors import ModelError

__all__ = ["apply_adapter"]

WEIGHTS, CONFIG = "adapters.safetensors", "adapter_config.json"


def apply_adapter(model: Any, folder: Path, memo: Path | None) -> AdapterFacts:
    """Adds the adapter in `folder` to `model`, at the scale its own config has.

    Raises ModelError where it is not whole or does not fit; the model is then of no further use.
    """
    paths = (folder / WEIGHTS, folder / CONFIG)
    _check(folder, paths)
    before = identity(paths)
    digest = remembered(memo, paths, lambda: content_digest(paths))
    try:
        load_adapters(model, str(folder))
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, OSError) as error:
        raise ModelError(f"the adapter {folder} cannot be applied to this model: {_short(error)}") from error
    if identity(paths) != before:
        raise ModelError(f"the adapter {folder} changed while it was read: start again when it is whole")
    return AdapterFacts(folder.resolve().name, digest, 1.0)


def _check(folder: Path, paths: tuple[Path, Path]) -> None:
    if folder.is_file() and folder.suffix == ".gguf":
        raise ModelError(
            f"{folder} is a GGUF adapter; the MLX engine takes a folder with {WEIGHTS} and {CONFIG}"
        )
    if not folder.is_dir():
        raise ModelError(f"there is no adapter folder at {folder}")
    for path in paths:
        if not path.is_file():
            raise ModelError(f"{folder} has no {path.name}; expected a folder as mlx_lm.lora writes it")
    about = read_json(paths[1])
    if about.get("fine_tune_type", "lora") not in ("lora", "dora", "full"):
        raise ModelError(f"{paths[1]}: fine_tune_type is {about['fine_tune_type']!r}; lora, dora or full")
    check_safetensors(paths[0])


def _short(error: Exception, lines: int = 4) -> str:
    """The first lines of a message that lists every tensor."""
    listed = str(error).splitlines() or [type(error).__name__]
    more = f" (and {len(listed) - lines} more)" if len(listed) > lines else ""
    return " ".join(line.strip() for line in listed[:lines]) + more
