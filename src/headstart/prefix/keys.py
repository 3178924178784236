"""Names of stored state: what makes it reusable, and which tokens it belongs to.

Token ids travel in here as big-endian uint32, so that comparing bytes compares token ids in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NewType

import numpy as np
from blake3 import blake3

from headstart.prefix.tokens import TokenRun

TokenBytes = NewType("TokenBytes", bytes)
"""Token ids, four bytes each, big-endian."""

TOKEN_BYTES = 4
TENANT_BYTES = 16
NAMESPACE_BYTES = TENANT_BYTES + 32

_TENANT_CONTEXT = "headstart 2026-11 prefix cache: tenant"
_NAMESPACE_CONTEXT = "headstart 2026-11 prefix cache: namespace"


def token_bytes(tokens: TokenRun) -> TokenBytes:
    """`tokens` as bytes whose order is the order of the token ids."""
    return TokenBytes(np.asarray(tokens).astype(">u4").tobytes())


def shared_tokens(a: bytes, b: bytes) -> int:
    """How many tokens two byte strings of tokens share from the start."""
    n = min(len(a), len(b)) // TOKEN_BYTES
    differs = np.frombuffer(a, np.uint32, n) != np.frombuffer(b, np.uint32, n)
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n


def namespace_key(parts: Mapping[str, str], tenant: str) -> bytes:
    """Digest of everything that makes state reusable: `parts` (weights digest, architecture, KV
    types, rope and context options, adapters, engine and state version) and the tenant.

    48 bytes. The first 16 depend on the tenant alone, see `same_tenant`. Names and values are
    length-prefixed, so no two different mappings read alike; order does not matter.
    """
    owner = blake3(tenant.encode(), derive_key_context=_TENANT_CONTEXT).digest(TENANT_BYTES)
    state = blake3(owner, derive_key_context=_NAMESPACE_CONTEXT)
    for name in sorted(parts):
        for field in (name.encode(), parts[name].encode()):
            state.update(len(field).to_bytes(8, "little"))
            state.update(field)
    return owner + state.digest()


def same_tenant(a: bytes, b: bytes) -> bool:
    """Whether two namespaces made by `namespace_key` belong to one tenant."""
    both = len(a) == len(b) == NAMESPACE_BYTES
    return both and a[:TENANT_BYTES] == b[:TENANT_BYTES]


def chain_key(parent: bytes, tokens: bytes) -> bytes:
    """Key of a block: blake3(parent key ‖ token ids). The parent of a first block is the namespace."""
    return blake3(parent + tokens).digest()
