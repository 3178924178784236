"""`headstart models`: each command, in words and as JSON, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headstart.cli import main
from headstart.cli.models import ACTIONS
from tests.fixtures.gguf_models import GgufModels, build_with_heads_ahead
from tests.fixtures.mlx_models import MlxModels

COMMIT = "0123456789" * 4


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    """What `models show` says, by its labels."""
    assert main(["models", "show", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    return {line[:14].strip(): line[15:] for line in shown.splitlines()}


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["models", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], status: int, *arguments: str) -> str:
    assert main(["models", *arguments]) == status
    answer = capsys.readouterr()
    assert answer.out == ""
    assert answer.err.startswith("headstart: ")
    assert answer.err.count("\n") == 1
    return answer.err


def test_help_lists_every_command_and_teaches_each(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["models", "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    for action in ACTIONS:
        assert f"headstart models {action.name}" in shown
        with pytest.raises(SystemExit):
            main(["models", action.name, "--help"])
        taught = capsys.readouterr().out
        assert f"usage: headstart models {action.name}" in taught
        assert "--json" in taught


def test_a_gguf_file(gguf_models: GgufModels, capsys: pytest.CaptureFixture[str]) -> None:
    says = told(capsys, str(gguf_models.qwen35))
    assert says["format"].startswith("GGUF, 1 file, ")
    assert (says["engine"], says["architecture"]) == ("llamacpp", "qwen35")
    assert says["kinds"] == "2 full attention, 2 recurrent"
    assert says["resumes at"].startswith("checkpoints: message starts and ends")
    assert says["state"].startswith("512 bytes a token, ")
    assert says["attention"] == "4 heads, 2 for keys and values, 32 wide"
    assert says["context"] == "8,192 tokens, as trained"
    assert says["chat template"].endswith("tools: no; thinking: no")
    assert says["MTP heads"] == "no"


def test_an_mlx_folder(mlx_model: MlxModels, capsys: pytest.CaptureFixture[str]) -> None:
    says = told(capsys, str(mlx_model("gemma3_text")))
    assert (says["engine"], says["format"][:19]) == ("mlx", "safetensors folder,")
    assert says["kinds"] == "3 sliding window of 24 tokens, 1 full attention"
    assert says["resumes at"].startswith("any token; ")
    assert "2,048 bytes a token (of them 1,536 in windows); from mlx-lm" in says["state"]


def test_json_is_the_whole_sheet(mlx_model: MlxModels, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "show", str(mlx_model("qwen3_5")))
    assert found["layer_kinds"][0] == {"kind": "recurrent", "count": 2, "reach_tokens": 0}
    assert found["state"]["token_bytes"] == 1024
    assert found["prediction_heads"]["shipped"] == 0
    assert len(found["chat_template"]["digest"]) == 64
    assert found["notes"] == []


def test_prediction_heads_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(build_with_heads_ahead(tmp_path / "ahead.gguf"))
    assert told(capsys, path)["MTP heads"] == (
        "ships an MTP head, which headstart does not run, so it cannot speculate with it; "
        "--speculate ngram or draft works"
    )
    assert as_json(capsys, "show", path)["prediction_heads"]["usable"] is False


def test_a_name_that_a_terminal_would_act_on(
    mlx_model: MlxModels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(mlx_model("llama"), tmp_path / "red\x1b[31m"))
    assert told(capsys, str(folder))["name"] == "red [31m"


def test_a_folder_with_both_kinds_of_weights(
    mlx_model: MlxModels, gguf_models: GgufModels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(mlx_model("llama"), tmp_path / "both"))
    shutil.copy(gguf_models.llama, folder)
    assert told(capsys, str(folder))["engine"] == "mlx"
    assert told(capsys, str(folder), "--engine", "llamacpp")["engine"] == "llamacpp"


def test_without_a_template(mlx_model: MlxModels, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(mlx_model("llama"), tmp_path / "bare"))
    (folder / "tokenizer_config.json").unlink()
    assert told(capsys, str(folder))["chat template"].startswith("none: /v1/chat/completions needs one")
    assert as_json(capsys, "show", str(folder))["chat_template"] is None
    (folder / "chat_template.jinja").write_text("{% for %}")
    assert (
        "which cannot be used: the chat template cannot be compiled"
        in told(capsys, str(folder))["chat template"]
    )


def test_what_cannot_be_shown(
    mlx_model: MlxModels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "there is no model at" in refused(capsys, 1, "show", str(tmp_path / "none.gguf"))
    assert "no such repository in the hub cache" in refused(capsys, 1, "show", "owner/not-there")
    assert "is not in the hub cache" in refused(capsys, 1, "show", "hf:owner/not-there/m.gguf")
    assert "must hold exactly one model" in refused(capsys, 1, "show", str(tmp_path))
    (tmp_path / "text.gguf").write_text("no model")
    assert "is not a GGUF file" in refused(capsys, 1, "show", str(tmp_path / "text.gguf"))
    assert "is a GGUF file" in refused(capsys, 1, "show", "--engine", "mlx", "embedded").replace(
        "the embedded model is", "is"
    )
    assert "is not hf:owner/repository/file.gguf" in refused(capsys, 2, "show", "hf:owner")
    assert "MODEL" in refused(capsys, 2, "show")
    assert "COMMAND" in refused(capsys, 2)
    assert "invalid choice" in refused(capsys, 2, "shw")
    assert "invalid choice" in refused(capsys, 2, "show", "embedded", "--engine", "toy")


def hub_cache(home: Path, repository: str, files: dict[str, Path | bytes], *, main_ref: bool = True) -> None:
    """A repository as huggingface_hub keeps it."""
    root = home / "hub" / f"models--{repository.replace('/', '--')}"
    snapshot = root / "snapshots" / COMMIT
    for name, content in files.items():
        path = snapshot / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    (root / "refs").mkdir()
    if main_ref:
        (root / "refs" / "main").write_text(COMMIT)


def test_the_hub_cache(mlx_model: MlxModels, gguf_models: GgufModels, tmp_path: Path) -> None:
    """In a process of its own: where the cache is, is read at import."""
    folder = {path.name: path for path in mlx_model("llama").iterdir()}
    hub_cache(tmp_path, "owner/tiny", folder)
    split = {f"q4/big-0000{part}-of-00002.gguf": b"GGUF" for part in (1, 2)}
    hub_cache(tmp_path, "owner/files", {"m.gguf": gguf_models.llama, "mmproj-m.gguf": b"GGUF", **split})
    hub_cache(tmp_path, "owner/pinned", {"m.gguf": gguf_models.llama}, main_ref=False)
    hub_cache(tmp_path, "owner/part", {"big-00002-of-00002.gguf": b"GGUF", "config.json": b"{}"})
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}

    def run(*words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "headstart", "models", *words, "--json"],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        return json.loads(done.stdout)

    found = {one["model"]: one for one in run("ls")["models"]}
    pinned = str(tmp_path / "hub/models--owner--pinned/snapshots" / COMMIT / "m.gguf")
    assert list(found) == [
        "embedded",
        "hf:owner/files/m.gguf",
        "hf:owner/files/q4/big-00001-of-00002.gguf",
        pinned,
        "owner/tiny",
    ]
    assert found["hf:owner/files/q4/big-00001-of-00002.gguf"]["nbytes"] == 8
    assert found["owner/tiny"]["format"] == "safetensors"
    for model in ("hf:owner/files/m.gguf", "owner/tiny", "hf:owner/tiny", pinned):
        assert run("show", model)["parameters"] > 100_000, model


def test_no_hub_cache(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.utils._cache_manager.HF_HUB_CACHE", str(tmp_path / "none"))
    assert [one["model"] for one in as_json(capsys, "ls")["models"]] == ["embedded"]
    assert main(["models", "ls"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("  embedded")


def test_no_huggingface_hub(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["models", "ls"]) == 0
    answer = capsys.readouterr()
    assert "embedded" in answer.out
    assert "pip install 'headstart[hub]'" in answer.err
    assert "models of the hub need huggingface-hub" in refused(capsys, 1, "show", "owner/name")
