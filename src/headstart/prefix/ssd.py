"""The SSD tier's files: where they lie, how they are written, read and removed.

    <directory>/lock                                     held while a process owns the store
    <directory>/catalog.sqlite                           see `catalog`
    <directory>/<namespace, hex>/<2 hex>/<key>.safetensors    see `blockfile`

A file is written under a temporary name, flushed, and renamed: under its own name it is whole or it
is not there. Directories are 0700 and files 0600, because tokens are private text.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headstart.errors import ConfigError
from headstart.prefix.blockfile import (
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    Array,
    BlockFileError,
    Damage,
    EntryKind,
    Head,
    decode,
    decode_head,
    encode,
)
from headstart.prefix.report import Reason

SUFFIX = ".safetensors"
TEMPORARY = ".tmp-"
ASIDE = ".aside-"
CATALOG = "catalog.sqlite"
LOCK = "lock"
_HEAD_READ_BYTES = 64 << 10
_DAMAGE = {Damage.CORRUPT: Reason.CORRUPT, Damage.UNREADABLE_VERSION: Reason.UNREADABLE_VERSION}


class StoreFileError(Exception):
    """An entry's file could not be used. `reason` goes into the report; `detail` names the file."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True)
class FoundFile:
    """A file with the name of an entry. `key` as its name says; the content is not looked at."""

    namespace: bytes
    key: bytes
    path: Path


