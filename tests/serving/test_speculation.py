"""Speculation changes how many steps a reply takes, and nothing else that is sent or stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.engines.base import Engine, SeqId, Step, Vocabulary
from headstart.engines.llamacpp.engine import load
from headstart.engines.llamacpp.options import Batching, LlamaCppOptions
from headstart.engines.toy import ToyEngine
from headstart.engines.toy_model import LayerKind
from headstart.errors import ConfigError
from headstart.prefix.block import RowBytes
from headstart.prefix.tokens import TokenRun, token_run
from headstart.prefix.tree import Node
from headstart.serving.anchor import Anchor
from headstart.serving.constraint import ConstraintCompiler
from headstart.serving.draft_model import check_vocabulary
from headstart.serving.draft_ngram import ngram_draft
from headstart.serving.request import ConstraintKind, ConstraintSpec, Delta, Sampling
from headstart.serving.sequence import Running
from headstart.serving.speculation import Draft, Drafter, Speculate, Speculation, new_speculation, next_length
from tests.fixtures.gguf_models import GgufModels
from tests.serving.harness import GREEDY, CountingToy, Reply, Server, prompt_of

MIXTURES: tuple[tuple[LayerKind, ...], ...] = (
    ("full",),
    ("window",),
    ("recurrent",),
    ("full", "window"),
    ("full", "recurrent"),
    ("window", "recurrent"),
    ("full", "window", "recurrent"),
)
SAMPLED = Sampling(temperature=0.9, top_p=0.95, seed=7, frequency_penalty=0.3)
REPLY_TOKENS = 41


class Scripted:
    """Guesses from a known text, wrong from the `right`-th guess of each draft on."""

    def __init__(self, text: TokenRun, right: int) -> None:
        self._text = text
        self._right = right

    def propose(self, tokens: TokenRun, most: int) -> TokenRun:
        draft = self._text[len(tokens) : len(tokens) + most].copy()
        draft[self._right :] = (draft[self._right :] + 1) % 250
        return draft

    def close(self) -> None:
        pass


def stored(server: Server) -> dict[bytes, Any]:
    """Everything in the cache: under each block's key its tokens, a digest of its rows, and its marks."""
    cache = server.scheduler._cache
    assert cache is not None
    found: dict[bytes, Any] = {}

    def walk(node: Node) -> None:
        rows = hashlib.blake2b()
        if isinstance(node.payload, RowBytes):
            for plane in node.payload.planes:
                rows.update(np.ascontiguousarray(plane).tobytes())
        groups = [node.marks.checkpoints, node.marks.logits] if node.marks else []
        marks = [(mark.tail, str(mark.kind), mark.payload) for group in groups for mark in group]
        found[node.key + node.tokens] = (node.canonical, rows.hexdigest(), sorted(marks, key=repr))
        children = node.children or []
        for child in [children] if isinstance(children, Node) else children:
            walk(child)

    for root in cache._held.tree.roots.values():
        walk(root)
    return found


def speculating(server: Server, make: Callable[[], Drafter], most: int = 5) -> Server:
    server.scheduler._speculation = Speculation(server.engine, make, most)
    return server


def deltas(reply: Reply) -> list[Delta]:
    return [event for event in reply.events if isinstance(event, Delta)]


def conversation(server: Server, prompt: TokenRun, sampling: Sampling, **fields: Any) -> Any:
    """Two turns and an exact repeat: all that was sent, and all that is stored after it."""
    fields = {"sampling": sampling, "top_logprobs": 3} | fields
    sent = []
    with server:
        first, end = server.ask(prompt, REPLY_TOKENS, **fields)
        second = np.concatenate([prompt, token_run(first.tokens), prompt_of(9, seed=5)]).astype(np.int32)
        for text in (second, prompt):
            reply, last = server.ask(text, REPLY_TOKENS, **fields)
            sent.append((deltas(reply), last.reason, last.tail, last.completion_tokens, last.report.restored))
        sent.append((deltas(first), end.reason, end.tail, end.completion_tokens, end.report.restored))
        drafted, accepted = end.drafted, end.accepted
    return sent, stored(server), (drafted, accepted)


@pytest.mark.parametrize("layers", MIXTURES, ids="+".join)
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_reply_and_store_are_those_without_speculation(
    layers: tuple[LayerKind, ...], sampling: Sampling
) -> None:
    prompt = prompt_of(70)
    plain = conversation(Server(ToyEngine(layers)), prompt, sampling)
    text = np.concatenate([prompt, token_run([delta.token for delta in plain[0][-1][0]])]).astype(np.int32)
    for right in (0, 2, 5):
        server = speculating(Server(ToyEngine(layers)), lambda right=right: Scripted(text, right))  # type: ignore[misc]
        found = conversation(server, prompt, sampling)
        assert found[0] == plain[0], right
        assert found[1] == plain[1], right
        drafted, accepted = found[2]
        assert drafted > 0
        assert (accepted == 0) == (right == 0)
        assert (accepted < drafted) == (right < 5)


