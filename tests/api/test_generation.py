"""The bridge from the engine thread: nothing is lost, nothing is reordered, the loop wakes rarely."""

from __future__ import annotations

import asyncio
import threading
import time

from headstart.api.generation import Inbox
from headstart.serving.request import Delta


def test_events_of_many_threads_arrive_once_and_in_order() -> None:
    async def run() -> list[list[int]]:
        inbox = Inbox()
        seen: list[list[int]] = [[], [], []]

        def feed(index: int) -> None:
            sink = inbox.sink(index)
            for token in range(3000):
                sink(Delta(token, ""))
                if token % 500 == 0:
                    time.sleep(0.001)

        threads = [threading.Thread(target=feed, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        while sum(map(len, seen)) < 9000:
            events = await inbox.take(5.0)
            assert events, "an event was lost"
            for index, event in events:
                assert isinstance(event, Delta)
                seen[index].append(event.token)
        for thread in threads:
            thread.join()
        return seen

    assert asyncio.run(run()) == [list(range(3000))] * 3


def test_many_events_wake_the_loop_once() -> None:
    async def run() -> int:
        inbox = Inbox()
        wakes = 0
        call = inbox._loop.call_soon_threadsafe

        def counted(*arguments: object) -> object:
            nonlocal wakes
            wakes += 1
            return call(*arguments)  # type: ignore[arg-type]

        inbox._loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
        sink = inbox.sink(0)
        for token in range(1000):
            sink(Delta(token, ""))
        assert len(await inbox.take(1.0)) == 1000
        sink(Delta(0, ""))
        assert len(await inbox.take(1.0)) == 1
        return wakes

    assert asyncio.run(run()) <= 2


def test_take_times_out_and_wakes() -> None:
    async def run() -> None:
        inbox = Inbox()
        assert await inbox.take(0.01) == []
        asyncio.get_running_loop().call_later(0.01, inbox.wake)
        started_s = time.perf_counter()
        assert await inbox.take(5.0) == []
        assert time.perf_counter() - started_s < 2

    asyncio.run(run())


def test_sink_outlives_its_loop() -> None:
    async def run() -> Inbox:
        return Inbox()

    inbox = asyncio.run(run())
    inbox.sink(0)(Delta(1, "late"))
