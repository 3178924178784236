"""llama.cpp's own HTTP server as it comes, from the package xllamacpp, until it is ended.

    python bench/default_peer.py MODEL NAME PORT [no-cache]

Its defaults, with two exceptions: --metrics is on, so that what it counts can be compared with what it says,
and it runs on the processor alone. `no-cache`: prompts are read whole and nothing is kept.
"""

from __future__ import annotations

import signal
import sys

import xllamacpp


def main(model: str, name: str, port: int, cache: bool) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {name}
    params.port = port
    params.n_gpu_layers = 0
    params.fit_params = False
    params.endpoint_metrics = True
    if not cache:
        params.cache_prompt = False
        params.cache_ram_mib = 0
    server = xllamacpp.Server(params)
    print(f"ready {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:] != ["no-cache"])
