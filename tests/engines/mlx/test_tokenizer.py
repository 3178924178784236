"""Text to tokens and back by tokenizer.json: byte-level and SentencePiece-style, and odd folders."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from headstart.engines.base import Vocabulary
from headstart.engines.llamacpp.binding import Model
from headstart.engines.llamacpp.vocabulary import read_vocabulary
from headstart.engines.llamacpp.vocabulary import tokenize as llama_tokenize
from headstart.engines.mlx.templates import read_chat_template
from headstart.engines.mlx.tokenizer import Tokenize, read_tokenizer
from headstart.errors import ModelError
from tests.fixtures.mlx_models import VOCABULARY, MlxModels

TEXTS = (
    "Hello, world!  Two spaces\n\n\tand a tab 1234567",
    "é 漢字 🙂 naïve\u200d",
    "<|im_start|>user\nHi<|im_end|>\n",
    "",
    " ",
)


@pytest.fixture
def llama(mlx_model: MlxModels, tmp_path: Path) -> Path:
    """A copy of the llama model's folder."""
    return Path(shutil.copytree(mlx_model("llama"), tmp_path / "model"))


def read(folder: Path, vocab_size: int = VOCABULARY, **config: Any) -> tuple[Vocabulary, Tokenize]:
    return read_tokenizer(folder, config, vocab_size)


def text_of(vocabulary: Vocabulary, tokens: Any) -> str:
    return b"".join(vocabulary.pieces[token] for token in tokens).decode()


def edit(folder: Path, name: str, **changes: Any) -> None:
    path = folder / name
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**content, **changes}))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("special", [True, False])
def test_pieces_join_to_the_text(llama: Path, text: str, special: bool) -> None:
    vocabulary, tokenize = read(llama)
    tokens = tokenize(text, special=special, add_bos=True)
    assert text_of(vocabulary, tokens) == text
    found = vocabulary.control & set(tokens.tolist())
    assert bool(found) == (special and "<|im_start|>" in text)


def test_tokens_and_pieces_are_those_of_llama_cpp(mlx_model: MlxModels, tiny_llama: Path) -> None:
    """The GGUF and the MLX fixture have one tokenizer; two libraries read it."""
    vocabulary, tokenize = read(mlx_model("llama"))
    model = Model(tiny_llama, n_gpu_layers=0)
    try:
        other = read_vocabulary(model)
        assert list(other.pieces) == list(vocabulary.pieces)
        assert (other.bos, other.eos, other.adds_bos) == (vocabulary.bos, vocabulary.eos, vocabulary.adds_bos)
        assert other.control == vocabulary.control
        for text in TEXTS:
            for special in (True, False):
                ours = tokenize(text, special=special, add_bos=False).tolist()
                assert ours == llama_tokenize(model, text, special=special, add_bos=False).tolist(), text
    finally:
        model.free()


def test_half_a_surrogate_pair_is_text(llama: Path) -> None:
    vocabulary, tokenize = read(llama)
    assert text_of(vocabulary, tokenize("a\ud800b", special=True, add_bos=False)) == "a?b"


def test_nothing_is_cut_or_padded(llama: Path) -> None:
    edit(
        llama,
        "tokenizer.json",
        truncation={"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        padding={
            "strategy": {"Fixed": 64},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<|endoftext|>",
        },
    )
    vocabulary, tokenize = read(llama)
    text = "one two three " * 20
    for special in (True, False):
        assert text_of(vocabulary, tokenize(text, special=special, add_bos=False)) == text


