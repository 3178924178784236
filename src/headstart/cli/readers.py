"""Whose chat template and tokenizer are meant: `--model` of `headstart watch` and `headstart explain`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import cast

from headstart.blame.rendering import Reader
from headstart.blame.server_template import server_reader
from headstart.chat.template import ChatTemplate
from headstart.cli.models_show import engine_of
from headstart.engines.spelling import Spelling
from headstart.errors import ConfigError, HeadstartError

__all__ = ["MODEL_HELP", "reader_of"]

MODEL_HELP = (
    "whose chat template and tokenizer to compare prompts with, as the model reads them: a GGUF file, a "
    "model folder, its tokenizer_config.json or chat_template.jinja, or the URL of a llama-server"
)
_KEPT_TEXTS = 4
_FILES = ("tokenizer_config.json", "tokenizer.json", "chat_template.json")


def reader_of(source: str) -> Reader:
    """Raises ConfigError where `source` is none of these or has no template, ModelError where it cannot be
    read."""
    if "://" in source:
        return _remembering(server_reader(source))
    spelling = _spelling(source)
    if spelling.template is None:
        raise ConfigError(f"--model {source}: it has no chat template; give a chat_template.jinja")
    template = ChatTemplate(spelling.template, bos=spelling.bos, eos=spelling.eos)
    tokenize = spelling.tokenize
    return _remembering(
        Reader(template, None if tokenize is None else lambda text: cast(list[int], tokenize(text).tolist()))
    )


def _remembering(reader: Reader) -> Reader:
    """The same prompt is asked for more than once in a row."""
    if reader.tokenize is None:
        return reader
    return Reader(reader.template, lru_cache(_KEPT_TEXTS)(reader.tokenize))


def _spelling(source: str) -> Spelling:
    path = Path(source).expanduser()
    if path.suffix in (".jinja", ".j2"):
        try:
            return Spelling(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"--model {source}: cannot be read: {error}") from None
    if path.name in _FILES:
        return _of_folder(source, path.parent)
    if engine_of(source) == "mlx":
        from headstart.engines.mlx.folder import find_folder

        return _of_folder(source, find_folder(source, fetch=False)[0])
    if path.is_dir() and not any(path.glob("*.gguf")):
        return _of_folder(source, path)
    from headstart.engines.llamacpp.spelling import read_spelling

    return read_spelling(source)


def _of_folder(source: str, directory: Path) -> Spelling:
    try:
        from headstart.engines.mlx.spelling import read_spelling
    except ModuleNotFoundError as error:
        raise HeadstartError(
            f"--model {source}: reading a tokenizer.json needs the package {error.name}: "
            f"pip install {error.name}"
        ) from None
    return read_spelling(directory)
