"""The fact sheet of a GGUF file, from its header alone.

What a layer is, its tensors tell: `attn_k` and the like leave rows behind, `ssm_`, `shortconv` and
`time_mix_` a state of the whole past. Sizes follow llama.cpp's `llama-hparams.cpp`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import llama_cpp

from headstart.engines.fact_sheet import (
    INSTEAD,
    FactSheet,
    Kind,
    LayerKind,
    PredictionHeads,
    StateSize,
    resumes_at,
    ships,
)
from headstart.engines.llamacpp.gguf_header import GgufHeader, GgufTensor, Value, read_header
from headstart.engines.llamacpp.source import ModelFiles, resolve
from headstart.errors import ModelError

__all__ = ["fact_sheet", "sheet_of"]

BLOCK = re.compile(r"^blk\.(?P<layer>\d+)\.(?P<part>.+)$")
KEYS = re.compile(r"^(attn_k|attn_kv_a_mqa|attn_kv_b)\.weight$")
PAST = re.compile(r"^(ssm_|shortconv\.|time_mix_)")
WINDOWED: Mapping[str, tuple[int, bool]] = {
    "afmoe": (4, False),
    "cohere2": (4, False),
    "cohere2moe": (4, True),
    "exaone4": (4, False),
    "exaone-moe": (4, False),
    "gemma2": (2, False),
    "gemma3": (6, False),
    "gemma3n": (5, False),
    "gpt-oss": (2, False),
    "laguna": (4, True),
    "llama4": (4, False),
    "mellum": (4, False),
    "muse-glimmer": (4, False),
    "olmo2": (4, False),
    "plamo3": (8, False),
    "smallthinker": (4, True),
}
"""Architectures of which llama.cpp knows, without a key, every which layer is a full one, and whether the
first is. Of others a window counts only where a pattern is in the header."""
CHUNKED, CHUNK_TOKENS = "llama4", 8192
"""The architecture with chunks in place of windows, and their size in llama.cpp, whatever the header says."""
HALF_BYTES, FLOAT_BYTES = 2, 4
MOST_LAYERS = 512
"""LLAMA_MAX_LAYERS."""
SOURCE = "the header, for keys and values in f16"
FILE_TYPES: Mapping[int, str] = {
    value: name.removeprefix("LLAMA_FTYPE_").removeprefix("MOSTLY_")
    for name, value in vars(llama_cpp).items()
    if name.startswith("LLAMA_FTYPE_") and isinstance(value, int)
}


def fact_sheet(source: str) -> FactSheet:
    """The sheet of the model that `source` names, as `resolve` understands it; nothing is fetched.
    Raises ModelError, ConfigError."""
    files = resolve(source, fetch=False)
    headers = [read_header(path) for path in files.paths]
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    return sheet_of(source, files, GgufHeader(headers[0].keys, headers[0].lengths, tensors))


def sheet_of(source: str, files: ModelFiles, header: GgufHeader) -> FactSheet:
    """The sheet of a model whose first header is `header`, with the tensors of all its files."""
    about = _About(header)
    made_for = str(header.keys.get("general.type", "model"))
    if made_for != "model" or not about.layers or not header.tensors:
        what = made_for if made_for != "model" else "without layers"
        raise ModelError(
            f"{files.first} is no language model, but a GGUF file ({what}): name that of a model"
        )
    if about.layers > MOST_LAYERS:
        raise ModelError(
            f"{files.first} has {about.layers:,} layers by its header, and llama.cpp takes {MOST_LAYERS}: "
            "it is damaged; fetch the model again"
        )
    kinds = about.layer_kinds()
    count = sum(tensor.count for tensor in header.tensors)
    heads = about.most("attention.head_count")
    attends = any(one.kind is not Kind.RECURRENT for one in kinds)
    return FactSheet(
        model=source,
        path=str(files.first),
        name=str(header.keys.get("general.name") or files.first.stem),
        format="GGUF",
        engine="llamacpp",
        architecture=about.architecture,
        parameters=sum(tensor.count for tensor in header.tensors if not about.predicts(tensor)),
        files=len(files.paths),
        nbytes=files.nbytes,
        quantisation=_quantisation(header),
        bits_per_weight=8 * sum(tensor.nbytes for tensor in header.tensors) / max(1, count),
        layers=about.layers or None,
        hidden_width=about.number("embedding_length"),
        heads=heads if attends else None,
        kv_heads=(about.most("attention.head_count_kv") or heads) if attends else None,
        head_width=about.width("key") if attends else None,
        context_tokens=about.number("context_length"),
        vocabulary=header.lengths.get("tokenizer.ggml.tokens") or about.number("vocab_size"),
        chat_template=_text(header, "tokenizer.chat_template"),
        bos="",
        eos="",
        layer_kinds=kinds,
        resumes_at=resumes_at(kinds),
        state=about.state(),
        prediction_heads=about.prediction_heads(),
    )


@dataclass(frozen=True)
class _About:
    """A header's keys, read as those of its architecture."""

    header: GgufHeader

    @property
    def architecture(self) -> str:
        return _text(self.header, "general.architecture") or ""

    def value(self, key: str) -> Value | None:
        return self.header.keys.get(f"{self.architecture}.{key}")

    def number(self, key: str) -> int | None:
        found = self.value(key)
        return int(found) if isinstance(found, int | float) else None

    def each(self, key: str, layer: int) -> int:
        """Of a key that has one number for all layers, or one a layer."""
        found = self.value(key)
        if isinstance(found, tuple):
            return int(found[layer]) if layer < len(found) else 0
        return int(found) if isinstance(found, int | float) else 0

    def most(self, key: str) -> int | None:
        return max((self.each(key, layer) for layer in range(self.layers)), default=0) or None

    @property
    def heads_ahead(self) -> int:
        return self.number("nextn_predict_layers") or 0

    @property
    def layers(self) -> int:
        """Without those that predict further ahead, which are the last."""
        return max(0, (self.number("block_count") or 0) - self.heads_ahead)

    def predicts(self, tensor: GgufTensor) -> bool:
        block = BLOCK.match(tensor.name)
        return bool(block and int(block["layer"]) >= self.layers)

    def width(self, which: str, *, window: bool = False) -> int:
        """Of a head's keys or values."""
        own = self.number(f"attention.{which}_length_swa") if window else None
        heads = self.most("attention.head_count")
        shared = (self.number("embedding_length") or 0) // heads if heads else 0
        return own or self.number(f"attention.{which}_length") or shared

    def parts(self) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {layer: set() for layer in range(self.layers)}
        for tensor in self.header.tensors:
            block = BLOCK.match(tensor.name)
            if block and int(block["layer"]) < self.layers:
                found[int(block["layer"])].add(block["part"])
        return found

    def attention_layers(self) -> list[int]:
        """Layers that leave rows behind; the last ones may use those of others."""
        shared = self.number("attention.shared_kv_layers") or 0
        by_layer = isinstance(self.value("attention.head_count_kv"), tuple)
        found = []
        for layer, parts in self.parts().items():
            if by_layer and not self.each("attention.head_count_kv", layer):
                continue
            past = any(PAST.match(part) for part in parts)
            keys = any(KEYS.match(part) for part in parts) or ("attn_qkv.weight" in parts and not past)
            if keys and layer < self.layers - shared:
                found.append(layer)
        return found

    def recurrent_layers(self) -> list[int]:
        return [layer for layer, parts in self.parts().items() if any(PAST.match(part) for part in parts)]

    def window_layers(self) -> list[int]:
        """Of the layers with rows, those with a window: by one truth a layer, or all but every Nth."""
        pattern, mine = self.value("attention.sliding_window_pattern"), self.attention_layers()
        if not self.reach:
            return []
        if isinstance(pattern, tuple):
            return [n for n in mine if n < len(pattern) and pattern[n]]
        every, full_first = WINDOWED.get(self.architecture, (0, False))
        every = int(pattern) if isinstance(pattern, int) else every
        return [n for n in mine if every and (n if full_first else n + 1) % every]

    @property
    def reach(self) -> int:
        """Tokens that a window or chunk spans; 0: there is none."""
        said = self.number("attention.sliding_window")
        if self.architecture == CHUNKED and said != 0:
            return CHUNK_TOKENS
        return said or 0

    def layer_kinds(self) -> tuple[LayerKind, ...]:
        windows = len(self.window_layers())
        kinds = (
            LayerKind(Kind.FULL, len(self.attention_layers()) - windows),
            LayerKind(Kind.CHUNKED if self.architecture == CHUNKED else Kind.WINDOW, windows, self.reach),
            LayerKind(Kind.RECURRENT, len(self.recurrent_layers())),
        )
        return tuple(one for one in kinds if one.count)

    def state(self) -> StateSize | None:
        """None where there is more of it than is worked out here."""
        windows, past = set(self.window_layers()), self.recurrent_layers()
        indexed = f"{self.architecture}.attention.indexer."
        if (past and not self.past_bytes()) or any(key.startswith(indexed) for key in self.header.keys):
            return None
        sizes = {layer: self.row_bytes(layer, window=layer in windows) for layer in self.attention_layers()}
        return StateSize(
            token_bytes=sum(sizes.values()),
            window_token_bytes=sum(size for layer, size in sizes.items() if layer in windows),
            sequence_bytes=len(past) * self.past_bytes(),
            source=SOURCE,
        )

    def row_bytes(self, layer: int, *, window: bool) -> int:
        heads = self.each("attention.head_count_kv", layer) or self.each("attention.head_count", layer)
        latent = self.value("attention.key_length_mla") is not None  # values are part of the keys
        values = 0 if latent else self.width("value", window=window)
        return heads * (self.width("key", window=window) + values) * HALF_BYTES

    def past_bytes(self) -> int:
        """Of one recurrent layer: what llama_hparams::n_embd_r and n_embd_s count."""
        width = self.number("embedding_length") or 0
        if head := self.number("wkv.head_size"):
            return ((self.number("token_shift_count") or 2) * width + width * head) * FLOAT_BYTES
        if length := self.number("shortconv.l_cache"):
            return (length - 1) * width * FLOAT_BYTES
        if head := self.number("kda.head_dim"):
            inner = (self.most("attention.head_count") or 0) * head
            conv = (self.number("ssm.conv_kernel") or 4) - 1
            return (3 * conv * inner + head * inner) * FLOAT_BYTES
        inner, state = self.number("ssm.inner_size") or 0, self.number("ssm.state_size") or 0
        mixed = inner + 2 * (self.number("ssm.group_count") or 0) * state
        return (max(0, (self.number("ssm.conv_kernel") or 0) - 1) * mixed + state * inner) * FLOAT_BYTES

    def prediction_heads(self) -> PredictionHeads:
        found = [tensor for tensor in self.header.tensors if self.predicts(tensor)]
        shipped = len({BLOCK.match(one.name)["layer"] for one in found})  # type: ignore[index]
        words = "no"
        if shipped:
            words = ships(shipped, "headstart does not run")
        elif self.heads_ahead:
            words = f"no: the header speaks of {self.heads_ahead}, the file holds none; {INSTEAD}"
        return PredictionHeads(self.heads_ahead, shipped, sum(one.nbytes for one in found), False, words)


def _text(header: GgufHeader, key: str) -> str | None:
    found = header.keys.get(key)
    return found if isinstance(found, str) and found else None


def _quantisation(header: GgufHeader) -> str:
    """The name of the mixture, where the header has one, and the types that make it up, largest first."""
    sizes: Counter[str] = Counter()
    for tensor in header.tensors:
        sizes[tensor.type] += tensor.nbytes
    types = ", ".join(kind for kind, _ in sizes.most_common())
    named: Any = header.keys.get("general.file_type")
    name = FILE_TYPES.get(named) if isinstance(named, int) else None
    return f"{name} ({types})" if name else types