@pytest.mark.parametrize("kind", [Speculate.NGRAM, Speculate.DRAFT])
@pytest.mark.parametrize("layers", MIXTURES, ids="+".join)
def test_both_drafters_leave_reply_and_store_alone(layers: tuple[LayerKind, ...], kind: Speculate) -> None:
    prompt = np.tile(prompt_of(10), 6)
    plain = conversation(Server(ToyEngine(layers)), prompt, SAMPLED)
    server = Server(ToyEngine(layers))
    drafts = ToyEngine(("window", "recurrent"), seed=3)
    server.scheduler._speculation = new_speculation(server.engine, kind, 5, drafts)
    found = conversation(server, prompt, SAMPLED)
    assert found[:2] == plain[:2]
    assert not drafts._states, "a draft sequence is left open"


def test_the_same_model_as_draft_is_accepted_and_saves_steps() -> None:
    engine = CountingToy(("full", "window", "recurrent"))
    server = Server(engine)
    server.scheduler._speculation = new_speculation(engine, Speculate.DRAFT, 5, ToyEngine())
    with server:
        _, end = server.ask(prompt_of(20), 31)
    assert end.accepted == end.drafted > 20
    assert len(engine.forwards) < 12
    assert server.scheduler.snapshot().accepted_tokens == end.accepted


BACK = Anchor.back


def keeps_rejected(self: Anchor, engine: Engine, seq: SeqId, stop: int, tokens: TokenRun) -> None:
    """Planted: rows of rejected tokens stay."""


def one_ahead(self: Anchor, engine: Engine, seq: SeqId, stop: int, tokens: TokenRun) -> None:
    """Planted: the recurrent state has read one token more than the rows."""
    if engine.position(seq) == stop:
        return
    BACK(self, engine, seq, stop, tokens)
    engine.forward([Step(seq, tokens[stop : stop + 1], wants_logits=False)])
    ahead = engine.checkpoint(seq)
    engine.cut(seq, stop, None, ahead)


@pytest.mark.parametrize("defect", [keeps_rejected, one_ahead])
def test_a_rollback_that_is_wrong_is_seen(
    defect: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Anchor, "back", defect)
    with pytest.raises(AssertionError):
        test_reply_and_store_are_those_without_speculation(("full", "recurrent"), GREEDY)


def test_an_accepted_count_off_by_one_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(self: Speculation, run: Running, draft: Draft) -> None:
        assert run.seq is not None
        draft.anchor.back(self._engine, run.seq, run.position - bool(run.accepted), run.tokens)

    monkeypatch.setattr(Speculation, "settle", short)
    with pytest.raises(AssertionError):
        test_reply_and_store_are_those_without_speculation(("full",), GREEDY)


def test_the_end_stops_and_grammars_cut_a_draft() -> None:
    prompt = prompt_of(40)
    engine = ToyEngine()
    compiler = ConstraintCompiler(
        engine.vocabulary,
        engine.layout.vocab_size,
        lambda text: engine.tokenize(text, special=False, add_bos=False).tolist(),
    )
    spec = ConstraintSpec(ConstraintKind.REGEX, "(ab|cd){3,9}x")
    results = []
    for make in (None, lambda: Scripted(np.tile(token_run(b"abcd"), 40), 9)):
        server = Server(ToyEngine())
        server.scheduler._compiler = compiler
        if make is not None:
            speculating(server, make)
        results.append(conversation(server, prompt, SAMPLED, constraint=spec, ignore_end=False)[:2])
    assert results[0] == results[1]


def test_a_stop_string_inside_a_draft_ends_the_reply_there() -> None:
    prompt = prompt_of(30)
    with Server(ToyEngine()) as server:
        reply, _ = server.ask(prompt, 30)
    text = np.concatenate([prompt, token_run(reply.tokens)]).astype(np.int32)
    middle = "".join(delta.text for delta in deltas(reply))[7:9]
    results = []
    for make in (None, lambda: Scripted(text, 9)):
        server = Server(ToyEngine())
        if make is not None:
            speculating(server, make)
        results.append(conversation(server, prompt, GREEDY, stop=(middle,))[:2])
    assert results[0] == results[1]


