"""Conversations read from a store: where they part, what each takes, what each has alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headstart.engines.toy_model import LayerKind
from headstart.prefix.conversations import Conversation, conversations, forest
from headstart.prefix.inventory import read_store
from tests.prefix.stores import make_store
from tests.serving.harness import CountingToy, prompt_of


def read(directory: Path) -> list[Conversation]:
    return list(conversations(forest(read_store(directory).entries.values())))


def test_two_that_share_a_beginning(tmp_path: Path) -> None:
    first = prompt_of(90)
    second = np.concatenate([first[:41], prompt_of(30, seed=1)])
    second[41] = first[41] ^ 1
    make_store(tmp_path, first, second)
    later, earlier = sorted(read(tmp_path), key=lambda one: one.tokens)
    assert (later.tokens, earlier.tokens) == (71, 90)
    assert later.shared_tokens == earlier.shared_tokens == 41
    assert later.head[:41] == earlier.head[:41] == tuple(first[:41].tolist())
    assert later.own == tuple(second[41:].tolist())
    nbytes = read_store(tmp_path).nbytes
    shared = later.nbytes - later.own_nbytes
    assert shared > 0
    assert later.own_nbytes + earlier.own_nbytes + shared == nbytes


def test_the_one_used_last_comes_first(tmp_path: Path) -> None:
    make_store(tmp_path, prompt_of(40), prompt_of(60, seed=1))
    entries = read_store(tmp_path).entries.values()
    for tokens in (40, 60):
        uses = {one.tokens: {entry.key for entry in one.entries} for one in read(tmp_path)}
        aged = [entry._replace(used_s=float(entry.key in uses[tokens])) for entry in entries]
        assert next(conversations(forest(aged))).tokens == tokens


def test_one_that_went_on_is_one_conversation(tmp_path: Path) -> None:
    prompt = prompt_of(50)
    make_store(tmp_path, prompt, np.concatenate([prompt, prompt_of(20, seed=1)]))
    (one,) = read(tmp_path)
    assert (one.tokens, one.shared_tokens) == (70, 0)
    assert one.own_nbytes == one.nbytes == read_store(tmp_path).nbytes


@pytest.mark.parametrize("layers", [("full", "full"), ("full", "recurrent")])
def test_marks_belong_to_the_path_their_position_lies_on(
    layers: tuple[LayerKind, ...], tmp_path: Path
) -> None:
    make_store(tmp_path, prompt_of(40), prompt_of(60, seed=1), engine=CountingToy(layers))
    found = read(tmp_path)
    assert len(found) == 2
    marks = [mark.key for one in found for mark in one.marks]
    assert len(marks) == len(set(marks)) >= 2
    entries = {entry.key for one in found for entry in one.entries}
    assert entries == read_store(tmp_path).entries.keys()


def test_marks_behind_the_same_block_are_told_apart(tmp_path: Path) -> None:
    first = prompt_of(40)
    second = first.copy()
    second[38] ^= 1
    make_store(tmp_path, first, second)
    found = read(tmp_path)
    assert len(found) == 2
    assert {one.shared_tokens for one in found} == {38}
    for one in found:
        (mark,) = one.marks
        assert one.path[-1].head.tokens.startswith(mark.head.tokens)


def test_what_hangs_on_nothing_is_stray(tmp_path: Path) -> None:
    make_store(tmp_path, prompt_of(60))
    entries = read_store(tmp_path).entries
    (one,) = read(tmp_path)
    kept = [entry for key, entry in entries.items() if key != one.path[1].key]
    trees = forest(kept)
    assert len(trees.blocks) == 1
    assert {entry.key for entry in trees.stray} == {
        entry.key for entry in one.entries if entry.head.level + (entry in one.marks) > 1
    } - {one.path[1].key}
