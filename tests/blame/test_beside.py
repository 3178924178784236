"""The process beside: it gets what passed, in order and whole, and nobody waits for it."""

from __future__ import annotations

import io
import pickle
import sys
import time
from pathlib import Path

import pytest

from headstart.blame import beside
from headstart.blame.beside import Beside, handed
from headstart.blame.exchange import Dialect
from headstart.blame.proxy.passing import Passing
from headstart.blame.proxy.wire import Head
from tests.blame.proxying import wait_for


def passed(nbytes: int, number: int = 0) -> Passing:
    head = Head(b"1.1", ((b"X-Number", b"%d" % number),), True, method=b"POST", target=b"/")
    one = Passing(head, "/", "", Dialect.OPENAI_CHAT)
    one.sent(b"x" * nbytes)
    one.came(b"a reply")
    return one


def command(code: str) -> list[str]:
    return [sys.executable, "-c", code]


COUNTING = """
import sys
from headstart.blame.beside import handed
with open(sys.argv[1], "w") as told:
    for one in handed(sys.stdin.buffer):
        print(one.head.headers[0][1].decode(), sum(map(len, one.request)), one.pieces[0][0], file=told)
"""


def test_all_of_it_is_handed_over_in_order(tmp_path: Path) -> None:
    told = tmp_path / "told"
    troubles: list[str] = []
    one = Beside([*command(COUNTING), str(told)], troubles.append)
    for number, nbytes in enumerate((0, 10, 3_000_000, 100_000)):
        one.finished(passed(nbytes, number))
    one.close()
    assert told.read_text().splitlines() == [
        f"{number} {nbytes} b'a reply'" for number, nbytes in enumerate((0, 10, 3_000_000, 100_000))
    ]
    assert troubles == []


def test_nobody_waits_for_it_and_what_is_too_much_is_let_go_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "WAITING_BYTES", 5_000_000)
    troubles: list[str] = []
    code = "import sys, time; time.sleep(0.7); sys.stdin.buffer.read()"
    one = Beside(command(code), troubles.append)
    began = time.perf_counter()
    for _ in range(10):
        one.finished(passed(1_000_000))
    assert time.perf_counter() - began < 0.5
    one.close()
    assert troubles == ["6 exchanges passed faster than they can be judged, and were let go"]


def test_where_it_ends_the_rest_goes_on_and_that_is_said_once() -> None:
    troubles: list[str] = []
    one = Beside(command(""), troubles.append)
    for _ in range(40):
        one.finished(passed(200_000))
        time.sleep(0.01)
    wait_for(lambda: bool(troubles))
    one.finished(passed(10))
    one.close()
    assert len(troubles) == 1
    assert "all is passed on as before" in troubles[0]


def test_a_proxy_that_was_killed_ends_it_without_a_traceback() -> None:
    whole = pickle.dumps(passed(1000))
    assert len(list(handed(io.BytesIO(whole + whole[:-20])))) == 1
    assert list(handed(io.BytesIO(b""))) == []
