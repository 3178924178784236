"""A llama of a few megabytes with random weights, as a folder for mlx-lm. Nothing is downloaded."""

from __future__ import annotations

import subprocess
from pathlib import Path

_MAKE = """
import json, sys
from pathlib import Path
import mlx.core as mx
from gguf import GGUFReader
from mlx.utils import tree_flatten
from mlx_lm.models.llama import Model, ModelArgs
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
fields = GGUFReader(sys.argv[1]).fields
read = lambda name: fields["tokenizer." + name].contents()
folder = Path(sys.argv[2])
folder.mkdir(parents=True)
words, kinds = read("ggml.tokens"), read("ggml.token_type")
merges = [tuple(pair.split(" ")) for pair in read("ggml.merges")]
tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges))
tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken(w, special=True) for w, kind in zip(words, kinds) if kind == 3])
tokenizer.save(str(folder / "tokenizer.json"))
end = words[read("ggml.eos_token_id")]
about = dict(tokenizer_class="PreTrainedTokenizerFast", eos_token=end, chat_template=read("chat_template"))
(folder / "tokenizer_config.json").write_text(json.dumps(about))
config = dict(model_type="llama", hidden_size=64, num_hidden_layers=2, intermediate_size=128,
              num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=len(words),
              max_position_embeddings=65536, tie_word_embeddings=True, eos_token_id=read("ggml.eos_token_id"))
(folder / "config.json").write_text(json.dumps(config))
mx.random.seed(7)
model = Model(ModelArgs.from_dict(config))
weights = {n: w if "norm" in n else w * 3 for n, w in tree_flatten(model.parameters())}
mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
"""


def tiny_mlx(python: str, gguf: Path, folder: Path) -> None:
    """Writes the model to `folder` with the tokenizer of `gguf`; `python` has mlx, mlx-lm and gguf."""
    subprocess.run([python, "-c", _MAKE, str(gguf), str(folder)], check=True)
