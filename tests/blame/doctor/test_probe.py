"""Servers are recognised by what they answer, and nothing they answer can stop the doctor."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from headstart.blame.doctor.probe import server_at, servers
from tests.blame.doctor.served import HEADSTART, LLAMA, LMSTUDIO, MLX_LM, OLLAMA, OMLX, SGLANG, VLLM, serving


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        (LLAMA, "llama-server"),
        (OLLAMA, "ollama"),
        (LMSTUDIO, "lmstudio"),
        (VLLM, "vllm"),
        (OMLX, "omlx"),
        (SGLANG, "sglang"),
        (HEADSTART, "headstart"),
        (MLX_LM, "mlx-lm"),
    ],
)
def test_each_kind_is_recognised(replies: dict[str, Any], kind: str) -> None:
    with serving(replies) as served:
        found = server_at(served.port)
    assert found is not None
    assert (found.kind, found.url) == (kind, f"http://127.0.0.1:{served.port}")


def test_llama_server_and_its_flags() -> None:
    with serving(LLAMA) as served:
        words = (
            "/opt/bin/llama-server",
            "--port",
            str(served.port),
            "--cache-ram",
            "0",
            "--api-key",
            "sk-1",
            "--swa-full",
        )
        other = ("/opt/bin/llama-server", "--port", "1", "--cache-ram", "77")
        found = server_at(served.port, [other, words])
    assert found is not None
    assert (found.context_tokens, found.trained_tokens, found.slots) == (16384, 40960, 1)
    assert (found.version, found.model, found.model_bytes) == ("b7000-abc", "small", 5 << 30)
    assert (found.cache_mib, found.checkpoints, found.checkpoint_step) == (0, 32, 8192)
    assert found.flags == {"--cache-ram": "0", "--swa-full": ""}
    assert found.speculative is False


def test_ollama_with_a_model_and_without() -> None:
    with serving(OLLAMA) as served:
        found = server_at(served.port)
    assert found is not None
    assert (found.model, found.context_tokens, found.trained_tokens) == ("q:4b", 4096, 262144)
    assert (found.recurrent, found.window_tokens, found.cache_mib) == (True, 512, 8192)
    with serving({**OLLAMA, "/api/ps": {"models": []}}) as served:
        idle = server_at(served.port)
    assert idle is not None
    assert (idle.loaded, idle.context_tokens) == (False, None)
    assert "/api/show" not in served.asked


def test_vllm_settings_are_in_its_metrics() -> None:
    with serving(VLLM) as served:
        found = server_at(served.port)
    assert found is not None
    assert (found.block_tokens, found.recurrent, found.speculative) == (8320, True, True)
    assert (found.prefix_caching, found.context_tokens) == (True, 8192)


def test_lm_studio_tells_of_the_loaded_model() -> None:
    with serving(LMSTUDIO) as served:
        found = server_at(served.port)
    assert found is not None
    assert (found.model, found.context_tokens) == ("b", 8192)


def test_several_at_once_and_nothing_on_other_ports() -> None:
    with serving(LLAMA) as one, serving(OLLAMA) as two:
        found = servers((free_port(), one.port, two.port, one.port))
    assert [server.kind for server in found] == ["llama-server", "ollama"]
    assert servers(()) == ()


@pytest.mark.parametrize(
    "replies",
    [
        {},
        {"/v1/models": {"data": [1, None, {"id": 3}]}},
        {"/v1/models": [], "/props": {"default_generation_settings": 3}},
        {"/v1/models": {"data": {"a": 1}}, "/api/version": {"version": 4}, "/api/ps": 1},
        {"/v1/models": {"data": [{"headstart": [1]}]}},
        {"/health": {"status": "ok", "more": 1}},
        {"/api/v0/models": {"data": ["x"]}},
    ],
)
def test_another_program_is_no_server(replies: dict[str, Any]) -> None:
    with serving(replies) as served:
        assert server_at(served.port) is None


@pytest.mark.parametrize(
    "raw", [b"", b"\x00\xff" * 4000, b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\nx"]
)
def test_bytes_that_are_no_http(raw: bytes) -> None:
    with serving({}, raw=raw) as served:
        assert server_at(served.port, timeout_s=0.2) is None


@pytest.mark.parametrize("depth", [3, 100_000])
def test_odd_json(depth: int) -> None:
    with serving({"/props": "[" * depth + "]" * depth, "/v1/models": '{"data": [' * 2}) as served:
        assert server_at(served.port) is None


def test_odd_numbers_are_not_told() -> None:
    props = {
        **LLAMA["/props"],
        "total_slots": True,
        "default_generation_settings": {"n_ctx": 1e300, "params": 3},
    }
    with serving({**LLAMA, "/props": props}) as served:
        found = server_at(served.port)
    assert found is not None
    assert (found.context_tokens, found.slots) == (None, None)


def test_a_slow_server_does_not_hold_the_doctor_up() -> None:
    with serving(LLAMA, slow_s=1.0) as served:
        began = time.monotonic()
        assert server_at(served.port, timeout_s=0.1) is None
        assert time.monotonic() - began < 4.0


def test_a_server_that_never_answers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        assert server_at(int(silent.getsockname()[1]), timeout_s=0.1) is None
        assert time.monotonic() - began < 4.0


def test_a_proxy_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(LLAMA) as served:
        assert server_at(served.port) is not None
