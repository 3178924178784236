"""What a server's log says happened. A number that the log does not tell is None.

Those of which a log has one or more a turn are named tuples: they are made four times as fast as frozen
dataclasses, and a log of a gigabyte has half a million turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Picked(StrEnum):
    """How a slot was chosen for a prompt. LRU: none held enough of it."""

    SIMILARITY = "similarity"
    LRU = "lru"
    EMPTY = "empty"
    ID = "id"


@dataclass(frozen=True)
class Started:
    """A model is loaded, whole or anew. `context_tokens`: of one conversation, where the line tells it."""

    server: str
    context_tokens: int | None = None


@dataclass(frozen=True)
class Fact:
    """Something the server says about itself; `name` is one of FACTS."""

    name: str
    value: str


FACTS = (
    "version",
    "context_tokens",
    "slots",
    "cache_limit_mib",
    "checkpoints",
    "checkpoint_step",
    "window_tokens",
    "recurrent",
    "speculative",
    "block_tokens",
    "prefix_caching",
    "vram",
)


@dataclass(frozen=True)
class Loaded:
    """The model is ready. `seconds`: what that took."""

    seconds: float | None = None


class Turn(NamedTuple):
    """A prompt that was read. `prompt_tokens`: all of it, `cached`: of them not computed, `read`: computed.

    `shared`: tokens that the prompt has in common with what the server held, where the log tells it, to
    within `shared_within`; `shared_most`: no more than these are. `held`: tokens that were held there.
    `hint`: the server wrote that it reads everything again, which counters may contradict. `note`: what the
    server adds in its own words.
    """

    server: str
    slot: int | None = None
    task: str = ""
    prompt_tokens: int | None = None
    cached: int | None = None
    read: int | None = None
    prompt_ms: float | None = None
    generated: int | None = None
    picked: Picked | None = None
    shared: int | None = None
    shared_within: int = 0
    shared_most: int | None = None
    held: int | None = None
    restored: int | None = None
    hint: bool = False
    truncated: bool = False
    note: str = ""


@dataclass(frozen=True)
class SlotChosen:
    """`similarity`: share of the prompt that the slot holds; `f_keep`: share of the slot that the prompt
    keeps; `threshold`: least similarity that chooses a slot."""

    slot: int
    picked: Picked
    similarity: float | None = None
    f_keep: float | None = None
    threshold: float | None = None


class Restored(NamedTuple):
    """State was put back that ends before `position`; the prompt parted at `wanted`."""

    position: int
    wanted: int | None = None
    slot: int | None = None
    mib: float | None = None


class Checkpoint(NamedTuple):
    """`made`: else erased. `position`: tokens before it. `limit`: how many a slot may have."""

    made: bool
    position: int | None
    slot: int | None = None
    mib: float | None = None
    number: int | None = None
    limit: int | None = None


@dataclass(frozen=True)
class FullReread:
    """The server writes that it reads the whole prompt again. A hint: counters decide."""

    slot: int | None = None


@dataclass(frozen=True)
class Evicted:
    """State was thrown out for want of room. `mib`: its size. `entries`: how many, 1 where not told."""

    mib: float | None = None
    entries: int = 1


@dataclass(frozen=True)
class TooLarge:
    """State that was not kept, as it alone is larger than the cache."""

    mib: float
    limit_mib: float


@dataclass(frozen=True)
class NotStored:
    """State that was not kept, or not put back, and the server's reason."""

    why: str


@dataclass(frozen=True)
class Truncated:
    """A prompt was cut. `limit`: the context, `prompt_tokens`: what it had, `kept`: what was left."""

    limit: int | None = None
    prompt_tokens: int | None = None
    kept: int | None = None


@dataclass(frozen=True)
class CacheState:
    """What the cache in memory holds."""

    prompts: int
    mib: float
    limit_mib: float | None = None


@dataclass(frozen=True)
class Interval:
    """Totals over some seconds, where the server logs no single requests. Shares are of 1."""

    prompt_per_s: float
    hit_share: float | None = None
    used_share: float | None = None
    running: int | None = None
    waiting: int | None = None


@dataclass(frozen=True)
class Diverged:
    """The server's own finding: where a prompt parted, with the text on both sides."""

    position: int
    stored: str = ""
    prompt: str = ""


LogEvent = (
    Started
    | Fact
    | Loaded
    | Turn
    | SlotChosen
    | Restored
    | Checkpoint
    | FullReread
    | Evicted
    | TooLarge
    | NotStored
    | Truncated
    | CacheState
    | Interval
    | Diverged
)
