"""MLX models of some megabytes with random weights whose tokens are bytes, so that text and tokens are one
thing for every server. Nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

END = "<|end|>"
_SHARED = {"vocab_size": 257, "rms_norm_eps": 1e-6, "max_position_embeddings": 65536}
LLAMA: dict[str, Any] = {
    **_SHARED,
    **{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 704},
    **{"num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": True},
}
HYBRID: dict[str, Any] = {
    **_SHARED,
    **{"model_type": "qwen3_next", "hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 256},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "full_attention_interval": 4},
    **{"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32},
    **{"linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "num_experts": 0, "num_experts_per_tok": 1},
    **{"decoder_sparse_step": 1, "shared_expert_intermediate_size": 64, "mlp_only_layers": []},
    **{"moe_intermediate_size": 64, "norm_topk_prob": True, "rope_theta": 10000.0},
    **{"partial_rotary_factor": 1.0, "tie_word_embeddings": True},
}
WINDOW: dict[str, Any] = {
    **_SHARED,
    **{"model_type": "gemma3_text", "hidden_size": 128, "num_hidden_layers": 6, "intermediate_size": 256},
    **{"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "query_pre_attn_scalar": 32},
    **{"sliding_window": 128, "sliding_window_pattern": 3},
}
CONFIGS = {"llama": LLAMA, "gemma3_text": WINDOW, "qwen3_next": HYBRID}


def mlx_model(name: str, folder: Path) -> Path:
    """The model `name` of CONFIGS, written to `folder`."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes

    config = CONFIGS[name] | {"eos_token_id": 256}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    _write_tokenizer(folder)
    mx.random.seed(7)
    model_class, arguments = _get_classes(config)
    model = model_class(arguments.from_dict(config))
    weights = {n: w * 3 if w.ndim == 2 else w for n, w in tree_flatten(model.parameters())}
    embedding = weights["model.embed_tokens.weight"]
    embedding[-1] = 0  # the end is never the likeliest token, so that no reply ends by itself
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
