"""Findings: who, what it cost, and the flag that mends it; and none where nothing is wrong."""

from __future__ import annotations

import pytest

from headstart.blame.finding import Culprit, Finding
from headstart.blame.log_findings import findings_of
from headstart.blame.log_report import report_of
from headstart.blame.logs.events import (
    CacheState,
    Diverged,
    Evicted,
    Fact,
    Interval,
    Loaded,
    LogEvent,
    NotStored,
    Picked,
    Started,
    TooLarge,
    Truncated,
    Turn,
)
from tests.blame.logs.reads import REAL, events
from tests.blame.logs.test_ollama import hit
from tests.blame.test_log_report import turn

SERVER = Fact("slots", "1")


def found(*of: LogEvent) -> list[Finding]:
    return findings_of(report_of(of))


def only(*of: LogEvent) -> Finding:
    (one,) = found(*of)
    return one


def test_a_growing_chat_is_clean() -> None:
    assert found(turn(5000, 0), turn(5400, 5010, 5010, 5010), turn(5800, 5410, 5410, 5410)) == []


def test_a_first_prompt_is_clean() -> None:
    assert found(Started("llama-server"), Loaded(), turn(9000, 0, picked=Picked.EMPTY)) == []


def test_short_prompts_are_clean() -> None:
    assert found(*(turn(90, 0, picked=Picked.LRU, shared_most=9) for _ in range(9))) == []


def test_a_gap_with_its_price() -> None:
    one = only(Fact("recurrent", "yes"), turn(20_000, 0), turn(20_400, 12_000, 20_000, 20_000))
    assert (one.cause, one.culprit, one.token, one.tokens_lost) == (
        "SERVER_GAP",
        Culprit.SERVER,
        20_000,
        8_000,
    )
    assert one.seconds_lost == pytest.approx(8.0)
    assert one.fix.command == "--checkpoint-min-step 256 --ctx-checkpoints 80"


@pytest.mark.parametrize(
    ("facts", "flag"),
    [
        ([Fact("window_tokens", "1024")], "--swa-full"),
        ([Fact("window_tokens", "1024"), Fact("recurrent", "yes")], "--checkpoint-min-step"),
        ([Fact("window_tokens", "0")], "--swa-full, or --checkpoint-min-step"),
        ([], "--swa-full, or --checkpoint-min-step"),
    ],
)
def test_the_flag_follows_the_model(facts: list[Fact], flag: str) -> None:
    one = only(*facts, turn(20_000, 0), turn(20_400, 12_000, 20_000, 20_000))
    assert one.fix.command.startswith(flag)


