"""The index: matching by tokens, sorted children, marks and their rows."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headstart.prefix.keys import TOKEN_BYTES, chain_key, token_bytes
from headstart.prefix.stops import StopKind
from headstart.prefix.tokens import TokenRun
from headstart.prefix.tree import (
    LOST,
    Mark,
    Node,
    Tree,
    at_tail,
    child_prefix_of,
    child_starting_with,
    closest_child,
    prefixes,
    resolve,
)
from tests.prefix.fake import MY, counting, glue, longest_stored, run

blocks = st.lists(st.integers(0, 2), min_size=1, max_size=4)


def mark(node: Node, tail: bytes, kind: StopKind | None = StopKind.MESSAGE) -> Mark:
    return Mark(node, tail, kind, nbytes=1, canonical=False)


def chain(tree: Tree, namespace: bytes, tokens: TokenRun) -> Node:
    """Attaches `tokens`, which part from everything stored at a block's start."""
    node = tree.root(namespace)
    data = token_bytes(tokens)
    for at in range(0, len(data), tree.block_bytes):
        block = data[at : at + tree.block_bytes]
        node = child_starting_with(node, block) or tree.attach(node, block)
    return node


def test_a_match_ends_inside_a_block_where_the_tokens_part() -> None:
    tree = Tree(4)
    chain(tree, MY, counting(0, 10))
    match = tree.match(MY, token_bytes(glue(counting(0, 6), run(99, 99))))
    assert (match.length, match.partial_tokens, len(match.path)) == (6, 2, 2)
    assert [tree.start(node) for node in match.blocks] == [0, 4]


def test_a_match_of_a_partial_last_block_ends_with_it() -> None:
    tree = Tree(4)
    chain(tree, MY, counting(0, 10))
    match = tree.match(MY, token_bytes(counting(0, 20)))
    assert (match.length, match.partial_tokens) == (10, 2)


def test_other_namespaces_and_empty_prompts_match_nothing() -> None:
    tree = Tree(4)
    chain(tree, MY, counting(0, 10))
    assert tree.match(b"other", token_bytes(counting(0, 10))).length == 0
    assert tree.match(MY, token_bytes(run())).length == 0


def test_keys_chain_from_the_namespace() -> None:
    tree = Tree(4)
    deepest = chain(tree, MY, counting(0, 8))
    first = chain_key(MY, token_bytes(counting(0, 4)))
    assert deepest.key == chain_key(first, token_bytes(counting(4, 8)))


def test_equal_keys_with_other_tokens_do_not_match() -> None:
    tree = Tree(4)
    node = chain(tree, MY, counting(0, 4))
    node.key = chain_key(MY, token_bytes(run(9, 9, 9, 9)))
    assert tree.match(MY, token_bytes(run(9, 9, 9, 9))).length == 0


@given(stored=st.lists(blocks, max_size=12), prompt=blocks)
def test_the_closest_child_shares_the_most_whatever_else_is_there(
    stored: list[list[int]], prompt: list[int]
) -> None:
    tree = Tree(4)
    root = tree.root(MY)
    kept = [run(*ids) for ids in sorted(set(map(tuple, stored)))]
    kept = [a for a in kept if not any(a is not b and a.tolist() == b[: len(a)].tolist() for b in kept)]
    for number, tokens in enumerate(kept):
        tree.attach(root, token_bytes(tokens)).payload = LOST if number % 3 == 2 else None
    alive = [tokens for number, tokens in enumerate(kept) if number % 3 != 2]
    _, shared = closest_child(root, token_bytes(run(*prompt)))
    assert shared == longest_stored(run(*prompt), alive)
    assert tree.match(MY, token_bytes(run(*prompt))).length == shared


@given(stored=st.lists(blocks, max_size=12, unique_by=tuple), query=blocks)
def test_children_are_found_by_beginning_and_as_beginning(stored: list[list[int]], query: list[int]) -> None:
    tree = Tree(4)
    root = tree.root(MY)
    runs = [run(*ids) for ids in stored]
    runs = [a for a in runs if not any(a is not b and a.tolist() == b[: len(a)].tolist() for b in runs)]
    for tokens in runs:
        tree.attach(root, token_bytes(tokens))
    data = token_bytes(run(*query))
    longer = {token_bytes(t) for t in runs if token_bytes(t).startswith(data)}
    shorter = {token_bytes(t) for t in runs if data.startswith(token_bytes(t))}
    found = child_starting_with(root, data)
    assert (found is not None) == bool(longer) and (found is None or found.tokens in longer)
    before = child_prefix_of(root, data)
    assert {before.tokens} == shorter if before is not None else not shorter


