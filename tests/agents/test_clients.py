"""Real coding agents, each in a session of two prompts and in a new one: what was known is not read again.

Their requests are compared token by token with all that was asked and answered before; the server's own
reports must say the same. `make agents` installs the agents and runs this; `make test` does not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.prefix.tokens import TokenRun
from tests.agents import session
from tests.agents.clients import CLIENTS, PI, Client
from tests.agents.watched import CONTEXT_TOKENS, Asked, Watched, watched_server
from tests.fixtures.gguf_models import build_gemma3, build_llama, build_qwen35, smollm2_path

PROGRAMS = Path(os.environ.get("HEADSTART_AGENTS", ".agents")).absolute() / "node_modules" / ".bin"
CHECKPOINT_INTERVAL_TOKENS = 2048
TURNS = (
    "the prompt",
    "results of two reads",
    "result of the edit",
    "the second prompt",
    "result of the read",
)
SMOLLM2_TOKENS = 8192
SHARED_CHARS = 2
"""Characters that the words of both prompts may have in common by chance."""


@dataclass(frozen=True)
class Model:
    """`build` writes it to a path; `recurrent`: it resumes at checkpoints only."""

    name: str
    build: Callable[[Path], Path]
    context_tokens: int = CONTEXT_TOKENS
    recurrent: bool = False


SMALL: dict[str, Any] = {"layers": 2, "context_tokens": CONTEXT_TOKENS}
DENSE = Model("dense", lambda path: build_llama(path, **SMALL))
WINDOW = Model("window", lambda path: build_gemma3(path, **SMALL))
HYBRID = Model("hybrid", lambda path: build_qwen35(path, **SMALL), recurrent=True)
SMOLLM2 = Model("SmolLM2", lambda path: smollm2_path(), SMOLLM2_TOKENS)
PAIRS = [*((client, model) for model in (DENSE, WINDOW, HYBRID) for client in CLIENTS), (PI, SMOLLM2)]


@pytest.mark.parametrize(("client", "model"), PAIRS, ids=[f"{one.name}-{on.name}" for one, on in PAIRS])
def test_only_what_the_client_changed_is_read(client: Client, model: Model, tmp_path: Path) -> None:
    place = session.prepared(tmp_path, PROGRAMS)
    path = str(model.build(tmp_path / "model.gguf"))
    rules = session.rules(client, place)
    with watched_server(path, rules, tmp_path, ctx_size=model.context_tokens) as server:
        for command, prompt in ((client.first, session.FIRST), (client.resume, session.SECOND)):
            assert session.DONE.strip() in session.run(client, command, prompt, place, server.url)
        assert "Salve" in (place.repository / "app.py").read_text(), "the client's tool edited nothing"
        one_session = len(server.asked)
        session.run(client, client.first, session.SECOND, place, server.url)
        assert server.statuses() == {"200"}
        reports = server.reports()
    for number, report in enumerate(reports):
        _check_reuse(report, _known(server.asked, number), model)
    talk = [n for n, one in enumerate(server.asked) if not any(words in one.text for words in client.aside)]
    _check_session(client, server, reports, [n for n in talk if n < one_session])
    _check_parts(reports[next(n for n in talk if n >= one_session)], client.new_session_parts)


def _check_reuse(report: dict[str, Any], known_tokens: int, model: Model) -> None:
    """All that is known is reused: to the token, or from the last checkpoint before it."""
    assert report["divergence"] == known_tokens, report
    if not report["replayed"]:
        assert (report["restored"], report["gap"]) == (known_tokens, 0), report
        return
    assert model.recurrent, report
    assert report["restored"] + report["replayed"] == known_tokens, report
    assert report["replayed"] < CHECKPOINT_INTERVAL_TOKENS, report


def _check_session(client: Client, server: Watched, reports: list[dict[str, Any]], talk: list[int]) -> None:
    """Each turn goes on where the reply to the one before ended; a resumed one where the client says so."""
    assert len(talk) == len(TURNS), [server.asked[number].text[-200:] for number in talk]
    for turn, (before, now) in enumerate(pairwise(talk), start=1):
        report, behind = reports[now], len(server.asked[before].left_behind)
        if TURNS[turn] == "the second prompt" and client.resume_parts:
            _check_parts(report, client.resume_parts)
            continue
        assert report["restored"] == behind, f"{TURNS[turn]}: {report}"
        assert report["replayed"] == 0, f"{TURNS[turn]}: {report}"
        assert report["new"] == len(server.asked[now].prompt) - behind


def _check_parts(report: dict[str, Any], behind: str) -> None:
    """The prompt parts from all before it right behind these words."""
    place = report["text_before"].rfind(behind)
    assert place >= 0, report
    assert len(report["text_before"]) - place - len(behind) <= SHARED_CHARS, report


def _known(asked: list[Asked], number: int) -> int:
    """How many tokens of a request had been read or written before it came; one is always left to read."""
    prompt = asked[number].prompt
    shared = [_common(prompt, earlier.left_behind) for earlier in asked[:number]]
    return min(max(shared, default=0), len(prompt) - 1)


def _common(one: TokenRun, other: TokenRun) -> int:
    shorter = min(len(one), len(other))
    parted = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(parted[0]) if len(parted) else shorter
