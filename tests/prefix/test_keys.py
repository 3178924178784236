"""Keys: token order, namespaces that differ in anything that matters, chains."""

from __future__ import annotations

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from headstart.prefix.keys import (
    NAMESPACE_BYTES,
    chain_key,
    namespace_key,
    same_tenant,
    shared_tokens,
    token_bytes,
)
from headstart.prefix.tokens import common_prefix, token_run

PARTS = {"weights": "abc", "kv_type": "f16", "adapter": ""}
runs = st.lists(st.integers(0, 2**31 - 1), max_size=9).map(token_run)


@given(a=runs, b=runs)
def test_token_bytes_sort_like_token_ids(a: np.ndarray, b: np.ndarray) -> None:
    assert (token_bytes(a) < token_bytes(b)) == (a.tolist() < b.tolist())


@given(
    head=runs,
    a=st.lists(st.integers(0, 3), max_size=4).map(token_run),
    b=st.lists(st.integers(0, 3), max_size=4).map(token_run),
)
def test_shared_tokens_of_bytes_equal_those_of_runs(head: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    x, y = np.concatenate([head, a]), np.concatenate([head, b])
    assert shared_tokens(token_bytes(x), token_bytes(y)) == common_prefix(x, y)


def test_ids_that_share_some_bytes_are_different_tokens() -> None:
    assert (
        shared_tokens(token_bytes(token_run([1, 0x01020304])), token_bytes(token_run([1, 0x01020305]))) == 1
    )


@pytest.mark.parametrize(
    ("parts", "tenant"),
    [
        (PARTS | {"weights": "abd"}, "t"),
        (PARTS | {"kv_type": "q8_0"}, "t"),
        (PARTS | {"adapter": "lora"}, "t"),
        (PARTS | {"more": ""}, "t"),
        ({"weights": "abc", "kv_type": "f16"}, "t"),
        ({"weightsa": "bc", "kv_type": "f16", "adapter": ""}, "t"),
        (PARTS, "u"),
        (PARTS, ""),
    ],
)
def test_every_part_and_the_tenant_make_another_namespace(parts: dict[str, str], tenant: str) -> None:
    assert namespace_key(parts, tenant) != namespace_key(PARTS, "t")


def test_a_namespace_does_not_depend_on_order_and_has_a_fixed_length() -> None:
    key = namespace_key(PARTS, "t")
    assert key == namespace_key(dict(reversed(PARTS.items())), "t")
    assert len(key) == NAMESPACE_BYTES


def test_same_tenant_is_told_from_the_key_alone() -> None:
    other = PARTS | {"weights": "xyz"}
    assert same_tenant(namespace_key(PARTS, "t"), namespace_key(other, "t"))
    assert not same_tenant(namespace_key(PARTS, "t"), namespace_key(PARTS, "u"))
    assert not same_tenant(b"short", b"short")


def test_a_chain_key_is_the_digest_of_parent_and_tokens() -> None:
    assert chain_key(b"parent", b"\0\0\0\1") == blake3(b"parent\0\0\0\1").digest()
    assert chain_key(b"another", b"\0\0\0\1") != chain_key(b"parent", b"\0\0\0\1")
