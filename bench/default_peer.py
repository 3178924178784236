"""llama.cpp's own HTTP server as it comes, from the package xllamacpp, until it is ended.

    python bench/default_peer.py MODEL NAME PORT [no-cache] [template=FILE]

Its defaults, with two exceptions: --metrics is on, so that what it counts can be compared with what it says,
and it runs on the processor alone. `no-cache`: prompts are read whole and nothing is kept. `template`: of the
chat, instead of the model's own.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import xllamacpp


def main(model: str, name: str, port: int, cache: bool, template: str) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {name}
    params.port = port
    params.n_gpu_layers = 0
    params.fit_params = False
    params.endpoint_metrics = True
    if template:
        params.chat_template = Path(template).read_text(encoding="utf-8")
    if not cache:
        params.cache_prompt = False
        params.cache_ram_mib = 0
    server = xllamacpp.Server(params)
    print(f"ready {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    words = sys.argv[4:]
    given = [word.removeprefix("template=") for word in words if word.startswith("template=")]
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), "no-cache" not in words, "".join(given))
