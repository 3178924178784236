"""What lies in a store by its names, before anything is opened."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SUFFIX = ".safetensors"
TEMPORARY = ".tmp-"


class FoundFile(NamedTuple):
    """What lies under the name of an entry; its content has not been looked at.

    `nbytes`: its size, -1 for what is no regular file. `modified_s`: Unix time of its last change.
    """

    namespace: bytes
    key: bytes
    name: str
    nbytes: int
    modified_s: float

    @property
    def path(self) -> Path:
        return Path(self.name)


class Names(NamedTuple):
    """File names by namespace, each with whether a regular file has it, and what writes that were broken
    off have left. Not every name is that of an entry, see `entry_keys`. Sizes are not looked up: that takes
    four times as long."""

    entries: dict[bytes, dict[str, bool]]
    temporary: list[Path]

    def entry_keys(self) -> Iterator[tuple[bytes, bytes]]:
        """Namespace and key of everything that has the name of an entry."""
        for namespace, files in self.entries.items():
            for name in files:
                if name.endswith(SUFFIX):
                    key = _hex(name.removesuffix(SUFFIX))
                    if key is not None:
                        yield namespace, key


class Scan(NamedTuple):
    """All that lies in a store: entries, and what writes that were broken off have left."""

    entries: list[FoundFile]
    temporary: list[Path]


def entry_path(directory: Path, namespace: bytes, key: bytes) -> Path:
    """Where the file of an entry lies."""
    name = key.hex()
    return directory / namespace.hex() / name[:2] / (name + SUFFIX)


def names(directory: Path) -> Names:
    """Everything that may have the name of an entry and lies where that belongs, and all temporary files."""
    names = Names({}, [])
    for namespace, folder in hex_folders(directory):
        entries = names.entries.setdefault(namespace, {})
        for first, inner in hex_folders(folder):
            if len(first) == 1:
                _names_in(inner, entries, names.temporary)
    return names


def found_at(directory: Path, namespace: bytes, key: bytes) -> FoundFile:
    """What lies under the name of an entry. Raises FileNotFoundError where nothing does."""
    path = entry_path(directory, namespace, key)
    about = path.lstat()
    size = about.st_size if stat.S_ISREG(about.st_mode) else -1
    return FoundFile(namespace, key, str(path), size, about.st_mtime)


def scan(directory: Path) -> Scan:
    """All that has the name of an entry, with sizes and times, and all temporary files."""
    known = names(directory)
    scan = Scan([], known.temporary)
    for namespace, key in known.entry_keys():
        with contextlib.suppress(FileNotFoundError):
            scan.entries.append(found_at(directory, namespace, key))
    return scan


def _names_in(folder: Path, entries: dict[str, bool], temporary: list[Path]) -> None:
    first = folder.name
    with os.scandir(folder) as found:
        for one in found:
            name = one.name
            if name.startswith(first):
                entries[name] = one.is_file(follow_symlinks=False)
            elif name.startswith(TEMPORARY):
                temporary.append(Path(one.path))


def hex_folders(folder: Path) -> Iterator[tuple[bytes, Path]]:
    """Folders whose names are hexadecimal, as those of namespaces and of what is inside them."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = _hex(entry.name)
            if name is not None and entry.is_dir(follow_symlinks=False):
                yield name, Path(entry.path)


def _hex(name: str) -> bytes | None:
    """The bytes that `name` is the one hexadecimal form of."""
    try:
        value = bytes.fromhex(name)
    except ValueError:
        return None
    return value if value and value.hex() == name else None
