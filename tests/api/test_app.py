"""The whole application over the toy engine: errors in one shape, health, metrics, tenants."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headstart.cli.server import assemble
from headstart.config import Settings
from headstart.engines.toy import ToyEngine
from headstart.serving.scheduler import Scheduler

KEYS = ("sesame-a", "sesame-b")
PROMPT = "a prompt that is long enough to be worth keeping, and then some more of it"


class Client:
    """Requests to one application, each on an event loop of its own."""

    def __init__(self, settings: Settings) -> None:
        self.engine = ToyEngine()
        self.scheduler, self.app = assemble(settings, self.engine, load_s=0.0)
        self.scheduler.start()

    def __call__(self, method: str, path: str, key: str = "sesame-a", **kwargs: Any) -> httpx.Response:
        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            headers = {"x-api-key": key, **kwargs.pop("headers", {})}
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, path, headers=headers, **kwargs)

        return asyncio.run(go())

    def cached(self, key: str) -> int:
        """`cached_tokens` of PROMPT sent with `key`."""
        reply = self("POST", "/v1/completions", key, json={"prompt": PROMPT, "max_tokens": 2})
        assert reply.status_code == 200, reply.text
        count = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert isinstance(count, int)
        return count

    def metric(self, name: str, **labels: str) -> float:
        """The sum of all samples of `name` that carry `labels`."""
        families = text_string_to_metric_families(self("GET", "/metrics").text)
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


def started(settings: Settings) -> Iterator[Client]:
    client = Client(settings)
    yield client
    client.scheduler.stop()
    client.engine.shutdown()


@pytest.fixture
def client() -> Iterator[Client]:
    yield from started(Settings(engine="toy", api_keys=KEYS))


@pytest.mark.parametrize(
    ("method", "path", "status", "part"),
    [
        ("GET", "/nope", 404, "there is no endpoint GET /nope"),
        ("GET", "/v1/completions", 405, "allowed here: POST"),
        ("PUT", "/health", 405, "allowed here: GET"),
        ("POST", "/v1/completions", 400, "not JSON"),
        ("GET", "/docs", 404, "no endpoint"),
    ],
)
def test_every_error_has_openais_shape(
    client: Client, method: str, path: str, status: int, part: str
) -> None:
    reply = client(method, path, content=b"{" if method == "POST" else b"")
    assert reply.status_code == status
    assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
    assert part in reply.json()["error"]["message"]


def test_a_fault_of_the_servers_own_is_told_without_its_traceback(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Scheduler) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(Scheduler, "snapshot", broken)
    reply = client("GET", "/health")
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "internal_error")
    assert "secret" not in reply.text


def test_health_tells_more_to_those_who_have_a_key(client: Client) -> None:
    assert client("GET", "/health", "wrong").json() == {"status": "ok"}
    told = client("GET", "/health").json()
    assert told["status"] == "ok"
    assert told["model"] == "toy"
    assert (told["running"], told["waiting"]) == (0, 0)


def test_health_says_when_the_engine_thread_has_ended(client: Client) -> None:
    client.scheduler.stop()
    reply = client("GET", "/health")
    assert (reply.status_code, reply.json()["status"]) == (503, "stopped")


def test_two_keys_never_share_a_prefix(client: Client) -> None:
    assert client.cached("sesame-a") == 0
    assert client.cached("sesame-b") == 0
    assert client.cached("sesame-a") > 0
    assert client.cached("sesame-b") > 0


def test_two_keys_share_where_the_server_says_so() -> None:
    for client in started(Settings(engine="toy", api_keys=KEYS, share_cache=True)):
        assert client.cached("sesame-a") == 0
        assert client.cached("sesame-b") > 0


def test_one_key_cannot_read_the_reports_of_another(client: Client) -> None:
    reply = client("POST", "/v1/completions", json={"prompt": PROMPT, "max_tokens": 1})
    path = f"/v1/headstart/requests/{reply.json()['id']}"
    assert client("GET", path).status_code == 200
    assert client("GET", path, "sesame-b").status_code == 404


def test_metrics_add_up_to_what_was_served(client: Client) -> None:
    first, again = client.cached("sesame-a"), client.cached("sesame-a")
    client("GET", "/nope")
    client("GET", "/v1/models", "wrong")
    n = len(PROMPT)
    prompt_tokens = client.metric("headstart_prompt_tokens_total")
    assert prompt_tokens == 2 * len(client.engine.tokenize(PROMPT, special=True, add_bos=False))
    assert client.metric("headstart_prompt_tokens_total", kind="restored") == first + again <= n
    assert client.metric("headstart_completion_tokens_total") == 4
    assert client.metric("headstart_finished_requests_total", reason="length") == 2
    assert client.metric("headstart_cache_misses_total", reason="no_prefix") == 1
    assert client.metric("headstart_time_to_first_token_seconds_count") == 2
    assert client.metric("headstart_decode_seconds_per_token_count") == 2
    assert client.metric("headstart_http_requests_total", path="/v1/completions", status="200") == 2
    assert client.metric("headstart_http_requests_total", path="other", status="404") == 1
    assert client.metric("headstart_http_requests_total", status="401") == 1
    assert client.metric("headstart_engine_steps_total") == client.engine.forward_calls
    assert 0 < client.metric("headstart_cache_bytes") <= client.metric("headstart_cache_limit_bytes")
    assert client.metric("headstart_cache_entries", kind="blocks") > 0


def test_metrics_without_a_cache() -> None:
    for client in started(Settings(engine="toy", cache=False)):
        assert client.cached("sesame-a") == client.cached("sesame-a") == 0
        assert client.metric("headstart_cache_limit_bytes") == 0
        assert client.metric("headstart_cache_misses_total", reason="disabled") == 2


def test_metrics_need_a_key(client: Client) -> None:
    assert client("GET", "/metrics", "wrong").status_code == 401


def test_the_body_limit_of_the_settings_holds() -> None:
    for client in started(Settings(engine="toy", max_request_bytes=1000)):
        reply = client("POST", "/v1/completions", json={"prompt": "x" * 1000})
        assert (reply.status_code, reply.json()["error"]["code"]) == (413, "request_too_large")
