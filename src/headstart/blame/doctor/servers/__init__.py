"""Servers the doctor knows, one file a kind: how each is recognised, and what it says about itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headstart.blame.doctor.facts import ServerFacts
from headstart.blame.doctor.http import Loopback
from headstart.blame.doctor.servers import (
    headstart,
    listed,
    llama_server,
    lmstudio,
    mlx_lm,
    ollama,
    vllm,
)

KINDS: tuple[Callable[[Loopback, Sequence[Sequence[str]]], ServerFacts | None], ...] = (
    headstart.read,
    ollama.read,
    llama_server.read,
    lmstudio.read,
    vllm.read,
    listed.read,
    mlx_lm.read,
)
