"""Files that a command writes for its user: new, and readable by nobody else."""

from __future__ import annotations

import os
from pathlib import Path

from headstart.errors import ConfigError

__all__ = ["write_new"]


def write_new(path: Path, text: str, *, flag: str) -> None:
    """Writes `text` to a file that is not there yet. Raises ConfigError, naming `flag`."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(
            f"{flag} {path}: there is such a file already, and it is not written over; choose another name "
            "or remove it"
        ) from None
    except OSError as problem:
        raise ConfigError(f"{flag} {path}: cannot be written ({problem.strerror})") from None
    with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
