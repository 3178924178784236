"""Ollama from its recorded forms."""

from __future__ import annotations

from typing import Any

from headstart.accept.servers.ollama import SERVER
from tests.accept.servers.recorded import recorded

RUNNING = {
    "name": "qwen3:8b",
    "model": "qwen3:8b",
    "size": 6654289920,
    "digest": "500a1f067a9f",
    "expires_at": "2026-09-04T14:38:31.83753-07:00",
    "size_vram": 6654289920,
    "context_length": 4096,
}
STORED = [{"name": "qwen3:8b", "digest": "500a1f067a9f"}, {"name": "lfm:latest", "digest": "77aa"}]
SHOWN = {
    "parameters": 'stop "<|im_end|>"\nnum_ctx                        16384\ntemperature 0.6',
    "details": {"family": "qwen3", "quantization_level": "Q4_K_M"},
    "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960},
}


def replies(**changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "GET /": "Ollama is running",
        "GET /api/version": {"version": "0.16.2"},
        "GET /api/ps": {"models": [RUNNING]},
        "GET /api/tags": {"models": STORED},
        "POST /api/show": SHOWN,
    }
    return found | {
        {"ps": "GET /api/ps", "show": "POST /api/show"}[name]: one for name, one in changed.items()
    }


def test_it_is_recognised_by_its_greeting_or_its_version_and_list() -> None:
    with recorded(replies()) as server:
        assert SERVER.recognise(server.http)
    with recorded({"GET /api/version": {"version": "0.1"}, "GET /api/ps": {"models": []}}) as server:
        assert SERVER.recognise(server.http)
    with recorded({"GET /api/version": {"version": "0.1"}}) as server:
        assert not SERVER.recognise(server.http)


def test_the_context_is_that_of_the_running_model() -> None:
    with recorded(replies()) as server:
        facts = SERVER.facts(server.http, "qwen3:8b")

    assert facts.context_tokens == 4096
    assert facts.version == "0.16.2"
    assert facts.digests == {"qwen3:8b": "500a1f067a9f", "lfm:latest": "77aa"}
    assert facts.parts["largest_context"] == "40960"
    assert facts.recurrent is False


def test_a_model_that_does_not_run_yet_has_the_context_of_its_parameters_or_none() -> None:
    with recorded(replies(ps={"models": []})) as server:
        assert SERVER.facts(server.http, "qwen3:8b").context_tokens == 16384
    with recorded(replies(ps={"models": []}, show={"model_info": {"qwen3.context_length": 40960}})) as server:
        assert SERVER.facts(server.http, "qwen3:8b").context_tokens is None


def test_latest_is_understood_and_hybrids_and_windows_are_seen() -> None:
    running = RUNNING | {"name": "lfm:latest", "model": "lfm:latest", "context_length": 8192}
    info = {"general.architecture": "x", "x.ssm.state_size": 128, "x.attention.sliding_window": 512}
    with recorded(replies(ps={"models": [running]}, show={"model_info": info})) as server:
        facts = SERVER.facts(server.http, "lfm")

    assert (facts.context_tokens, facts.recurrent, facts.window_tokens) == (8192, True, 512)


def test_a_silent_server_states_nothing() -> None:
    with recorded({}) as server:
        facts = SERVER.facts(server.http, "x")
        assert SERVER.counters(server.http, "x") is None
    assert (facts.version, facts.context_tokens, facts.recurrent, facts.models) == (None, None, None, ())


def test_clear_unloads_the_model() -> None:
    with recorded(replies() | {"POST /api/generate": {"done_reason": "unload"}}) as server:
        assert SERVER.clear(server.http, None)
    assert server.posts["/api/generate"] == [{"model": "qwen3:8b", "keep_alive": 0}]
