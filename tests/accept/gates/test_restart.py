"""Restart and crash, through a session without a server."""

from __future__ import annotations

import pytest

from headstart.accept.exchange import Failure
from headstart.accept.gates import crash, restart
from headstart.accept.gates.crash import Crash
from headstart.accept.servers import Facts
from headstart.accept.session import Options
from headstart.accept.verdict import Outcome, Verdict
from tests.accept.gates.scripted import FAILURES, HUNG, Named, Process, Scripted

DISK = Facts("some server", model="a", block_tokens=1, cache={"ssd": "1 GiB"})
pauses: list[float] = []
CRASH = Crash(pause=pauses.append)


def spawned(**fields: object) -> Scripted:
    session = Scripted(facts=DISK)
    session.control = Process(session, **fields)  # type: ignore[arg-type]
    return session


def outcomes(verdicts: list[Verdict]) -> list[Outcome]:
    return [verdict.outcome for verdict in verdicts]


def test_a_server_that_keeps_its_cache_passes_at_every_tier() -> None:
    session = spawned()
    verdicts = restart.GATE.run(session)
    assert outcomes(verdicts) == [Outcome.PASS, Outcome.PASS]
    assert [verdict.tier for verdict in verdicts] == ["1k", "2k"]
    assert session.control.ends == ["restart"]
    assert all("instead of" in verdict.reason for verdict in verdicts)


def test_what_follows_a_restart_is_not_timed_before_a_warm_up() -> None:
    session = spawned()
    restart.GATE.run(session)
    labels = [exchange.ask.label for exchange in session.sent]
    assert labels.index("unrelated warm-up") < labels.index("1k, after the restart")


def test_a_server_that_loses_its_cache_fails_where_it_states_a_disk() -> None:
    session = spawned()
    session.disk = False
    verdicts = restart.GATE.run(session)
    assert outcomes(verdicts) == [Outcome.FAIL, Outcome.FAIL]
    assert "read again" in verdicts[0].reason
    plain = Scripted()
    plain.control, plain.disk, plain.counts = Process(plain), False, False
    assert outcomes(restart.GATE.run(plain)) == [Outcome.UNSUPPORTED, Outcome.UNSUPPORTED]


def test_a_disk_may_be_stated_only_after_the_first_request() -> None:
    session = Scripted(server=Named(stated=Facts("some server", cache={"ssd": "1 GiB"})))
    session.control, session.disk, session.counts = Process(session), False, False
    assert outcomes(restart.GATE.run(session)) == [Outcome.FAIL, Outcome.FAIL]


def test_a_wrong_answer_from_disk_fails() -> None:
    session = spawned()
    session.bent["1k, after the restart"] = {"text": "99999", "scores": ()}
    assert outcomes(restart.GATE.run(session)) == [Outcome.FAIL, Outcome.PASS]


def test_an_empty_answer_from_disk_fails() -> None:
    session = spawned()
    session.bent["1k, after the restart"] = {"text": "", "scores": ()}
    assert outcomes(restart.GATE.run(session))[0] is Outcome.FAIL


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("label", ["1k, before the restart", "1k, after the restart"])
def test_a_failed_request_around_a_restart(failure: Failure, label: str) -> None:
    session = spawned()
    session.bent[label] = {"failure": failure}
    expected = Outcome.INCONCLUSIVE if failure.kind == "refused" else Outcome.FAIL
    assert outcomes(restart.GATE.run(session)) == [expected, Outcome.PASS]


def test_a_server_that_stays_away_fails_if_it_is_the_harness_own() -> None:
    session = spawned(problem="nothing answered for 60 s")
    (verdict,) = restart.GATE.run(session)
    assert verdict.outcome is Outcome.FAIL
    assert "nothing answered for 60 s" in verdict.reason
    session = spawned(problem="the command gave status 1", spawned=False)
    assert outcomes(restart.GATE.run(session)) == [Outcome.INCONCLUSIVE]


def test_a_restart_that_was_none_shows_nothing() -> None:
    session = spawned(spawned=False)
    session.control._end = lambda how: None
    session.new_process = lambda: None  # type: ignore[method-assign]
    session.bent["after the restart"] = {"counters": None}
    verdicts = restart.GATE.run(session)
    assert outcomes(verdicts) == [Outcome.INCONCLUSIVE] * 2
    assert "no new process was seen" in verdicts[0].reason


def test_without_a_way_to_restart_or_kill() -> None:
    for gate in (restart.GATE, CRASH):
        assert outcomes(gate.run(Scripted())) == [Outcome.UNSUPPORTED]
        assert outcomes(gate.run(spawned(can_restart=False, can_kill=False))) == [Outcome.UNSUPPORTED]


def test_without_a_tier_nothing_is_shown() -> None:
    for gate in (restart.GATE, CRASH):
        session = spawned()
        session.options = Options(())
        assert outcomes(gate.run(session)) == [Outcome.INCONCLUSIVE]
        assert session.control.ends == []


def test_a_crash_is_survived_settled_and_at_work() -> None:
    pauses.clear()
    session = spawned()
    verdicts = CRASH.run(session)
    assert [(v.part, v.tier) for v in verdicts] == [
        ("kept", "1k"),
        ("kept", "2k"),
        ("while writing", "1k"),
        ("while reading", "1k"),
    ]
    assert outcomes(verdicts) == [Outcome.PASS] * 4
    assert session.control.ends == ["kill", "kill"]
    assert pauses == [crash.SETTLE_S]


def test_a_crash_that_loses_everything_may_still_answer_right() -> None:
    session = spawned()
    session.disk = False
    assert outcomes(CRASH.run(session)) == [Outcome.FAIL, Outcome.FAIL, Outcome.PASS, Outcome.PASS]


def test_torn_state_that_is_used_fails() -> None:
    session = spawned()
    session.bent["1k, after the kill at once"] = {"text": "99999", "scores": ()}
    session.bent["1k, broken off, again"] = {"text": "88888", "scores": ()}
    session.bent["1k, broken off, again, cache off"] = {}
    verdicts = CRASH.run(session)
    assert outcomes(verdicts[2:]) == [Outcome.FAIL, Outcome.FAIL]


def test_a_broken_off_prompt_without_a_cold_answer_and_without_a_question_is_open() -> None:
    session = spawned()
    session.offers_cold = False
    assert CRASH.run(session)[-1].outcome is Outcome.PASS
    session = spawned()
    session.offers_cold = False
    session.bent["1k, broken off, again"] = {"text": "88888"}
    assert CRASH.run(session)[-1].outcome is Outcome.INCONCLUSIVE


def test_a_server_that_does_not_start_after_a_kill_fails_and_ends_the_gate() -> None:
    session = spawned(problem="exited with status 1")
    (verdict,) = CRASH.run(session)
    assert verdict.outcome is Outcome.FAIL
    assert "SIGKILL" in verdict.reason


def test_a_hang_after_a_kill_is_a_verdict() -> None:
    session = spawned()
    session.bent["1k, broken off, again"] = {"failure": HUNG}
    assert CRASH.run(session)[-1].outcome is Outcome.FAIL
