"""The control server: started, stopped, and put in the place of the server judged."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from headstart.accept.process import CacheOff, RestartCommand, Spawned
from headstart.errors import ConfigError

SLEEPS = f"{sys.executable} -c 'import time; time.sleep(60)'"
ENDS = f"{sys.executable} -c 'raise SystemExit(3)'"


def spawned(tmp_path: Path, command: str = SLEEPS, *, ready: bool = True) -> Spawned:
    return Spawned(command, lambda: ready, tmp_path / "log", start_s=10.0)


def alive(one: Spawned) -> bool:
    return one._process is not None and one._process.poll() is None


def test_a_control_at_its_own_address_leaves_the_server_judged_alone(tmp_path: Path) -> None:
    judged, command = spawned(tmp_path), spawned(tmp_path)
    assert judged.start() is None
    control = CacheOff("http://127.0.0.1:1", command)
    try:
        assert control.fresh() is None
        first = command._process
        assert control.fresh() is None
        assert command._process is not first
        assert first is not None
        assert first.poll() is not None
        assert control.end() is None
        assert (alive(judged), alive(command)) == (True, False)
    finally:
        control.stop()
        judged.stop()


def test_a_control_at_the_same_address_takes_the_place_of_the_server_judged(tmp_path: Path) -> None:
    judged, command = spawned(tmp_path), spawned(tmp_path)
    assert judged.start() is None
    control = CacheOff("http://127.0.0.1:1", command, judged)
    try:
        assert control.fresh() is None
        assert (alive(judged), alive(command)) == (False, True)
        assert control.end() is None
        assert (alive(judged), alive(command)) == (True, False)
        assert control.end() is None
    finally:
        control.stop()
        judged.stop()


def test_a_control_that_runs_already_is_left_as_it_is() -> None:
    control = CacheOff("http://127.0.0.1:1", None)
    assert control.spawned is False
    assert control.fresh() is None
    assert control.end() is None


def test_a_control_that_ends_at_once_says_so(tmp_path: Path) -> None:
    control = CacheOff("http://127.0.0.1:1", spawned(tmp_path, ENDS, ready=False))
    problem = control.fresh()
    assert problem is not None
    assert "status 3" in problem


def test_a_kill_leaves_nothing_of_the_old_process(tmp_path: Path) -> None:
    one = spawned(tmp_path)
    assert one.start() is None
    old = one._process
    try:
        assert one.kill() is None
        assert old is not None
        assert old.returncode == -9
        assert alive(one)
    finally:
        one.stop()


def test_a_command_that_cannot_be_run_is_a_fault_of_the_flags(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-program"):
        spawned(tmp_path, "no-such-program").start()


def test_a_restart_command_is_judged_by_its_status_and_by_the_server() -> None:
    assert RestartCommand("true", lambda: True).restart() is None
    assert "status 1" in str(RestartCommand("false", lambda: True).restart())
    assert "did not answer" in str(RestartCommand("true", lambda: False, start_s=0.3).restart())


def test_only_a_process_that_ended_by_itself_has_died(tmp_path: Path) -> None:
    one = spawned(tmp_path)
    assert one.died() is None
    assert one.start() is None
    assert one.died() is None
    assert one._process is not None
    one._process.send_signal(signal.SIGSEGV)
    one._process.wait()
    assert (one.died() or "").startswith("signal 11 (SIGSEGV); its output is in ")
    assert one.kill() is None
    assert one.died() is None
    one.stop()
    assert one.died() is None
    assert RestartCommand("true", lambda: True).died() is None
