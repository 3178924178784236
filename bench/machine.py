"""On what a benchmark ran: facts that belong beside every number."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

import headstart

PACKAGES = ("headstart", "llama-cpp-python", "xllamacpp", "mlx", "mlx-lm", "numpy")
BUILDS = {"llama_cpp": "llama_print_system_info", "xllamacpp": "get_system_info"}
RESULTS = Path(__file__).parent / "results"


def machine_facts() -> dict[str, Any]:
    """Processor, memory, Python and package versions, and how busy the machine was."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_average": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "builds": {name: _build(name, call) for name, call in BUILDS.items()},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _build(module: str, call: str) -> str:
    """The processor features a build of llama.cpp uses, asked in a process of its own."""
    code = (
        f"import {module} as m; told = m.{call}(); print(told.decode() if isinstance(told, bytes) else told)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _version(package: str) -> str:
    if package == "headstart":
        return headstart.__version__
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def write_results(name: str, results: dict[str, Any], directory: Path = RESULTS) -> Path:
    """Writes `results` with the machine's facts to `directory`/`name`.json; newer replaces older."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    path.write_text(json.dumps({"machine": machine_facts(), **results}, indent=1) + "\n")
    return path
