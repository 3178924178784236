"""MLX model folders load whole, and what is wrong with one is said before it runs."""

from __future__ import annotations

import json
import os
import resource
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from headstart.engines.digests import content_digest
from headstart.engines.mlx.options import MlxOptions
from headstart.engines.mlx.source import Loaded, load_model_directory
from headstart.errors import ConfigError, ModelError
from tests.fixtures.mlx_models import CONTEXT_TOKENS, NAMES, RECIPES, VOCABULARY, MlxModels, build_lora

Break = Callable[[Path], object]


def load(path: str | Path, **options: object) -> Loaded:
    return load_model_directory(path, MlxOptions(**options))  # type: ignore[arg-type]


def scores(loaded: Loaded) -> np.ndarray:
    return np.array(loaded.model(mx.array([[300, 301, 302]]))[0, -1].astype(mx.float32))


@pytest.fixture
def broken(mlx_model: MlxModels, tmp_path: Path) -> Path:
    """A copy of the llama model to break."""
    return Path(shutil.copytree(mlx_model("llama"), tmp_path / "model"))


@pytest.mark.parametrize("name", NAMES)
def test_every_model_loads_with_the_weights_of_its_file(mlx_model: MlxModels, name: str) -> None:
    folder = mlx_model(name)
    loaded = load(folder)
    assert loaded.architecture == RECIPES[name].model_type
    assert (loaded.model_name, loaded.directory) == (name, folder)
    assert len(loaded.vocabulary.pieces) == VOCABULARY
    assert loaded.config["max_position_embeddings"] == CONTEXT_TOKENS
    assert "<|im_start|>" in (loaded.chat_template or "")
    assert 300_000 < loaded.parameters < 1_100_000
    held = dict(tree_flatten(loaded.model.parameters()))
    for tensor, value in mx.load(str(folder / "model.safetensors")).items():
        assert mx.array_equal(held[tensor], value), tensor


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_used_in_another_thread_than_it_was_loaded_in(mlx_model: MlxModels, name: str) -> None:
    """MLX refuses there what was left to compute, such as the frequencies of llama-scaled."""
    with ThreadPoolExecutor(1) as thread:
        loaded = thread.submit(load, mlx_model(name)).result()
    with ThreadPoolExecutor(1) as thread:
        assert np.isfinite(thread.submit(scores, loaded).result()).all()


def test_the_digest_is_that_of_weights_and_config(mlx_model: MlxModels, broken: Path) -> None:
    first, seen = load(mlx_model("llama")), []
    same = load_model_directory(broken, MlxOptions(), lambda done, total: seen.append((done, total)))
    assert first.weights_digest == same.weights_digest
    assert seen[-1][0] == seen[-1][1] > 1_000_000
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "rope_theta": 20000.0}))
    assert load(broken).weights_digest != first.weights_digest


def test_the_digest_is_remembered(broken: Path, tmp_path: Path) -> None:
    memo, seen = tmp_path / "digests.json", []
    digests = {
        load_model_directory(
            broken, MlxOptions(digest_memo=memo), lambda done, total: seen.append(done)
        ).weights_digest
        for _ in range(2)
    }
    assert len(digests) == 1
    assert len(seen) == 2, "two files, read once"


def edit(name: str, **changes: object) -> Break:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, **changes}))

    return change


def remove(*names: str) -> Break:
    return lambda folder: [(folder / name).unlink() for name in names]


def rename(old: str, new: str) -> Break:
    return lambda folder: (folder / old).rename(folder / new)


def index(**where: str) -> Break:
    return lambda folder: (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": where})
    )


def cut(nbytes: int) -> Break:
    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        os.truncate(path, path.stat().st_size - nbytes if nbytes > 0 else -nbytes)

    return change


def write(name: str, content: bytes) -> Break:
    return lambda folder: (folder / name).write_bytes(content)


