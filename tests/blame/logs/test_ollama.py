"""Ollama's log: `cache hit` is no verdict, and llama.cpp's lines are inside."""

from __future__ import annotations

import pytest

from headstart.blame.logs.events import Evicted, Fact, Loaded, NotStored, Restored, Started, Truncated
from tests.blame.logs.reads import OLD_LLAMA, events, of, read, turns

HEAD = "time=2026-09-04T14:08:{:06.3f}+09:00 level=INFO source="


def hit(total: int, matched: int, cached: int, at_s: float = 5.0, words: str = "cache hit") -> str:
    numbers = f"total={total} matched={matched} cached={cached} left={total - cached}"
    return f'{HEAD.format(at_s)}prefix_cache.go:125 msg="{words}" {numbers}\n'


def progress(processed: int, total: int, at_s: float) -> str:
    head = f'{HEAD.format(at_s)}pipeline.go:223 msg="Prompt processing progress"'
    return f"{head} processed={processed} total={total}\n"


def test_a_hit_of_a_tenth_is_a_gap() -> None:
    (turn,) = turns(hit(633, 600, 68))
    assert (turn.server, turn.prompt_tokens, turn.cached, turn.read, turn.shared) == (
        "ollama",
        633,
        68,
        565,
        600,
    )


def test_a_miss() -> None:
    found = events(hit(337, 0, 0, words="cache miss"))
    (turn,) = turns(hit(337, 0, 0, words="cache miss"))
    assert (turn.cached, turn.read, turn.shared, turn.restored) == (0, 337, 0, None)
    assert of(Restored, found) == []


def test_time_is_that_until_the_last_token_is_read() -> None:
    text = hit(20_000, 9_000, 8_191) + progress(8_192, 11_809, 7.0) + progress(11_809, 11_809, 9.5)
    (turn,) = turns(text)
    assert turn.prompt_ms == pytest.approx(4_500)
    (cut,) = turns(hit(20_000, 9_000, 8_191) + progress(8_192, 11_809, 7.0))
    assert cut.prompt_ms is None


def test_two_turns_follow_each_other() -> None:
    both = turns(
        hit(900, 800, 700) + progress(200, 200, 6.0) + hit(950, 940, 900, 8.0) + progress(50, 50, 8.5)
    )
    assert [(turn.cached, turn.prompt_ms) for turn in both] == [(700, 1_000.0), (900, 500.0)]


def test_the_runner_of_gguf_models() -> None:
    started = (
        f'{HEAD.format(1.0)}server.go:431 msg="starting llama server" cmd="ollama runner --ctx-size 8192"\n'
    )
    loading = "srv    load_model: loading model '/models/x.gguf'\n"
    found, reader = read(started + loading + OLD_LLAMA)
    assert reader.format == "ollama"
    assert of(Started, found) == [Started("ollama", 8192)]
    (turn,) = turns(started + loading + OLD_LLAMA)
    assert (turn.server, turn.cached) == ("ollama", 500)
    assert of(Started, events(started + loading + loading)) == [Started("ollama", 8192), Started("ollama")]


def test_what_goes_wrong() -> None:
    found = events(
        f'{HEAD.format(1.0)}r.go:131 msg="truncating input prompt" limit=2048 prompt=5065 keep=5 new=2048\n'
        f'{HEAD.format(2.0)}cache.go:9 msg="failed to restore cache, freeing all caches" offset=8191\n'
    )
    assert of(Truncated, found) == [Truncated(2048, 5065, 2048)]
    assert of(NotStored, found) == [NotStored("failed to restore cache, freeing all caches")]
    assert of(Evicted, found) == [Evicted()]


def test_what_it_says_while_it_starts() -> None:
    slots, vram = "OLLAMA_NUM_PARALLEL:2", 'total_vram="17.8 GiB"'
    found = events(
        f'{HEAD.format(1.0)}r.go:1 msg="server config" env="map[OLLAMA_CONTEXT_LENGTH:0 {slots}]"\n'
        f'{HEAD.format(2.0)}r.go:2 msg="vram-based default context" {vram} default_num_ctx=4096\n'
        f'{HEAD.format(3.0)}server.go:3 msg="llama runner started in 5.42 seconds"\n'
        f'{HEAD.format(4.0)}server.go:3 msg="llama-server started in 1.50 seconds"\n'
    )
    assert found == [
        Fact("slots", "2"),
        Fact("vram", "17.8 GiB"),
        Fact("context_tokens", "4096"),
        Loaded(5.42),
        Loaded(1.5),
    ]


def test_the_older_runner_of_its_own() -> None:
    numbers = "id=0 cache=1040 prompt=1062 used=1040 remaining=22"
    line = f'{HEAD.format(1.0)}cache.go:151 msg="loading cache slot" {numbers}\n'
    (turn,) = turns(line)
    assert (turn.slot, turn.prompt_tokens, turn.cached, turn.read) == (0, 1062, 1040, 22)


@pytest.mark.parametrize("broken", ["total=x", "", "total=12 cached=", "msg=cache"])
def test_a_broken_line_says_nothing(broken: str) -> None:
    assert turns(f'{HEAD.format(1.0)}prefix_cache.go:125 msg="cache hit" {broken}\n', "ollama") == []
