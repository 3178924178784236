"""Questions to a thread: answered there, in order, and never left without an answer."""

from __future__ import annotations

import threading

import pytest

from headstart.errors import EngineError
from headstart.serving.calls import Calls


def test_work_is_done_on_the_thread_that_runs_it() -> None:
    woken = threading.Event()
    calls = Calls(woken.set)
    found: list[int] = []
    asker = threading.Thread(target=lambda: found.append(calls.ask(threading.get_ident).result(10)))
    asker.start()
    assert woken.wait(10)
    calls.run()
    asker.join()
    assert found == [threading.get_ident()]


def test_an_error_goes_to_its_asker_alone() -> None:
    calls = Calls(lambda: None)
    bad, good = calls.ask(lambda: 1 // 0), calls.ask(lambda: 7)
    calls.run()
    with pytest.raises(ZeroDivisionError):
        bad.result(0)
    assert good.result(0) == 7


def test_one_that_nobody_waits_for_any_more_is_left_out() -> None:
    calls = Calls(lambda: None)
    done: list[int] = []
    calls.ask(lambda: done.append(1)).cancel()
    calls.run()
    assert done == []


def test_after_the_end_every_question_fails_with_why() -> None:
    calls = Calls(lambda: None)
    before = calls.ask(lambda: 1)
    calls.close(EngineError("it is over"))
    for future in (before, calls.ask(lambda: 2)):
        with pytest.raises(EngineError, match="it is over"):
            future.result(0)
