"""A server that is stopped and started again: how long does the same prompt take then? For ssd_restore.py."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from models import MODELS, text_tokens
from servers import Ask, Headstart, Reply, Setup, headstart, wait_written
from workloads import Source

REPLY_TOKENS = 16
WARM_TOKENS = 64


def forget(paths: list[Path]) -> None:
    """Drops the files from the page cache. They must have been written to the medium before."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def restart(name: str, tokens: int, threads: int, place: Path | None) -> dict[str, Any]:
    """A cold prompt, the same again at once, a stop, a start, the same again, and once more with another
    end. Before the second start the store's files are dropped from the page cache."""
    model = MODELS[name]()
    text, _ = text_tokens(model)
    source = Source(text, 11)
    setup = Setup(model, tokens + REPLY_TOKENS + 16, threads)
    prompt = source.take(tokens)
    with tempfile.TemporaryDirectory(prefix="headstart-restart-", dir=place) as base:
        with _warm(setup, base, source) as server:
            cold = _ask(server, prompt)
            live = _ask(server, prompt)
            wait_written(server.url)
        os.sync()
        files = sorted((Path(base) / "ssd").glob("*/*/*.safetensors"))
        forget(files)
        with _warm(setup, base, source) as server:
            again = _ask(server, prompt)
        os.sync()
        forget(sorted((Path(base) / "ssd").glob("*/*/*.safetensors")))
        with _warm(setup, base, source) as server:
            changed = _ask(server, prompt[:-8] + source.take(8))
        store_bytes = sum(path.stat().st_size for path in files)
    print(
        f"{name} {tokens}: cold {cold.first_token_s:.2f} s, restart {again.first_token_s:.3f} s",
        file=sys.stderr,
    )
    return {
        "model": name,
        "prompt_tokens": tokens,
        "threads": threads,
        "store_bytes": store_bytes,
        "cold": _told(cold),
        "live": _told(live),
        "restart": _told(again),
        "restart_changed_end": _told(changed),
        "cold_over_restart": round(cold.first_token_s / again.first_token_s, 1),
        "cold_over_restart_changed_end": round(cold.first_token_s / changed.first_token_s, 1),
        "same_text": again.text == cold.text,
        "same_logprobs": again.logprobs == cold.logprobs and len(cold.logprobs) == REPLY_TOKENS,
    }


@contextmanager
def _warm(setup: Setup, base: str, source: Source) -> Iterator[Headstart]:
    """A server over the store below `base` whose first request, which pays for pages and threads, is over."""
    with headstart(setup, "--base-path", base, "--ssd-cache", "50GB") as server:
        server.complete(Ask(source.take(WARM_TOKENS), 2))
        yield server


def _ask(server: Headstart, prompt: list[int]) -> Reply:
    return server.complete(Ask(prompt, REPLY_TOKENS, logprobs=True))


def _told(reply: Reply) -> dict[str, Any]:
    """What is of interest in a reply. `into_engine_mb_per_s`: from the first byte read from the SSD until
    all of it is in the engine, seconds of both steps together."""
    facts = reply.facts
    spent_s = facts["ssd_s"] + facts["restore_s"]
    return {
        "first_token_s": round(reply.first_token_s, 4),
        "computed_tokens": reply.read_tokens,
        **{name: facts[name] for name in ("tier", "reason", "restored", "ssd_bytes", "ssd_s", "restore_s")},
        "into_engine_mb_per_s": round(facts["ssd_bytes"] / spent_s / 1e6) if facts["ssd_bytes"] else None,
    }
