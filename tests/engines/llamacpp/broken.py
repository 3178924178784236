"""GGUF files that cannot be served, each broken in one way."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

WIDTH, FEED_FORWARD, CONTEXT_TOKENS = 32, 64, 64


def spoil(good: Path, into: Path, how: str) -> Path:
    """A copy of a good file, spoiled."""
    data = good.read_bytes()
    match how:
        case "empty":
            data = b""
        case "text":
            data = b"This is not a model.\n" * 100
        case "only a magic number":
            data = data[:4]
        case "cut in the metadata":
            data = data[:5000]
        case "cut in the weights":
            data = data[: len(data) // 2]
        case "one byte short":
            data = data[:-1]
        case "future version":
            data = data[:4] + b"\x09" + data[5:]
        case "unknown architecture":
            length = (5).to_bytes(8, "little")
            data = data.replace(length + b"llama", length + b"zebra", 1)
        case "missing tensor":
            data = data.replace(b"blk.1.attn_q.weight", b"blk.1.attn_X.weight", 1)
        case _:
            raise ValueError(how)
    path = into / f"{how.replace(' ', '-')}.gguf"
    path.write_bytes(data)
    return path


def embedding_model(path: Path) -> Path:
    """A tiny BERT: whole, and no model that writes text."""
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_block_count(1)
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-6)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"▁word{i}" for i in range(59))]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_type_count(2)
    writer.add_vocab_size(len(tokens))
    random = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, random.standard_normal(shape, dtype=np.float32))

    add("token_embd.weight", len(tokens), WIDTH)
    add("position_embd.weight", CONTEXT_TOKENS, WIDTH)
    add("token_types.weight", 2, WIDTH)
    for norm in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        add(f"{norm}.weight", WIDTH)
        add(f"{norm}.bias", WIDTH)
    for name, out, into in (
        ("attn_q", WIDTH, WIDTH),
        ("attn_k", WIDTH, WIDTH),
        ("attn_v", WIDTH, WIDTH),
        ("attn_output", WIDTH, WIDTH),
        ("ffn_up", FEED_FORWARD, WIDTH),
        ("ffn_down", WIDTH, FEED_FORWARD),
    ):
        add(f"blk.0.{name}.weight", out, into)
        add(f"blk.0.{name}.bias", out)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
