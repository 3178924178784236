"""mlx_lm.server from its recorded forms. The local server of these tests is Python's own, as it is."""

from __future__ import annotations

from headstart.accept.exchange import Ask
from headstart.accept.servers.mlx_lm import SERVER
from tests.accept.servers.recorded import Reply, recorded

MODELS = {"object": "list", "data": [{"id": "/models/tiny", "object": "model", "created": 1}]}
REPLIES = {"GET /health": {"status": "ok"}, "GET /v1/models": MODELS}


def test_it_is_recognised_by_pythons_server_and_its_health() -> None:
    with recorded(REPLIES) as server:
        assert SERVER.recognise(server.http)
    with recorded({"GET /v1/models": MODELS, "GET /health": {"status": "loading"}}) as server:
        assert not SERVER.recognise(server.http)
    with recorded({"GET /v1/models": Reply("gone", 500), "GET /health": {"status": "ok"}}) as server:
        assert SERVER.recognise(server.http), "where there is no hub cache it cannot list its models"
    with recorded({"GET /health": {"status": "ok", "model": "other"}}) as server:
        assert not SERVER.recognise(server.http)


def test_it_states_its_model_and_nothing_else() -> None:
    with recorded(REPLIES) as server:
        facts = SERVER.facts(server.http, None)

    assert facts.model == facts.model_path == "/models/tiny"
    assert facts.models == ("/models/tiny",)
    assert facts.context_tokens is facts.block_tokens is facts.version is None


def test_a_name_of_the_hub_is_no_path() -> None:
    with recorded(REPLIES) as server:
        assert SERVER.facts(server.http, "mlx-community/x").model_path == "/models/tiny"
    with recorded({"GET /v1/models": {"data": [{"id": "a/b"}, {"id": "c/d"}]}}) as server:
        facts = SERVER.facts(server.http, "a/b")
    assert facts.model_path is None
    assert facts.models == ("a/b", "c/d")


def test_it_counts_nothing() -> None:
    with recorded(REPLIES) as server:
        assert SERVER.counters(server.http, None) is None
        assert SERVER.tokens(server.http, Ask(prompt="Hi"), "openai_completions", None) is None
        assert not SERVER.clear(server.http, None)
