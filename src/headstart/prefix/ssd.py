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
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headstart.errors import ConfigError
from headstart.prefix import listing
from headstart.prefix.blockfile import (
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    Array,
    BlockFileError,
    Damage,
    EntryKind,
    Head,
    Place,
    decode,
    decode_head,
    encode,
)
from headstart.prefix.faults import FileFaults, Step
from headstart.prefix.listing import TEMPORARY, FoundFile, Names, Scan
from headstart.prefix.report import Reason

ASIDE = ".aside-"
CATALOG = "catalog.sqlite"
LOCK = "lock"
DISK_UNIT_BYTES = 4096
"""Files take up whole units of the file system."""
ROW_BYTES = 512
"""Catalog of an entry beyond its tokens, which are there too."""
_HEAD_READ_BYTES = 64 << 10
_MOST_TOKENS_BYTES = 256 << 10
"""Tokens of the largest block there may be."""
_MOST_BUFFERS = 256
_DAMAGE = {Damage.CORRUPT: Reason.CORRUPT, Damage.UNREADABLE_VERSION: Reason.UNREADABLE_VERSION}


class StoreFileError(Exception):
    """An entry's file could not be used. `reason` goes into the report; `detail` names the file.
    `tensor`: the one at fault, where it is one; `passing`: trying again may go well."""

    def __init__(
        self, reason: Reason, detail: str, tensor: str | None = None, *, passing: bool = False
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.tensor = tensor
        self.passing = passing


def disk_bytes(file_bytes: int, token_bytes: int) -> int:
    """What an entry takes up on the disk: its file in whole units, and its row in the catalog, whose
    pages are about two thirds full."""
    units = -(-file_bytes // DISK_UNIT_BYTES)
    return units * DISK_UNIT_BYTES + token_bytes * 3 // 2 + ROW_BYTES


class SsdFiles:
    """The files of one store. Any thread; an entry is written by one thread at a time.

    Raises ConfigError where another process owns the store, or it cannot be written and
    `read_only` was not asked for.
    """

    def __init__(self, directory: Path, *, read_only: bool = False, faults: FileFaults | None = None) -> None:
        self.directory = directory
        self.read_only = read_only
        self.faults = faults
        self._lock_file: int | None = None
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
        return listing.entry_path(self.directory, namespace, key)

    def write(self, head: Head, tensors: Mapping[str, Array]) -> int:
        """Writes an entry and answers the size of its file. Raises OSError, leaving nothing behind."""
        path = self.path(head.namespace, head.key)
        path.parent.parent.mkdir(mode=0o700, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
        try:
            self.at(Step.OPEN, path)
            size = self._write_whole(temporary, encode(head, tensors))
            self.at(Step.FLUSHED, temporary)
            temporary.rename(path)
            self.at(Step.RENAMED, path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        return size

    def at(self, step: Step, path: Path) -> None:
        """Where faults are injected."""
        if self.faults is not None:
            self.faults.at(step, path)

    def _write_whole(self, path: Path, buffers: list[bytes | Array]) -> int:
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            size = sum(_write_all(file, buffers[at : at + _MOST_BUFFERS]) for at in _starts(buffers))
            self.at(Step.WRITTEN, path)
            os.fdatasync(file)
        finally:
            os.close(file)
        return size

    def read(self, namespace: bytes, key: bytes, kind: EntryKind) -> tuple[Head, dict[str, Array]]:
        """An entry, every byte checked. Raises StoreFileError with the reason."""
        path = self.path(namespace, key)
        with _told(path):
            try:
                head, tensors = decode(self._read_whole(path))
            except FileNotFoundError as error:
                raise StoreFileError(Reason.IO_ERROR, f"{path} is missing") from error
        if (head.namespace, head.key, head.kind) != (namespace, key, kind):
            raise StoreFileError(Reason.CORRUPT, f"{path} holds another entry than its name says")
        return head, tensors

    def _read_whole(self, path: Path) -> npt.NDArray[np.uint8]:
        self.at(Step.READ, path)
        with _open(path) as file:
            data = np.empty(os.fstat(file).st_size, np.uint8)
            data = data[: _read_into(file, data)]
        return data if self.faults is None else self.faults.seen(data)

    def check(self, found: FoundFile) -> int:
        """Checks every byte of a file and answers their number. Raises StoreFileError, and
        FileNotFoundError where it is gone."""
        with _told(found.path):
            data = self._read_whole(found.path)
            _check_name(found, decode(data)[0])
        return len(data)

    def head_of(self, found: FoundFile) -> tuple[Head, int]:
        """What a file says it is, and its size; tensors are not checked. Raises StoreFileError, and
        FileNotFoundError where it is gone."""
        with _told(found.path):
            with _open(found.path) as file:
                size = os.fstat(file).st_size
                head, places = _decode_head(file, size)
            if max(stop for _, _, _, stop in places.values()) != size:
                raise BlockFileError(Damage.CORRUPT, "the file has not the size its header says")
            _check_name(found, head)
        return head, size

    def found(self) -> Iterator[FoundFile]:
        """All that has the name of an entry."""
        yield from self.scan().entries

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

    def names(self) -> Names:
        return listing.names(self.directory)

    def found_at(self, namespace: bytes, key: bytes) -> FoundFile:
        """What lies under the name of an entry. Raises FileNotFoundError where nothing does."""
        return listing.found_at(self.directory, namespace, key)

    def scan(self) -> Scan:
        return listing.scan(self.directory)

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
    except BlockingIOError as error:
        owner = os.read(file, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(file)
        raise ConfigError(
            f"the cache directory {path.parent} is in use by process {owner}; stop it, give another "
            "directory with --ssd-cache-dir, or read it without writing with --cache-read-only"
        ) from error
    except OSError:
        os.close(file)
        raise
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file


def _starts(buffers: list[bytes | Array]) -> range:
    return range(0, len(buffers), _MOST_BUFFERS)


def _write_all(file: int, buffers: Sequence[bytes | Array]) -> int:
    """Writes `buffers` one behind the other without copying them; answers their size."""
    views = [memoryview(b if isinstance(b, bytes) else b.data).cast("B") for b in buffers]
    size = sum(view.nbytes for view in views)
    left = deque(views)
    while left:
        written = os.writev(file, left)
        while left and written >= left[0].nbytes:
            written -= left.popleft().nbytes
        if written:
            left[0] = left[0][written:]
    return size


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """What goes wrong with the file at `path` as a StoreFileError; a missing one stays what it is."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = _reason_of(error)
        detail = f"{path} cannot be read: {error.strerror}"
        raise StoreFileError(reason, detail, passing=reason is Reason.IO_ERROR) from error
    except BlockFileError as error:
        raise StoreFileError(_DAMAGE[error.damage], f"{path}: {error}", error.tensor) from error


def _check_name(found: FoundFile, head: Head) -> None:
    if (head.namespace, head.key) != (found.namespace, found.key):
        raise BlockFileError(Damage.CORRUPT, "it holds another entry than its name says")


@contextlib.contextmanager
def _open(path: Path) -> Iterator[int]:
    """A regular file opened for reading; a link or a folder in its place is refused, and a pipe that
    nobody writes to is not waited for."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EISDIR, "not a regular file")
        yield file
    finally:
        os.close(file)


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


def _decode_head(file: int, size: int) -> tuple[Head, dict[str, Place]]:
    """What `decode_head` finds; tokens that reach beyond the usual beginning are read too."""
    data = _head_bytes(file, size)
    try:
        head, places, _ = decode_head(data)
    except BlockFileError as error:
        if error.tensor != "tokens" or len(data) >= size:
            raise
        more = np.empty(min(size - len(data), _MOST_TOKENS_BYTES), np.uint8)
        head, places, _ = decode_head(np.concatenate([data, more[: _read_into(file, more)]]))
    return head, places


def _reason_of(error: OSError) -> Reason:
    """A link, a folder or a socket in a file's place is damage; the rest is the medium's."""
    other = error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO)
    return Reason.CORRUPT if other else Reason.IO_ERROR
