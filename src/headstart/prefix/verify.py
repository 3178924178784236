"""Checking a store from outside: every file, every checksum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headstart.prefix.report import Reason
from headstart.prefix.ssd import SsdFiles, StoreFileError


@dataclass(frozen=True)
class Problem:
    """A file that cannot be used, and why. `tensor`: the one at fault, where it is one."""

    path: Path
    reason: Reason
    detail: str
    tensor: str | None = None


@dataclass(frozen=True)
class VerifyReport:
    """`files` and `bytes` that were read, `problems` among them."""

    files: int
    bytes: int
    problems: tuple[Problem, ...]


def verify(directory: Path, progress: Callable[[int, int], None] | None = None) -> VerifyReport:
    """Reads every entry's file of the store in `directory` and checks all of it. Changes nothing, and
    needs no lock: a file that a running server removes meanwhile is no problem.

    `progress` gets the number of files done and the number of all. Raises ConfigError where there
    is no such directory.
    """
    files = SsdFiles(directory, read_only=True)
    found = files.scan().entries
    problems: list[Problem] = []
    read = nbytes = 0
    for count, file in enumerate(found):
        if progress is not None:
            progress(count, len(found))
        try:
            nbytes += files.check(file)
        except FileNotFoundError:
            continue
        except StoreFileError as error:
            problems.append(Problem(file.path, error.reason, str(error), error.tensor))
        read += 1
    if progress is not None:
        progress(len(found), len(found))
    return VerifyReport(read, nbytes, tuple(problems))