def test_several_threads_tokenize_at_once(llama: Path) -> None:
    _, tokenize = read(llama)
    expected = [tokenize(text, special=True, add_bos=False).tolist() for text in TEXTS]
    wrong: list[str] = []

    def work() -> None:
        for _ in range(50):
            for text, tokens in zip(TEXTS, expected, strict=True):
                if tokenize(text, special=True, add_bos=False).tolist() != tokens:
                    wrong.append(text)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_ends_come_from_all_three_files(llama: Path) -> None:
    assert read(llama)[0].end_of_generation == {2}
    edit(llama, "config.json", eos_token_id=[5])
    edit(llama, "generation_config.json", eos_token_id=[6, 7, 99999])
    assert read(llama, text_config={"eos_token_id": 8})[0].end_of_generation == {2, 5, 6, 7, 8}
    edit(llama, "tokenizer_config.json", eos_token={"content": "<|endoftext|>"})
    vocabulary, _ = read(llama)
    assert (vocabulary.eos, vocabulary.end_of_generation) == (0, {0, 5, 6, 7})
    edit(llama, "tokenizer_config.json", eos_token=None)
    assert read(llama)[0].eos == 5


def test_bos_is_put_in_front_where_the_model_says_so(llama: Path) -> None:
    edit(llama, "tokenizer_config.json", add_bos_token=True)
    vocabulary, tokenize = read(llama)
    assert (vocabulary.bos, vocabulary.adds_bos) == (1, True)
    assert tokenize("Hi", special=False, add_bos=True).tolist()[0] == 1
    assert tokenize("Hi", special=False, add_bos=False).tolist()[0] != 1
    about = json.loads((llama / "tokenizer_config.json").read_text())
    del about["add_bos_token"]
    (llama / "tokenizer_config.json").write_text(json.dumps(about))
    assert read(llama)[0].adds_bos is False
    tokenizer = Tokenizer.from_file(str(llama / "tokenizer.json"))
    word = vocabulary.pieces[1].decode()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{word} $A {word}", special_tokens=[(word, 1)]
    )
    tokenizer.save(str(llama / "tokenizer.json"))
    vocabulary, tokenize = read(llama)
    assert vocabulary.adds_bos
    tokens = tokenize("Hi", special=True, add_bos=True).tolist()
    assert tokens[0] == 1
    assert tokens.count(1) == 1, "only in front, and once"


def test_an_end_spelled_by_a_user_is_text_although_it_is_not_marked_special(llama: Path) -> None:
    content = json.loads((llama / "tokenizer.json").read_text())
    for token in content["added_tokens"]:
        token["special"] = False
    (llama / "tokenizer.json").write_text(json.dumps(content))
    vocabulary, tokenize = read(llama)
    assert 2 not in tokenize("<|im_end|>", special=False, add_bos=False)
    assert tokenize("<|im_end|>", special=True, add_bos=False).tolist() == [2]
    assert 2 in vocabulary.control


def test_tokens_without_an_embedding_stay_text_and_ids_without_a_token_are_empty(llama: Path) -> None:
    tokenizer = Tokenizer.from_file(str(llama / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken("<|late|>", special=True)])
    tokenizer.save(str(llama / "tokenizer.json"))
    vocabulary, tokenize = read(llama, VOCABULARY)
    tokens = tokenize("a<|late|>b", special=True, add_bos=False)
    assert tokens.max() < VOCABULARY
    assert text_of(vocabulary, tokens) == "a<|late|>b"
    wide, tokenize = read(llama, VOCABULARY + 10)
    assert tokenize("<|late|>", special=True, add_bos=False).tolist() == [VOCABULARY]
    assert wide.pieces[VOCABULARY] == b"<|late|>"
    assert wide.pieces[VOCABULARY + 1 :] == [b""] * 9


def test_the_chat_template_is_found_in_every_place(llama: Path) -> None:
    assert "<|im_start|>" in (read_chat_template(llama) or "")
    edit(llama, "tokenizer_config.json", chat_template=[{"name": "tool_use", "template": "T"}])
    assert read_chat_template(llama) == "T"
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    edit(llama, "tokenizer_config.json", chat_template=named)
    assert read_chat_template(llama) == "D"
    edit(llama, "tokenizer_config.json", chat_template=None)
    assert read_chat_template(llama) is None
    (llama / "chat_template.json").write_text('{"chat_template": "J"}')
    assert read_chat_template(llama) == "J"
    (llama / "chat_template.jinja").write_text("{{ messages }}")
    assert read_chat_template(llama) == "{{ messages }}"
    (llama / "tokenizer_config.json").unlink()
    assert read_chat_template(llama) == "{{ messages }}"


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["▁", "▁the", "▁cat", "c", "a", "t", "h", "e", "▁t", "▁c", "at", "he", "\n"]


