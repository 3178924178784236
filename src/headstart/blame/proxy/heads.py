"""Heads as they are passed on: every line as it was, but for those that concern one connection only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from headstart.blame.proxy.wire import Head, Header
from headstart.errors import ConfigError

_PORTS = {"http": 80, "https": 443}
_OFFERS = (b"upgrade", b"http2-settings", b"proxy-connection", b"proxy-authorization")
_CHUNKED = b"transfer-encoding"
_LENGTH = b"content-length"


@dataclass(frozen=True)
class Upstream:
    """The server behind. `prefix`: a path its URLs begin with, "" or like /api."""

    url: str
    host: str
    port: int
    tls: bool
    prefix: str
    netloc: str


def upstream_of(url: str) -> Upstream:
    """From a URL. Raises ConfigError."""
    wrong = f"--upstream {url!r}: expected the URL of a server, like http://127.0.0.1:11434"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(wrong) from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ConfigError(wrong)
    return Upstream(
        url=url.rstrip("/"),
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        tls=parts.scheme == "https",
        prefix=parts.path.rstrip("/"),
        netloc=parts.netloc,
    )


def request_head(head: Head, upstream: Upstream, length: int | None = None) -> bytes:
    """The head that goes to `upstream`. `length`: of a body that was held back, and is whole."""
    first = b"%s %s HTTP/1.1\r\n" % (head.method, upstream.prefix.encode() + path_and_query(head))
    host = upstream.netloc.encode("idna" if not upstream.netloc.isascii() else "ascii")
    lines = []
    for name, value in _passed(head):
        plain = name.lower()
        if plain == b"host":
            lines.append((name, host))
        elif length is None or plain not in (_LENGTH, _CHUNKED, b"expect"):
            lines.append((name, value))
        elif plain != b"expect":
            lines.append((name if plain == _LENGTH else b"Content-Length", b"%d" % length))
    if head.get(b"host") is None:
        lines.append((b"Host", host))
    return first + written(lines)


def reply_head(head: Head, *, chunks: bool) -> bytes:
    """The head that goes to the client. `chunks` false: it does not know chunks, so its end is the end of the
    connection."""
    lines = (one for one in _passed(head) if chunks or one[0].lower() != _CHUNKED)
    return b"HTTP/%s %d %s\r\n" % (head.version, head.status, head.reason) + written(lines)


def written(lines: Iterable[Header]) -> bytes:
    """Header lines and the empty line after them."""
    return b"".join(b"%s: %s\r\n" % one for one in lines) + b"\r\n"


def path_and_query(head: Head) -> bytes:
    """What is asked for, without scheme and host where the client gave those too."""
    if head.target.startswith((b"http://", b"https://")):
        _, _, rest = head.target.partition(b"://")
        return b"/" + rest.partition(b"/")[2]
    return head.target


def _passed(head: Head) -> Iterator[Header]:
    """Headers but those that are for the next hop only. `Connection: keep-alive` and `close` hold for both
    connections, as each client's connection has one of its own behind it."""
    named = [word.strip().lower() for word in (head.get(b"connection") or b"").split(b",")]
    plain = all(word in (b"keep-alive", b"close", b"") for word in named)
    dropped = {*_OFFERS, *(() if plain else (b"connection", *named))}
    for name, value in head.headers:
        if name.lower() not in dropped:
            yield name, value
