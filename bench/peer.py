"""llama.cpp's own HTTP server in this process, from the package xllamacpp; prints its address.

    python bench/peer.py MODEL CONTEXT SLOTS THREADS [unified]

Equal to headstart's settings where the two have the same ones: threads, 512 tokens a micro-batch,
flash attention, f16 keys and values. Everything else is llama.cpp's default.
"""

from __future__ import annotations

import sys

import xllamacpp

BATCH_TOKENS = 2048
UBATCH_TOKENS = 512


def main(model: str, context: int, slots: int, threads: int, unified: bool) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = context * slots
    params.n_parallel = slots
    params.n_batch = BATCH_TOKENS
    params.n_ubatch = UBATCH_TOKENS
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.n_gpu_layers = 0
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.fit_params = False
    params.kv_unified = unified
    params.port = 0
    server = xllamacpp.Server(params)
    print(f"ready {server.listening_address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:] == ["unified"])
