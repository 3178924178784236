"""vLLM from its recorded forms."""

from __future__ import annotations

from headstart.accept.exchange import Ask, Message
from headstart.accept.servers.vllm import SERVER
from tests.accept.servers.recorded import recorded

MODELS = {
    "object": "list",
    "data": [
        {
            "id": "qwen",
            "object": "model",
            "owned_by": "vllm",
            "root": "/models/qwen",
            "parent": None,
            "max_model_len": 32768,
        },
        {"id": "sql", "object": "model", "owned_by": "vllm", "root": "/adapters/sql", "parent": "qwen"},
    ],
}
CONFIG = 'block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",sliding_window="None"'
METRICS = f"""\
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{{CONFIG}}} 1.0
vllm:prefix_cache_queries_total{{engine="0",model_name="qwen"}} 5000.0
vllm:prefix_cache_hits_total{{engine="0",model_name="qwen"}} 1600.0
vllm:prompt_tokens_total{{engine="0",model_name="qwen"}} 5000.0
vllm:generation_tokens_total{{engine="0",model_name="qwen"}} 400.0
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="qwen"}} 12.0
vllm:request_success_total{{engine="0",finished_reason="length",model_name="qwen"}} 3.0
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="qwen"}} 300.0
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="qwen"}} 240.0
"""
REPLIES = {"GET /v1/models": MODELS, "GET /metrics": METRICS, "GET /version": {"version": "0.19.1"}}


def test_it_is_recognised_by_the_owner_of_its_models() -> None:
    with recorded(REPLIES) as server:
        assert SERVER.recognise(server.http)
    with recorded({"GET /v1/models": {"data": [{"id": "x", "owned_by": "me"}]}}) as server:
        assert not SERVER.recognise(server.http)
    with recorded({}) as server:
        assert not SERVER.recognise(server.http)


def test_facts() -> None:
    with recorded(REPLIES) as server:
        facts = SERVER.facts(server.http, "qwen")

    assert (facts.version, facts.context_tokens, facts.block_tokens) == ("0.19.1", 32768, 16)
    assert facts.model_path == "/models/qwen"
    assert facts.adapters == ("sql",)
    assert facts.speculative == "on"
    assert facts.recurrent is None
    assert facts.window_tokens is None
    assert facts.cache["enable_prefix_caching"] == "True"


def test_a_hybrid_restores_to_the_larger_of_its_two_block_sizes() -> None:
    metrics = 'vllm:cache_config_info{block_size="16",mamba_block_size="528"} 1\n'
    with recorded(REPLIES | {"GET /metrics": metrics}) as server:
        facts = SERVER.facts(server.http, "qwen")

    assert facts.block_tokens == 528
    assert facts.recurrent is True


def test_counters() -> None:
    with recorded(REPLIES) as server:
        counters = SERVER.counters(server.http, "qwen")

    assert counters is not None
    assert (counters.read_tokens, counters.reused_tokens, counters.prompt_tokens) == (3400, 1600, 5000)
    assert counters.requests == 15
    assert (counters.drafted, counters.accepted) == (300, 240)
    assert counters.from_ssd is None


def test_the_newer_counter_of_cached_tokens_is_preferred() -> None:
    metrics = METRICS + 'vllm:prompt_tokens_cached_total{model_name="qwen"} 1500.0\n'
    with recorded(REPLIES | {"GET /metrics": metrics}) as server:
        counters = SERVER.counters(server.http, "qwen")

    assert counters is not None
    assert (counters.read_tokens, counters.reused_tokens) == (3500, 1500)


def test_without_metrics_nothing_is_known_and_nothing_is_zero() -> None:
    with recorded({"GET /v1/models": MODELS}) as server:
        assert SERVER.counters(server.http, "qwen") is None
        assert SERVER.facts(server.http, "qwen").block_tokens is None
    with recorded({"GET /metrics": "vllm:num_requests_running 0\n"}) as server:
        counters = SERVER.counters(server.http, "qwen")
    assert counters is not None
    assert (counters.read_tokens, counters.reused_tokens) == (None, None)


def test_token_ids_come_from_tokenize() -> None:
    replies = {"POST /tokenize": {"count": 3, "max_model_len": 32768, "tokens": [1, 5, 9]}}
    chat = Ask(messages=(Message("user", "Hi"),))
    with recorded(replies) as server:
        assert SERVER.tokens(server.http, Ask(prompt="Hi"), "openai_completions", "qwen") == (1, 5, 9)
        assert SERVER.tokens(server.http, chat, "openai_chat", "qwen") == (1, 5, 9)
        assert SERVER.tokens(server.http, chat, "anthropic", "qwen") is None
    assert server.posts["/tokenize"] == [
        {"model": "qwen", "prompt": "Hi"},
        {"model": "qwen", "messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True},
    ]
    with recorded({}) as server:
        assert SERVER.tokens(server.http, Ask(prompt="Hi"), "openai_completions", "qwen") is None


def test_its_cache_can_be_emptied_only_in_developer_mode() -> None:
    with recorded({"POST /reset_prefix_cache": ""}) as server:
        assert SERVER.clear(server.http, "qwen")
    with recorded({}) as server:
        assert not SERVER.clear(server.http, "qwen")
