"""The SSD tier through the scheduler: what was served before a restart resumes after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headstart.engines.base import Engine
from headstart.engines.toy_model import LayerKind
from headstart.prefix.report import Reason, Tier
from headstart.prefix.ssd_tier import SsdSettings, SsdTier
from headstart.prefix.tokens import token_run
from headstart.serving.scheduler import Scheduler
from tests.serving.harness import SETTINGS, CountingToy, Server, cold_reply, prompt_of

DENSE: tuple[LayerKind, ...] = ("full", "full")
KINDS = pytest.mark.parametrize(
    "layers",
    [("full", "full"), ("full", "window"), ("full", "recurrent"), ("full", "window", "recurrent")],
    ids=["dense", "window", "hybrid", "all"],
)


class Restarted(Server):
    """A server over a store in `directory`; leaving it saves everything, as an orderly stop does."""

    def __init__(self, engine: Engine, directory: Path, **changes: object) -> None:
        self.engine = engine
        settings = replace(SETTINGS, **changes)  # type: ignore[arg-type]
        self.tier = SsdTier(
            SsdSettings(directory, 1 << 30, reserve_bytes=0), engine.layout, settings.block_tokens
        )
        self.scheduler = Scheduler(engine, settings, ssd=self.tier)

    def __exit__(self, *_: object) -> None:
        self.scheduler.stop()
        assert self.tier.flush(timeout_s=20) == 0
        self.tier.close()


@KINDS
def test_exact_repeat_after_a_restart_reads_nothing(layers: tuple[LayerKind, ...], tmp_path: Path) -> None:
    prompt = prompt_of(100)
    expected = cold_reply(CountingToy(layers), prompt, 6)
    with Restarted(CountingToy(layers), tmp_path) as server:
        first, _ = server.ask(prompt, 6)
        assert first.tokens == expected
    engine = CountingToy(layers)
    with Restarted(engine, tmp_path) as server:
        reply, done = server.ask(prompt, 6)
        assert reply.tokens == expected
        assert (done.report.restored, done.report.tier) == (100, Tier.SSD)
        assert engine.tokens_read == 5
        _, done = server.ask(prompt, 6)
        assert done.report.tier is Tier.LIVE


@KINDS
def test_conversation_goes_on_after_a_restart(layers: tuple[LayerKind, ...], tmp_path: Path) -> None:
    prompt = prompt_of(60)
    for turn in range(4):
        engine = CountingToy(layers)
        with Restarted(engine, tmp_path) as server:
            reply, done = server.ask(prompt, 5)
            if turn:
                assert (done.report.restored, done.report.gap, done.report.tier) == (
                    len(prompt) - 11,
                    0,
                    Tier.SSD,
                )
                assert engine.tokens_read == 11 + 4
            assert reply.tokens == cold_reply(CountingToy(layers), prompt, 5)
        prompt = np.concatenate([prompt, token_run(reply.tokens), prompt_of(10, seed=turn + 1)])


def test_an_edit_inside_a_block_after_a_restart_has_gap_0(tmp_path: Path) -> None:
    prompt = prompt_of(100)
    with Restarted(CountingToy(("full", "window")), tmp_path) as server:
        server.ask(prompt, 3)
    for at in (1, 15, 16, 17, 40, 99):
        changed = prompt.copy()
        changed[at] = 33 if changed[at] != 33 else 34
        with Restarted(CountingToy(("full", "window")), tmp_path) as server:
            reply, done = server.ask(changed, 3)
            assert (done.report.restored, done.report.divergence) == (at, at)
            assert reply.tokens == cold_reply(CountingToy(("full", "window")), changed, 3)


def test_reproducible_saves_the_canonical_rows_that_replace_decoded_ones(tmp_path: Path) -> None:
    prompt = prompt_of(100)
    with Restarted(CountingToy(DENSE), tmp_path, reproducible=True) as server:
        reply, _ = server.ask(prompt, 60)
    longer = np.concatenate([prompt, token_run(reply.tokens), prompt_of(7, seed=3)])
    for restored in (96, 160):
        with Restarted(CountingToy(DENSE), tmp_path, reproducible=True) as server:
            reply, done = server.ask(longer, 4)
            assert (done.report.restored, done.report.tier) == (restored, Tier.SSD)
            assert reply.tokens == cold_reply(CountingToy(DENSE), longer, 4)


def test_other_blocks_and_another_grid_are_another_namespace_and_both_stay(tmp_path: Path) -> None:
    ways: list[dict[str, object]] = [
        {},
        {"block_tokens": 8},
        {"reproducible": True},
        {"reproducible": True, "prefill_chunk_tokens": 16},
    ]
    prompt = prompt_of(100)
    for expected in (0, 96):
        for changes in ways:
            with Restarted(CountingToy(DENSE), tmp_path, **changes) as server:
                _, done = server.ask(prompt, 2)
                assert min(done.report.restored, 96) == expected, changes


def flip(offset: Callable[[int], int]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[offset(len(data))] ^= 4
        path.write_bytes(data)

    return damage


def cut(share: float) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])  # type: ignore[return-value]


def link(path: Path) -> None:
    target = path.with_suffix(".elsewhere")
    path.rename(target)
    path.symlink_to(target)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "name", ["length", "header", "metadata", "tensor", "end", "cut", "empty", "link", "folder", "gone"]
)
def test_a_damaged_file_is_a_miss_with_its_reason(name: str, tmp_path: Path) -> None:
    """Whatever is wrong with a file, the answer is a clean server's and what lies before is used."""
    damage: dict[str, Callable[[Path], None]] = {
        "length": flip(lambda _: 2),
        "header": flip(lambda _: 30),
        "metadata": flip(lambda _: 300),
        "tensor": flip(lambda size: size - 500),
        "end": flip(lambda size: size - 1),
        "cut": cut(0.5),
        "empty": cut(0.0),
        "link": link,
        "folder": folder,
        "gone": Path.unlink,
    }
    prompt = prompt_of(100)
    expected = cold_reply(CountingToy(("full", "full")), prompt, 3)
    with Restarted(CountingToy(("full", "full")), tmp_path) as server:
        server.ask(prompt, 3)
    with Restarted(CountingToy(("full", "full")), tmp_path) as server:
        node = server.tier.match(next(iter(server.tier.shelf.tree.roots)), _bytes(prompt)).path[3]
        damage[name](server.tier.files.path(node.payload.namespace, node.payload.key))  # type: ignore[attr-defined]
        reply, done = server.ask(prompt, 3)
        assert reply.tokens == expected
        assert done.report.restored == 32
        assert done.report.reason is (Reason.IO_ERROR if name == "gone" else Reason.CORRUPT)
        assert server.ask(prompt, 3)[0].tokens == expected
    with Restarted(CountingToy(("full", "full")), tmp_path) as server:
        reply, done = server.ask(prompt, 3)
        assert reply.tokens == expected
        assert done.report.restored == 100, "what was damaged has been written anew"


def _bytes(prompt: np.ndarray) -> bytes:  # type: ignore[type-arg]
    return np.asarray(prompt).astype(">u4").tobytes()
