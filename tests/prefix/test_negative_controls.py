"""Broken on purpose: each way to hand out wrong state must be caught by the checker.

If one of these passes unnoticed, the checks that the other tests rely on are worth nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from headstart.prefix import cache as cache_module
from headstart.prefix import tree as tree_module
from headstart.prefix.block import RowBytes, StateLayout
from headstart.prefix.cache import PrefixCache
from headstart.prefix.holdings import Holdings
from headstart.prefix.keys import TokenBytes
from headstart.prefix.plan import StopKind
from headstart.prefix.ram import RamStore
from headstart.prefix.tokens import TokenRun
from headstart.prefix.tree import Mark, Match, Node, Tree
from tests.prefix.fake import (
    DENSE,
    MY,
    RECURRENT,
    WINDOW,
    check_books,
    check_restored,
    counting,
    glue,
    holdings,
    make_cache,
    plan_of,
    run,
    store,
    view,
)

Break = Callable[[pytest.MonkeyPatch], None]


def off_by_one_token(patch: pytest.MonkeyPatch) -> None:
    real = tree_module.shared_tokens
    patch.setattr(tree_module, "shared_tokens", lambda a, b: min(real(a, b) + 1, len(a) // 4, len(b) // 4))


def one_row_too_many(patch: pytest.MonkeyPatch) -> None:
    real = PrefixCache._rows
    patch.setattr(
        PrefixCache,
        "_rows",
        lambda self, match, first, stop: [*real(self, match, first, stop), real(self, match, 0, 1)[0]],
    )


def one_row_too_few(patch: pytest.MonkeyPatch) -> None:
    real = PrefixCache._rows
    patch.setattr(PrefixCache, "_rows", lambda self, match, first, stop: real(self, match, first, stop - 1))


def blocks_out_of_order(patch: pytest.MonkeyPatch) -> None:
    real = PrefixCache._rows
    patch.setattr(PrefixCache, "_rows", lambda self, match, first, stop: real(self, match, first, stop)[::-1])


def rows_of_the_sibling(patch: pytest.MonkeyPatch) -> None:
    real = RamStore.rows

    def wrong(self: RamStore, node: Node) -> RowBytes:
        siblings = node.parent.children if node.parent is not None else None
        other = next((s for s in siblings if s is not node), node) if isinstance(siblings, list) else node
        return real(self, other if other.count == node.count else node)

    patch.setattr(RamStore, "rows", wrong)


def planes_swapped(patch: pytest.MonkeyPatch) -> None:
    real = RamStore.rows

    def wrong(self: RamStore, node: Node) -> RowBytes:
        k, v = real(self, node).planes
        return RowBytes((v[:, : k.shape[1]], np.pad(k, ((0, 0), (0, v.shape[1] - k.shape[1])))))

    patch.setattr(RamStore, "rows", wrong)


def wrong_namespace(patch: pytest.MonkeyPatch) -> None:
    real = Tree.match

    def wrong(self: Tree, namespace: bytes, prompt: TokenBytes) -> Match:
        return max((real(self, n, prompt) for n in self.roots), key=lambda m: m.length)

    patch.setattr(Tree, "match", wrong)


def keys_instead_of_tokens(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tree_module, "shared_tokens", lambda a, b: min(len(a), len(b)) // 4)


def bits_flipped(patch: pytest.MonkeyPatch) -> None:
    real = RamStore.rows

    def wrong(self: RamStore, node: Node) -> RowBytes:
        rows = RowBytes(tuple(plane.copy() for plane in real(self, node).planes))
        rows.planes[-1][-1, -1] ^= 1
        return rows

    patch.setattr(RamStore, "rows", wrong)


def wrong_checkpoint(patch: pytest.MonkeyPatch) -> None:
    real = RamStore.checkpoint

    def wrong(self: RamStore, mark: Mark) -> bytes:
        marks = mark.node.marks if mark.node is not None else None
        return real(self, marks.checkpoints[0] if marks is not None else mark)

    patch.setattr(RamStore, "checkpoint", wrong)


def checkpoint_past_the_rows(patch: pytest.MonkeyPatch) -> None:
    real = Tree.checkpoints

    def wrong(self: Tree, match: Match, prompt: TokenBytes, limit: int) -> Iterator[tuple[int, Mark]]:
        for position, mark in real(self, match, prompt, limit):
            yield min(position + 1, match.length), mark

    patch.setattr(Tree, "checkpoints", wrong)


def logits_of_another_prompt(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Tree, match: Match, prompt: TokenBytes) -> Mark | None:
        return next((n.marks.logits[0] for n in match.path if n.marks and n.marks.logits), None)

    patch.setattr(Tree, "logits", wrong)


def window_too_short(patch: pytest.MonkeyPatch) -> None:
    real = PrefixCache._rows
    patch.setattr(
        PrefixCache,
        "_rows",
        lambda self, match, first, stop: real(self, match, first + 1 if first else 0, stop),
    )


def exercise(layout: StateLayout) -> None:
    """Stores related sequences and resumes from them in every way; raises where state is wrong."""
    cache = make_cache(layout)
    tokens, other = counting(0, 22), glue(counting(0, 9), counting(70, 83))
    for run_of, namespace in ((tokens, MY), (other, MY), (counting(0, 40), b"other weights")):
        marks = [3, 6, 10, 11, len(run_of)] if layout.recurrent else []
        store(cache, run_of, layout=layout, namespace=namespace, checkpoints=marks, logits=namespace == MY)
    prompts: list[TokenRun] = [
        tokens,
        other,
        tokens[:15],
        other[:12],
        glue(tokens[:13], run(5, 5)),
        counting(0, 30),
    ]
    for prompt in prompts:
        for live in ([], [view(1, counting(0, 25), window_start=20)]):
            plan = plan_of(cache, prompt, live=live)
            check_restored(layout, plan, cache.load(plan))


@pytest.mark.parametrize("layout", [DENSE, WINDOW, RECURRENT])
def test_unbroken_everything_passes(layout: StateLayout) -> None:
    exercise(layout)


@pytest.mark.parametrize(
    ("layout", "broken"),
    [
        (DENSE, off_by_one_token),
        (DENSE, one_row_too_many),
        (DENSE, one_row_too_few),
        (DENSE, blocks_out_of_order),
        (DENSE, rows_of_the_sibling),
        (DENSE, planes_swapped),
        (DENSE, wrong_namespace),
        (DENSE, keys_instead_of_tokens),
        (DENSE, bits_flipped),
        (DENSE, logits_of_another_prompt),
        (RECURRENT, wrong_checkpoint),
        (RECURRENT, checkpoint_past_the_rows),
        (WINDOW, window_too_short),
        (WINDOW, one_row_too_few),
    ],
)
def test_a_broken_variant_is_caught(
    layout: StateLayout, broken: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        exercise(layout)


def test_a_plan_one_token_too_far_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    real = cache_module.make_plan
    monkeypatch.setattr(
        cache_module,
        "make_plan",
        lambda *a, **k: (p := real(*a, **k)) and replace(p, restore_at=p.restore_at + 1),
    )
    with pytest.raises(AssertionError):
        exercise(DENSE)


@pytest.mark.parametrize("method", ["give", "take"])
def test_books_that_are_off_are_caught(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(RamStore, method)
    monkeypatch.setattr(RamStore, method, lambda self, nbytes: real(self, nbytes - 1))
    cache = make_cache()
    store(cache, counting(0, 6))
    with pytest.raises(AssertionError):
        store(cache, counting(0, 9))
        check_books(holdings(cache))


def test_a_mark_left_behind_by_its_rows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "dependents", lambda parent, child: [])
    cache = make_cache(RECURRENT)
    store(cache, counting(0, 6), layout=RECURRENT, checkpoints=[6], kind=StopKind.HEAD)
    held: Holdings = holdings(cache)
    leaf = cache._held.tree.match(MY, TokenBytes(bytes(0))).path
    node = leaf[0].children
    while isinstance(node, Node) and isinstance(node.children, Node):
        node = node.children
    assert isinstance(node, Node)
    held._evict(node)
    with pytest.raises(AssertionError):
        check_books(held)
