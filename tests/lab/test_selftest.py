"""The harness against servers whose faults are known: its own proof.

All servers are judged once, several at a time; a test each says what came of it.
"""

from __future__ import annotations

import argparse
from functools import cache

import pytest

from headstart.accept.verdict import Outcome, Verdict
from headstart.errors import ConfigError
from headstart.lab import selftest
from headstart.lab.defect import SOUND, Defect, Sound
from headstart.lab.defects import DEFECTS
from headstart.lab.selftest import Judged, judge_all, named


@cache
def judged() -> dict[str, Judged]:
    return {one.defect.name: one for one in judge_all((*SOUND, *DEFECTS))}


def told(one: Judged) -> str:
    lines = [f"{v.gate} {v.tier} {v.part}: {v.outcome}: {v.reason}" for v in one.verdicts]
    return "\n".join([one.words, *lines])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", [*SOUND, *DEFECTS], ids=lambda defect: defect.name)
def test_the_harness_is_right_about(defect: type[Defect]) -> None:
    one = judged()[defect.name]
    assert one.right, told(one)


@pytest.mark.parametrize("sound", SOUND, ids=lambda sound: sound.name)
def test_most_of_a_sound_server_is_shown(sound: type[Defect]) -> None:
    """A harness that cannot judge anything accuses nobody either."""
    one = judged()[sound.name]
    passed = {verdict.gate for verdict in one.verdicts if verdict.outcome is Outcome.PASS}
    assert len(set(one.gates) - passed) <= 3, told(one)


class Planted(Defect):
    name = "planted"
    title = "is wrong"
    caught_by = ("append", "cold")


def fail(gate: str) -> Verdict:
    return Verdict(gate, Outcome.FAIL, "shown otherwise")


PASSED = Verdict("append", Outcome.PASS, "shown")


@pytest.mark.parametrize(
    ("defect", "verdicts", "right"),
    [
        (Planted, [fail("append")], True),
        (Planted, [PASSED, fail("cold")], True),
        (Planted, [PASSED], False),
        (Planted, [fail("churn")], False),
        (Planted, [fail("calibration")], False),
        (Planted, [], False),
        (Sound, [PASSED], True),
        (Sound, [PASSED, fail("churn")], False),
        (Sound, [], False),
        (Sound, [PASSED, Verdict("cold", Outcome.INCONCLUSIVE, "the gate itself failed: KeyError")], False),
    ],
)
def test_only_the_right_gate_counts(defect: type[Defect], verdicts: list[Verdict], right: bool) -> None:
    one = Judged(defect, ("append", "cold"), tuple(verdicts), 1.0)
    assert one.right is right
    assert defect.name in one.words


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="off-by-one"):
        named(["of-by-one"])


def test_the_command_says_which_were_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def made_up(defect: type[Defect], only: object, say: object = None) -> Judged:
        caught = defect.name == "off-by-one"
        return Judged(defect, ("append",), (fail("append") if caught else PASSED,), 0.1)

    monkeypatch.setattr(selftest, "judge", made_up)
    flags = argparse.Namespace(words=["off-by-one", "lossy-ssd"], only="")
    assert selftest.run(flags) == 1
    out = capsys.readouterr().out
    assert "caught by append" in out
    assert "NOT CAUGHT by restart" in out
    assert "1 of 2 judged right" in out