def test_ollamas_restore_points_have_a_distance() -> None:
    text = "".join(
        hit(total, total - 900, (total - 900) // 8192 * 8192 - 1) for total in (20_000, 30_000, 40_000)
    )
    one = only(*events(text))
    assert one.cause == "SERVER_GAP"
    assert "multiples of 8,192 tokens" in one.said
    assert one.fix.command == ""


def test_an_early_change_is_the_clients() -> None:
    one = only(turn(9000, 0), turn(9100, 41, 41, 9050), turn(9200, 41, 41, 9150))
    assert (one.cause, one.culprit) == ("PROMPT_CHANGED", Culprit.CLIENT)
    assert "2 of them part near token 41" in one.said
    assert one.tokens_lost == 9009 + 9109
    assert "-np 2" in one.fix.text


def test_a_gap_and_a_change_in_one_turn_are_two_findings() -> None:
    both = found(turn(9000, 0), turn(9100, 1000, 4000, 9000))
    assert {one.cause: one.tokens_lost for one in both} == {"PROMPT_CHANGED": 5000, "SERVER_GAP": 3000}


def test_the_dearest_comes_first() -> None:
    both = found(Evicted(10.0), turn(9000, 0), turn(9100, 1000, 4000, 9000))
    assert [one.cause for one in both] == ["PROMPT_CHANGED", "SERVER_GAP", "EVICTED"]


def test_a_side_request() -> None:
    title = turn(200, 0, picked=Picked.LRU, shared_most=20)
    one = only(turn(5000, 0), title, turn(5300, 0, picked=Picked.LRU, shared_most=530))
    assert (one.cause, one.tokens_lost) == ("SIDE_REQUEST_EVICTED", 5000)
    assert one.fix.command == "-np 2 --cache-ram 8192 --cache-idle-slots"


def test_nothing_is_ever_reused() -> None:
    one = only(*(turn(2000 + n, 0) for n in range(4)))
    assert (one.cause, one.culprit) == ("SERVER_NEVER_HITS", Culprit.SERVER)
    assert found(turn(2000, 0), turn(2100, 2000), turn(2200, 0)) == []


def test_vllm_never_hits() -> None:
    busy = Interval(900.0, 0.0)
    one = only(Started("vllm"), Fact("prefix_caching", "off"), busy, busy, busy)
    assert (one.cause, one.fix.command) == ("SERVER_NEVER_HITS", "--enable-prefix-caching")
    assert found(Started("vllm"), busy, busy) == []
    assert found(Started("vllm"), busy, busy, Interval(900.0, 0.4)) == []


def test_a_block_larger_than_the_context() -> None:
    one = only(Started("vllm"), Fact("block_tokens", "8320"), Fact("context_tokens", "8192"))
    assert (one.cause, one.fix.command) == ("SERVER_NEVER_HITS", "--max-model-len 33280")


@pytest.mark.parametrize(
    ("more", "size"), [((), 8192), ((CacheState(3, 8000.0, 8192.0),), 16384), ((Evicted(5000.0),), 65536)]
)
def test_evictions(more: tuple[LogEvent, ...], size: int) -> None:
    one = only(turn(900, 0), Evicted(900.0), *more)
    assert (one.cause, one.fix.command) == ("EVICTED", f"--cache-ram {size}")


def test_ollamas_cache_has_no_setting() -> None:
    one = only(Started("ollama"), Evicted(900.0))
    assert "no setting" in one.fix.text


def test_a_prompt_larger_than_the_cache() -> None:
    one = only(turn(900, 0), TooLarge(9000.0, 8192.0))
    assert one.fix.command == "--cache-ram 65536"


def test_a_cache_over_its_limit() -> None:
    assert only(CacheState(1, 2460.0, 1200.0)).cause == "CACHE_OVER_LIMIT"
    assert found(CacheState(1, 1210.0, 1200.0)) == []


def test_cut_prompts() -> None:
    one = only(Started("ollama"), Truncated(2048, 5065, 2048), Truncated(2048, 70_000, 2048))
    assert one.cause == "TRUNCATED"
    assert "twice, one of 70,000 tokens to a context of 2,048" in one.said
    assert one.fix.command == "OLLAMA_CONTEXT_LENGTH=131072"
    assert only(turn(5000, 0, truncated=True)).fix.command == "-c 65536 -np 1"


def test_prompts_of_half_the_context() -> None:
    half = Turn("ollama", prompt_tokens=32_770, cached=200, read=32_570)
    assert only(Started("ollama", 65536), half, half).cause == "TRUNCATED"
    assert found(Started("ollama", 65536), half) == []


def test_reloads() -> None:
    other = only(Started("ollama", 8192), Loaded(5.0), Started("ollama", 16384), Loaded(6.0))
    assert (other.cause, other.culprit, other.seconds_lost) == ("CONTEXT_RELOADED", Culprit.CLIENT, 6.0)
    assert other.fix.command == "OLLAMA_CONTEXT_LENGTH=16384"
    same = only(Started("ollama", 8192), Loaded(5.0), Started("ollama", 8192), Loaded(6.0))
    assert (same.cause, same.culprit, same.fix.command) == (
        "RELOADED",
        Culprit.SERVER,
        "OLLAMA_KEEP_ALIVE=-1",
    )


def test_what_was_not_stored() -> None:
    one = only(
        Turn("omlx", prompt_tokens=9, cached=0, read=9), *[NotStored("boundary_snapshot_unavailable")] * 3
    )
    assert (one.cause, "3 times" in one.said) == ("NOT_STORED", True)


def test_the_servers_own_probe() -> None:
    one = only(Diverged(512, "a bc", "a bd"))
    assert (one.token, one.before, one.after) == (512, "a bc", "a bd")


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("llama-server-dense.log", ["PROMPT_CHANGED"]),
        ("llama-server-hybrid.log", ["PROMPT_CHANGED", "SERVER_GAP"]),
        ("llama-server-hybrid-verbose.log", ["PROMPT_CHANGED", "SERVER_GAP"]),
    ],
)
def test_real_logs(name: str, causes: list[str]) -> None:
    assert [one.cause for one in found(*events((REAL / name).read_text()))] == causes


def test_every_finding_says_what_to_do() -> None:
    for server in ("llama-server", "ollama", "lmstudio", "omlx", "vllm", "mlx-lm", "headstart"):
        many = found(
            Turn(server, prompt_tokens=5000, cached=0, read=5000),
            Turn(server, prompt_tokens=5100, cached=100, read=5000, shared=3000, held=5000),
            Truncated(),
            Evicted(),
            NotStored("why"),
            Started(server),
            Started(server),
            TooLarge(9.0, 8.0),
        )
        assert {one.cause for one in many} == {
            "SERVER_GAP", "PROMPT_CHANGED", "TRUNCATED", "EVICTED", "NOT_STORED", "RELOADED"
        }  # fmt: skip
        assert all(one.fix.text for one in many)