def test_several_requests_draft_in_one_step() -> None:
    prompts = [prompt_of(25, seed=seed) for seed in range(3)]
    with Server(ToyEngine()) as server:
        plain = [server.ask(prompt, 20)[0].tokens for prompt in prompts]
    engine = CountingToy(step_delay_s=0.002)
    server = Server(engine)
    server.scheduler._speculation = Speculation(engine, lambda: Scripted(np.zeros(200, np.int32), 9), 4)
    with server:
        sent = [server.send(prompt, 20)[0] for prompt in prompts]
        for reply in sent:
            reply.wait()
    assert [reply.tokens for reply in sent] == plain
    assert any(sum(size > 1 for size in sizes) > 1 for sizes in engine.forwards)


def test_ngram_takes_the_longest_suffix_and_its_latest_full_continuation() -> None:
    run = token_run([1, 2, 3, 4, 5, 9, 2, 3, 7, 7, 1, 2, 3])
    assert ngram_draft(run, 3).tolist() == [4, 5, 9]
    assert ngram_draft(token_run([8, 8, 8, 8, 8, 8]), 2).tolist() == [8, 8]
    assert ngram_draft(token_run([1, 2, 3]), 4).tolist() == []
    assert ngram_draft(token_run([3, 1, 3]), 4).tolist() == []
    assert ngram_draft(token_run([5]), 4).tolist() == []


def test_drafts_grow_while_they_are_right_and_shrink_to_what_was() -> None:
    assert [next_length(2, 2, 8), next_length(8, 8, 8), next_length(8, 3, 8), next_length(4, 0, 8)] == [
        4,
        8,
        4,
        1,
    ]


def test_an_engine_that_gives_one_score_and_another_vocabulary_are_refused() -> None:
    engine = ToyEngine()
    other = ToyEngine()
    pieces = list(other.vocabulary.pieces)
    pieces[65] = b"??"
    other.vocabulary = replace(other.vocabulary, pieces=pieces)
    with pytest.raises(ConfigError, match="token 65"):
        check_vocabulary(engine, other)
    shorter: Vocabulary = replace(engine.vocabulary, pieces=pieces[:65])
    other.vocabulary = shorter
    with pytest.raises(ConfigError, match="has 65 tokens"):
        check_vocabulary(engine, other)
    engine.facts = replace(engine.facts, step_scores=1)
    with pytest.raises(ConfigError, match="--speculate off"):
        Speculation(engine, lambda: Scripted(token_run([1]), 1), 5)


def test_smollm2_repeats_itself_in_fewer_steps(smollm2: Path) -> None:
    engine = load(smollm2, LlamaCppOptions(ctx_size=512, max_sequences=1, threads=1, step_scores=9))
    prompt = engine.tokenize(
        "one two three four\none two three four\none two three four\none two", special=False, add_bos=False
    )
    with Server(engine, speculate=Speculate.NGRAM) as server:
        reply, end = server.ask(prompt, 32)
        again, _ = server.ask(prompt, 32)
        steps = server.scheduler.snapshot().steps
    engine.shutdown()
    assert end.accepted > 8
    assert again.tokens == reply.tokens
    assert steps < 48, "without guesses it takes 64"


@pytest.mark.parametrize("batching", list(Batching))
@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen35"])
def test_gguf_models_of_every_kind_take_wrong_guesses_back(
    gguf_models: GgufModels, name: str, batching: Batching
) -> None:
    """Wrong guesses all the time: the sequence is the same as without them but for other chunk sizes."""
    options = LlamaCppOptions(ctx_size=512, max_sequences=2, threads=1, step_scores=5, batching=batching)
    engine = load(getattr(gguf_models, name), options)
    prompt = (prompt_of(40, seed=3) % 90 + 3).astype(np.int32)
    try:
        with Server(engine) as server:
            plain, _ = server.ask(prompt, 24, use_cache=False, top_logprobs=0)
        text = np.concatenate([prompt, token_run(plain.tokens)]).astype(np.int32)
        with speculating(Server(engine), lambda: Scripted(text, 2), 4) as server:
            reply, end = server.ask(prompt, 24, use_cache=False, top_logprobs=0)
            again, _ = server.ask(prompt, 24, use_cache=False, top_logprobs=0)
    finally:
        engine.shutdown()
    assert end.drafted > end.accepted > 4
    assert reply.tokens == again.tokens
    for one, other in zip(deltas(plain)[:8], deltas(reply)[:8], strict=True):
        assert one.token == other.token
        assert one.logprob == pytest.approx(other.logprob, abs=0.1)
