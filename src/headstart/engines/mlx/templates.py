"""What a model folder says of chats: its template, and tokenizer_config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headstart.engines.mlx.weights import read_json
from headstart.errors import ModelError

__all__ = ["read_chat_template", "read_tokenizer_config"]


def read_chat_template(directory: Path) -> str | None:
    """The chat template: chat_template.jinja, else that of tokenizer_config.json or chat_template.json."""
    jinja = directory / "chat_template.jinja"
    if jinja.is_file():
        try:
            return jinja.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ModelError(f"{jinja} cannot be read: {error}") from None
    found = read_tokenizer_config(directory).get("chat_template")
    if found is None and (directory / "chat_template.json").is_file():
        found = read_json(directory / "chat_template.json").get("chat_template")
    if isinstance(found, list):
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
        found = named.get("default", next(iter(named.values()), None))
    return found if isinstance(found, str) else None


def read_tokenizer_config(directory: Path) -> dict[str, Any]:
    """tokenizer_config.json; empty where there is none. Raises ModelError where it cannot be read."""
    path = directory / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}
