"""SIGKILL at random moments under constant requests. bench/kill_loop.py does it 200 times."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.e2e.killing import PLENTY_BYTES, SMALL_BUDGET_BYTES, Cold, examine, live_and_die


@pytest.mark.parametrize("budget_bytes", [PLENTY_BYTES, SMALL_BUDGET_BYTES], ids=["plenty", "evicting"])
def test_a_killed_server_leaves_a_good_store(budget_bytes: int, tmp_path: Path) -> None:
    rng = random.Random(budget_bytes)
    cold = Cold()
    found = []
    for number, life_s in enumerate((0.1, 0.5, 1.6, 2.4)):
        killed = live_and_die(tmp_path, budget_bytes, number, life_s)
        found.append(examine(tmp_path, budget_bytes, killed, cold, rng))
    assert sum(one.answers for one in found) > 0
    assert sum(one.restored_tokens for one in found) > 0
