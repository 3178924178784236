"""What `headstart accept` leaves behind and answers with where it cannot begin."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from headstart.cli import main
from tests.accept.scripted import http, scripted

LISTED = json.dumps({"data": [{"id": "small"}, {"id": "large"}]}).encode()
REFUSED = json.dumps({"error": {"message": "no such model"}}).encode()


def unused_address() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}"


def no_such_model(connection: socket.socket, request: bytes) -> None:
    listed = request.startswith(b"GET /v1/models ")
    connection.sendall(http(LISTED) if listed else http(REFUSED, "404 Not Found"))


def test_where_nothing_answers_no_directory_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address, out = unused_address(), tmp_path / "results"
    assert main(["accept", f"{address}/v1", "--out", str(out)]) == 1
    said = capsys.readouterr().err
    assert f"nothing answers at {address} (tried /v1/models, /health, /)" in said
    assert "start the server, or check address and port" in said
    assert not out.exists()


def test_a_wrong_model_leaves_no_directory_and_names_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results"
    with scripted(no_such_model) as address:
        assert main(["accept", address, "--model", "huge", "--out", str(out)]) == 1
    said = capsys.readouterr().err
    assert "no such model" in said
    assert "give --model with a name it lists: small, large" in said
    assert not out.exists()


def test_a_directory_that_is_there_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accept", unused_address(), "--out", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_what_a_spawned_server_said_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "results"
    spawn = "sh -c 'echo no model; exit 3'"
    assert main(["accept", unused_address(), "--spawn", spawn, "--out", str(out)]) == 1
    assert (out / "server.log").read_text() == "no model\n"
    assert (out / "results.json").exists()
