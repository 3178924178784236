"""`--speculate`, from the settings to what a client and `accept` see of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from fastapi.testclient import TestClient

from headstart.accept.servers import Answer
from headstart.accept.servers.headstart import SERVER
from headstart.cli.engines import load_engine
from headstart.cli.server import assemble
from headstart.config import Settings, resolve
from headstart.errors import ConfigError


class Small:
    """`accept`'s small requests, to an application in this process."""

    root = "http://127.0.0.1"
    api_key = None

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        reply = self._client.get(path)
        kind = reply.headers.get("content-type", "")
        return Answer(reply.status_code, reply.text, reply.json() if "json" in kind else None)

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        reply = self._client.post(path, json=body)
        return Answer(reply.status_code, reply.text, reply.json())


def test_a_draft_model_is_counted_where_clients_and_accept_look() -> None:
    settings = Settings(engine="toy", speculate="draft", draft_model="toy", ssd_cache_bytes=0)
    engine, drafts = (load_engine(settings, lambda done, total: None) for _ in range(2))
    scheduler, app = assemble(settings, engine, 0.0, None, drafts)
    scheduler.start()
    try:
        http = Small(TestClient(app, base_url="http://127.0.0.1"))
        assert SERVER.facts(http, None).speculative == "draft"
        ask = {"prompt": "abc", "max_tokens": 24, "ignore_eos": True, "headstart": {"report": True}}
        reply = http.post("/v1/completions", {**ask, "temperature": 0})
        assert reply.ok, reply.text
        drafted = reply.get("timings", "draft_n")
        assert drafted == reply.get("timings", "draft_n_accepted") > 0
        assert reply.get("headstart", "report", "accepted_tokens") == drafted
        counters = SERVER.counters(http, None)
        assert counters is not None
        assert (counters.drafted, counters.accepted) == (drafted, drafted)
    finally:
        scheduler.stop()


def test_without_speculation_nothing_is_said_of_drafts() -> None:
    settings = Settings(engine="toy", ssd_cache_bytes=0)
    scheduler, app = assemble(settings, load_engine(settings, lambda done, total: None), 0.0)
    scheduler.start()
    try:
        http = Small(TestClient(app, base_url="http://127.0.0.1"))
        assert SERVER.facts(http, None).speculative is None
        assert "draft_n" not in http.post("/v1/completions", {"prompt": "abc", "max_tokens": 2}).get(
            "timings"
        )
    finally:
        scheduler.stop()


def test_drafting_needs_a_model_to_draft() -> None:
    with pytest.raises(ConfigError, match="--speculate draft needs --draft-model"):
        resolve({"speculate": "draft"}, {})
