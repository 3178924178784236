"""From the bytes of a body to its payloads: compression taken off, events and lines cut apart.

Nothing here raises on what a server sends: what cannot be understood is named once, and the rest goes on.
"""

from __future__ import annotations

import importlib
import re
import zlib
from collections.abc import Iterator
from typing import Any

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Decoder:
    """Takes a Content-Encoding off, piece by piece. `problem` says why it could not."""

    def __init__(self, encoding: str | None) -> None:
        self.problem: str | None = None
        self._decode: Any = None
        name = (encoding or "identity").strip().lower()
        if name in ("identity", ""):
            return
        self._decode = _decompressor(name)
        if self._decode is None:
            self.problem = f"the body is compressed as {name!r}, which cannot be read here"

    def feed(self, chunk: bytes) -> bytes:
        """What `chunk` says; nothing once there was a problem."""
        if self.problem is not None:
            return b""
        if self._decode is None:
            return chunk
        try:
            return bytes(self._decode(chunk))
        except Exception as problem:  # noqa: BLE001 - zlib's, brotli's and zstandard's errors share no base
            self.problem = f"the compressed body is damaged: {problem}"
            return b""


def _decompressor(name: str) -> Any:
    """A function from compressed bytes to bytes, None where this Python has none for `name`."""
    if name in ("gzip", "x-gzip", "deflate"):
        return _Deflate().feed
    try:
        if name == "br":
            brotli: Any = importlib.import_module("brotli").Decompressor()
            return getattr(brotli, "process", None) or brotli.decompress
        if name == "zstd":
            return importlib.import_module("compression.zstd").ZstdDecompressor().decompress
    except ImportError:
        pass
    return None


class _Deflate:
    """gzip, zlib and, as some servers send it, bare deflate."""

    def __init__(self) -> None:
        self._one = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._begun = False

    def feed(self, chunk: bytes) -> bytes:
        try:
            out = self._one.decompress(chunk)
        except zlib.error:
            if self._begun:
                raise
            self._one = zlib.decompressobj(-zlib.MAX_WBITS)
            out = self._one.decompress(chunk)
        self._begun = True
        return out


class Events:
    """Server-sent events: feed bytes, get the `data` of every event that is complete."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._rest.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk and self._rest[-2:-1] != [b"\r"]:
            return
        text = b"".join(self._rest)
        # A line feed that belongs to a last carriage return may still be to come.
        held = b"\r" if text.endswith(b"\r") else b""
        *lines, rest = _LINE_END.split(text[: len(text) - len(held)])
        self._rest = [part for part in (rest, held) if part]
        for line in lines:
            yield from self._line(line)

    def end(self) -> Iterator[bytes]:
        """What was left without its terminator."""
        rest, self._rest = b"".join(self._rest).rstrip(b"\r"), []
        if rest:
            yield from self._line(rest)
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[bytes]:
        if not line:
            if self._data:
                yield b"\n".join(self._data)
                self._data = []
        elif line.removeprefix(b"\xef\xbb\xbf").startswith(b"data:"):
            self._data.append(line.partition(b":")[2].removeprefix(b" "))


class Lines:
    """JSON lines: feed bytes, get every line that is complete and not empty."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._rest.append(chunk)
        if b"\n" in chunk:
            *lines, rest = b"".join(self._rest).split(b"\n")
            self._rest = [rest]
            yield from (line for line in lines if line.strip())

    def end(self) -> Iterator[bytes]:
        rest, self._rest = b"".join(self._rest), []
        if rest.strip():
            yield rest


class Whole:
    """A body that is one document: one payload, at its end."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._parts.append(chunk)
        yield from ()

    def end(self) -> Iterator[bytes]:
        body, self._parts = b"".join(self._parts), []
        if body.strip():
            yield body
