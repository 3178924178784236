"""The eviction queue: lowest priority first, outdated places tolerated, no garbage kept."""

from __future__ import annotations

import random

from headstart.prefix.eviction import EvictionQueue
from headstart.prefix.tree import Entry


class Thing(Entry):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value
        self.free = True


def thing_priority(entry: Entry) -> float:
    assert isinstance(entry, Thing)
    return entry.clock + entry.value


def is_free(entry: Entry) -> bool:
    assert isinstance(entry, Thing)
    return entry.free


def make() -> EvictionQueue:
    return EvictionQueue(thing_priority, is_free)


def test_the_least_worth_goes_first_and_the_clock_follows() -> None:
    queue = make()
    things = [Thing(value) for value in (3.0, 1.0, 2.0)]
    for thing in things:
        queue.offer(thing)
    assert [queue.take() for _ in range(4)] == [things[1], things[2], things[0], None]
    assert queue.clock == 3.0


def test_an_entry_used_since_is_placed_anew() -> None:
    queue = make()
    used, idle = Thing(1.0), Thing(2.0)
    queue.offer(used)
    queue.offer(idle)
    used.clock = 5.0
    assert queue.take() is idle
    assert queue.take() is used
    assert queue.clock == 6.0


def test_one_that_may_not_go_is_passed_over_and_can_be_offered_again() -> None:
    queue = make()
    thing = Thing(1.0)
    queue.offer(thing)
    thing.free = False
    assert queue.take() is None
    thing.free = True
    queue.offer(thing)
    assert queue.take() is thing


def test_offering_twice_keeps_one_place() -> None:
    queue = make()
    thing = Thing(1.0)
    queue.offer(thing)
    queue.offer(thing)
    assert len(queue) == 1


def test_what_is_gone_does_not_pile_up() -> None:
    queue = make()
    kept = Thing(1e9)
    queue.offer(kept)
    for value in range(10_000):
        thing = Thing(float(value))
        queue.offer(thing)
        thing.free = False
        queue.forget(thing)
        assert len(queue) < 300
    assert queue.take() is kept


def test_evicting_does_not_search_the_whole_queue() -> None:
    queue, looks = make(), 0

    def counted(entry: Entry) -> float:
        nonlocal looks
        looks += 1
        return thing_priority(entry)

    queue._priority = counted
    order = random.Random(1)
    things = [Thing(order.random()) for _ in range(20_000)]
    for thing in things:
        queue.offer(thing)
    looks = 0
    for _ in range(1000):
        assert queue.take() is not None
    assert looks <= 2000
