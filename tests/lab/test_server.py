"""The sound lab server: it recalls, restores to the token, and survives."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headstart.lab.defect import Defect, Sound
from headstart.lab.server import MODELS, LabServer
from headstart.lab.stack import Shape
from tests.lab.asking import Asker, text

CHANCE = 8
"""Texts that share nothing on purpose may begin with the same few letters."""


@pytest.fixture(scope="module")
def server() -> Iterator[LabServer]:
    with LabServer(Defect()) as running:
        yield running


@pytest.fixture
def asker(server: LabServer) -> Iterator[Asker]:
    with Asker(server.url) as client:
        yield client


def test_a_planted_value_is_recalled(asker: Asker) -> None:
    reply = asker.ask(text("recall", early="71652"))
    assert reply.text.startswith("71652.")


def test_a_repeat_is_restored_whole_and_says_the_same(asker: Asker) -> None:
    before = asker.read_tokens()
    first = asker.ask(text("repeat"))
    between = asker.read_tokens()
    again = asker.ask(text("repeat"))
    assert (first.cached or 0) < CHANCE
    assert again.cached == again.prompt_tokens
    assert again.scores == first.scores
    # By what was read, not by the clock: on a busy machine a reply waits for the processor.
    assert between - before > first.prompt_tokens - CHANCE
    assert asker.read_tokens() - between == 0


def test_an_edit_is_restored_to_its_token_and_answered_anew(asker: Asker) -> None:
    asker.ask(text("edit", early="11111"))
    edited = asker.ask(text("edit", early="29111"))
    at = text("edit", early="29111").index("29111")
    assert edited.cached == at
    assert edited.text.startswith("29111")
    assert asker.cold(text("edit", early="29111")).scores == edited.scores


def test_conversations_at_once_keep_their_own_answers(asker: Asker) -> None:
    values = [f"{n}{n}{n}{n}5" for n in range(2, 8)]
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda v: asker.ask(text(f"at once {v}", early=v), max_tokens=12), values))
    assert [reply.text[:5] for reply in replies] == values


def test_another_model_starts_at_zero_and_says_something_else(asker: Asker) -> None:
    one = asker.ask(text("models"))
    other = asker.ask(text("models"), model=MODELS[1])
    assert other.cached == 0
    assert other.differs(one) > 1
    assert asker.ask(text("models"), model=MODELS[1]).cached == other.prompt_tokens


def test_without_a_cache_it_says_the_same(asker: Asker) -> None:
    asker.ask(text("off"))
    warm = asker.ask(text("off"))
    with LabServer(Defect(), Shape(cache=False)) as off, Asker(off.url) as other:
        first, again = other.ask(text("off")), other.ask(text("off"))
    assert first.scores == again.scores == warm.scores
    assert again.cached == 0


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_what_was_on_disk_comes_back(how: str) -> None:
    with LabServer(Sound()) as server, Asker(server.url) as asker:
        first = asker.ask(text("disk"))
        url = server.url
        if how == "kill":
            server.settle()
        assert getattr(server, how)() is None
        assert server.url == url
        again = asker.ask(text("disk"))
    assert again.cached is not None and again.cached > first.prompt_tokens * 0.9
    assert again.differs(first) == 0


def test_memory_alone_does_not_survive_a_restart() -> None:
    with LabServer(Defect()) as server, Asker(server.url) as asker:
        asker.ask(text("memory"))
        assert server.restart() is None
        assert asker.ask(text("memory")).cached == 0
