"""Responses that a later request may go on with: the last ones, by number and by size.

They are kept as the bytes they would be sent as, so that the bound on their size is one on memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from pydantic_core import from_json, to_json

__all__ = ["Store", "Stored"]

MAX_RESPONSES = 512
MAX_BYTES = 64_000_000


@dataclass(frozen=True)
class Stored:
    """`conversation`: the JSON of all items up to and with the reply; `response`: of what was answered."""

    tenant: str
    conversation: bytes
    response: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.conversation) + len(self.response)

    def items(self) -> tuple[dict[str, Any], ...]:
        """The whole conversation up to and with the reply."""
        return tuple(from_json(self.conversation))


class Store:
    """Thread-safe. What is over the bounds is forgotten, the longest unused first."""

    def __init__(self, responses: int = MAX_RESPONSES, size_bytes: int = MAX_BYTES) -> None:
        self._most, self._most_bytes = responses, size_bytes
        self._kept: OrderedDict[str, Stored] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def put(self, tenant: str, items: Sequence[Mapping[str, Any]], response: Mapping[str, Any]) -> None:
        one = Stored(tenant, to_json(items), to_json(response))
        with self._lock:
            self._kept[response["id"]] = one
            self._bytes += one.size_bytes
            while self._kept and (len(self._kept) > self._most or self._bytes > self._most_bytes):
                _, gone = self._kept.popitem(last=False)
                self._bytes -= gone.size_bytes

    def get(self, response_id: str, tenant: str) -> Stored | None:
        """None where it is another tenant's, or not kept any more."""
        with self._lock:
            one = self._kept.get(response_id)
            if one is None or one.tenant != tenant:
                return None
            self._kept.move_to_end(response_id)
            return one

    def remove(self, response_id: str, tenant: str) -> bool:
        with self._lock:
            one = self._kept.get(response_id)
            if one is None or one.tenant != tenant:
                return False
            del self._kept[response_id]
            self._bytes -= one.size_bytes
            return True
