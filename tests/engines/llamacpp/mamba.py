"""A tiny model with recurrent layers only (Mamba), with random weights."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tests.fixtures.gguf_models import _copy_tokenizer

VOCABULARY, WIDTH, INNER, STATE, CONVOLUTION, RANK, LAYERS = 4096, 32, 64, 16, 4, 4, 2


def build_mamba(path: Path) -> Path:
    """Keys and tensors as in llama.cpp's `src/models/mamba.cpp`."""
    random = np.random.default_rng(4)
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_block_count(LAYERS)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(CONVOLUTION)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(RANK)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(VOCABULARY)
    _copy_tokenizer(writer)

    def add(name: str, *shape: int, scale: float = 1.0) -> None:
        drawn = random.standard_normal(shape, dtype=np.float32)
        writer.add_tensor(name, drawn * np.float32(scale / np.sqrt(shape[-1])))

    add("token_embd.weight", VOCABULARY, WIDTH, scale=np.sqrt(WIDTH))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        writer.add_tensor(f"{block}.attn_norm.weight", np.ones(WIDTH, np.float32))
        add(f"{block}.ssm_in.weight", 2 * INNER, WIDTH, scale=2.0)
        add(f"{block}.ssm_conv1d.weight", INNER, CONVOLUTION, scale=2.0)
        add(f"{block}.ssm_conv1d.bias", INNER)
        add(f"{block}.ssm_x.weight", RANK + 2 * STATE, INNER, scale=3.0)
        add(f"{block}.ssm_dt.weight", INNER, RANK)
        add(f"{block}.ssm_dt.bias", INNER)
        decay = np.tile(np.linspace(0.05, 0.5, STATE, dtype=np.float32), (INNER, 1))
        writer.add_tensor(f"{block}.ssm_a", -decay)
        add(f"{block}.ssm_d", INNER, scale=8.0)
        add(f"{block}.ssm_out.weight", WIDTH, INNER, scale=3.0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
