"""A probe says what the request would get, from every tier, and leaves no trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.engines.toy_model import LayerKind
from headstart.errors import EngineError, RequestError
from headstart.prefix.outlook import Outlook
from headstart.prefix.report import CacheReport, Reason, Tier
from headstart.prefix.tokens import TokenRun
from headstart.serving.request import GenerationRequest
from tests.prefix.stores import Storing, make_store
from tests.serving.harness import GREEDY, CountingToy, Server, prompt_of


def probe(server: Server, prompt: TokenRun, **fields: Any) -> Outlook:
    return server.scheduler.probe(GenerationRequest(prompt, sampling=GREEDY, **fields)).result(10)


def same(found: Outlook, report: CacheReport) -> None:
    assert (found.prompt_tokens, found.restore_at, found.tier) == (
        report.prompt_tokens,
        report.restored,
        report.tier,
    )
    assert (found.divergence, found.reason) == (report.divergence, report.reason)


def changed_at(prompt: TokenRun, position: int) -> TokenRun:
    changed = prompt.copy()
    changed[position] ^= 1
    return changed


LAYERS = pytest.mark.parametrize(
    "layers",
    [("full", "full"), ("full", "window"), ("full", "window", "recurrent")],
    ids=["dense", "window", "all"],
)


@LAYERS
@pytest.mark.parametrize("where", ["live", "ram", "ssd"])
def test_it_says_what_then_comes(layers: tuple[LayerKind, ...], where: str, tmp_path: Path) -> None:
    prompt = prompt_of(100)
    other = prompt_of(50, seed=9)
    wanted = [
        prompt,
        changed_at(prompt, 57),
        changed_at(prompt, 48),
        np.concatenate([prompt, prompt_of(20, seed=1)]),
        prompt[:70],
        prompt_of(30, seed=2),
        prompt[:1],
    ]
    make_store(tmp_path / "s", prompt, engine=CountingToy(layers))
    for index, asked in enumerate(wanted):
        engine = CountingToy(layers, max_sequences=1)
        with Storing(tmp_path / ("s" if where == "ssd" else f"{index}"), engine) as server:
            if where != "ssd":
                server.ask(prompt, 1)
            if where == "ram":
                server.ask(other, 1)
            found = probe(server, asked)
            assert found == probe(server, asked)
            _, done = server.ask(asked, 1)
            same(found, done.report)


def test_it_leaves_no_trace(tmp_path: Path) -> None:
    prompt = prompt_of(100)
    make_store(tmp_path, prompt)
    with Storing(tmp_path) as server:
        before = server.scheduler.snapshot()
        reads = server.tier.counts.read_bytes
        assert probe(server, prompt).tier is Tier.SSD
        after = server.scheduler.snapshot()
        assert (after.cache and after.cache.plans) == ((before.cache and before.cache.plans) or {})
        assert server.tier.counts.read_bytes == reads == 0
        assert isinstance(server.engine, CountingToy)
        assert server.engine.forwards == []
        assert probe(server, prompt).memory_at == 0


def test_it_tells_the_tiers_apart(tmp_path: Path) -> None:
    prompt = prompt_of(100)
    make_store(tmp_path, prompt)
    with Storing(tmp_path) as server:
        server.ask(prompt[:40], 1)
        found = probe(server, prompt)
        assert (found.memory_at, found.ssd_at, found.restore_at) == (48, 100, 100), "a block comes whole"
        assert found.exact
        assert found.to_json()["read"] == 0


def test_without_a_cache_the_reason_is_disabled(tmp_path: Path) -> None:
    with Storing(tmp_path) as server:
        server.ask(prompt_of(40), 1)
        found = probe(server, prompt_of(40), use_cache=False)
        assert (found.restore_at, found.tier, found.reason) == (0, Tier.NONE, Reason.DISABLED)


def test_other_tenants_states_are_not_told_of(tmp_path: Path) -> None:
    with Storing(tmp_path) as server:
        server.ask(prompt_of(40), 1, tenant="a")
        found = probe(server, prompt_of(40), tenant="b")
        assert (found.divergence, found.reason) == (0, Reason.NO_PREFIX)


def test_a_prompt_that_cannot_be_served_cannot_be_probed(tmp_path: Path) -> None:
    with Storing(tmp_path) as server, pytest.raises(RequestError, match="context"):
        probe(server, prompt_of(100_000))
    with pytest.raises(EngineError, match="shutting down"):
        probe(server, prompt_of(10))


def test_rows_of_a_running_sequence_count(tmp_path: Path) -> None:
    """A busy sequence's rows are stored first and then used; a probe says so."""
    prompt = prompt_of(40)
    with Storing(tmp_path, CountingToy(("full", "full"), max_sequences=2)) as server:
        reply, ticket = server.send(prompt, 400)
        assert reply.first.wait(10)
        found = probe(server, changed_at(prompt, 38))
        assert found.restore_at == 38
        assert replace(found, divergence=0).tier is Tier.RAM
        server.scheduler.cancel(ticket)
        reply.wait()
