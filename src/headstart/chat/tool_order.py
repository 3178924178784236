"""Tools in the order in which the same set of them was first seen.

Some clients keep tools in a map, or connect their tool servers at different speeds, and send the same tools
in another order each time. Tools stand at the front of most prompts, so nearly all would be read again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from blake3 import blake3

__all__ = ["ToolOrder"]

MOST_SETS = 1000
Tools = Sequence[Mapping[str, Any]]


class ToolOrder:
    """Remembers the sets of tools it has seen, each key's for itself; the longest unused are forgotten.
    Thread-safe."""

    def __init__(self, most: int = MOST_SETS) -> None:
        self._most = most
        self._seen: OrderedDict[tuple[str, tuple[bytes, ...]], tuple[bytes, ...]] = OrderedDict()
        self._lock = Lock()

    def arranged(self, tools: Tools, tenant: str) -> tuple[Tools, bool]:
        """`tools` in the first order of their set, and whether that is another one than they came in. Tools
        are the same where their JSON is, keys in their order."""
        digests = tuple(blake3(json.dumps(tool).encode()).digest(16) for tool in tools)
        with self._lock:
            key = (tenant, tuple(sorted(digests)))
            first = self._seen.setdefault(key, digests)
            self._seen.move_to_end(key)
            while len(self._seen) > self._most:
                self._seen.popitem(last=False)
        if first == digests:
            return tools, False
        known = dict(zip(digests, tools, strict=True))
        return [known[digest] for digest in first], True
