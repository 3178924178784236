"""The cache's endpoints: what they say, and that they say it of the caller's own states alone."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from headstart.engines.toy import ToyEngine
from headstart.prefix.keys import namespace_key
from tests.cli.served_store import BLOCK_TOKENS, running

PROMPT = "once upon a time there was a fox " * 4


def own_namespace() -> bytes:
    parts = ToyEngine(context_tokens=2048).facts.parts
    return namespace_key({**parts, "block_tokens": str(BLOCK_TOKENS)}, "")


def test_what_is_stored_is_counted_by_tier(tmp_path: Path) -> None:
    with running(tmp_path, model_name="mine") as url:
        empty = httpx.get(f"{url}/v1/headstart/cache").json()
        assert empty["model"] == "mine"
        assert empty["namespace"] == own_namespace().hex()
        httpx.post(f"{url}/v1/completions", json={"prompt": PROMPT, "max_tokens": 2})
        httpx.post(f"{url}/v1/completions", json={"prompt": PROMPT, "max_tokens": 2})
        found = httpx.get(f"{url}/v1/headstart/cache").json()
        assert found["ram"]["blocks"] >= len(PROMPT) // 16
        assert 0 < found["ram"]["used_bytes"] <= found["ram"]["limit_bytes"]
        assert found["ssd"]["blocks"] >= len(PROMPT) // 16
        assert 0 < found["ssd"]["used_bytes"] <= found["ssd"]["limit_bytes"]


def test_a_cache_that_is_off_is_null(tmp_path: Path) -> None:
    with running(tmp_path, cache=False) as url:
        found = httpx.get(f"{url}/v1/headstart/cache").json()
        assert (found["ram"], found["ssd"]) == (None, None)
        probed = httpx.post(f"{url}/v1/headstart/cache/probe", json={"prompt": PROMPT}).json()
        assert (probed["restore_at"], probed["reason"]) == (0, "disabled")


def test_chat_and_completions_bodies_are_probed(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 1}
    with running(tmp_path) as url:
        for path, body in (("chat/completions", chat), ("completions", {"prompt": PROMPT, "max_tokens": 1})):
            cold = httpx.post(f"{url}/v1/headstart/cache/probe", json=body).json()
            usage = httpx.post(f"{url}/v1/{path}", json=body).json()["usage"]
            warm = httpx.post(f"{url}/v1/headstart/cache/probe", json=body).json()
            assert cold["prompt_tokens"] == usage["prompt_tokens"] == warm["prompt_tokens"]
            assert cold["divergence"] < warm["restore_at"] == warm["prompt_tokens"]


def test_every_key_has_a_namespace_of_its_own(tmp_path: Path) -> None:
    with running(tmp_path, api_keys=("a", "b")) as url:
        names = {
            key: httpx.get(f"{url}/v1/headstart/cache", headers={"x-api-key": key}).json()["namespace"]
            for key in ("a", "b")
        }
        assert names["a"] != names["b"]
        headers = {"x-api-key": "a"}
        httpx.post(f"{url}/v1/completions", json={"prompt": PROMPT, "max_tokens": 1}, headers=headers)
        for key, found in (("a", True), ("b", False)):
            probed = httpx.post(
                f"{url}/v1/headstart/cache/probe", json={"prompt": PROMPT}, headers={"x-api-key": key}
            ).json()
            assert (probed["restore_at"] > 0) is found
            assert probed["namespace"] == names[key]
        assert httpx.get(f"{url}/v1/headstart/cache").status_code == 401
        assert httpx.post(f"{url}/v1/headstart/cache/probe", json={"prompt": "x"}).status_code == 401


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"prompt": ["a", "b"]}', "one prompt"),
        (b'{"messages": [{"content": "x"}]}', "role"),
        (b'{"prompt": [999999]}', "token ids"),
    ],
)
def test_a_body_that_cannot_be_served_is_400(content: bytes, part: str, tmp_path: Path) -> None:
    with running(tmp_path) as url:
        answer = httpx.post(f"{url}/v1/headstart/cache/probe", content=content)
        assert answer.status_code == 400
        assert part in answer.json()["error"]["message"]
