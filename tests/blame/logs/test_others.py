"""Logs of LM Studio, oMLX, vLLM, mlx-lm and headstart."""

from __future__ import annotations

import pytest

from headstart.blame.logs.events import (
    CacheState,
    Diverged,
    Evicted,
    Fact,
    Interval,
    NotStored,
    Started,
    Turn,
)
from tests.blame.logs.reads import events, of, read, turns

LM = "[2026-03-02 10:11:12][DEBUG] "


def test_lm_studio_with_llama_cpp() -> None:
    text = (
        f"{LM}Looking for non-prefix contiguous prompt sequences of size >= 256 to reuse from cache\n"
        "Cache reuse summary: 700/939 of prompt (74.5%), 700 prefix, 0 non-prefix\n"
        "Total prompt tokens: 939\n"
        "Prompt tokens to decode: 239\n"
    )
    found, reader = read(text)
    assert reader.format == "lmstudio"
    assert found == [Turn("lmstudio", prompt_tokens=939, cached=700, read=239, shared=700)]


def test_lm_studio_reads_one_token_of_a_whole_hit() -> None:
    text = (
        "Cache reuse summary: 939/939 of prompt (100%), 939 prefix, 0 non-prefix\nTotal prompt tokens: 939\n"
    )
    (turn,) = turns(text + "Prompt tokens to decode: 1\n")
    assert (turn.cached, turn.read) == (938, 1)
    assert of(NotStored, events(text + "Prompt tokens to decode: 1\n")) == []
    assert len(of(NotStored, events(text + "Prompt tokens to decode: 939\n"))) == 1


def test_lm_studio_with_mlx() -> None:
    line = f"{LM}Prompt cache restore: cached_tokens=17408 uncached_tokens=24 lifetime_efficiency=62.41%\n"
    (turn,) = turns(line)
    assert (turn.prompt_tokens, turn.cached, turn.read) == (17432, 17408, 24)
    assert turns(line.replace("cached_tokens=17408 ", "")) == []


def test_lm_studio_cut_before_the_summary() -> None:
    (turn,) = turns("Prompt tokens to decode: 5\nCache reuse summary: broken\n", "lmstudio")
    assert (turn.prompt_tokens, turn.cached, turn.read) == (None, None, 5)


def test_omlx() -> None:
    text = (
        "2026-08-30 11:02:03 - omlx.scheduler - INFO - prefix cache: request r-7 re-prefills 13956 of "
        "120452 tokens (reused 106496); closest stored sequence r-6 shares the first 110408 of 110592 "
        "comparable tokens before diverging\n"
        "2026-08-30 11:02:04 - omlx - DEBUG - first divergence at token 512: stored='a bc' vs prompt='a bd'\n"
        "2026-08-30 11:02:05 - omlx.scheduler - INFO - Skipping cache store: boundary_snapshot_unavailable\n"
        "2026-08-30 11:02:06 - omlx.cache - INFO - scan done invalidated_stale=600 blocks\n"
    )
    found, reader = read(text)
    assert reader.format == "omlx"
    (turn,) = of(Turn, found)
    assert (turn.task, turn.prompt_tokens, turn.cached, turn.read) == ("r-7", 120452, 106496, 13956)
    assert (turn.shared, turn.held) == (110408, 110592)
    assert of(Diverged, found) == [Diverged(512, "a bc", "a bd")]
    assert of(NotStored, found) == [NotStored("boundary_snapshot_unavailable")]
    assert of(Evicted, found) == [Evicted(entries=600)]


def test_vllm() -> None:
    text = (
        "(APIServer pid=7) INFO 02-25 20:49:00 [core.py:1] Initializing a V1 LLM engine with config: "
        "max_seq_len=40960, enable_prefix_caching=True\n"
        "(EngineCore pid=9) INFO 02-25 20:49:01 [x.py:2] Setting attention block size to 1600 tokens to fit\n"
        "(APIServer pid=7) INFO 02-25 20:49:56 [loggers.py:127] Engine 000: Avg prompt throughput: 6735.6 "
        "tokens/s, Avg generation throughput: 75.0 tokens/s, Running: 4 reqs, Waiting: 1 reqs, "
        "GPU KV cache usage: 13.9%, Prefix cache hit rate: 54.2%\n"
    )
    found, reader = read(text)
    assert reader.format == "vllm"
    assert found == [
        Started("vllm"),
        Fact("context_tokens", "40960"),
        Fact("prefix_caching", "on"),
        Fact("block_tokens", "1600"),
        Interval(6735.6, pytest.approx(0.542), pytest.approx(0.139), 4, 1),
    ]


def test_mlx_lm() -> None:
    text = (
        "2026-05-01 09:00:00,000 - INFO - Starting httpd at 127.0.0.1 on port 8080...\n"
        "2026-05-01 09:00:01,000 - DEBUG - Common prefix (98) shorter than cache (197). Attempting trim.\n"
        "2026-05-01 09:00:02,000 - INFO - Prompt processing progress: 2048/5000\n"
        "2026-05-01 09:00:04,000 - INFO - Prompt processing progress: 5000/5000\n"
        "2026-05-01 09:00:05,000 - INFO - Prompt Cache: 2 sequences, 1.05 GB\n"
        '127.0.0.1 - - [01/May/2026 09:00:05] "POST /v1/chat/completions HTTP/1.1" 200 -\n'
    )
    found, reader = read(text)
    assert reader.format == "mlx-lm"
    assert reader.tally.unknown == 0
    assert found[:2] == [Started("mlx-lm"), Turn("mlx-lm", read=5000, shared=98, held=197)]
    assert of(CacheState, found) == [CacheState(2, pytest.approx(1001.4, abs=0.1))]


def test_headstart_tells_what_was_not_used() -> None:
    text = (
        "2026-05-01 09:00:00,000 INFO headstart.prefix.record: A sequence is stored up to token 40 only: the "
        "cache is full\n"
        "2026-05-01 09:00:01,000 WARNING headstart.prefix.fetch: State on the SSD was not used: a digest "
        "is wrong\n"
        "2026-05-01 09:00:02,000 WARNING headstart.prefix.opening: x cannot be removed: why\n"
    )
    found, reader = read(text)
    assert reader.format == "headstart"
    assert [one.why for one in of(NotStored, found)] == [
        "A sequence is stored up to token 40 only: the cache is full",
        "State on the SSD was not used: a digest is wrong",
    ]
