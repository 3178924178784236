"""What all connections of a proxy share: the server behind, who is told, who may come in."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from headstart.blame.bodies import dialect_of
from headstart.blame.proxy.answers import host_is_local
from headstart.blame.proxy.heads import Upstream, path_and_query
from headstart.blame.proxy.passing import RECORDED_BYTES, Passing
from headstart.blame.proxy.side import Side
from headstart.blame.proxy.wire import Head

Listener = Callable[[Passing], None]
Mend = Callable[[Passing, bytes], Awaitable[bytes]]

_CONNECT_S = 10.0


@dataclass(frozen=True)
class Service:
    """`finished`: is told of each exchange that had a prompt. `mend`: gets whole bodies and answers with what
    to send in their place; without it bodies are never held. `any_host`: requests are taken whatever name the
    client calls this machine by. `limit`: bytes of a body that are kept for the record."""

    upstream: Upstream
    finished: Listener
    mend: Mend | None = None
    any_host: bool = False
    limit: int = RECORDED_BYTES
    tls: ssl.SSLContext | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tls", ssl.create_default_context() if self.upstream.tls else None)

    async def connect(self) -> Side:
        """A new connection to the server behind. Raises OSError."""
        to = self.upstream
        name = to.host if self.tls else None
        opening = asyncio.get_running_loop().create_connection(
            lambda: Side(replies=True), to.host, to.port, ssl=self.tls, server_hostname=name
        )
        try:
            _, side = await asyncio.wait_for(opening, _CONNECT_S)
        except TimeoutError:
            raise OSError(f"no connection within {_CONNECT_S:.0f} s") from None
        except UnicodeError:
            raise OSError(f"{to.host!r} is not the name of a host") from None
        return side

    def passing(self, head: Head) -> Passing:
        path, _, query = path_and_query(head).decode("utf-8", "replace").partition("?")
        dialect = dialect_of(path) if head.method == b"POST" else None
        return Passing(head, path, query, dialect, self.limit)

    def tell(self, passing: Passing) -> None:
        if passing.dialect is not None:
            self.finished(passing)

    def refusal(self, head: Head) -> str | None:
        """Why a request is not passed on: a page in a browser must not reach the server through a name of its
        own, which the server would not see."""
        host = (head.get(b"host") or b"").decode("latin-1")
        if head.method == b"CONNECT":
            return "headstart watch is a proxy for one server; set it as the server's URL, not as a proxy"
        if self.any_host or not host or host_is_local(host):
            return None
        return (
            f"headstart watch answers to localhost and 127.0.0.1, not to {host!r}; --allow-remote allows all"
        )
