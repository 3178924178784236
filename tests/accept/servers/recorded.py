"""A small local server that gives recorded replies, for tests of accept/servers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headstart.accept.http import SmallRequests


@dataclass(frozen=True)
class Reply:
    """A recorded reply. `needs_cookie`: 401 without it."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    needs_cookie: str | None = None


@dataclass
class Recorded:
    """`http`: for the server under test. `posts`: what was posted, by path."""

    http: SmallRequests
    posts: dict[str, list[Any]]


@contextmanager
def recorded(replies: Mapping[str, Any], *, api_key: str | None = None) -> Iterator[Recorded]:
    """Serves `replies`: by "GET /path" (query and all) or "POST /path", a Reply or its body. Text is sent
    as it is, everything else as JSON; what is not there is 404."""
    posts: dict[str, list[Any]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            posts.setdefault(self.path, []).append(json.loads(self.rfile.read(length) or "null"))
            self._answer("POST")

        def _answer(self, method: str) -> None:
            found = replies.get(f"{method} {self.path}", Reply({"error": "not found"}, 404))
            reply = found if isinstance(found, Reply) else Reply(found)
            cookie = reply.needs_cookie
            if cookie is not None and cookie not in (self.headers.get("Cookie") or ""):
                reply = Reply({"detail": "login"}, 401)
            text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    http = SmallRequests(f"http://127.0.0.1:{server.server_port}", api_key)
    try:
        yield Recorded(http, posts)
    finally:
        http.close()
        server.shutdown()
        server.server_close()
        thread.join()
