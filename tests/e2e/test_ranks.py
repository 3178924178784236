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
import pytest

from tests.fixtures.mlx_models import MlxModels

PROMPT = " ".join(f"word{number}" for number in range(150))
SERVE = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--ctx-size", "2048"]
LAUNCH = [str(Path(sys.executable).with_name("mlx.launch")), "-n", "2", "--backend", "ring", "--"]


@contextmanager
def served(command: list[str], model: Path, base: Path, log: Path) -> Iterator[str]:
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--model", str(model), "--base-path", str(base)],
            stdin=subprocess.PIPE,  # open to the end: mlx.launch turns in circles once it is not
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 60
        while not (ready := re.search(r"ready +(http://\S+)/v1", log.read_text())):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        assert "495 k parameters" in log.read_text(), "those of the whole model"
        yield ready.group(1)
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
        process.wait(60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def two_ranks(sharding: str) -> list[str]:
    return [*LAUNCH, *SERVE, "--distributed", "--sharding", sharding]


def asked(url: str, **more: Any) -> dict[str, Any]:
    body = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0, "logprobs": 1, "headstart": {"report": True}}
    answer = httpx.post(f"{url}/v1/completions", json=body | more, timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def cached(answer: dict[str, Any]) -> int:
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize("sharding", ["tensor", "pipeline"])
def test_two_ranks_serve_one_model_and_keep_its_state(
    mlx_model: MlxModels, tmp_path: Path, sharding: str
) -> None:
    """qwen3_5 can be divided both ways; its layers are recurrent and full attention."""
    model, base, command = mlx_model("qwen3_5"), tmp_path / "base", two_ranks(sharding)
    with served(SERVE, model, tmp_path / "alone", tmp_path / "alone.log") as url:
        alone = asked(url)
    with served(command, model, base, tmp_path / "first.log") as url:
        cold, warm = asked(url), asked(url)
        grown = asked(url, prompt=f"{PROMPT} and more")
        tokens = cold["usage"]["prompt_tokens"]
        assert cold["choices"][0]["text"] == alone["choices"][0]["text"]
        assert (cached(cold), cached(warm)) == (0, tokens)
        assert cached(grown) >= tokens - 1
        assert warm["choices"][0]["logprobs"] == cold["choices"][0]["logprobs"]
    with served(command, model, base, tmp_path / "second.log") as url:
        back = asked(url)
        assert cached(back) == tokens
        assert back["headstart"]["report"]["tier"] == "ssd"
        assert back["choices"][0]["logprobs"] == cold["choices"][0]["logprobs"]