class SsdFiles:
    """The files of one store. Any thread; an entry is written by one thread at a time.

    Raises ConfigError where another process owns the store, or it cannot be written and
    `read_only` was not asked for.
    """

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self.directory = directory
        self.read_only = read_only
        self._lock_file: int | None = None
        self._made: set[Path] = set()
        if read_only:
            if not directory.is_dir():
                raise ConfigError(f"the cache directory {directory} does not exist, so it cannot be read")
            return
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.chmod(0o700)
            self._lock_file = _take_lock(directory / LOCK)
        except OSError as error:
            raise ConfigError(
                f"the cache directory {directory} cannot be used: {error.strerror}; give another with "
                "--ssd-cache-dir, or turn the SSD cache off with --ssd-cache 0"
            ) from error

    def path(self, namespace: bytes, key: bytes) -> Path:
        name = key.hex()
        return self.directory / namespace.hex() / name[:2] / (name + SUFFIX)

    def write(self, head: Head, tensors: Mapping[str, Array]) -> int:
        """Writes an entry and answers the size of its file. Raises OSError, leaving nothing behind."""
        path = self.path(head.namespace, head.key)
        self._make_folder(path.parent)
        temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
        try:
            size = _write_whole(temporary, encode(head, tensors))
            temporary.rename(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        return size

    def _make_folder(self, folder: Path) -> None:
        if folder not in self._made:
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            self._made.add(folder)

    def read(self, namespace: bytes, key: bytes, kind: EntryKind) -> tuple[Head, dict[str, Array]]:
        """An entry, every byte checked. Raises StoreFileError with the reason."""
        path = self.path(namespace, key)
        try:
            head, tensors = decode(_read_whole(path))
        except FileNotFoundError as error:
            raise StoreFileError(Reason.IO_ERROR, f"{path} is missing") from error
        except OSError as error:
            raise StoreFileError(_reason_of(error), f"{path} cannot be read: {error.strerror}") from error
        except BlockFileError as error:
            reason = (
                Reason.UNREADABLE_VERSION if error.damage is Damage.UNREADABLE_VERSION else Reason.CORRUPT
            )
            raise StoreFileError(reason, f"{path}: {error}") from error
        if (head.namespace, head.key, head.kind) != (namespace, key, kind):
            raise StoreFileError(Reason.CORRUPT, f"{path} holds another entry than its name says")
        return head, tensors

    def head_of(self, found: FoundFile) -> tuple[Head, int]:
        """What a file says it is, and its size; tensors are not checked. Raises StoreFileError."""
        try:
            with _open(found.path) as file:
                size = os.fstat(file).st_size
                head, places, _ = decode_head(_head_bytes(file, size))
                if max(stop for _, _, _, stop in places.values()) != size:
                    raise BlockFileError(Damage.CORRUPT, "the file has not the size its header says")
        except OSError as error:
            raise StoreFileError(_reason_of(error), f"{found.path}: {error.strerror}") from error
        except BlockFileError as error:
            reason = (
                Reason.UNREADABLE_VERSION if error.damage is Damage.UNREADABLE_VERSION else Reason.CORRUPT
            )
            raise StoreFileError(reason, f"{found.path}: {error}") from error
        if (head.namespace, head.key) != (found.namespace, found.key):
            raise StoreFileError(Reason.CORRUPT, f"{found.path} holds another entry than its name says")
        return head, size

    def remove(self, namespace: bytes, key: bytes) -> None:
        """Removes what lies under an entry's name. Raises OSError where that cannot be done."""
        self.clear_path(self.path(namespace, key))

    def clear_path(self, path: Path) -> None:
        """Removes what lies at `path`; a folder that is not empty is moved aside, out of the way."""
        if path.is_dir() and not path.is_symlink():
            aside = path.with_name(f"{ASIDE}{time.time_ns()}-{path.name}")
            path.rename(aside)
            with contextlib.suppress(OSError):
                aside.rmdir()
        else:
            path.unlink(missing_ok=True)

    def found(self) -> Iterator[FoundFile]:
        """Every file that has the name of an entry."""
        for namespace, folder in _hex_folders(self.directory):
            for _, inner in _hex_folders(folder):
                with os.scandir(inner) as entries:
                    for entry in entries:
                        key = _hex(entry.name.removesuffix(SUFFIX))
                        if key is not None and entry.name.endswith(SUFFIX):
                            yield FoundFile(namespace, key, Path(entry.path))

    def sweep_temporary(self) -> int:
        """Removes what writes that were broken off have left; answers how many there were."""
        count = 0
        for path in self.directory.glob(f"*/*/{TEMPORARY}*"):
            path.unlink(missing_ok=True)
            count += 1
        return count

    def free_bytes(self) -> int:
        """Bytes the file system has left for this user."""
        usage = os.statvfs(self.directory)
        return usage.f_bavail * usage.f_frsize

    def close(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None


def _take_lock(path: Path) -> int:
    """Holds `path` for this process; the lock goes with the process, however it ends."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.read(file, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(file)
        raise ConfigError(
            f"the cache directory {path.parent} is in use by process {owner}; stop it, give another "
            "directory with --ssd-cache-dir, or read it without writing with --cache-read-only"
        ) from error
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file


def _write_whole(path: Path, buffers: list[bytes | Array]) -> int:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        size = 0
        for buffer in _joined(buffers):
            view = memoryview(buffer)
            while view:
                written = os.write(file, view)
                size += written
                view = view[written:]
        os.fdatasync(file)
    finally:
        os.close(file)
    return size


def _joined(buffers: list[bytes | Array]) -> Iterator[bytes]:
    """Small buffers put together, so that an entry of many planes is written in few calls."""
    small: list[bytes] = []
    size = 0
    for buffer in buffers:
        part = buffer if isinstance(buffer, bytes) else buffer.tobytes()
        small.append(part)
        size += len(part)
        if size > 1 << 20:
            yield b"".join(small)
            small, size = [], 0
    yield b"".join(small)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[int]:
    """A regular file opened for reading; a link or a folder in its place is refused."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EISDIR, "not a regular file")
        yield file
    finally:
        os.close(file)


def _read_whole(path: Path) -> npt.NDArray[np.uint8]:
    with _open(path) as file:
        data = np.empty(os.fstat(file).st_size, np.uint8)
        return data[: _read_into(file, data)]


def _read_into(file: int, data: npt.NDArray[np.uint8]) -> int:
    at = 0
    while at < len(data):
        count = os.readv(file, [memoryview(data.data)[at:]])
        if not count:
            break
        at += count
    return at


def _head_bytes(file: int, size: int) -> npt.NDArray[np.uint8]:
    """Enough of a file's beginning for its header and tokens, which come first."""
    data = np.empty(min(size, _HEAD_READ_BYTES), np.uint8)
    at = _read_into(file, data)
    header = int.from_bytes(data[:LENGTH_BYTES].tobytes(), "little")
    want = min(size, header + _HEAD_READ_BYTES, MAX_HEADER_BYTES)
    if want > len(data):
        data = np.concatenate([data[:at], np.empty(want - at, np.uint8)])
        at += _read_into(file, data[at:])
    return data[:at]


def _reason_of(error: OSError) -> Reason:
    return Reason.CORRUPT if error.errno in (errno.ELOOP, errno.EISDIR) else Reason.IO_ERROR


def _hex_folders(folder: Path) -> Iterator[tuple[bytes, Path]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = _hex(entry.name)
            if name is not None and entry.is_dir(follow_symlinks=False):
                yield name, Path(entry.path)


def _hex(name: str) -> bytes | None:
    try:
        return bytes.fromhex(name) or None
    except ValueError:
        return None
