"""Prompts get one beginning-of-sequence token, whoever spells it."""

from __future__ import annotations

import numpy as np

from headstart.engines.toy import ToyEngine
from headstart.serving.constraint import ConstraintCompiler
from headstart.serving.models import ServedModel
from tests.api.served import Scripted


def served(*, adds_bos: bool) -> ServedModel:
    engine = ToyEngine(adds_bos=adds_bos)
    compiler = ConstraintCompiler(
        engine.vocabulary, engine.layout.vocab_size, lambda text: list(text.encode())
    )
    return ServedModel(
        "toy",
        engine.facts,
        engine.layout,
        engine.vocabulary,
        engine.tokenize,
        template=None,
        scheduler=Scripted(lambda request: []),
        constraints=compiler,
        created=0,
    )


def test_bos_is_put_in_front_once() -> None:
    adding, plain = served(adds_bos=True), served(adds_bos=False)
    bos = adding.vocabulary.bos
    assert adding.tokenize_prompt("ab").tolist() == [bos, 97, 98]
    assert adding.tokenize_prompt("<|endoftext|>ab").tolist() == [bos, 97, 98]
    assert plain.tokenize_prompt("ab").tolist() == [97, 98]


def test_text_of_tokens_spells_control_tokens_and_replaces_broken_characters() -> None:
    model = served(adds_bos=False)
    assert model.text_of(np.array([258, 97, 195], dtype=np.int32)) == "<|im_end|>a\ufffd"
    assert model.piece_bytes[[97, 258]].tolist() == [1, len("<|im_end|>")]


def test_fingerprint_is_stable() -> None:
    assert served(adds_bos=False).fingerprint == served(adds_bos=False).fingerprint
    assert served(adds_bos=False).fingerprint.startswith("fp_")
