"""The memory of evictions: exact within its bounds."""

from __future__ import annotations

from headstart.prefix.evicted import Evicted
from headstart.prefix.keys import token_bytes
from tests.prefix.fake import run


def test_it_says_how_much_of_a_run_was_there() -> None:
    evicted = Evicted(10)
    evicted.add(b"p", token_bytes(run(1, 2, 3)))
    evicted.add(b"p", token_bytes(run(1, 9)))
    assert evicted.shared(b"p", token_bytes(run(1, 2, 4))) == 2
    assert evicted.shared(b"p", token_bytes(run(2))) == 0
    assert evicted.shared(b"q", token_bytes(run(1, 2, 3))) == 0


def test_within_wants_the_whole_run() -> None:
    evicted = Evicted(10)
    evicted.add(b"p", token_bytes(run(1)))
    evicted.add(b"p", token_bytes(run(1, 2, 3)))
    assert evicted.within(b"p", token_bytes(run(1, 2, 3, 4))) == 3
    assert evicted.within(b"p", token_bytes(run(1, 2))) == 1
    assert evicted.within(b"p", token_bytes(run(2))) == 0


def test_the_oldest_is_forgotten_first_and_none_is_kept_beyond_the_capacity() -> None:
    evicted = Evicted(3)
    for number in range(5):
        evicted.add(b"p" if number % 2 else b"q", token_bytes(run(number)))
    assert len(evicted) == 3
    assert not evicted.shared(b"p", token_bytes(run(1)))
    assert not evicted.shared(b"q", token_bytes(run(0)))
    assert evicted.shared(b"q", token_bytes(run(2)))
    assert evicted.shared(b"p", token_bytes(run(3)))


def test_capacity_zero_remembers_nothing() -> None:
    evicted = Evicted(0)
    evicted.add(b"p", token_bytes(run(1)))
    assert not len(evicted)


def test_a_node_with_very_many_evictions_is_looked_at_in_part_only() -> None:
    evicted = Evicted(1000)
    for number in range(200):
        evicted.add(b"p", token_bytes(run(number)))
    assert evicted.shared(b"p", token_bytes(run(199)))
    assert not evicted.shared(b"p", token_bytes(run(0)))