def sentencepiece(folder: Path, *, prefix: bool) -> None:
    """As converters write a llama-2 or gemma tokenizer; `prefix` puts a space in front of all text."""
    vocab = {word: number for number, word in enumerate(["<unk>", "<s>", "</s>", *BYTES, *WORDS])}
    merges = [("▁", "t"), ("▁", "c"), ("a", "t"), ("h", "e"), ("▁t", "he"), ("▁c", "at")]
    tokenizer = Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True, ignore_merges=False)
    )
    steps = [normalizers.Prepend("▁")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(back + ([decoders.Strip(" ", 1, 0)] if prefix else []))
    tokenizer.add_special_tokens([AddedToken(w, special=True, normalized=False) for w in ("<s>", "</s>")])
    tokenizer.save(str(folder / "tokenizer.json"))
    edit(folder, "tokenizer_config.json", bos_token="<s>", eos_token="</s>", add_bos_token=True)


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_pieces_are_bytes(tmp_path: Path, prefix: bool) -> None:
    sentencepiece(tmp_path, prefix=prefix)
    vocabulary, tokenize = read(tmp_path, 300)
    assert (vocabulary.bos, vocabulary.eos, vocabulary.control) == (1, 2, {1, 2})
    assert vocabulary.pieces[3 + 0x41] == b"A"
    assert vocabulary.pieces[3 + 0xFF] == b"\xff"
    for text in ("the cat", "é 漢 <0x41>", "a\nthe  cat</s>"):
        tokens = tokenize(text, special=False, add_bos=False)
        assert text_of(vocabulary, tokens) == (" " if prefix else "") + text
        assert not set(tokens.tolist()) & {0, 1, 2}
    assert tokenize("the", special=True, add_bos=True).tolist()[0] == 1


def test_runs_of_spaces_that_are_listed_as_added_are_spaces(tmp_path: Path) -> None:
    """Gemma lists words of its model, such as two spaces, as added tokens that are not special."""
    sentencepiece(tmp_path, prefix=False)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    vocab = content["model"]["vocab"]
    vocab["▁▁"] = len(vocab)
    content["model"]["merges"].append(["▁", "▁"])
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    content["added_tokens"].append({"id": vocab["▁▁"], "content": "▁▁", **flags})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    vocabulary, tokenize = read(tmp_path, 300)
    tokens = tokenize("a  e", special=False, add_bos=False)
    assert vocab["▁▁"] in tokens
    assert text_of(vocabulary, tokens) == "a  e"


def test_unigram_pieces_are_bytes(tmp_path: Path) -> None:
    words = [("<unk>", 0.0), ("</s>", 0.0), *((word, -10.0) for word in BYTES), *((w, -2.0) for w in WORDS)]
    tokenizer = Tokenizer(models.Unigram(words, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="never")
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    edit(tmp_path, "tokenizer_config.json", eos_token="</s>")
    vocabulary, tokenize = read(tmp_path, 300)
    assert (vocabulary.bos, vocabulary.eos, vocabulary.adds_bos) == (None, 1, False)
    for text in ("the cat", "the é cat"):
        assert text_of(vocabulary, tokenize(text, special=False, add_bos=True)) == text


def test_a_tokenizer_that_cannot_be_read_says_so(llama: Path) -> None:
    for content, part in (
        ("{", "cannot be read"),
        ("{}", "has no model"),
        ('{"model": {"type": "Nonsense"}}', "cannot be used"),
    ):
        (llama / "tokenizer.json").write_text(content)
        with pytest.raises(ModelError, match=part):
            read(llama)
    (llama / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer.json.*save_pretrained"):
        read(llama)
