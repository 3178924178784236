"""LM Studio from its documented forms."""

from __future__ import annotations

from headstart.accept.servers.lmstudio import SERVER
from tests.accept.servers.recorded import recorded

OLDER = {
    "object": "list",
    "data": [
        {
            "id": "qwen3-8b",
            "object": "model",
            "type": "llm",
            "arch": "qwen3",
            "compatibility_type": "mlx",
            "quantization": "4bit",
            "state": "loaded",
            "max_context_length": 40960,
            "loaded_context_length": 8192,
        },
        {
            "id": "gemma",
            "object": "model",
            "arch": "gemma3",
            "compatibility_type": "gguf",
            "state": "not-loaded",
            "max_context_length": 32768,
        },
    ],
}
NEWER = {
    "models": [
        {
            "type": "llm",
            "key": "qwen3-8b",
            "max_context_length": 40960,
            "loaded_instances": [{"id": "qwen3-8b:2", "config": {"context_length": 16384}}],
        },
        {"type": "llm", "key": "gemma", "max_context_length": 32768, "loaded_instances": []},
    ]
}


def test_it_is_recognised_by_either_list() -> None:
    with recorded({"GET /api/v0/models": OLDER}) as server:
        assert SERVER.recognise(server.http)
    with recorded({"GET /api/v1/models": NEWER}) as server:
        assert SERVER.recognise(server.http)
    with recorded({"GET /api/v1/models": {"models": [{"key": "x"}]}}) as server:
        assert not SERVER.recognise(server.http)


def test_the_context_is_the_loaded_one_never_the_largest() -> None:
    with recorded({"GET /api/v0/models": OLDER}) as server:
        facts = SERVER.facts(server.http, "qwen3-8b")
        unloaded = SERVER.facts(server.http, "gemma")

    assert facts.context_tokens == 8192
    assert facts.parts["engine"] == "mlx"
    assert facts.parts["largest_context"] == "40960"
    assert unloaded.context_tokens is None


def test_without_a_name_it_is_the_only_loaded_model() -> None:
    with recorded({"GET /api/v0/models": OLDER}) as server:
        assert SERVER.facts(server.http, None).model == "qwen3-8b"


def test_the_newer_list_alone() -> None:
    with recorded({"GET /api/v1/models": NEWER}) as server:
        facts = SERVER.facts(server.http, "qwen3-8b")

    assert facts.context_tokens == 16384
    assert facts.models == ("qwen3-8b", "gemma")


def test_it_counts_nothing() -> None:
    with recorded({"GET /api/v0/models": OLDER}) as server:
        assert SERVER.counters(server.http, "qwen3-8b") is None
