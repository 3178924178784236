"""Why a prefix was lost: one small file a cause, with its detector, explanation and fix."""

from __future__ import annotations

from typing import Protocol

from headstart.blame.causes import (
    arguments_rewritten,
    attribution,
    block_moved,
    context_reloaded,
    counter,
    date_or_cwd,
    git_status,
    history_rewritten,
    key_order,
    model_switched,
    pruned_or_compacted,
    random_id,
    reminder_removed,
    retokenised,
    server_gap,
    server_never_hits,
    shape_only,
    side_request_evicted,
    system_hoisted,
    system_variant,
    template_suffix,
    thinking_stripped,
    timestamp,
    token_budget,
    tools_changed,
    tools_reordered,
    truncated,
    unknown,
    whitespace_drift,
)
from headstart.blame.causes.context import Context
from headstart.blame.finding import Change, Finding, Fix

__all__ = [
    "BODY_CAUSES",
    "CAUSES",
    "FRONT_CAUSES",
    "HARD_CAUSES",
    "SERVER_CAUSES",
    "Cause",
    "Context",
    "cause_of",
    "first",
]


class Cause(Protocol):
    """A module of this package. `CODE`: its name in findings. `PLAIN`: what it is, for people. `FIX`: what
    to do in general; a finding may carry a more exact one. `detect` gets no change where the bodies agree."""

    CODE: str
    PLAIN: str
    FIX: Fix

    def detect(self, change: Change | None, context: Context) -> Finding | None: ...


# What made two prompts part. The most special stands first: a detector may count on those above it.
BODY_CAUSES: tuple[Cause, ...] = (
    model_switched,
    attribution,
    token_budget,
    tools_reordered,
    shape_only,
    whitespace_drift,
    timestamp,
    date_or_cwd,
    git_status,
    random_id,
    counter,
    key_order,
    arguments_rewritten,
    tools_changed,
    system_hoisted,
    thinking_stripped,
    block_moved,
    reminder_removed,
    pruned_or_compacted,
    system_variant,
    history_rewritten,
    unknown,
)
# Of these, the ones that keep new conversations from sharing their front with older ones.
FRONT_CAUSES: tuple[Cause, ...] = (
    attribution,
    token_budget,
    tools_reordered,
    whitespace_drift,
    timestamp,
    date_or_cwd,
    git_status,
    random_id,
    counter,
    key_order,
)
# What a server did although the bodies agree.
SERVER_CAUSES: tuple[Cause, ...] = (
    model_switched,
    context_reloaded,
    truncated,
    system_hoisted,
    server_never_hits,
    side_request_evicted,
    server_gap,
)
# Of these, the ones that a change late in the prompt cannot bring about.
HARD_CAUSES: tuple[Cause, ...] = (model_switched, context_reloaded, server_never_hits, side_request_evicted)
# Every cause there is, those of the rendered prompt included.
CAUSES: tuple[Cause, ...] = (
    *BODY_CAUSES[:-1],
    *(cause for cause in SERVER_CAUSES if cause not in BODY_CAUSES),
    template_suffix,
    retokenised,
    unknown,
)


def first(causes: tuple[Cause, ...], change: Change | None, context: Context) -> Finding | None:
    """What the first detector that knows the change says."""
    return next((finding for cause in causes if (finding := cause.detect(change, context))), None)


def cause_of(code: str) -> Cause:
    """The cause of that name. Raises KeyError."""
    return {cause.CODE: cause for cause in CAUSES}[code]
