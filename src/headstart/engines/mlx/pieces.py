"""The bytes that tokens stand for in text, by the decoder of a tokenizer.json.

Two spellings are known. Byte level: every byte is one printable character (GPT-2's table).
SentencePiece: text with a sign for the space, and <0xNN> for a single byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headstart.errors import ModelError

__all__ = ["piece_bytes"]

SINGLE_BYTE = re.compile(r"^<0x([0-9A-Fa-f]{2})>$")


def piece_bytes(
    path: Path, content: Mapping[str, Any], ids: Mapping[str, int], vocab_size: int
) -> list[bytes]:
    """One piece a token id; empty where the model has an id that the tokenizer at `path` does not.

    `content` is its JSON, `ids` all its tokens. An added token stands for its own text, but for words
    of the model that are listed as added too (gemma's runs of spaces).
    Raises ModelError for a decoder of another kind.
    """
    decode = _decoding(path, content)
    pieces = [b""] * vocab_size
    for word, token in ids.items():
        if token < vocab_size:
            pieces[token] = decode(word)
    own = content["model"].get("vocab", {})
    own = own if isinstance(own, dict) else {entry[0] for entry in own}
    for token in content.get("added_tokens", []):
        word = token["content"]
        if token.get("special") or word not in own:
            pieces[token["id"]] = word.encode()
    return pieces


def _decoding(path: Path, content: Mapping[str, Any]) -> Callable[[str], bytes]:
    steps = list(_steps(content.get("decoder")))
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return _from_byte_level
    spaces = {_space_sign(step) for step in steps} - {None}
    if spaces:
        fallback = "ByteFallback" in kinds or bool(content["model"].get("byte_fallback"))
        return lambda word: _from_sentencepiece(word, spaces, fallback)
    listed = ", ".join(sorted(str(kind) for kind in kinds)) or "none"
    raise ModelError(
        f"{path} decodes in a way headstart does not know ({listed}); it knows byte-level and "
        "SentencePiece-style tokenizers"
    )


def _steps(decoder: Any) -> Iterator[dict[str, Any]]:
    if isinstance(decoder, dict):
        yield decoder
        for step in decoder.get("decoders", []):
            yield from _steps(step)


def _space_sign(step: Mapping[str, Any]) -> str | None:
    """The sign that this step of the decoder turns into a space."""
    if step.get("type") == "Metaspace":
        return str(step.get("replacement", "▁"))
    if step.get("type") == "Replace" and step.get("content") == " ":
        pattern = step.get("pattern")
        sign = pattern.get("String") if isinstance(pattern, dict) else None
        return sign if isinstance(sign, str) else None
    return None


def _from_sentencepiece(word: str, spaces: set[str | None], fallback: bool) -> bytes:
    single = SINGLE_BYTE.match(word) if fallback else None
    if single:
        return bytes.fromhex(single[1])
    for sign in spaces:
        word = word.replace(sign or " ", " ")
    return word.encode()


def _byte_of_character() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 stands for itself, the rest for characters from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_OF_CHARACTER = _byte_of_character()


def _from_byte_level(word: str) -> bytes:
    try:
        return bytes(BYTE_OF_CHARACTER[character] for character in word)
    except KeyError:
        return word.encode()
