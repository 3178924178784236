"""SGLang from its recorded forms."""

from __future__ import annotations

from headstart.accept.exchange import Ask, Message
from headstart.accept.servers.sglang import SERVER
from tests.accept.servers.recorded import recorded

MODELS = {"object": "list", "data": [{"id": "q", "owned_by": "sglang", "root": "q", "max_model_len": 40960}]}
INFO = {
    "model_path": "/models/q",
    "version": "0.5.9",
    "page_size": 1,
    "context_length": None,
    "max_running_requests": 128,
    "max_total_num_tokens": 163840,
    "disable_radix_cache": False,
    "speculative_algorithm": "EAGLE",
    "api_key": "sk-should-not-be-copied",
}
METRICS = """\
sglang:prompt_tokens_total{is_streaming="false",model_name="q"} 4096.0
sglang:prompt_tokens_total{is_streaming="true",model_name="q"} 4.0
sglang:cached_tokens_total{cache_source="device",model_name="q"} 3000.0
sglang:cached_tokens_total{cache_source="host",model_name="q"} 100.0
sglang:num_requests_total{model_name="q"} 9.0
"""
REPLIES = {"GET /v1/models": MODELS, "GET /get_server_info": INFO, "GET /metrics": METRICS}


def test_it_is_recognised_by_the_owner_of_its_models() -> None:
    with recorded(REPLIES) as server:
        assert SERVER.recognise(server.http)
    with recorded({"GET /v1/models": {"data": [{"id": "q", "owned_by": "vllm"}]}}) as server:
        assert not SERVER.recognise(server.http)


def test_facts_without_the_key_the_server_prints() -> None:
    with recorded(REPLIES) as server:
        facts = SERVER.facts(server.http, "q")

    assert (facts.version, facts.context_tokens, facts.block_tokens, facts.slots) == ("0.5.9", 40960, 1, 128)
    assert facts.speculative == "EAGLE"
    assert facts.cache["disable_radix_cache"] == "False"
    assert "sk-should-not-be-copied" not in repr(facts)


def test_the_newer_path_of_its_information_is_read_too() -> None:
    with recorded({"GET /v1/models": MODELS, "GET /server_info": INFO}) as server:
        assert SERVER.facts(server.http, "q").version == "0.5.9"


def test_counters_add_up_every_source() -> None:
    with recorded(REPLIES) as server:
        counters = SERVER.counters(server.http, "q")

    assert counters is not None
    assert (counters.prompt_tokens, counters.reused_tokens, counters.read_tokens) == (4100, 3100, 1000)


def test_without_metrics_there_are_no_counters() -> None:
    with recorded({"GET /v1/models": MODELS}) as server:
        assert SERVER.counters(server.http, "q") is None
        assert SERVER.facts(server.http, "q").version is None


def test_token_ids_of_plain_text_only() -> None:
    with recorded({"POST /tokenize": {"tokens": [4, 2], "count": 2}}) as server:
        assert SERVER.tokens(server.http, Ask(prompt="Hi"), "openai_completions", "q") == (4, 2)
        chat = Ask(messages=(Message("user", "Hi"),))
        assert SERVER.tokens(server.http, chat, "openai_chat", "q") is None


def test_clear_flushes() -> None:
    with recorded({"POST /flush_cache": "Cache flushed.\n"}) as server:
        assert SERVER.clear(server.http, "q")
