"""Models from the hub, fetched by huggingface_hub from a server that stands in for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

FILES = {
    "/owner/repository/resolve/main/small.gguf": b"GGUF whole",
    "/owner/repository/resolve/main/q4/big-00001-of-00002.gguf": b"GGUF first",
    "/owner/repository/resolve/main/q4/big-00002-of-00002.gguf": b"GGUF second",
}
COMMIT = "0123456789" * 4


class Hub(BaseHTTPRequestHandler):
    """Answers like the hub does for a file of a public repository."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        content = FILES.get(self.path, b"")
        self.send_response(200 if content else 404)
        if not content:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("ETag", f'"{hash(self.path) & 0xFFFFFFFF:040x}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def resolved(source: str, hub: str, home: Path) -> subprocess.CompletedProcess[str]:
    """What a new process makes of `source`: the hub's address is read once, at import."""
    code = (
        "import sys\n"
        "from headstart.engines.llamacpp.source import resolve\n"
        "from headstart.errors import ModelError\n"
        "try:\n"
        "    print(*[path.read_bytes().decode() for path in resolve(sys.argv[1]).paths], sep='\\n')\n"
        "except ModelError as error:\n"
        "    sys.exit(str(error))\n"
    )
    environment = {**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, source], env=environment, capture_output=True, text=True, check=False
    )


def test_a_file_of_the_hub(hub: str, tmp_path: Path) -> None:
    done = resolved("hf:owner/repository/small.gguf", hub, tmp_path)
    assert done.stdout.split("\n") == ["GGUF whole", ""], done.stderr


def test_all_parts_of_a_split_model_are_fetched(hub: str, tmp_path: Path) -> None:
    done = resolved("hf:owner/repository/q4/big-00001-of-00002.gguf", hub, tmp_path)
    assert done.stdout.split("\n") == ["GGUF first", "GGUF second", ""], done.stderr


def test_a_file_that_is_not_there_is_named(hub: str, tmp_path: Path) -> None:
    done = resolved("hf:owner/repository/other.gguf", hub, tmp_path)
    assert done.returncode == 1
    assert "hf:owner/repository/other.gguf cannot be fetched" in done.stderr
