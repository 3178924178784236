"""`headstart cache probe`, `warm` and `ls` against a running server: real HTTP, a toy model."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from headstart.cli.cache_client import ServerClient
from headstart.errors import ConfigError
from tests.cli.served_store import Cache, running

STORY = "The lighthouse keeper counted the ships that passed in the night. " * 4
SYSTEM: dict[str, Any] = {
    "messages": [{"role": "system", "content": STORY}, {"role": "user", "content": "Who counted?"}]
}


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADSTART_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cache:
    return Cache(tmp_path / "store", capsys)


def body(tmp_path: Path, value: object, name: str = "body.json") -> str:
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def ask(cache: Cache, action: str, *arguments: str) -> Any:
    shown = cache(action, *arguments, "--json", store=False)
    assert shown.status == 0, shown.err
    return shown.json


def test_warmed_once_it_is_there_for_the_next_and_after_a_restart(cache: Cache, tmp_path: Path) -> None:
    file = body(tmp_path, SYSTEM)
    with running(cache.directory) as url:
        before = ask(cache, "probe", file, "--url", url)
        assert (before["restore_at"], before["tier"], before["reason"]) == (0, "none", "no_prefix")
        warmed = ask(cache, "warm", file, "--url", url)
        assert (warmed["prompt_tokens"], warmed["restored"]) == (before["prompt_tokens"], 0)
        after = ask(cache, "probe", file, "--url", url)
        assert after["restore_at"] >= before["prompt_tokens"] - 1
        assert after["tier"] in ("live", "ram")
    with running(cache.directory) as url:
        found = ask(cache, "probe", file, "--url", url)
        assert (found["tier"], found["ssd_at"], found["memory_at"]) == ("ssd", found["prompt_tokens"], 0)
        assert found["exact"]
        shown = cache("probe", file, "--url", url, store=False)
        assert "from disk" in shown.out
        assert "the whole prompt is there" in shown.out
        warmed = ask(cache, "warm", file, "--url", url)
        assert (warmed["tier"], warmed["restored"]) == ("ssd", warmed["prompt_tokens"])
        shown = cache("warm", file, "--url", url, store=False)
        assert shown.out.endswith(" 0 read\n")


@pytest.mark.parametrize(
    "prompt", [STORY[:150] + "!" + STORY[151:], STORY + "And one day", STORY], ids=["edit", "append", "same"]
)
def test_a_probe_agrees_with_the_reply_that_follows(prompt: str, cache: Cache, tmp_path: Path) -> None:
    with running(cache.directory) as url:
        ask(cache, "warm", body(tmp_path, {"prompt": STORY}), "--url", url)
    with running(cache.directory) as url:
        request = {"prompt": prompt, "max_tokens": 2, "headstart": {"report": True}}
        found = ask(cache, "probe", body(tmp_path, request), "--url", url)
        report = httpx.post(f"{url}/v1/completions", json=request).json()["headstart"]["report"]
        assert found["restore_at"] == report["restored"]
        for name in ("prompt_tokens", "divergence", "tier", "reason"):
            assert found[name] == report[name]


def test_a_request_can_come_from_standard_input(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"prompt": "abc"})))
    with running(cache.directory) as url:
        assert ask(cache, "probe", "-", "--url", f"{url}/v1/")["prompt_tokens"] >= 3


def test_ls_shows_text_where_the_server_can_read_it(cache: Cache, tmp_path: Path) -> None:
    with running(cache.directory) as url:
        ask(cache, "warm", body(tmp_path, {"prompt": STORY}), "--url", url)
    with running(cache.directory) as url:
        (one,) = ask(cache, "ls", "--url", url, "--ssd-cache-dir", str(cache.directory))["conversations"]
        assert STORY.startswith(one["text"])
        assert len(one["text"]) > 20
        assert "The lighthouse keeper" in cache("ls", "--url", url).out
    shown = cache("ls", "--url", url)
    assert shown.status == 1, "a server that was asked for and is not there is an error"
    assert "no server answers at" in shown.err
    with running(cache.directory, api_keys=("k",)) as url:
        (one,) = ask(cache, "ls", "--url", url, "--api-key", "k", "--ssd-cache-dir", str(cache.directory))[
            "conversations"
        ]
        assert one["text"] is None, "the text of another key's conversations is not shown"


def test_a_key_is_sent_and_a_wrong_one_is_told(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = body(tmp_path, {"prompt": STORY})
    with running(cache.directory, api_keys=("right", "other")) as url:
        ask(cache, "warm", file, "--url", url, "--api-key", "right")
        assert ask(cache, "probe", file, "--url", url, "--api-key", "right")["restore_at"] > 0
        assert ask(cache, "probe", file, "--url", url, "--api-key", "other")["divergence"] == 0
        monkeypatch.setenv("HEADSTART_API_KEY", "right")
        assert ask(cache, "probe", file, "--url", url)["restore_at"] > 0
        shown = cache("probe", file, "--url", url, "--api-key", "wrong", store=False)
        assert shown.status == 1
        assert "a valid API key is needed" in shown.err
        assert "wrong" not in shown.err
        assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"prompt": ["one", "two"]}, "a probe is about one prompt"),
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": "a " * 5000}, "context"),
        ({"messages": []}, "messages"),
        ({"prompt": "x", "temperature": "hot"}, "temperature"),
    ],
)
def test_what_the_server_refuses_is_one_line_and_status_1(
    value: dict[str, Any], message: str, cache: Cache, tmp_path: Path
) -> None:
    with running(cache.directory) as url:
        shown = cache("probe", body(tmp_path, value), "--url", url, store=False)
    assert (shown.status, shown.out, shown.err.count("\n")) == (1, "", 1)
    assert message in shown.err


@pytest.mark.parametrize("action", ["probe", "warm"])
def test_a_server_that_is_not_there_is_one_line_and_status_1(
    action: str, cache: Cache, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    shown = cache(action, body(tmp_path, {"prompt": "x"}), "--url", url, store=False)
    assert (shown.status, shown.out, shown.err.count("\n")) == (1, "", 1)
    assert f"no server answers at {url} (Connection refused)" in shown.err


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a request"),
        ({"input": "x"}, "is not a request"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_request_is_one_line_and_status_2(
    value: object, message: str, cache: Cache, tmp_path: Path
) -> None:
    file = str(tmp_path / "nowhere.json") if value is None else body(tmp_path, value)
    for action in ("probe", "warm"):
        shown = cache(action, file, store=False)
        assert (shown.status, shown.out, shown.err.count("\n")) == (2, "", 1)
        assert message in shown.err


def test_another_servers_answer_is_told(cache: Cache, tmp_path: Path) -> None:
    from fastapi import FastAPI
    from fastapi.responses import PlainTextResponse

    from tests.api.served import http_server

    app = FastAPI()
    app.add_api_route("/v1/completions", lambda: PlainTextResponse("hello"), methods=["POST"])
    with http_server(app) as url:
        shown = cache("probe", body(tmp_path, {"prompt": "x"}), "--url", url, store=False)
        assert shown.status == 1
        assert "status 404" in shown.err
        shown = cache("warm", body(tmp_path, {"prompt": "x"}), "--url", url, store=False)
        assert shown.status == 1
        assert "something else than a JSON object" in shown.err


def test_a_key_does_not_follow_a_redirect(cache: Cache, tmp_path: Path) -> None:
    from fastapi import FastAPI
    from fastapi.responses import RedirectResponse

    from tests.api.served import http_server

    app = FastAPI()
    seen: list[str] = []
    app.add_api_route("/v1/headstart/cache", lambda: RedirectResponse("/elsewhere"))
    app.add_api_route("/elsewhere", lambda: seen.append("asked") or {"namespace": "00"})
    with http_server(app) as url:
        (cache.directory).mkdir()
        (cache.directory / "lock").touch()
        shown = cache("ls", "--url", url, "--api-key", "k")
    assert shown.status == 1
    assert "status 307" in shown.err
    assert seen == []


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "file:///etc/passwd"])
def test_an_address_has_to_be_one(url: str) -> None:
    with pytest.raises(ConfigError, match="expected an address"):
        ServerClient(url)


def test_proxies_are_not_asked_for_this_machine(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with running(cache.directory) as url:
        ask(cache, "probe", body(tmp_path, {"prompt": "x"}), "--url", url)
