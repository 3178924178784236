"""The toy model's text: one token a byte, a few control tokens and a ChatML template."""

from __future__ import annotations

import re

import numpy as np

from headstart.engines.base import Vocabulary
from headstart.prefix.tokens import TokenRun, token_run

BOS = 256
"""`<|endoftext|>`: begins a text where the engine is told to add it; also ends generation."""
IM_START = 257
IM_END = 258
"""`<|im_end|>`: the end-of-sequence token; ends generation."""
PAD = 259
SMALLEST_VOCABULARY = 260

_SPELLED = {BOS: "<|endoftext|>", IM_START: "<|im_start|>", IM_END: "<|im_end|>", PAD: "<|pad|>"}

CHAT_TEMPLATE = (
    "{%- if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif -%}"
    "{%- for message in messages -%}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif -%}"
)


def toy_vocabulary(size: int, *, adds_bos: bool) -> Vocabulary:
    """`size` tokens: the 256 bytes, the control tokens above, then reserved control tokens.

    Raises ValueError where `size` is below SMALLEST_VOCABULARY.
    """
    if size < SMALLEST_VOCABULARY:
        raise ValueError(f"the toy vocabulary needs at least {SMALLEST_VOCABULARY} tokens, not {size}")
    reserved = [f"<|reserved_{token}|>".encode() for token in range(SMALLEST_VOCABULARY, size)]
    spelled = [_SPELLED[token].encode() for token in sorted(_SPELLED)]
    return Vocabulary(
        pieces=tuple([bytes([byte]) for byte in range(256)] + spelled + reserved),
        control=frozenset(range(256, size)),
        end_of_generation=frozenset({BOS, IM_END}),
        bos=BOS,
        eos=IM_END,
        adds_bos=adds_bos,
    )


def toy_tokenize(vocabulary: Vocabulary, text: str, *, special: bool, add_bos: bool) -> TokenRun:
    """One token a UTF-8 byte; with `special` a spelled control token becomes its one id.

    The beginning-of-sequence token is put in front where `add_bos` is asked for and the vocabulary
    adds it, as llama.cpp does.
    """
    ids: list[int] = []
    if add_bos and vocabulary.adds_bos and vocabulary.bos is not None:
        ids.append(vocabulary.bos)
    if not special:
        ids.extend(text.encode())
        return token_run(ids)
    by_spelling = {vocabulary.pieces[token]: token for token in vocabulary.control}
    pattern = re.compile(b"(" + b"|".join(re.escape(piece) for piece in by_spelling) + b")")
    for part in pattern.split(text.encode()):
        if part in by_spelling:
            ids.append(by_spelling[part])
        else:
            ids.extend(part)
    return token_run(ids)


def output_bias(size: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Added to the logits so that replies are mostly printable ASCII and end now and then."""
    bias = np.full(size, -12.0, dtype=np.float32)
    bias[32:127] = 0.0
    bias[ord("\n")] = -1.0
    bias[128:256] = -6.0
    bias[IM_END] = 4.0
    return bias
