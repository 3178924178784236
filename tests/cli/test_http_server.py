"""The end of a server: requests that go on too long are ended with an answer, not cut off."""

from __future__ import annotations

import json
import threading
import time

import httpx

from headstart.cli.http_server import HttpServer
from headstart.cli.listen import open_socket, url_of
from headstart.cli.server import assemble
from headstart.config import Settings
from headstart.engines.toy import ToyEngine


def test_a_long_reply_is_ended_with_an_error_event_after_the_grace_time() -> None:
    engine = ToyEngine(step_delay_s=0.02)
    scheduler, app = assemble(Settings(engine="toy"), engine, load_s=0.0)
    server = HttpServer(app, scheduler, grace_s=0.3)
    scheduler.start()
    with open_socket("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        body = {"prompt": "hello", "max_tokens": 3000, "stream": True, "ignore_eos": True}
        with httpx.stream("POST", f"{url_of(listener)}/v1/completions", json=body, timeout=30) as reply:
            lines = (line for line in reply.iter_lines() if line.startswith("data:"))
            next(lines)
            told_s = time.monotonic()
            server.should_exit = True
            *_, error, done = lines
        thread.join(timeout=30)
    assert "the server is shutting down" in json.loads(error.removeprefix("data: "))["error"]["message"]
    assert done == "data: [DONE]"
    assert 0.3 <= time.monotonic() - told_s < 5
    assert not thread.is_alive()
    assert not scheduler.alive
    engine.shutdown()
