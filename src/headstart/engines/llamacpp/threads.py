"""A thread pool that lives as long as the engine.

Without one ggml makes a pool for every graph it computes: where it was built without OpenMP that
starts and ends all threads at every token. llama.cpp's own server attaches a pool for the same reason.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import llama_cpp

__all__ = ["ThreadPool"]

MAX_THREADS = 512


class _Params(ctypes.Structure):
    """`struct ggml_threadpool_params` of ggml.h (ggml 0.25)."""

    _fields_ = (
        ("cpumask", ctypes.c_bool * MAX_THREADS),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    )


class ThreadPool:
    """`n_threads` threads for the CPU backend. Contexts that use it must be freed before it."""

    def __init__(self, n_threads: int) -> None:
        base, cpu = _libraries()
        defaults = base.ggml_threadpool_params_default
        defaults.argtypes, defaults.restype = [ctypes.c_int], _Params
        new, self._free = cpu.ggml_threadpool_new, cpu.ggml_threadpool_free
        new.argtypes, new.restype = [ctypes.POINTER(_Params)], ctypes.c_void_p
        self._free.argtypes, self._free.restype = [ctypes.c_void_p], None
        params = defaults(n_threads)
        self.handle: int | None = new(ctypes.byref(params))

    @staticmethod
    def available(n_threads: int) -> ThreadPool | None:
        """A pool, or None where ggml's CPU library is built in a way that does not export one."""
        try:
            return ThreadPool(n_threads)
        except (OSError, AttributeError):
            return None

    def free(self) -> None:
        if self.handle:
            self._free(self.handle)
            self.handle = None


def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """ggml's base and CPU libraries, already loaded with llama.cpp, found beside it."""
    folder = Path(llama_cpp.__file__).parent / "lib"
    found = {}
    for name in ("ggml-base", "ggml-cpu"):
        paths = [path for path in folder.glob(f"*{name}.*") if path.suffix in {".so", ".dylib", ".dll"}]
        if not paths:
            raise OSError(f"no library {name} in {folder}")
        found[name] = ctypes.CDLL(str(paths[0]))
    return found["ggml-base"], found["ggml-cpu"]
