"""An MLX model's folder: found by what a person calls it, and its config.json. Imports nothing of MLX."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from headstart.engines.mlx.weights import read_json
from headstart.errors import ConfigError, ModelError

__all__ = ["CONFIGS", "find_folder", "read_config"]

HUB_PREFIX = "hf:"
REPOSITORY = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
FILES = ["*.json", "model*.safetensors", "*.jinja"]
CONFIGS = ("config.json", "hf_quant_config.json")
"""Besides the weights, what makes a model compute as it does."""


def find_folder(source: str, *, fetch: bool = True) -> tuple[Path, str]:
    """The folder behind `source`, and the model's name. `source`: a folder, owner/name in the hub cache, or
    hf:owner/name, which is downloaded where it is not there yet, unless `fetch` says otherwise.
    Raises ModelError where there is none, ConfigError where the words cannot be understood."""
    if source == "embedded":
        raise ModelError(
            "the embedded model is a GGUF file, which mlx-lm cannot run: use --engine llamacpp, or name an "
            "MLX model folder with --model"
        )
    path = Path(source).expanduser()
    if path.is_dir():
        return path, path.resolve().name
    if path.is_file():
        if path.suffix == ".gguf" or path.read_bytes()[:4] == b"GGUF":
            raise ModelError(f"{path} is a GGUF file, which mlx-lm cannot run: use --engine llamacpp")
        raise ModelError(
            f"{path} is a file; an MLX model is a folder with config.json and model*.safetensors"
        )
    repository = source.removeprefix(HUB_PREFIX)
    if REPOSITORY.match(repository):
        return _from_hub(repository, fetch=fetch and source.startswith(HUB_PREFIX)), repository
    if source.startswith(HUB_PREFIX):
        raise ConfigError(f"{source} is not hf:owner/repository, which names an MLX model on the hub")
    raise ModelError(f"there is no model at {path}")


def _from_hub(repository: str, *, fetch: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError:
        raise ModelError(
            f"there is no folder {repository}; models of the hub need huggingface-hub: "
            "pip install 'headstart[hub]'"
        ) from None
    try:
        found = snapshot_download(repository, local_files_only=not fetch, allow_patterns=FILES)
    except (OSError, ValueError) as error:
        if fetch:
            raise ModelError(f"{repository} cannot be fetched from the hub: {error}") from error
        raise ModelError(
            f"there is no folder {repository}, and no such repository in the hub cache of this machine; "
            f"headstart serve --model hf:{repository} fetches it"
        ) from None
    return Path(found)


def read_config(directory: Path) -> dict[str, Any]:
    """config.json, with a `model_type`. Raises ModelError where there is none that can be used."""
    path = directory / "config.json"
    if not path.is_file():
        if any(directory.glob("*.gguf")):
            raise ModelError(
                f"{directory} holds a GGUF model, which mlx-lm cannot run: use --engine llamacpp"
            )
        raise ModelError(
            f"{directory} has no config.json: expected an MLX model folder (config.json, model*.safetensors, "
            "tokenizer.json)"
        )
    config = read_json(path)
    if not isinstance(config.get("model_type"), str):
        raise ModelError(f"{path} has no model_type; expected the config.json of a language model")
    if "model_file" in config:
        raise ModelError(
            f"{directory} brings Python code of its own ({config['model_file']!r}), which headstart does not "
            "run. Use a model that mlx-lm knows."
        )
    return config
