"""This machine, whatever it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headstart.blame.doctor.machine import commands, machine


def test_this_machine(tmp_path: Path) -> None:
    found = machine({"a": tmp_path, "b": tmp_path / "not" / "there"})
    assert found.memory_bytes is not None and found.available_bytes is not None
    assert 0 < found.available_bytes <= found.memory_bytes
    assert found.disks["a"] == found.disks["b"] > 0
    assert found.on_battery in (None, True, False)


def test_command_lines_hold_this_process() -> None:
    assert any(Path(words[0]).name == Path(sys.executable).name for words in commands()), os.getpid()
