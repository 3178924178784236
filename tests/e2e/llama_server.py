"""llama.cpp's own server, from the package xllamacpp, as a program with its log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# ChatML with the tools at the end of the system prompt, as models that call tools have it.
TEMPLATE = """
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}
{%- if loop.first and tools %}

You may call these tools:
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
{%- endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@dataclass(frozen=True)
class LlamaServer:
    url: str
    log: Path


@contextmanager
def llama_server(model: Path, log: Path) -> Iterator[LlamaServer]:
    """One slot, one thread, on a free port; `log` gets what it says on stderr."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, __file__, str(model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
        )
    try:
        assert process.stdout is not None
        told = process.stdout.readline().split()
        assert told[:1] == [b"ready"], log.read_text()
        yield LlamaServer(told[1].decode(), log)
        assert process.poll() is None, f"ended with {process.returncode}: {log.read_text()[-2000:]}"
    finally:
        process.kill()
        process.communicate()


def main(model: str) -> None:
    """Serves `model` until the standard input ends."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.chat_template = TEMPLATE
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.fit_params = False
    params.port = 0
    server = xllamacpp.Server(params)
    print(f"ready {server.listening_address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
