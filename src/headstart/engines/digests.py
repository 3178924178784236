"""Digests of weights, remembered: a file that has not changed is not read again for its digest.

The memo is a JSON object: "version", and "digests" from what identifies the files to their digest.
A file is identified by path, device, inode, size and the times of its last change of content
(mtime) and of anything about it (ctime, which copying with times kept does not carry over).
"""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from blake3 import blake3

__all__ = ["content_digest", "identity", "remembered"]

VERSION = 1
MOST = 256
"""Digests remembered; the oldest go first."""
STEP_BYTES = 256 << 20

logger = logging.getLogger(__name__)


def remembered(memo: Path | None, paths: Sequence[Path], take: Callable[[], str]) -> str:
    """The digest of the files at `paths`: what `memo` says of them, else what `take` finds out, which
    `memo` then remembers. A memo that cannot be read or written is as good as none."""
    if memo is None:
        return take()
    before = identity(paths)
    known = _read(memo)
    if before in known:
        return known[before]
    digest = take()
    if identity(paths) == before:
        _write(memo, {**known, before: digest})
    return digest


def identity(paths: Sequence[Path]) -> str:
    """What tells the content of the files at `paths` from another: the key of the memo."""
    files = []
    for path in paths:
        real = path.resolve()
        found = real.stat()
        files.append(
            [str(real), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
        )
    return json.dumps(files)


def _read(memo: Path) -> dict[str, str]:
    """What is remembered; nothing where the memo is missing or damaged."""
    try:
        content = json.loads(memo.read_text(encoding="utf-8"))
        digests = content["digests"] if content["version"] == VERSION else {}
        return {key: digest for key, digest in digests.items() if _is_digest(digest)}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("%s cannot be used and is made anew: %s", memo, error)
        return {}


def _is_digest(text: object) -> bool:
    return isinstance(text, str) and len(text) == 64 and not set(text) - set("0123456789abcdef")


def _write(memo: Path, digests: dict[str, str]) -> None:
    """Writes the memo (0600) under another name and renames it: it is whole at every moment."""
    kept = dict(list(digests.items())[-MOST:])
    temporary = None
    try:
        memo.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file, temporary = tempfile.mkstemp(prefix=f".{memo.name}-", dir=memo.parent)
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            json.dump({"version": VERSION, "digests": kept}, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(memo)
    except OSError as error:
        logger.warning("the digest of the weights is not remembered: %s", error)
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def content_digest(paths: Sequence[Path], progress: Callable[[int, int], None] | None = None) -> str:
    """blake3 of the files' content, one after another, as hex; read by several threads.

    `progress` gets bytes read and bytes in all, about every 256 MB.
    """
    hasher = blake3(max_threads=blake3.AUTO)
    done, total = 0, sum(path.stat().st_size for path in paths)
    for path in paths:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            view = memoryview(content)
            for start in range(0, len(view), STEP_BYTES):
                piece = view[start : start + STEP_BYTES]
                hasher.update(piece)
                done += len(piece)
                piece.release()
                if progress is not None:
                    progress(done, total)
            view.release()
    return hasher.hexdigest()
