"""Responses that a later request may go on with: the last ones, by number and by size."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any

__all__ = ["Store", "Stored"]

MAX_RESPONSES = 512
MAX_CHARS = 64_000_000


@dataclass(frozen=True)
class Stored:
    """`items`: the whole conversation up to and with the reply; `response`: as it was answered."""

    tenant: str
    items: tuple[dict[str, Any], ...]
    response: dict[str, Any]
    chars: int


class Store:
    """Thread-safe. What is over the bounds is forgotten, the longest unused first."""

    def __init__(self, responses: int = MAX_RESPONSES, chars: int = MAX_CHARS) -> None:
        self._most, self._most_chars = responses, chars
        self._kept: OrderedDict[str, Stored] = OrderedDict()
        self._chars = 0
        self._lock = Lock()

    def put(self, tenant: str, items: tuple[dict[str, Any], ...], response: dict[str, Any]) -> None:
        one = Stored(tenant, items, response, len(json.dumps(items)))
        with self._lock:
            self._kept[response["id"]] = one
            self._chars += one.chars
            while self._kept and (len(self._kept) > self._most or self._chars > self._most_chars):
                _, gone = self._kept.popitem(last=False)
                self._chars -= gone.chars

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
            self._chars -= one.chars
            return True
