"""`--model` of watch and explain: whose template and tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.cli.readers import reader_of
from headstart.errors import ConfigError, HeadstartError, ModelError
from tests.fixtures.gguf_models import smollm2_path

SAID = [{"role": "user", "content": "hi"}]
TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


def test_a_gguf_file_gives_its_template_and_tokenizer() -> None:
    reader = reader_of(str(smollm2_path()))
    text = reader.template.render(SAID)
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    tokens = reader.tokens(text)
    assert tokens is not None and tokens[0] == 1 and tokens.count(1) == text.count("<|im_start|>")


LEVEL = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}


def folder(path: Path) -> Path:
    """A model folder of the hub without weights: two words, and a bos that is put in front."""
    content = {
        "version": "1.0",
        "added_tokens": [
            {"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False}
            | {"normalized": False, "special": True}
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": LEVEL | {"add_prefix_space": True},
        "model": {
            "type": "BPE",
            "vocab": {"<s>": 0, "h": 1, "i": 2, "hi": 3, "[": 4, "]": 5},
            "merges": ["h i"],
        },
    }
    about = {"chat_template": TEMPLATE, "bos_token": {"content": "<s>"}, "add_bos_token": True}
    (path / "tokenizer.json").write_text(json.dumps(content))
    (path / "tokenizer_config.json").write_text(json.dumps(about))
    return path


@pytest.mark.parametrize("named", ["", "tokenizer_config.json", "tokenizer.json"])
def test_a_folder_or_a_file_in_it(tmp_path: Path, named: str) -> None:
    reader = reader_of(str(folder(tmp_path) / named))
    assert reader.template.render(SAID) == "<s>[user]hi"
    assert list(reader.tokens("<s>hi") or ()) == [0, 3]


def test_a_template_alone_renders_and_counts_no_tokens(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    reader = reader_of(str(tmp_path / "chat_template.jinja"))
    assert reader.template.render(SAID) == "[user]hi"
    assert reader.tokens("hi") is None


def test_a_tokenizer_config_alone(tmp_path: Path) -> None:
    about = {"chat_template": TEMPLATE, "bos_token": "<s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(about))
    reader = reader_of(str(tmp_path))
    assert reader.template.render(SAID) == "<s>[user]hi"
    assert reader.tokens("hi") is None


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("{}/none.gguf", ModelError, "there is no model"),
        ("{}/none.jinja", ConfigError, "cannot be read"),
        ("{}/broken.gguf", ModelError, "is not a GGUF file"),
        ("{}", HeadstartError, "no chat template"),
        ("ftp://x", ConfigError, "is no address of a server"),
        ("http://", ConfigError, "is no address of a server"),
    ],
)
def test_what_cannot_be_used_is_said(
    tmp_path: Path, source: str, error: type[HeadstartError], words: str
) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"none")
    (tmp_path / "empty").mkdir()
    where = tmp_path / "empty" if source == "{}" else tmp_path
    with pytest.raises(error, match=words):
        reader_of(source.format(where))
