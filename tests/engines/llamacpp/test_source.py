"""Where models are found, and the digest of what was found."""

from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3

from headstart.engines import digests
from headstart.engines.llamacpp.source import ModelFiles, resolve, weights_digest
from headstart.errors import ConfigError, ModelError


def gguf(path: Path, content: bytes = b"") -> Path:
    path.write_bytes(b"GGUF" + content)
    return path


def test_a_file(tmp_path: Path) -> None:
    path = gguf(tmp_path / "model.gguf")
    assert resolve(str(path)).paths == (path,)


def test_a_folder_with_one_model(tmp_path: Path) -> None:
    path = gguf(tmp_path / "model.gguf")
    (tmp_path / "README.md").write_text("about the model")
    assert resolve(str(tmp_path)).paths == (path,)


def test_a_projector_beside_the_model_is_not_taken_for_one(tmp_path: Path) -> None:
    model = gguf(tmp_path / "model.gguf")
    gguf(tmp_path / "mmproj-model-f16.gguf")
    assert resolve(str(tmp_path)).paths == (model,)


def test_a_folder_with_no_or_two_models_is_an_error_that_lists_them(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="found none"):
        resolve(str(tmp_path))
    for name in ("a.gguf", "b.gguf"):
        gguf(tmp_path / name)
    with pytest.raises(ModelError, match=r"found a\.gguf, b\.gguf"):
        resolve(str(tmp_path))


def test_a_model_in_parts(tmp_path: Path) -> None:
    parts = [gguf(tmp_path / f"big-{i:05d}-of-00003.gguf", bytes([i])) for i in (1, 2, 3)]
    assert resolve(str(tmp_path)).paths == tuple(parts)
    assert resolve(str(parts[0])).paths == tuple(parts)
    parts[1].unlink()
    with pytest.raises(ModelError, match=r"big-00002-of-00003\.gguf is missing"):
        resolve(str(tmp_path))


def test_the_embedded_model(smollm2: Path) -> None:
    assert resolve("embedded").paths == (smollm2,)


@pytest.mark.parametrize("words", ["hf:", "hf:owner", "hf:owner/repository", "hf:owner//file.gguf"])
def test_a_hub_name_must_name_a_file(words: str) -> None:
    with pytest.raises(ConfigError, match=r"is not hf:owner/repository/file\.gguf"):
        resolve(words)


def test_the_digest_is_that_of_the_content_of_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "STEP_BYTES", 7)
    paths = (gguf(tmp_path / "1", b"first part"), gguf(tmp_path / "2", b"second"))
    seen: list[tuple[int, int]] = []
    digest = weights_digest(ModelFiles(paths), lambda done, total: seen.append((done, total)))
    assert digest == blake3(b"".join(path.read_bytes() for path in paths)).hexdigest()
    assert seen == [(7, 24), (14, 24), (21, 24), (24, 24)] or seen[-1] == (24, 24)


def test_one_other_byte_is_another_digest(tmp_path: Path) -> None:
    one = weights_digest(ModelFiles((gguf(tmp_path / "1", b"weights a"),)))
    other = weights_digest(ModelFiles((gguf(tmp_path / "2", b"weights b"),)))
    assert one != other
