"""Text to tokens and back, from the tokenizer.json of a model folder. Any thread may tokenize."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tokenizers import Tokenizer

from headstart.engines.base import Vocabulary
from headstart.engines.mlx.pieces import piece_bytes
from headstart.engines.mlx.templates import read_tokenizer_config
from headstart.engines.mlx.weights import read_json
from headstart.errors import ModelError
from headstart.prefix.tokens import TokenRun

__all__ = ["Tokenize", "read_tokenizer"]

TOKENIZER = "tokenizer.json"


class Tokenize(Protocol):
    def __call__(self, text: str, *, special: bool, add_bos: bool) -> TokenRun: ...


class _TokenizeJson:
    """Two tokenizers of one file: one reads spelled control tokens as tokens, the other as text."""

    lead: tuple[int, ...] = ()
    """What goes in front where `add_bos` is asked for."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        text = json.dumps(content)
        self.spelled, self._plain = Tokenizer.from_str(text), Tokenizer.from_str(text)
        self._plain.encode_special_tokens = True
        for tokenizer in (self.spelled, self._plain):
            tokenizer.no_truncation()
            tokenizer.no_padding()

    def __call__(self, text: str, *, special: bool, add_bos: bool) -> TokenRun:
        """Token ids of `text`; half a surrogate pair becomes '?'. The bos is put in front where `add_bos`
        is asked for and the model adds it, as llama.cpp does."""
        clean = text.encode("utf-8", "replace").decode("utf-8")
        ids = (self.spelled if special else self._plain).encode(clean, add_special_tokens=False).ids
        return np.array([*self.lead, *ids] if add_bos else ids, np.int32)


def read_tokenizer(
    directory: Path, config: Mapping[str, Any], vocab_size: int
) -> tuple[Vocabulary, Tokenize]:
    """The vocabulary of the model in `directory`, whose logits are `vocab_size` long, and its tokenizer.

    Raises ModelError where there is no tokenizer.json or its pieces cannot be turned into bytes.
    """
    content, about = _read(directory, vocab_size), read_tokenizer_config(directory)
    ids = {token["content"]: token["id"] for token in content.get("added_tokens", [])}
    ids = {**_plain_ids(content), **ids}
    bos = _token(about, "bos_token", ids)
    if "bos_token" not in about:
        bos = next(iter(_numbers(config.get("bos_token_id"))), None)
    eos = _token(about, "eos_token", ids)
    ends = _ends(directory, config) | ({eos} if eos is not None else set())
    ends = {token for token in ends if 0 <= token < vocab_size}
    for token in content.get("added_tokens", []):
        token["special"] = bool(token.get("special")) or token["id"] in {*ends, bos}
    try:
        tokenize = _TokenizeJson(content)
    except Exception as error:  # noqa: BLE001 - tokenizers raises Exception itself
        raise ModelError(f"{directory / TOKENIZER} cannot be used: {error}; fetch the model again") from None
    adds_bos = _adds_bos(about, tokenize.spelled, bos)
    if adds_bos and bos is not None:
        tokenize.lead = (bos,)
    vocabulary = Vocabulary(
        pieces=piece_bytes(directory / TOKENIZER, content, tokenize.spelled.get_vocab(), vocab_size),
        control=frozenset(t["id"] for t in content.get("added_tokens", []) if t["special"]),
        end_of_generation=frozenset(ends),
        bos=bos,
        eos=eos if eos is not None else min(ends, default=None),
        adds_bos=adds_bos,
    )
    return vocabulary, tokenize


def _read(directory: Path, vocab_size: int) -> dict[str, Any]:
    """tokenizer.json without added tokens that the model has no embedding for: they stay text."""
    path = directory / TOKENIZER
    if not path.is_file():
        raise ModelError(
            f"{directory} has no {TOKENIZER}. With transformers installed, "
            f"AutoTokenizer.from_pretrained('{directory}').save_pretrained('{directory}') may write it."
        )
    content = read_json(path)
    if not isinstance(content.get("model"), dict):
        raise ModelError(f"{path} has no model; fetch the model again")
    content["added_tokens"] = [
        token for token in content.get("added_tokens") or [] if token["id"] < vocab_size
    ]
    return content


def _plain_ids(content: Mapping[str, Any]) -> dict[str, int]:
    """Ids of the model's own tokens; a unigram model lists [token, score] in order."""
    vocab = content["model"].get("vocab", {})
    return vocab if isinstance(vocab, dict) else {entry[0]: number for number, entry in enumerate(vocab)}


def _token(about: Mapping[str, Any], name: str, ids: Mapping[str, int]) -> int | None:
    spelled = about.get(name)
    if isinstance(spelled, dict):
        spelled = spelled.get("content")
    return ids.get(spelled) if isinstance(spelled, str) else None


def _ends(directory: Path, config: Mapping[str, Any]) -> set[int]:
    """Ids that end a reply by config.json, its text part, and generation_config.json."""
    found = set(_numbers(config.get("eos_token_id")))
    text = config.get("text_config")
    if isinstance(text, dict):
        found |= set(_numbers(text.get("eos_token_id")))
    for name in ("config.json", "generation_config.json"):
        path = directory / name
        if path.is_file():
            found |= set(_numbers(read_json(path).get("eos_token_id")))
    return found


def _numbers(value: object) -> list[int]:
    listed = value if isinstance(value, list) else [value]
    return [number for number in listed if isinstance(number, int) and not isinstance(number, bool)]


def _adds_bos(about: Mapping[str, Any], tokenizer: Tokenizer, bos: int | None) -> bool:
    """Whether the model expects `bos` in front: as the folder says, else as its post-processor does."""
    if bos is None:
        return False
    said = about.get("add_bos_token")
    if isinstance(said, bool):
        return said
    return bool(tokenizer.encode("a", add_special_tokens=True).ids[:1] == [bos])
