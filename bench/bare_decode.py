"""Seconds one llama_decode of one token takes (median), with nothing around it.

python bench/bare_decode.py MODEL THREADS TOKENS
"""

from __future__ import annotations

import statistics
import sys
import time

import llama_cpp
import numpy as np

CONTEXT_TOKENS = 1024
PROMPT_TOKENS = 32


def main(path: str, threads: int, count: int) -> None:
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = max(CONTEXT_TOKENS, PROMPT_TOKENS + count)
    params.n_threads = params.n_threads_batch = threads
    params.flash_attn_type = 1
    context = llama_cpp.llama_init_from_model(model, params)
    vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    tokens = (llama_cpp.llama_token * PROMPT_TOKENS)(*range(100, 100 + PROMPT_TOKENS))
    llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, PROMPT_TOKENS))
    times_s = []
    for _ in range(count):
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), shape=(vocab_size,))
        one = (llama_cpp.llama_token * 1)(int(logits.argmax()))
        started_s = time.perf_counter()
        llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(one, 1))
        llama_cpp.llama_synchronize(context)
        times_s.append(time.perf_counter() - started_s)
    print(statistics.median(times_s))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
