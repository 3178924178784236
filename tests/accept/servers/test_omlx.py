"""oMLX from its recorded forms: login, statistics, and the key they print."""

from __future__ import annotations

from typing import Any

from headstart.accept.servers.omlx import SERVER
from tests.accept.servers.recorded import Recorded, Reply, recorded

KEY = "omlx-secret-key-93"
STATS: dict[str, Any] = {
    "total_tokens_served": 5200,
    "total_cached_tokens": 2048,
    "cache_efficiency": 44.7,
    "total_prompt_tokens": 4584,
    "total_completion_tokens": 32,
    "total_requests": 2,
    "avg_prefill_tps": 3454.43,
    "host": "127.0.0.1",
    "port": 8000,
    "api_key": KEY,
    "cli_prefix": f"OMLX_API_KEY={KEY} omlx",
    "runtime_cache": {
        "base_path": "/home/x/.omlx",
        "ssd_cache_dir": "/home/x/.omlx/cache",
        "models": [
            {
                "id": "tiny",
                "block_size": 256,
                "indexed_blocks": 9,
                "num_files": 9,
                "total_size_bytes": 123456,
                "cache_rates": {
                    "windows": {"1m": {"prefix_hits": 1}},
                    "cumulative": {
                        "prefix_hits": 1,
                        "prefix_misses": 1,
                        "prefix_hit_rate": 0.5,
                        "evictions": 4,
                        "ssd_disk_loads": 8,
                    },
                },
            }
        ],
    },
}
MODELS = {"object": "list", "data": [{"id": "tiny", "owned_by": "omlx", "max_model_len": 32768}]}
STATUS = {"models": [{"id": "tiny", "model_path": "/models/tiny", "loaded": True}]}
LOGIN = Reply({"success": True}, headers={"Set-Cookie": "omlx_admin=yes; Path=/; HttpOnly"})


def replies(stats: Any = STATS, cookie: str | None = "omlx_admin=yes") -> dict[str, Any]:
    return {
        "GET /v1/models": MODELS,
        "GET /v1/models/status": STATUS,
        "GET /api/status": {"version": "0.5.3"},
        "POST /admin/api/login": LOGIN,
        "GET /admin/api/stats?scope=session": Reply(stats, needs_cookie=cookie),
    }


def test_it_is_recognised_by_the_owner_of_its_models() -> None:
    with recorded(replies()) as server:
        assert SERVER.recognise(server.http)
    with recorded({}) as server:
        assert not SERVER.recognise(server.http)


def test_counters_after_a_login_with_the_key() -> None:
    with recorded(replies(), api_key=KEY) as server:
        counters = SERVER.counters(server.http, "tiny")

    assert counters is not None
    assert (counters.prompt_tokens, counters.reused_tokens, counters.read_tokens) == (4584, 2048, 2536)
    assert (counters.requests, counters.ssd_loaded_entries, counters.evictions) == (2, 8, 4)
    assert server.posts["/admin/api/login"] == [{"api_key": KEY, "remember": False}]


def test_facts() -> None:
    with recorded(replies(), api_key=KEY) as server:
        facts = SERVER.facts(server.http, "tiny")

    assert (facts.version, facts.context_tokens, facts.block_tokens) == ("0.5.3", 32768, 256)
    assert facts.model_path == "/models/tiny"
    assert facts.cache["num_files"] == "9"


def test_the_key_it_prints_reaches_neither_facts_nor_counters() -> None:
    def told(server: Recorded) -> str:
        return repr(SERVER.facts(server.http, "tiny")) + repr(SERVER.counters(server.http, "tiny"))

    with recorded(replies(), api_key=KEY) as server:
        assert KEY not in told(server)
    with recorded(replies(cookie=None)) as server:
        assert "4584" in told(server)
        assert KEY not in told(server)


def test_without_a_key_the_statistics_stay_unread_and_nothing_is_zero() -> None:
    with recorded(replies()) as server:
        assert SERVER.counters(server.http, "tiny") is None
        facts = SERVER.facts(server.http, "tiny")
    assert facts.block_tokens is None
    assert "API key" in facts.parts["statistics"]
    assert server.posts == {}


def test_statistics_of_a_server_that_has_loaded_nothing() -> None:
    stats = {"total_prompt_tokens": 0, "total_cached_tokens": 0, "runtime_cache": {"models": []}}
    with recorded(replies(stats, cookie=None)) as server:
        counters = SERVER.counters(server.http, "tiny")

    assert counters is not None
    assert (counters.read_tokens, counters.reused_tokens) == (0, 0)
    assert (counters.ssd_loaded_entries, counters.requests) == (None, None)


def test_it_never_deletes_what_is_on_disk() -> None:
    with recorded(replies() | {"POST /admin/api/ssd-cache/clear": {}}, api_key=KEY) as server:
        assert not SERVER.clear(server.http, "tiny")
    assert server.posts == {}