@given(tails=st.lists(blocks, max_size=12, unique_by=tuple), query=blocks)
def test_prefixes_are_all_beginnings_longest_first(tails: list[list[int]], query: list[int]) -> None:
    root = Tree(4).root(MY)
    marks = sorted((mark(root, token_bytes(run(*ids))) for ids in tails), key=lambda m: m.tail)
    want = sorted((ids for ids in tails if query[: len(ids)] == ids), key=len, reverse=True)
    found = prefixes(marks, token_bytes(run(*query)))
    assert [m.tail for m in found] == [token_bytes(run(*ids)) for ids in want]
    exact = at_tail(marks, token_bytes(run(*query)))
    assert (exact is not None) == (query in tails)


def test_checkpoints_come_highest_first_over_the_whole_path() -> None:
    tree = Tree(4)
    tokens = counting(0, 10)
    chain(tree, MY, tokens)
    prompt = token_bytes(tokens)
    match = tree.match(MY, prompt)
    for position in (2, 4, 5, 9):
        level = (position - 1) // 4
        tree.add_mark(mark(match.path[level], prompt[level * 16 : position * TOKEN_BYTES]))
    assert [p for p, _ in tree.checkpoints(match, prompt, 10)] == [9, 5, 4, 2]
    assert [p for p, _ in tree.checkpoints(match, prompt, 8)] == [5, 4, 2]
    assert [p for p, _ in tree.checkpoints(match, prompt, 4)] == [4, 2]
    shorter = tree.match(MY, token_bytes(glue(counting(0, 6), run(77))))
    assert [p for p, _ in tree.checkpoints(shorter, token_bytes(glue(counting(0, 6), run(77))), 99)] == [
        5,
        4,
        2,
    ]


def test_logits_count_at_exactly_the_end_only() -> None:
    tree = Tree(4)
    chain(tree, MY, counting(0, 8))
    match = tree.match(MY, token_bytes(counting(0, 8)))
    tree.add_mark(mark(match.path[1], token_bytes(counting(4, 8)), None))
    for length in range(9):
        prompt = token_bytes(counting(0, length))
        found = tree.logits(tree.match(MY, prompt), prompt)
        assert (found is not None) == (length == 8)


def test_marks_go_with_the_last_block_that_covers_them() -> None:
    tree = Tree(4)
    root = tree.root(MY)
    one, two = tree.attach(root, token_bytes(run(1, 2, 3))), tree.attach(root, token_bytes(run(1, 2, 4)))
    both, only = mark(root, token_bytes(run(1, 2))), mark(root, token_bytes(run(1, 2, 3)), None)
    tree.add_mark(both)
    tree.add_mark(only)
    assert tree.detach(one) == [only]
    assert tree.detach(two) == [both]
    assert root.marks is None and root.children is None
    assert both.node is None


def test_the_checkpoint_below_is_found_over_blocks_without_any() -> None:
    tree = Tree(4)
    tokens = token_bytes(counting(0, 20))
    chain(tree, MY, counting(0, 20))
    path = tree.match(MY, tokens).path
    placed = {p: mark(path[(p - 1) // 4], tokens[(p - 1) // 4 * 16 : p * 4]) for p in (2, 3, 18, 19)}
    for made in placed.values():
        tree.add_mark(made)
    assert [tree.checkpoint_below(placed[p]) for p in (2, 3, 18, 19)] == [0, 2, 3, 18]
    assert [tree.position(placed[p]) for p in (2, 3, 18, 19)] == [2, 3, 18, 19]


def test_a_replaced_block_leads_to_its_successor() -> None:
    tree = Tree(4)
    root = tree.root(MY)
    short = tree.attach(root, token_bytes(run(1, 2)))
    tree.add_mark(mark(root, token_bytes(run(1, 2))))
    longer = tree.attach(root, token_bytes(run(1, 2, 3)))
    assert tree.detach(short, longer) == []
    longest = tree.attach(root, token_bytes(run(1, 2, 3, 4)))
    assert tree.detach(longer, longest) == []
    assert resolve(short) is longest
    assert root.marks is not None


def test_lookup_does_not_grow_with_the_store() -> None:
    def seconds(siblings: int) -> float:
        tree = Tree(4)
        order = np.random.default_rng(1).permutation(siblings)
        data = np.arange(siblings * 4, dtype=np.int32).reshape(siblings, 4)[order]
        root = tree.root(MY)
        root.children = sorted((Node(root, token_bytes(row), b"") for row in data), key=lambda n: n.tokens)
        prompts = [token_bytes(row) for row in data[:200]]
        best = 1e9
        for _ in range(5):
            start = time.perf_counter()
            for prompt in prompts:
                assert tree.match(MY, prompt).length == 4
            best = min(best, time.perf_counter() - start)
        return best

    assert seconds(100_000) < 8 * seconds(200)
