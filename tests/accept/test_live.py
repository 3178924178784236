"""The session: what it sends again, and what it does not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from headstart.accept.exchange import Ask, Exchange
from headstart.accept.fixtures import Texts, Tier
from headstart.accept.judge import Calibration, Floor
from headstart.accept.live import LiveSession, Target
from headstart.accept.servers import Facts
from headstart.accept.session import Options

TIER = Tier("4k", 4096)


@dataclass
class Made:
    """Stands for endpoint and server: keeps what it was sent, and whether its cache was emptied."""

    can_clear: bool = True
    no_cache: dict[str, Any] = field(default_factory=dict)
    thinking_off: dict[str, Any] = field(default_factory=dict)
    sent: list[Ask] = field(default_factory=list)
    cleared: int = 0

    def send(self, ask: Ask, wire: Any, **others: Any) -> Exchange:
        self.sent.append(ask)
        return Exchange("1", ask, 0.0, 9.0, first_token_s=9.0, status=200, text="1", prompt_tokens=900)

    def clear(self, http: Any, model: str | None) -> bool:
        self.cleared += self.can_clear
        return self.can_clear

    def tokens(self, *others: Any) -> None:
        return None

    def counters(self, *others: Any) -> None:
        return None


def session_on(made: Made, read_s_per_token: float = 0.01) -> LiveSession:
    wire: Any = SimpleNamespace(name="made_up", chat=False)
    target = Target(made, None, made, Facts("made up"), wire, [wire], 0)  # type: ignore[arg-type]
    session = LiveSession(target, Options((TIER,)), Texts("salt"))
    session.calibration = Calibration(0.1, read_s_per_token, 0.1, 0.01, 4.0, 40, None, Floor(None, False))
    return session


def test_equal_prompts_share_one_cold_answer() -> None:
    made = Made()
    session = session_on(made)
    ask = session.ask(session.passage(300), label="one")
    first = session.cold(ask)
    assert first is not None
    assert session.cold(replace(ask, label="other")) is first
    assert len(made.sent) == made.cleared == 1
    assert session.cold(replace(ask, max_tokens=99)) is not first
    assert session.uncached(ask) is not first
    assert len(made.sent) == 3


def test_no_cold_answer_is_no_answer_to_share() -> None:
    session = session_on(Made(can_clear=False))
    ask = session.ask(session.passage(300))
    assert session.cold(ask) is None
    assert session.cold(ask) is None


def test_a_known_text_is_read_again_only_where_the_cache_was_emptied() -> None:
    made = Made()
    session = session_on(made)
    family, first = session.first_sight(TIER)
    assert session.first_sight(TIER) == (family, first)
    assert len(made.sent) == 1
    session.cold(session.ask(session.passage(300)))
    assert session.first_sight(TIER) == (family, first)
    assert made.sent[-1].text == first.ask.text
    assert len(made.sent) == 3
    session.first_sight(TIER)
    assert len(made.sent) == 3


@pytest.mark.parametrize(("read_s_per_token", "name"), [(0.01, "2k"), (0.0001, "4k")])
def test_a_text_of_the_small_size(read_s_per_token: float, name: str) -> None:
    session = session_on(Made(), read_s_per_token)
    small = session.small
    assert small.name == name
    family, first = session.first_sight(small)
    assert first.ask.text.startswith(family.at(small).text)
    other = session.fresh(small)
    assert other.tier == small
    assert other.text[:20] != family.at(small).text[:20]
    assert small.least * 3 < len(other.text) < small.tokens * 4
