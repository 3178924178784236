"""Chosen entries of a store as one file, for another machine with the same model.

An archive is an uncompressed tar (POSIX pax) of entry files under their own names,
`<namespace, hex>/<key, hex>.safetensors`, in an order that depends on the entries alone: an entry
comes after those it needs. A member's modification time is the entry's last use; owner, group and
mode are the same for all. Everything is checked when it is put in, and again when it is taken out.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from headstart.errors import ConfigError
from headstart.prefix.blockfile import Array, BlockFileError, EntryKind, Head, decode, encode
from headstart.prefix.catalog import Listed
from headstart.prefix.inventory import file_name
from headstart.prefix.listing import SUFFIX
from headstart.prefix.ssd import SsdFiles, StoreFileError

Progress = Callable[[int, int], None]
"""Called with how many bytes are done and how many there are."""

_NAME = re.compile(rf"((?:[0-9a-f]{{2}}){{1,64}})/([0-9a-f]{{64}}){re.escape(SUFFIX)}")
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)


@dataclass(frozen=True)
class Exported:
    """What went into an archive. `left_out`: why entries did not, one sentence each."""

    entries: int
    nbytes: int
    left_out: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Member:
    """One entry of an archive, every byte checked. `used_s`: Unix time of its last use."""

    head: Head
    tensors: dict[str, Array]
    nbytes: int
    used_s: float


def in_order(entries: Iterable[Listed]) -> list[Listed]:
    """`entries` so that each comes after those it needs: a mark needs the block its position lies in."""

    def rank(entry: Listed) -> tuple[bytes, int, bool, bytes]:
        is_mark = entry.kind is not EntryKind.BLOCK
        return entry.namespace, entry.level + is_mark, is_mark, entry.key

    return sorted(entries, key=rank)


def write_archive(
    target: Path, files: SsdFiles, entries: Iterable[Listed], progress: Progress | None = None
) -> Exported:
    """Writes `entries` of the store behind `files` to `target`, which must not exist yet.

    A file that cannot be used is left out, with all that needs it. Raises ConfigError where `target`
    exists or cannot be written; nothing is left there then.
    """
    try:
        file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ConfigError(f"{target} exists already and is not overwritten; choose another name") from None
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(file, "wb") as stream:
            exported = _write(stream, files, in_order(entries), progress)
            stream.flush()
            os.fsync(file)
    except BaseException as error:
        with suppress(OSError):
            target.unlink()
        if isinstance(error, OSError):
            raise ConfigError(f"{target} cannot be written: {error.strerror}") from error
        raise
    return exported


def _write(stream: IO[bytes], files: SsdFiles, entries: list[Listed], progress: Progress | None) -> Exported:
    total = sum(entry.nbytes for entry in entries)
    nbytes = 0
    left_out: list[str] = []
    blocks: dict[bytes, list[bytes]] = {}
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            if not _needs_are_met(entry.head, blocks):
                left_out.append(f"{file_name(entry)}: what it needs was left out")
                continue
            try:
                data = _file_bytes(files, entry)
            except StoreFileError as error:
                left_out.append(str(error))
                continue
            tar.addfile(_info(entry, len(data)), io.BytesIO(data))
            _note(entry.head, blocks)
            nbytes += len(data)
            if progress is not None:
                progress(nbytes, total)
    return Exported(len(entries) - len(left_out), nbytes, tuple(left_out))


def _needs_are_met(head: Head, blocks: dict[bytes, list[bytes]]) -> bool:
    """Whether the block before `head`, or for a mark the rows of its position, is among `blocks`:
    the tokens of the blocks there are, by the key of what they hang on."""
    if head.kind is not EntryKind.BLOCK:
        return any(tokens.startswith(head.tokens) for tokens in blocks.get(head.parent, ()))
    return head.parent == head.namespace or head.parent in blocks


def _note(head: Head, blocks: dict[bytes, list[bytes]]) -> None:
    if head.kind is EntryKind.BLOCK:
        blocks.setdefault(head.parent, []).append(head.tokens)
        blocks.setdefault(head.key, [])


def _file_bytes(files: SsdFiles, entry: Listed) -> bytes:
    head, tensors = files.read(entry.namespace, entry.key, entry.kind)
    return b"".join(part if isinstance(part, bytes) else part.tobytes() for part in encode(head, tensors))


def _info(entry: Listed, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(file_name(entry))
    info.size, info.mode, info.mtime = size, 0o600, int(entry.used_s)
    return info


def read_archive(source: Path, progress: Progress | None = None) -> Iterator[Member]:
    """Every entry of an archive, checked: its name, its kind, its size, every checksum, and that what it
    needs came before. Raises ConfigError at the first thing that is wrong.

    Only names of the form in this module's description are taken, and nothing but plain files; nothing
    is ever unpacked by name.
    """
    blocks: dict[bytes, list[bytes]] = {}
    try:
        whole = source.stat().st_size
        with tarfile.open(source, mode="r:") as tar:
            for info in tar:
                member = _member(source, tar, info, whole)
                if not _needs_are_met(member.head, blocks):
                    raise ConfigError(f"{source}: {info.name} comes without what it needs")
                _note(member.head, blocks)
                yield member
                if progress is not None:
                    progress(tar.offset, whole)
            _check_end(source, tar.offset)
    except tarfile.TarError as error:
        raise ConfigError(f"{source} is not an archive of `headstart cache export`: {error}") from None
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror or error}") from None


def _check_end(source: Path, offset: int) -> None:
    """A member's header that was damaged, or cut off, reads as the end of the archive. The true end is
    two blocks of zeros or more, and nothing behind them."""
    with source.open("rb") as stream:
        stream.seek(offset)
        count = 0
        while part := stream.read(1 << 20):
            count += len(part)
            if part.strip(b"\0"):
                raise ConfigError(f"{source} is damaged: what follows byte {offset} is not an entry")
    if count < 2 * tarfile.BLOCKSIZE:
        raise ConfigError(f"{source} is not complete: its end is missing")


def _member(source: Path, tar: tarfile.TarFile, info: tarfile.TarInfo, whole: int) -> Member:
    name = _NAME.fullmatch(info.name)
    if name is None or info.type not in _PLAIN or info.issparse():
        raise ConfigError(f"{source}: {info.name!r} has no place in an archive of `headstart cache export`")
    if info.size > whole:
        raise ConfigError(f"{source}: {info.name} is said to be larger than the archive")
    stream = tar.extractfile(info)
    assert stream is not None
    data = stream.read()
    try:
        head, tensors = decode(np.frombuffer(data, np.uint8))
    except BlockFileError as error:
        raise ConfigError(f"{source}: {info.name} cannot be used: {error}") from None
    if (head.namespace.hex(), head.key.hex()) != name.groups():
        raise ConfigError(f"{source}: {info.name} holds another entry than its name says")
    return Member(head, tensors, len(data), float(info.mtime))
