"""An MLX model from its folder: found, checked, loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import get_total_parameters, load_model

from headstart.engines.base import AdapterFacts, Vocabulary
from headstart.engines.digests import content_digest, identity, remembered
from headstart.engines.mlx.adapter import apply_adapter
from headstart.engines.mlx.folder import CONFIGS, find_folder, read_config
from headstart.engines.mlx.options import MlxOptions
from headstart.engines.mlx.templates import read_chat_template
from headstart.engines.mlx.tokenizer import Tokenize, read_tokenizer
from headstart.engines.mlx.weights import weight_files
from headstart.errors import ModelError

__all__ = ["Loaded", "load_lazily", "load_model_directory", "vocab_size"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Loaded:
    """A model in memory, its arrays evaluated so that any one thread may use it, and what its folder says.

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
    path: str | Path,
    options: MlxOptions,
    progress: Progress | None = None,
    prepare: Callable[[Any], None] | None = None,
) -> Loaded:
    """Loads the model at `path`: a folder, the name of a repository in the hub cache
    (owner/name), or hf:owner/name, which downloads it where it is not there yet.

    `progress` gets bytes read and bytes in all while the weights' digest is taken. `prepare` may
    change the model before its weights are read, so that only what is left of them is.
    Raises ModelError, with what to do, where the model or its adapter cannot be used; ConfigError where
    the words of `path` cannot be understood.
    """
    directory, name = find_folder(str(path))
    architecture = read_config(directory)["model_type"]
    weights = weight_files(directory)
    paths = (*weights, *(directory / part for part in CONFIGS if (directory / part).is_file()))
    before = identity(paths)
    digest = remembered(options.digest_memo, paths, lambda: content_digest(paths, progress))
    model, config = _load(directory, architecture, lazy=prepare is not None)
    if prepare is not None:
        prepare(model)
    parameters = int(get_total_parameters(model))
    vocabulary, tokenize = read_tokenizer(directory, config, vocab_size(model, directory))
    adapters: tuple[AdapterFacts, ...] = ()
    if options.adapter is not None:
        adapters = (apply_adapter(model, options.adapter, options.digest_memo),)
    model.eval()
    _evaluate(model, directory)
    if identity(paths) != before:
        raise ModelError(f"{directory} changed while it was read: start again when it is whole")
    return Loaded(
        model=model,
        config=config,
        directory=directory,
        vocabulary=vocabulary,
        tokenize=tokenize,
        chat_template=read_chat_template(directory),
        weights_digest=digest,
        adapters=adapters,
        model_name=name,
        architecture=architecture,
        parameters=parameters,
    )


def load_lazily(directory: Path, architecture: str) -> Any:
    """The model in `directory`, which is whole, with none of its weights read yet. Raises ModelError."""
    return _load(directory, architecture, lazy=True)[0]


def _load(directory: Path, architecture: str, *, lazy: bool) -> tuple[Any, dict[str, Any]]:
    try:
        model, config = load_model(directory, lazy=lazy)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RuntimeError,
        IndexError,
        AssertionError,
        OSError,
    ) as error:
        if isinstance(error, ValueError) and isinstance(error.__cause__, ImportError):
            raise ModelError(
                f"mlx-lm {mlx_lm.__version__} does not know the model type {architecture!r}. "
                "A newer one may: pip install --upgrade mlx-lm; or use a GGUF of the model."
            ) from error
        raise ModelError(
            f"{directory} ({architecture}) cannot be loaded by mlx-lm {mlx_lm.__version__}: {_short(error)}"
        ) from error
    return model, config


def vocab_size(model: Any, directory: Path) -> int:
    """How long the logits are: the shape of an answer that is never computed. Raises ModelError."""
    try:
        return int(model(mx.array([[0]]), cache=make_prompt_cache(model)).shape[-1])
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, IndexError) as error:
        raise ModelError(
            f"{directory} cannot be run: {_short(error)}. Its config.json may be of another model."
        ) from error


def _evaluate(model: Any, directory: Path) -> None:
    """Computes every array of the model, private ones such as rope frequencies too: MLX computes an
    array only in the thread that described it, and the model is used in another."""
    try:
        mx.eval(list(_arrays(model)))
    except RuntimeError as error:
        raise ModelError(f"the weights of {directory} cannot be read: {_short(error)}") from error


def _arrays(value: Any) -> Iterator[Any]:
    """All arrays in `value`: a module is a dictionary of arrays, modules, and lists of them."""
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _arrays(entry)


def _short(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    more = f" (and {len(lines) - 3} more lines)" if len(lines) > 3 else ""
    return f"{type(error).__name__}: " + " ".join(line.strip() for line in lines[:3]) + more
