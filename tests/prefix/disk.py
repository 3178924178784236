"""A prefix cache with an SSD tier over the fake state of `fake`, for the tests of the tier."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from headstart.prefix.block import StateLayout
from headstart.prefix.blockfile import EntryKind, Head
from headstart.prefix.cache import NoMatch, PrefixCache, Restored
from headstart.prefix.faults import FileFaults
from headstart.prefix.keys import token_bytes
from headstart.prefix.listing import TEMPORARY
from headstart.prefix.seal import SEAL
from headstart.prefix.ssd import CATALOG, LOCK, SsdFiles
from headstart.prefix.ssd_tier import SsdSettings, SsdTier
from headstart.prefix.tokens import TokenRun
from headstart.prefix.verify import verify
from tests.prefix.fake import BLOCK, DENSE, MY, NO_HINTS, PLENTY, check_restored, store

PLENTY_ON_DISK = 1 << 30


class Disk:
    """One life of a cache over a store: made, used, closed."""

    def __init__(
        self,
        directory: Path,
        *,
        layout: StateLayout = DENSE,
        budget_bytes: int = PLENTY_ON_DISK,
        ram_bytes: int = PLENTY,
        block_tokens: int = BLOCK,
        canonical_grid: int = 0,
        faults: FileFaults | None = None,
        **settings: object,
    ) -> None:
        read_only = bool(settings.get("read_only", False))
        self.directory = directory
        self.layout = layout
        self.tier = SsdTier(
            SsdSettings(directory, budget_bytes, reserve_bytes=0, **settings),  # type: ignore[arg-type]
            layout,
            block_tokens,
            files=SsdFiles(directory, read_only=read_only, faults=faults),
        )
        self.cache = PrefixCache(
            layout,
            ram_bytes=ram_bytes,
            block_tokens=block_tokens,
            checkpoint_interval=0,
            canonical_grid=canonical_grid,
            ssd=self.tier,
        )

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.cache.save_tails()
        self.tier.flush(timeout_s=20)
        self.tier.close()

    def put(self, tokens: TokenRun, **options: object) -> None:
        """Stores what `tokens` leave behind in RAM, and so on the SSD, its partial block included."""
        store(self.cache, tokens, layout=self.layout, **options)  # type: ignore[arg-type]
        self.cache.save_tails()

    def flush(self) -> int:
        return self.tier.flush(timeout_s=20)

    def bring(self, prompt: TokenRun, namespace: bytes = MY) -> Restored | NoMatch | object:
        """What a request for `prompt` resumes with, fetched from the SSD where it is not in RAM. Every
        byte of it is checked."""
        wake = threading.Event()
        fetch = self.cache.fetch(self.cache.plan(namespace, prompt, [], NO_HINTS), wake.set)
        while fetch is not None and not fetch.advance():
            assert wake.wait(10), "nothing came"
            wake.clear()
        plan = self.cache.plan(namespace, prompt, [], NO_HINTS)
        answer = self.cache.load(plan)
        if fetch is not None:
            fetch.close()
        if isinstance(answer, Restored):
            check_restored(self.layout, plan, answer)
        return answer

    def restored(self, prompt: TokenRun, namespace: bytes = MY) -> int:
        """How many tokens of `prompt` come back, right to the last byte."""
        answer = self.bring(prompt, namespace)
        return answer.position if isinstance(answer, Restored) else 0


def entry_files(directory: Path) -> list[Path]:
    """The entries' files by name; temporary ones are none."""
    return sorted(directory.glob("*/*/[0-9a-f]*.safetensors"))


def path_of(disk: Disk, prompt: TokenRun, block: int, namespace: bytes = MY) -> Path:
    """The file of a prompt's block, counted from 0."""
    node = disk.tier.match(namespace, token_bytes(prompt)).blocks[block]
    return disk.tier.files.path(namespace, node.key)


def used_on_disk(directory: Path) -> int:
    """Bytes that entries' files and the catalog itself take up."""
    files = [*directory.glob("*/*/*"), directory / CATALOG]
    return sum(_size(file) for file in files)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0


def listing(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Everything under `directory` with size, mode and time of last change."""
    found = {}
    for folder, folders, files in os.walk(directory):
        for name in [*folders, *files]:
            about = (Path(folder) / name).lstat()
            found[str(Path(folder) / name)] = (about.st_size, about.st_mode, about.st_mtime_ns)
    return found


def assert_clean(directory: Path) -> None:
    """Nothing that is there is bad, and nothing temporary is there."""
    assert verify(directory).problems == ()
    assert list(directory.glob(f"*/*/{TEMPORARY}*")) == []
    known = {LOCK, CATALOG, CATALOG + "-wal", CATALOG + "-shm", SEAL}
    assert {path.name for path in directory.iterdir() if path.is_file()} <= known


def block_head(tokens: TokenRun, parent: bytes = MY, namespace: bytes = MY, level: int = 1) -> Head:
    return Head(EntryKind.BLOCK, namespace, parent, bytes(token_bytes(tokens)), level)
