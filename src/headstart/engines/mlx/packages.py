"""Whether mlx and mlx-lm are there, and their import without what it does to the process."""

from __future__ import annotations

import importlib
import importlib.metadata
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from headstart.errors import ModelError

__all__ = ["PACKAGES", "import_mlx", "missing_package", "versions"]

PACKAGES = ("mlx", "mlx_lm", "tokenizers")
FIX = "pip install 'headstart[mlx]'"
OPEN_FILES = 2048
"""What mlx-lm asks for, for models of many files."""


def missing_package() -> str | None:
    """The first package that the MLX engine needs and that is not installed. Imports nothing."""
    return next((name for name in PACKAGES if find_spec(name) is None), None)


def import_mlx() -> None:
    """Imports mlx and mlx-lm. Raises ModelError, with what to install, where that fails."""
    missing = missing_package()
    if missing is not None:
        raise ModelError(f"the MLX engine needs the package {missing}, which is not installed: {FIX}")
    try:
        with _open_files_kept():
            importlib.import_module("mlx.core")
            importlib.import_module("mlx_lm")
    except ImportError as error:
        raise ModelError(f"mlx is installed but cannot be imported ({error}): {FIX}") from error


def versions() -> dict[str, str]:
    """Versions of mlx and mlx-lm as installed."""
    return {name: importlib.metadata.version(name) for name in ("mlx", "mlx-lm")}


@contextmanager
def _open_files_kept() -> Iterator[None]:
    """mlx_lm sets the limits of open files to 2048 and 4096 when it is imported: less than a server may
    have been given, for good, and an error where the hard limit is lower. Here the soft limit only rises."""
    set_limit = resource.setrlimit
    resource.setrlimit = lambda *_: None
    try:
        yield
    finally:
        resource.setrlimit = set_limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
