"""Two processes over MLX's ring on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_two_ranks_over_the_ring() -> None:
    launch = Path(sys.executable).with_name("mlx.launch")
    script = Path(__file__).with_name("ring_of_toys.py")
    command = [str(launch), "-n", "2", "--backend", "ring", "--", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["right", "8"], done.stdout + done.stderr
