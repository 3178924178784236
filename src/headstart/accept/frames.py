"""Cuts a stream's bytes into payloads, as they arrive."""

from __future__ import annotations

from headstart.accept.wires import Framing


class Frames:
    """Feed bytes, get payloads. Comments of server-sent events come out with their colon."""

    def __init__(self, framing: Framing) -> None:
        self._framing = framing
        self._rest = b""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[str]:
        """Payloads that `chunk` completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [payload for line in lines for payload in self._line(line.rstrip(b"\r"))]

    def end(self) -> list[str]:
        """What is left when the stream ends: a last line or event without its terminator."""
        last = self._line(self._rest) if self._rest else []
        self._rest = b""
        return last + self._flush()

    def _line(self, raw: bytes) -> list[str]:
        line = raw.decode("utf-8", "replace")
        if self._framing is Framing.LINES:
            return [line] if line.strip() else []
        if not line:
            return self._flush()
        if line.startswith(":"):
            return [line]
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
            return []
        if name in ("event", "id", "retry"):
            return []
        return [line]

    def _flush(self) -> list[str]:
        data, self._data = self._data, []
        return ["\n".join(data)] if data else []
