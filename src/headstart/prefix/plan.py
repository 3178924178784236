"""Where to resume a prompt: the decision, made of facts about the index and the live sequences."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headstart.prefix.report import Reason, Tier
from headstart.prefix.tokens import TokenRun

__all__ = ["LiveView", "Plan", "PromptHints", "Reason", "Stop", "StopKind", "Tier", "without_cache"]


@dataclass(frozen=True)
class PromptHints:
    """Positions in a prompt, in tokens, at which other prompts are likely to part from it.

    `head_end`: end of system and tools. `message_starts`: first token of each message.
    `body_end`: end of the messages, before the generation suffix.
    """

    head_end: int | None = None
    message_starts: tuple[int, ...] = ()
    body_end: int | None = None


@dataclass(frozen=True, eq=False)
class LiveView:
    """A live sequence of the engine, as the planner sees it.

    `tokens`: what it has read, all of it. `window_start`: lowest token whose windowed rows the
    engine still has (0 without windowed planes). `busy`: running; it must not be cut.
    """

    seq: int
    namespace: bytes
    tokens: TokenRun
    window_start: int
    busy: bool


class StopKind(StrEnum):
    """Why prefill pauses for a checkpoint. GRID is scaffolding and is dropped first."""

    HEAD = "head"
    MESSAGE = "message"
    BODY_END = "body_end"
    DIVERGENCE = "divergence"
    PROMPT_END = "prompt_end"
    GRID = "grid"
    FORK = "fork"


@dataclass(frozen=True)
class Stop:
    """Prefill pauses when `position` tokens are read."""

    position: int
    kind: StopKind


@dataclass(frozen=True, eq=False)
class Plan:
    """How to start reading `prompt`.

    `divergence`: longest prefix whose rows are all present somewhere (index or live sequence).
    `restore_at`: tokens that need not be read. `tier`: LIVE (continue or cut sequence `live` in
    place), RAM (restore stored rows) or NONE (from zero).
    `exact`: `restore_at` is the prompt's length and its end logits are stored.
    `stops`: where prefill pauses for a checkpoint, ascending, all > `restore_at`; empty unless the
    layout is recurrent.
    `reason`: why less was restored than once was possible; None when nothing was lost.
    `fork_from`, `fork_at`: a live sequence that was not chosen (busy, or it cannot be cut there)
    shares the first `fork_at` tokens, which is more than the index holds. Storing what it has
    (rows, and for recurrent layouts a checkpoint if it stands at `fork_at`) and planning again,
    once, restores further.
    `window_rows_needed`, `checkpoint_needed`: what a LIVE cut must be given by `load`.
    """

    namespace: bytes
    prompt: TokenRun
    divergence: int
    restore_at: int
    tier: Tier
    live: int | None = None
    exact: bool = False
    stops: tuple[Stop, ...] = ()
    reason: Reason | None = None
    fork_from: int | None = None
    fork_at: int = 0
    window_rows_needed: bool = False
    checkpoint_needed: bool = False


def without_cache(namespace: bytes, prompt: TokenRun) -> Plan:
    """The plan of a request that wants no cache: everything from zero, no stops, reason DISABLED."""
    return Plan(namespace, prompt, divergence=0, restore_at=0, tier=Tier.NONE, reason=Reason.DISABLED)
