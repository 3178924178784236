"""LoRA adapters: what they change, that their state is nobody else's, and what is said of bad ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3
from gguf import GGMLQuantizationType

from headstart.engines.base import AdapterFacts, Engine, Logits
from headstart.engines.llamacpp import adapters
from headstart.engines.llamacpp.engine import LlamaCppEngine, load
from headstart.engines.llamacpp.options import Batching, LlamaCppOptions, LoraAdapter
from headstart.errors import ConfigError, ModelError
from headstart.prefix.keys import namespace_key
from tests.engines.equality import (
    Source,
    cold_logits,
    compare,
    draw_chunks,
    random_tokens,
    record,
    resume,
    resume_live,
    state_at,
)
from tests.engines.llamacpp.broken import spoil
from tests.fixtures.gguf_models import GgufModels, build_lora

LoadAdapted = Callable[..., LlamaCppEngine]

PROMPT_TOKENS = 80
CLEARLY = 1.0
"""Logits of the tiny models span about 20."""


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_lora(tmp_path_factory.mktemp("lora") / "style.gguf")


@pytest.fixture(scope="module")
def other_lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_lora(tmp_path_factory.mktemp("lora") / "style.gguf", seed=5)


@pytest.fixture(scope="module")
def adapted(gguf_models: GgufModels) -> Iterator[LoadAdapted]:
    """Loads the tiny llama with (path, scale) adapters; the same arguments give the same engine."""
    loaded: list[LlamaCppEngine] = []

    @cache
    def loader(*wanted: tuple[Path, float], batching: Batching = Batching.EXACT) -> LlamaCppEngine:
        options = LlamaCppOptions(
            ctx_size=1024,
            max_sequences=3,
            batching=batching,
            threads=1,
            adapters=tuple(LoraAdapter(path, scale) for path, scale in wanted),
        )
        loaded.append(load(gguf_models.llama, options))
        return loaded[-1]

    yield loader
    for engine in loaded:
        engine.shutdown()


def logits_of(engine: Engine) -> Logits:
    tokens = random_tokens(np.random.default_rng(3), engine, PROMPT_TOKENS)
    return cold_logits(engine, tokens, (PROMPT_TOKENS,))


def test_an_adapter_changes_the_scores_by_its_scale(adapted: LoadAdapted, lora: Path) -> None:
    plain, off = logits_of(adapted()), logits_of(adapted((lora, 0.0)))
    assert compare(off, plain).same_bits
    seen = [plain, *(logits_of(adapted((lora, scale))) for scale in (0.5, 1.0, -1.0))]
    for index, one in enumerate(seen):
        for other in seen[:index]:
            assert compare(one, other).differs(CLEARLY)


def test_two_adapters_are_added_up(adapted: LoadAdapted, lora: Path, other_lora: Path) -> None:
    both = adapted((lora, 1.0), (other_lora, 1.0))
    for alone in (adapted((lora, 1.0)), adapted((other_lora, 1.0))):
        assert compare(logits_of(both), logits_of(alone)).differs(CLEARLY)
    assert any("several adapters" in note for note in both.facts.notes)
    assert adapted((lora, 1.0), (other_lora, 0.0)).facts.notes == adapted((lora, 1.0)).facts.notes


def test_every_lane_and_the_shared_context_have_the_adapter(adapted: LoadAdapted, lora: Path) -> None:
    engine = adapted((lora, 1.0))
    expected = logits_of(engine)
    held = [engine.open() for _ in range(engine.max_sequences - 1)]
    assert compare(logits_of(engine), expected).same_bits, "the last lane"
    for seq in held:
        engine.close(seq)
    shared = logits_of(adapted((lora, 1.0), batching=Batching.SHARED))
    plain = logits_of(adapted())
    assert not compare(shared, expected).differs(CLEARLY / 10)
    assert compare(shared, plain).differs(CLEARLY)


@pytest.mark.parametrize("source", [Source.RESTORE, Source.CUT])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_a_resumed_sequence_has_the_bits_of_a_cold_one(
    adapted: LoadAdapted, lora: Path, source: Source, scale: float
) -> None:
    engine = adapted((lora, scale))
    assert engine.facts.state_proved and engine.facts.exact_repeat
    random = np.random.default_rng(8)
    for position in (64, 200, 311):
        chunks = (*draw_chunks(random, position, 64, 512), 70)
        old, tail = random_tokens(random, engine, position + 70), random_tokens(random, engine, 20)
        seq = engine.open()
        state = state_at(record(engine, seq, old, chunks), position, tail)
        if source is Source.RESTORE:
            logits = resume(engine, state, (20,), random)
        else:
            logits = resume_live(engine, seq, state, (20,), source)
        engine.close(seq)
        cold = cold_logits(engine, np.concatenate([old[:position], tail]), (*chunks[:-1], 20))
        assert compare(logits, cold).same_bits
        assert compare(resume(adapted(), state, (20,)), cold).differs(CLEARLY / 10), "rows are the adapter's"


def test_the_namespace_is_that_of_content_scale_and_order(
    adapted: LoadAdapted, lora: Path, other_lora: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "another-name.gguf"
    copied.write_bytes(lora.read_bytes())
    plain = adapted().facts.parts
    assert "adapters" not in plain, "without adapters the namespace is what it was before there were any"
    wanted: list[tuple[tuple[Path, float], ...]] = [
        (),
        ((lora, 1.0),),
        ((lora, 0.5),),
        ((lora, 0.0),),
        ((other_lora, 1.0),),
        ((lora, 1.0), (other_lora, 1.0)),
        ((other_lora, 1.0), (lora, 1.0)),
        ((lora, 1.0), (lora, 1.0)),
    ]
    keys = [namespace_key(adapted(*some).facts.parts, "") for some in wanted]
    assert len(set(keys)) == len(wanted)
    assert namespace_key(adapted((copied, 1.0)).facts.parts, "") == keys[1], "the name of the file is nothing"
    for some in wanted[1:]:
        parts = dict(adapted(*some).facts.parts)
        del parts["adapters"]
        assert parts == plain


def test_what_is_stated_of_an_adapter(adapted: LoadAdapted, lora: Path) -> None:
    digest = blake3(lora.read_bytes()).hexdigest()
    assert adapted((lora, 0.5)).facts.adapters == (AdapterFacts("style.gguf", digest, 0.5),)
    assert adapted().facts.adapters == ()


def test_the_digest_is_remembered(
    tiny_llama: Path, lora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = LlamaCppOptions(
        ctx_size=512,
        max_sequences=1,
        threads=1,
        digest_memo=tmp_path / "digests.json",
        adapters=(LoraAdapter(lora),),
    )
    engine = load(tiny_llama, options)
    engine.shutdown()
    monkeypatch.delattr(adapters, "weights_digest")
    again = load(tiny_llama, options)
    again.shutdown()
    assert again.facts.parts == engine.facts.parts


def refused(model: Path, path: Path) -> str:
    options = LlamaCppOptions(ctx_size=512, max_sequences=1, threads=1, adapters=(LoraAdapter(path),))
    with pytest.raises(ModelError) as raised:
        load(model, options)
    return str(raised.value)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("empty", "is not a GGUF file"),
        ("text", "is not a GGUF file: it starts with b'This'"),
        ("only a magic number", "failed to read header"),
        ("cut in the weights", "corrupted or incomplete"),
        ("one byte short", "corrupted or incomplete"),
        ("future version", "version 9"),
        ("missing tensor", "is missing one component"),
    ],
)
def test_a_broken_adapter_is_named_with_its_reason(
    tiny_llama: Path, lora: Path, tmp_path: Path, how: str, words: str
) -> None:
    path = spoil(lora, tmp_path, how)
    message = refused(tiny_llama, path)
    assert words in message
    assert str(path) in message


def test_an_adapter_that_does_not_fit_is_an_error(
    gguf_models: GgufModels, lora: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "there is no LoRA adapter at /nowhere/a.gguf" in refused(
        gguf_models.llama, Path("/nowhere/a.gguf")
    )
    assert "there is no LoRA adapter at" in refused(gguf_models.llama, tmp_path)
    assert "arch mismatch" in refused(gguf_models.gemma3, lora)
    narrow = build_lora(tmp_path / "narrow.gguf", width=32)
    assert "has incorrect shape (hint: maybe wrong base model?)" in refused(gguf_models.llama, narrow)
    deep = build_lora(tmp_path / "deep.gguf", layers=5)
    assert "'blk.3.attn_q.weight' does not exist in base model" in refused(gguf_models.llama, deep)
    assert "expect general.type to be 'adapter'" in refused(gguf_models.llama, gguf_models.llama)
    assert capfd.readouterr() == ("", ""), "llama.cpp's log must not reach the terminal"


def test_types_that_end_the_process_in_llama_cpp_are_refused(
    tiny_llama: Path, lora: Path, tmp_path: Path
) -> None:
    data = lora.read_bytes()
    path = tmp_path / "typed.gguf"
    alpha, float32, int32 = b"adapter.lora.alpha", b"\x06", b"\x05"
    path.write_bytes(data.replace(alpha + float32, alpha + int32))
    assert "adapter.lora.alpha is not a 32-bit float" in refused(tiny_llama, path)
    kind = data.index(b"blk.0.attn_q.weight.lora_a") + len("blk.0.attn_q.weight.lora_a") + 4 + 2 * 8
    assert data[kind] == GGMLQuantizationType.F32
    path.write_bytes(data[:kind] + bytes([GGMLQuantizationType.I32]) + data[kind + 1 :])
    assert "blk.0.attn_q.weight.lora_a has integers or doubles" in refused(tiny_llama, path)
    assert "it has no tensors" in refused(tiny_llama, build_lora(path, layers=0))


def test_an_activated_lora_is_refused(tiny_llama: Path, tmp_path: Path) -> None:
    """It counts only after its invocation tokens, so applying it to all tokens would be another model."""
    path = build_lora(tmp_path / "activated.gguf", invocation_tokens=[5, 6])
    assert "is an activated LoRA" in refused(tiny_llama, path)


def test_an_adapter_that_changes_while_it_is_read_is_refused(
    tiny_llama: Path, lora: Path, other_lora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state would be kept under the digest of what was there before."""
    path = tmp_path / "trained.gguf"
    path.write_bytes(lora.read_bytes())
    take = adapters.weights_digest

    def overtaken(*files: object) -> str:
        digest = take(*files)  # type: ignore[arg-type]
        path.write_bytes(other_lora.read_bytes())
        return digest

    monkeypatch.setattr(adapters, "weights_digest", overtaken)
    assert "changed while it was read" in refused(tiny_llama, path)


def test_a_model_loads_after_an_adapter_that_failed(adapted: LoadAdapted, lora: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        adapted((lora, 1.0), (spoil(lora, tmp_path, "cut in the weights"), 1.0))
    assert adapted((lora, 1.0)).facts.state_proved


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_scale_is_a_finite_number(scale: float) -> None:
    with pytest.raises(ConfigError, match="finite"):
        LlamaCppOptions(adapters=(LoraAdapter(Path("a.gguf"), scale),))
