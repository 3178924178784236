"""One model over two processes of this machine: `mlx.launch` and `headstart serve --distributed`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.fixtures.mlx_models import MlxModels

PROMPT = " ".join(f"word{number}" for number in range(150))


@contextmanager
def two_ranks(model: Path, base: Path, log: Path) -> Iterator[str]:
    serve = [sys.executable, "-m", "headstart", "serve", "--distributed", "--port", "0"]
    launch = [str(Path(sys.executable).with_name("mlx.launch")), "-n", "2", "--backend", "ring", "--"]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*launch, *serve, "--model", str(model), "--base-path", str(base), "--ctx-size", "2048"],
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 60
        while not (ready := re.search(r"ready +(http://\S+)/v1", log.read_text())):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield ready.group(1)
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
        process.wait(60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def asked(url: str, **more: Any) -> dict[str, Any]:
    body = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0, "logprobs": 1, "headstart": {"report": True}}
    answer = httpx.post(f"{url}/v1/completions", json=body | more, timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_two_ranks_serve_one_model_and_keep_its_state(mlx_model: MlxModels, tmp_path: Path) -> None:
    model = mlx_model("qwen3_next")
    with two_ranks(model, tmp_path / "base", tmp_path / "first.log") as url:
        cold, warm = asked(url), asked(url)
        grown = asked(url, prompt=f"{PROMPT} and more")
        tokens = cold["usage"]["prompt_tokens"]
        assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == tokens
        assert grown["usage"]["prompt_tokens_details"]["cached_tokens"] >= tokens - 1
        assert warm["choices"][0]["logprobs"] == cold["choices"][0]["logprobs"]
    with two_ranks(model, tmp_path / "base", tmp_path / "second.log") as url:
        back = asked(url)
        assert back["usage"]["prompt_tokens_details"]["cached_tokens"] == tokens
        assert back["headstart"]["report"]["tier"] == "ssd"
        assert back["choices"][0]["logprobs"] == cold["choices"][0]["logprobs"]
