"""Flags of running servers, from their command lines. Only flags named here are kept: others may be keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

PROGRAMS = {
    "llama-server": ("llama-server",),
    "vllm": ("vllm",),
    "mlx-lm": ("mlx_lm.server",),
    "sglang": ("sglang.launch_server",),
}
DEFAULT_PORTS = {"llama-server": 8080, "vllm": 8000, "mlx-lm": 8080, "sglang": 30000}

ALIASES = {
    "-cram": "--cache-ram",
    "-ctxcp": "--ctx-checkpoints",
    "--swa-checkpoints": "--ctx-checkpoints",
    "--checkpoint-every-n-tokens": "--checkpoint-min-step",
    "-np": "--parallel",
    "-sps": "--slot-prompt-similarity",
    "-md": "--model-draft",
    "-c": "--ctx-size",
}
# A flag, and whether a value follows that may be shown.
KNOWN: Mapping[str, bool] = {
    "--cache-ram": True,
    "--ctx-checkpoints": True,
    "--checkpoint-min-step": True,
    "--cache-reuse": True,
    "--parallel": True,
    "--ctx-size": True,
    "--slot-prompt-similarity": True,
    "--spec-type": True,
    "--swa-full": False,
    "--model-draft": False,
    "--no-cache-prompt": False,
    "--no-cache-idle-slots": False,
    "--speculative-config": False,
    "--speculative-algorithm": False,
    "--draft-model": False,
    "--no-enable-prefix-caching": False,
    "--enable-prefix-caching": False,
    "--disable-radix-cache": False,
}


def flags_of(kind: str, port: int, commands: Iterable[Sequence[str]]) -> dict[str, str]:
    """Known flags of the server of that kind on that port; empty where its process is not seen."""
    for words in commands:
        if _is_program(kind, words) and _port(words, DEFAULT_PORTS.get(kind)) == port:
            return _known(words)
    return {}


def _is_program(kind: str, words: Sequence[str]) -> bool:
    names = PROGRAMS.get(kind, ())
    return any(PurePath(word).name.removesuffix(".exe") in names for word in words[:4])


def _port(words: Sequence[str], default: int | None) -> int | None:
    for at, word in enumerate(words):
        flag, _, value = word.partition("=")
        if flag in ("--port", "-p"):
            value = value or (words[at + 1] if at + 1 < len(words) else "")
            return int(value) if value.isdecimal() and len(value) < 6 else None
    return default


def _known(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        flag, _, value = word.partition("=")
        flag = ALIASES.get(flag, flag)
        if flag not in KNOWN:
            continue
        following = words[at + 1] if at + 1 < len(words) else ""
        value = value or following
        found[flag] = value[:20] if KNOWN[flag] and value.replace(".", "").lstrip("-").isalnum() else ""
    return found
