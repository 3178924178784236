"""The scheduler on the toy engine: replies equal a plain loop, and every token read is counted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Never

import numpy as np
import pytest

from headstart.engines.base import Logits, SeqId, Step
from headstart.engines.toy_model import LayerKind
from headstart.errors import ConfigError, EngineError, Overloaded, RequestError
from headstart.prefix.cache import PrefixCache
from headstart.prefix.faults import Fault, FaultInjector
from headstart.prefix.plan import PromptHints
from headstart.prefix.report import Reason, Tier
from headstart.prefix.tokens import TokenRun, token_run
from headstart.serving.request import Delta, Failed, FinishReason, PrefillDone, Sampling
from headstart.serving.settings import SchedulerSettings
from tests.serving.harness import SETTINGS, CountingToy, Server, cold_reply, prompt_of

DENSE: tuple[LayerKind, ...] = ("full", "full")
WINDOW: tuple[LayerKind, ...] = ("full", "window")
HYBRID: tuple[LayerKind, ...] = ("full", "recurrent")
ALL: tuple[LayerKind, ...] = ("full", "window", "recurrent")
KINDS = pytest.mark.parametrize(
    "layers", [DENSE, WINDOW, HYBRID, ALL], ids=["dense", "window", "hybrid", "all"]
)


def edited(prompt: TokenRun, at: int) -> TokenRun:
    """`prompt` with token `at` changed."""
    copy = prompt.copy()
    copy[at] = 33 if copy[at] != 33 else 34
    return copy


@KINDS
def test_replies_equal_a_plain_loop_and_exact_repeat_reads_nothing(layers: tuple[LayerKind, ...]) -> None:
    engine = CountingToy(layers)
    prompt = prompt_of(100)
    expected = cold_reply(engine, prompt, 6)
    with Server(engine) as server:
        first, done = server.ask(prompt, 6)
        first.check_order()
        assert first.tokens == expected
        assert (done.report.restored, done.report.new, done.report.tier) == (0, 100, Tier.NONE)
        before = engine.tokens_read
        again, done = server.ask(prompt, 6)
        assert again.tokens == expected
        assert (done.report.restored, done.report.replayed, done.report.new) == (100, 0, 0)
        assert engine.tokens_read - before == 5, "six tokens sampled, five of them read, no prompt token"


@KINDS
@pytest.mark.parametrize("at", [1, 15, 16, 17, 40, 98, 99])
def test_edit_resumes_where_prompts_part(layers: tuple[LayerKind, ...], at: int) -> None:
    """Gap 0 at every divergence; recurrent layers have it on the second visit (invariant 3)."""
    engine = CountingToy(layers)
    prompt, other = prompt_of(100), edited(prompt_of(100), at)
    expected = cold_reply(engine, other, 3)
    with Server(engine) as server:
        server.ask(prompt, 3)
        before = engine.tokens_read
        reply, done = server.ask(other, 3)
        report = done.report
        assert reply.tokens == expected
        assert report.divergence == at
        assert report.restored + report.replayed + report.new == 100
        assert engine.tokens_read - before == report.replayed + report.new + 2
        if "recurrent" not in layers:
            assert (report.restored, report.gap) == (at, 0)
        third = edited(other, at)
        third[at] = 35
        _, done = server.ask(third, 3)
        assert (done.report.divergence, done.report.gap) == (at, 0), "second visit"


def test_window_rows_are_copied_out_before_they_are_lost() -> None:
    """A block longer than the window: its first rows are gone from the engine before it is full."""
    engine = CountingToy(WINDOW, max_sequences=1)
    with Server(engine, block_tokens=64) as server:
        reply, _ = server.ask(prompt_of(100), 60)
        server.ask(prompt_of(100, seed=1), 1)
        said = np.concatenate([prompt_of(100), token_run(reply.tokens)])
        for at in (20, 63, 64, 99, 130, 158):
            _, done = server.ask(edited(said, at), 1)
            assert (done.report.restored, done.report.gap) == (at, 0)


@KINDS
def test_conversation_resumes_after_every_turn(layers: tuple[LayerKind, ...]) -> None:
    engine = CountingToy(layers)
    prompt = prompt_of(60)
    with Server(engine) as server:
        for turn in range(6):
            before = engine.tokens_read
            reply, done = server.ask(prompt, 5)
            if turn:
                assert done.report.restored == len(prompt) - 11
                assert done.report.tier is Tier.LIVE
                assert engine.tokens_read - before == 11 + 4
            prompt = np.concatenate([prompt, token_run(reply.tokens), prompt_of(10, seed=turn + 1)])


@KINDS
def test_conversations_in_turn_with_one_lane(layers: tuple[LayerKind, ...]) -> None:
    """The lane is taken by another conversation each time, so every turn comes back from RAM."""
    engine = CountingToy(layers, max_sequences=1)
    prompts = [np.concatenate([prompt_of(40), prompt_of(30, seed=s)]) for s in range(4)]
    with Server(engine) as server:
        for turn in range(3):
            for index, prompt in enumerate(prompts):
                reply, done = server.ask(prompt, 4)
                if turn:
                    assert done.report.restored == len(prompt) - 9, (turn, index)
                    assert done.report.tier is Tier.RAM
                prompts[index] = np.concatenate(
                    [prompt, token_run(reply.tokens), prompt_of(8, seed=turn + 10)]
                )


def test_a_branch_does_not_cut_the_live_sequence_it_parts_from() -> None:
    """A side request that shares only the head must not destroy a long live conversation."""
    engine = CountingToy(DENSE, max_sequences=2)
    long = prompt_of(200)
    side = np.concatenate([long[:50], prompt_of(10, seed=5)])
    with Server(engine) as server:
        server.ask(long, 2)
        _, done = server.ask(side, 2)
        assert (done.report.restored, done.report.tier) == (50, Tier.RAM)
        _, done = server.ask(np.concatenate([long, prompt_of(5, seed=6)]), 2)
        assert done.report.restored >= 200
        assert done.report.tier is Tier.LIVE


@KINDS
def test_requests_together_read_a_shared_prefix_once(layers: tuple[LayerKind, ...]) -> None:
    engine = CountingToy(layers, step_delay_s=0.002)
    head = prompt_of(300)
    prompts = [np.concatenate([head, prompt_of(20, seed=s)]) for s in range(1, 4)]
    expected = [cold_reply(engine, prompt, 3) for prompt in prompts]
    before = engine.tokens_read
    with Server(engine) as server:
        replies = [server.send(prompt, 3)[0] for prompt in prompts]
        reports = [reply.wait().report for reply in replies]
    assert [reply.tokens for reply in replies] == expected
    assert engine.tokens_read - before == 300 + 3 * 20 + 3 * 2
    assert sorted(report.restored for report in reports) == [0, 300, 300]


def test_same_prompt_twice_at_once_is_read_once() -> None:
    engine = CountingToy(ALL, step_delay_s=0.002)
    prompt = prompt_of(200)
    with Server(engine) as server:
        replies = [server.send(prompt, 4)[0] for _ in range(3)]
        for reply in replies:
            reply.wait()
    assert len({tuple(reply.tokens) for reply in replies}) == 1
    assert engine.tokens_read == 200 + 3 * 3


def test_decodes_wait_for_one_chunk_at_most() -> None:
    engine = CountingToy(DENSE, step_delay_s=0.001)
    with Server(engine) as server:
        talker, _ = server.send(prompt_of(20), 60)
        assert talker.first.wait(10)
        server.ask(prompt_of(500, seed=1), 2)
        talker.wait()
    mixed = [sizes for sizes in engine.forwards if len(sizes) > 1]
    assert mixed, "the prefill never ran beside the decode"
    assert all(sizes[0] == 1 and sum(sizes[1:]) <= 32 for sizes in mixed)
    alone = [sizes for sizes in engine.forwards[1:] if len(sizes) == 1 and sizes[0] > 1]
    assert not alone or talker.done.is_set(), "a prefill chunk ran without the waiting decode"


def test_prefills_side_by_side_share_one_chunk() -> None:
    engine = CountingToy(DENSE, step_delay_s=0.001)
    with Server(engine) as server:
        replies = [server.send(prompt_of(50 + 7 * s, seed=s), 2)[0] for s in range(4)]
        for reply in replies:
            reply.wait()
    assert max(sum(size for size in sizes if size > 1) for sizes in engine.forwards) <= 32
    assert any(len([size for size in sizes if size > 1]) > 1 for sizes in engine.forwards), "never shared"


def test_the_end_token_ends_a_reply_and_is_counted() -> None:
    engine = CountingToy(DENSE)
    (first,) = cold_reply(engine, prompt_of(50), 1)
    end = min(engine.vocabulary.end_of_generation)
    with Server(engine) as server:
        reply, done = server.ask(
            prompt_of(50), 8, ignore_end=False, sampling=Sampling(0.0, logit_bias={end: 1e4})
        )
        assert (reply.tokens, done.reason, done.completion_tokens) == ([], FinishReason.STOP, 1)
        reply, done = server.ask(prompt_of(50), 1, ignore_end=False)
        assert (reply.tokens, done.reason) == ([first], FinishReason.LENGTH)


def test_short_prompt_overtakes_a_long_one_and_does_not_starve_it() -> None:
    engine = CountingToy(DENSE, step_delay_s=0.001, context_tokens=8192)
    with Server(engine) as server:
        long, _ = server.send(prompt_of(3000), 1)
        time.sleep(0.02)
        server.ask(prompt_of(30, seed=1), 1)
        assert not long.done.is_set()
        assert long.wait().report.new == 3000


@KINDS
def test_a_cancelled_prefill_keeps_what_it_computed(layers: tuple[LayerKind, ...]) -> None:
    engine = CountingToy(layers, step_delay_s=0.01)
    prompt = prompt_of(800)
    with Server(engine) as server:
        reply, ticket = server.send(prompt, 2)
        while engine.tokens_read < 200:
            time.sleep(0.001)
        server.scheduler.cancel(ticket)
        reply.done.wait(10)
        read = engine.tokens_read
        assert read < 800
        engine.step_delay_s = 0.0
        _, done = server.ask(prompt, 2)
        assert done.report.restored == read
        assert done.report.gap == 0
        server.scheduler.cancel(ticket)


def test_a_cancelled_decode_ends_and_the_next_request_is_served() -> None:
    engine = CountingToy(DENSE, step_delay_s=0.005)
    with Server(engine) as server:
        reply, ticket = server.send(prompt_of(20), 1000)
        assert reply.first.wait(10)
        server.scheduler.cancel(ticket)
        assert reply.wait().reason is FinishReason.CANCELLED
        server.ask(prompt_of(20), 2)
        assert server.scheduler.snapshot().running == 0


def test_over_long_prompt_names_both_numbers() -> None:
    engine = CountingToy(DENSE, context_tokens=128)
    with Server(engine) as server:
        for length in (128, 500):
            with pytest.raises(RequestError, match=f"{length} tokens.*context holds 128"):
                server.send(prompt_of(length))
        _, done = server.ask(prompt_of(127), max_tokens=50)
        assert (done.reason, done.completion_tokens) == (FinishReason.LENGTH, 1)
        with pytest.raises(RequestError, match="empty"):
            server.send([])
        with pytest.raises(RequestError, match="token id 999999"):
            server.send([999999])


def test_a_full_queue_is_503_with_a_time_to_come_back() -> None:
    engine = CountingToy(DENSE, step_delay_s=0.02)
    with Server(engine, max_concurrent_requests=1, queue_limit=2) as server:
        replies = [server.send(prompt_of(20, seed=9), 20)[0]]
        assert replies[0].first.wait(10)
        replies += [server.send(prompt_of(20, seed=s), 2)[0] for s in range(2)]
        with pytest.raises(Overloaded, match="2 requests are waiting") as caught:
            server.send(prompt_of(20, seed=3))
        assert caught.value.status == 503
        assert caught.value.retry_after_s >= 1
        for reply in replies:
            reply.wait()


def test_tenants_share_nothing() -> None:
    engine = CountingToy(DENSE)
    with Server(engine) as server:
        server.ask(prompt_of(100), tenant="a")
        _, done = server.ask(prompt_of(100), tenant="b")
        assert (done.report.restored, done.report.divergence) == (0, 0)
        _, done = server.ask(prompt_of(100), tenant="a")
        assert done.report.restored == 100


def test_cache_off_for_a_request_and_for_the_server() -> None:
    engine = CountingToy(ALL)
    with Server(engine) as server:
        server.ask(prompt_of(100))
        _, done = server.ask(prompt_of(100), use_cache=False)
        assert (done.report.restored, done.report.reason) == (0, Reason.DISABLED)
    with Server(CountingToy(ALL), cache_enabled=False) as server:
        server.ask(prompt_of(100))
        _, done = server.ask(prompt_of(100))
        assert (done.report.restored, done.report.reason) == (0, Reason.DISABLED)


@pytest.mark.parametrize("layers", [DENSE, HYBRID], ids=["dense", "hybrid"])
def test_reproducible_restores_on_the_grid_only_and_reads_decoded_rows_again(
    layers: tuple[LayerKind, ...],
) -> None:
    engine = CountingToy(layers)
    with Server(engine, reproducible=True) as server:
        prompt = prompt_of(100)
        reply, _ = server.ask(prompt, 60)
        _, done = server.ask(prompt, 2)
        assert (done.report.restored, done.report.replayed, done.report.new) == (96, 3, 1)
        longer = np.concatenate([prompt, token_run(reply.tokens), prompt_of(7, seed=3)])
        _, done = server.ask(longer, 2)
        assert done.report.restored == 96, "rows made by decoding are not canonical"
        _, done = server.ask(longer, 2)
        assert done.report.restored == 160


def test_reproducible_chunks_lie_on_the_absolute_grid() -> None:
    engine = CountingToy(DENSE)
    with Server(engine, reproducible=True, cache_enabled=False) as server:
        server.ask(prompt_of(100), 1)
    assert engine.forwards == [[32], [32], [32], [4]]


class ShortOfMemory(CountingToy):
    """Asks for steps of 8 tokens from its second one on."""

    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        answers = super().forward(steps)
        self.max_step_tokens = 8
        return answers


def test_chunks_shrink_while_the_engine_is_short_of_memory() -> None:
    engine = ShortOfMemory(DENSE)
    with Server(engine, cache_enabled=False, prefill_chunk_tokens=32) as server:
        reply, _ = server.ask(prompt_of(60), 1)
    assert engine.forwards == [[32], [8], [8], [8], [4]]
    assert reply.tokens == cold_reply(CountingToy(DENSE), prompt_of(60), 1)


def test_reproducible_needs_exact_batching() -> None:
    with pytest.raises(ConfigError, match="--batching exact"):
        Server(CountingToy(DENSE, batches_sequences=True), reproducible=True)


def test_hybrid_resumes_at_message_starts() -> None:
    engine = CountingToy(HYBRID)
    prompt = prompt_of(100)
    hints = PromptHints(head_end=30, message_starts=(30, 55, 80), body_end=97)
    with Server(engine, checkpoint_interval_tokens=1000) as server:
        server.ask(prompt, hints=hints)
        for at in (30, 55, 80, 97):
            _, done = server.ask(edited(prompt, at), hints=hints)
            assert (done.report.divergence, done.report.restored, done.report.gap) == (at, at, 0)
        _, done = server.ask(edited(prompt, 60), hints=hints)
        assert (done.report.restored, done.report.replayed, done.report.reason) == (
            55,
            5,
            Reason.NO_CHECKPOINT,
        )


class FailingOnce(CountingToy):
    """Fails the first forward of more than one token after `fail` is set."""

    fail = False

    def forward(self, steps: list[Step]) -> list[Logits | None]:  # type: ignore[override]
        if self.fail:
            self.fail = False
            raise EngineError("injected failure")
        return super().forward(steps)


def test_an_engine_failure_ends_one_request_and_the_server_goes_on() -> None:
    engine = FailingOnce(DENSE)
    with Server(engine) as server:
        expected, _ = server.ask(prompt_of(50), 3)
        engine.fail = True
        reply, _ = server.send(prompt_of(50, seed=1), 3)
        assert reply.done.wait(10)
        assert isinstance(reply.events[-1], Failed)
        again, _ = server.ask(prompt_of(50), 3)
        assert again.tokens == expected.tokens


class RefusesRestore(CountingToy):
    """Refuses every restore, as an engine does that finds the bytes wrong."""

    def restore(self, rows: object, checkpoint: object, position: int) -> Never:  # type: ignore[override]
        raise EngineError("injected refusal")


def test_a_refused_restore_is_a_miss_with_its_reason() -> None:
    engine = RefusesRestore(DENSE, max_sequences=1)
    with Server(engine) as server:
        expected, _ = server.ask(prompt_of(100), 3)
        server.ask(prompt_of(100, seed=1), 3)
        reply, done = server.ask(prompt_of(100), 3)
        assert reply.tokens == expected.tokens
        assert (done.report.restored, done.report.reason) == (0, Reason.ENGINE_REFUSED)


class RefusesCut(CountingToy):
    """Refuses every cut, and closes the sequence as an engine does that failed half way."""

    def cut(self, seq: SeqId, position: int, window_rows: object, checkpoint: object) -> None:  # type: ignore[override]
        self.close(seq)
        raise EngineError("injected refusal")


def test_a_refused_cut_is_a_miss_and_loses_the_sequence_only() -> None:
    engine = RefusesCut(DENSE)
    with Server(engine) as server:
        server.ask(prompt_of(100), 3)
        reply, done = server.ask(edited(prompt_of(100), 90), 3)
        assert (done.report.restored, done.report.reason) == (0, Reason.ENGINE_REFUSED)
        assert reply.tokens == cold_reply(CountingToy(DENSE), edited(prompt_of(100), 90), 3)


@pytest.mark.parametrize("layers", [DENSE, ALL], ids=["dense", "all"])
def test_forks_share_rows_where_the_engine_can(layers: tuple[LayerKind, ...]) -> None:
    engine = CountingToy(layers, shares_rows=True, step_delay_s=0.001, cells=700)
    head = prompt_of(300)
    prompts = [np.concatenate([head, prompt_of(20, seed=s)]) for s in range(1, 4)]
    expected = [cold_reply(engine, prompt, 5) for prompt in prompts]
    with Server(engine) as server:
        replies = [server.send(prompt, 5)[0] for prompt in prompts]
        reports = [reply.wait().report for reply in replies]
    assert [reply.tokens for reply in replies] == expected
    assert [report.tier for report in reports if report.restored] == [Tier.LIVE, Tier.LIVE]


def test_no_room_for_rows_preempts_the_youngest_says_so_once_and_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = CountingToy(DENSE, shares_rows=True, cells=300, step_delay_s=0.0005)
    prompts = [prompt_of(120, seed=s) for s in range(2)]
    expected = [cold_reply(engine, prompt, 60) for prompt in prompts]
    with Server(engine) as server:
        replies = [server.send(prompt, 60)[0] for prompt in prompts]
        for reply in replies:
            reply.wait()
        assert server.scheduler.snapshot().preemptions >= 1
    assert caplog.text.count("raise --ctx-size") == 1
    assert [reply.tokens for reply in replies] == expected


def test_stop_fails_what_is_under_way_with_a_reason() -> None:
    engine = CountingToy(DENSE, step_delay_s=0.01)
    server = Server(engine)
    with server:
        reply, _ = server.send(prompt_of(20), 1000)
        assert reply.first.wait(10)
    last = reply.events[-1]
    assert isinstance(last, Failed)
    assert "shutting down" in str(last.error)
    with pytest.raises(EngineError, match="shutting down"):
        server.send(prompt_of(20))


def test_stop_strings_logprobs_and_end_token() -> None:
    engine = CountingToy(DENSE)
    with Server(engine) as server:
        reply, _ = server.ask(prompt_of(50), 8, top_logprobs=3)
        deltas = [event for event in reply.events if isinstance(event, Delta)]
        assert all(delta.logprob is not None and len(delta.top) == 3 for delta in deltas)
        assert all(delta.top[0].logprob >= delta.top[1].logprob for delta in deltas)
        assert deltas[0].logprob == deltas[0].top[0].logprob, "greedy takes the likeliest"
        assert isinstance(reply.events[0], PrefillDone)
        _, one = server.ask(prompt_of(50), 1)
        assert (one.completion_tokens, one.reason) == (1, FinishReason.LENGTH)


def test_ram_budget_zero_keeps_the_live_tier() -> None:
    engine = CountingToy(DENSE)
    with Server(engine, ram_cache_bytes=0) as server:
        server.ask(prompt_of(100), 3)
        _, done = server.ask(np.concatenate([prompt_of(100), prompt_of(10, seed=1)]), 3)
        assert (done.report.restored, done.report.tier) == (100, Tier.LIVE)


def test_settings_are_what_they_say() -> None:
    assert SchedulerSettings().max_concurrent_requests == 4
    assert SETTINGS.block_tokens == 16


def test_damaged_rows_are_a_miss_and_what_lies_before_them_is_used() -> None:
    """Invariant 8: a read that fails never reaches the live state, and costs only what it damaged."""
    engine = CountingToy(DENSE, max_sequences=1)
    faults = FaultInjector()
    server = Server(engine)
    assert server.scheduler._cache is not None
    server.scheduler._cache = PrefixCache(engine.layout, ram_bytes=64 << 20, block_tokens=16, faults=faults)
    server.scheduler._placement._cache = server.scheduler._cache
    with server:
        expected, _ = server.ask(prompt_of(100), 3)
        server.ask(prompt_of(100, seed=1), 3)
        faults.spoil(Fault.LOSE, after_reads=2)
        reply, done = server.ask(prompt_of(100), 3)
        assert reply.tokens == expected.tokens
        assert (done.report.restored, done.report.reason) == (32, Reason.CORRUPT)
        _, done = server.ask(prompt_of(100), 3)
        assert done.report.restored == 100, "what was damaged has been read anew and stored"