def gguf_only(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    (folder / "m.gguf").write_bytes(b"GGUF")


BAD: dict[str, tuple[Break, str]] = {
    "no config": (remove("config.json"), "has no config.json: expected an MLX model folder"),
    "config is no JSON": (write("config.json", b"{"), "config.json cannot be read"),
    "config is a list": (write("config.json", b"[]"), "holds list, expected a JSON object"),
    "no model type": (edit("config.json", model_type=None), "has no model_type"),
    "unknown type": (edit("config.json", model_type="gpt9"), "does not know the model type 'gpt9'"),
    "a module that is no model": (edit("config.json", model_type="cache"), "cannot be loaded by mlx-lm"),
    "its own code": (edit("config.json", model_file="evil.py"), "brings Python code of its own ('evil.py')"),
    "another shape": (edit("config.json", hidden_size=32), "cannot be loaded by mlx-lm"),
    "more layers": (edit("config.json", num_hidden_layers=5), "Missing 9 parameters"),
    "a key too few": (edit("config.json", vocab_size="many"), "cannot be loaded by mlx-lm"),
    "no weights": (remove("model.safetensors"), "has no weights: expected model*.safetensors"),
    "another name": (rename("model.safetensors", "weights.safetensors"), "found weights.safetensors"),
    "PyTorch": (rename("model.safetensors", "pytorch_model.bin"), "convert them with `mlx_lm.convert"),
    "GGUF weights": (rename("model.safetensors", "m.gguf"), "use --engine llamacpp"),
    "GGUF folder": (gguf_only, "holds a GGUF model, which mlx-lm cannot run: use --engine llamacpp"),
    "a shard of the index is missing": (
        index(a="model-00002-of-00002.safetensors"),
        "lacks model-00002-of-00002.safetensors: all parts of the weights are needed",
    ),
    "a part is missing": (
        rename("model.safetensors", "model-00001-of-00002.safetensors"),
        "lacks model-00002-of-00002.safetensors",
    ),
    "the index names a tensor that is not there": (
        index(absent="model.safetensors"),
        "lacks the tensor absent",
    ),
    "an index without a map": (write("model.safetensors.index.json", b"{}"), "has no weight_map"),
    "a file that mlx-lm does not read": (
        lambda folder: (index(a="other.safetensors")(folder), write("other.safetensors", b"")(folder)),
        "is not read by mlx-lm",
    ),
    "cut in the tensors": (cut(5), "is cut short: "),
    "cut in the header": (cut(-100), "is not a whole safetensors file"),
    "empty": (cut(-0), "is not a whole safetensors file (0 bytes)"),
    "LFS": (
        write("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        "is a Git LFS pointer",
    ),
    "a header that is none": (
        write("model.safetensors", struct.pack("<Q", 4) + b"nope" + bytes(99)),
        "the header of",
    ),
    "bytes too many": (
        lambda folder: (folder / "model.safetensors").open("ab").write(b"more"),
        "has more than its header says",
    ),
    "two models": (
        lambda folder: shutil.copy(folder / "model.safetensors", folder / "model-old.safetensors"),
        "weights of two models or versions",
    ),
    "no tokenizer": (remove("tokenizer.json"), "has no tokenizer.json"),
    "tokenizer is damaged": (write("tokenizer.json", b'{"model": {}}'), "cannot be used"),
    "tokenizer of another kind": (
        edit("tokenizer.json", decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}),
        "decodes in a way headstart does not know (WordPiece)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_folder_says_what_is_wrong(broken: Path, case: str) -> None:
    change, part = BAD[case]
    change(broken)
    with pytest.raises(ModelError) as raised:
        load(broken)
    assert part in str(raised.value)
    assert str(broken) in str(raised.value) or "model type" in str(raised.value)


def test_a_gguf_is_sent_to_llama_cpp(tiny_llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a GGUF file, which mlx-lm cannot run: use --engine llamacpp"):
        load(tiny_llama)
    with pytest.raises(ModelError, match="use --engine llamacpp"):
        load("embedded")
    (tmp_path / "file").write_bytes(b"text")
    with pytest.raises(ModelError, match="is a file; an MLX model is a folder"):
        load(tmp_path / "file")
    with pytest.raises(ModelError, match="there is no model at /nowhere/model"):
        load("/nowhere/model")
    with pytest.raises(ConfigError, match="is not hf:owner/repository"):
        load("hf:owner/repository/model.gguf")


def test_a_file_that_changes_while_it_is_read_is_refused(broken: Path) -> None:
    def touch(done: int, total: int) -> None:
        os.utime(broken / "config.json", ns=(1, 1))

    with pytest.raises(ModelError, match="changed while it was read"):
        load_model_directory(broken, MlxOptions(), touch)


def test_a_repository_comes_from_the_hub_cache(mlx_model: MlxModels, tmp_path: Path) -> None:
    """Laid out as huggingface_hub lays it out; a new process, as it reads its settings when imported."""
    kept = tmp_path / "hub" / "models--owner--tiny"
    shutil.copytree(mlx_model("llama"), kept / "snapshots" / ("0" * 40))
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("0" * 40)
    code = (
        "from headstart.engines.mlx.source import load_model_directory as load\n"
        "from headstart.engines.mlx.options import MlxOptions\n"
        "from headstart.errors import ModelError\n"
        "print(load('owner/tiny', MlxOptions()).model_name)\n"
        "for name in ('owner/other', 'hf:owner/other'):\n"
        "    try: load(name, MlxOptions())\n"
        "    except ModelError as error: print(error)\n"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    first, second, third = done.stdout.strip().split("\n", 2)
    assert first == "owner/tiny"
    assert "no such repository in the hub cache of this machine; headstart serve --model hf:" in second
    assert "owner/other cannot be fetched from the hub" in third


def test_an_adapter_counts_and_has_a_digest(mlx_model: MlxModels, tmp_path: Path) -> None:
    folder = build_lora(mlx_model("llama"), tmp_path / "style")
    plain, adapted = load(mlx_model("llama")), load(mlx_model("llama"), adapter=folder)
    assert plain.adapters == ()
    [facts] = adapted.adapters
    assert (facts.name, facts.scale) == ("style", 1.0)
    assert facts.digest == content_digest([folder / "adapters.safetensors", folder / "adapter_config.json"])
    assert np.abs(scores(plain) - scores(adapted)).max() > 0.1
    assert plain.weights_digest == adapted.weights_digest
    assert plain.parameters == adapted.parameters


def test_an_adapter_applies_to_quantised_weights(mlx_model: MlxModels, tmp_path: Path) -> None:
    folder = build_lora(mlx_model("llama-4bit"), tmp_path / "style")
    adapted = scores(load(mlx_model("llama-4bit"), adapter=folder))
    assert np.abs(scores(load(mlx_model("llama-4bit"))) - adapted).max() > 0.1


ADAPTERS: dict[str, tuple[Break, str]] = {
    "no config": (remove("adapter_config.json"), "has no adapter_config.json"),
    "no weights": (remove("adapters.safetensors"), "has no adapters.safetensors"),
    "cut short": (lambda f: os.truncate(f / "adapters.safetensors", 900), "is cut short"),
    "another kind": (edit("adapter_config.json", fine_tune_type="ia3"), "fine_tune_type is 'ia3'"),
    "no scale": (edit("adapter_config.json", lora_parameters={"rank": 4}), "missing required key 'scale'"),
    "fewer layers": (edit("adapter_config.json", num_layers=1), "not an adapter parameter in the model"),
    "another rank": (
        edit("adapter_config.json", lora_parameters={"rank": 8, "dropout": 0.0, "scale": 2.0}),
        "does not match",
    ),
}


@pytest.mark.parametrize("case", ADAPTERS)
def test_a_bad_adapter_says_what_is_wrong(mlx_model: MlxModels, tmp_path: Path, case: str) -> None:
    folder = build_lora(mlx_model("llama"), tmp_path / "style")
    change, part = ADAPTERS[case]
    change(folder)
    with pytest.raises(ModelError) as raised:
        load(mlx_model("llama"), adapter=folder)
    assert part in str(raised.value)
    assert str(folder) in str(raised.value)


def test_an_adapter_of_another_model_is_refused(mlx_model: MlxModels, tmp_path: Path) -> None:
    folder = build_lora(mlx_model("llama"), tmp_path / "style")
    with pytest.raises(ModelError, match="cannot be applied to this model"):
        load(mlx_model("mamba2"), adapter=folder)
    with pytest.raises(ModelError, match="there is no adapter folder at"):
        load(mlx_model("llama"), adapter=tmp_path / "none")
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="is a GGUF adapter; the MLX engine takes a folder"):
        load(mlx_model("llama"), adapter=tmp_path / "a.gguf")


def test_importing_mlx_leaves_the_limit_of_open_files() -> None:
    code = (
        "import resource\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "from headstart.engines.mlx.packages import import_mlx\n"
        "import_mlx()\n"
        "after = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "print(after[0] >= min(soft, 2048) and after[0] >= soft, after[1] == hard)\n"
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for limits in ((256, 1024), (min(hard, 8192), hard)):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            preexec_fn=lambda limits=limits: resource.setrlimit(resource.RLIMIT_NOFILE, limits),
        )
        assert done.stdout == "True True\n"
