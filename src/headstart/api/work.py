"""One request to any chat or completion endpoint: what the scheduler gets, and what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool

from headstart.api.generation import Generation
from headstart.api.request_log import Conversation, LoggedRequest, RequestLog, describe_reply, logged_reply
from headstart.api.usage import Accounting, account
from headstart.chat.replies.format import PLAIN, ReplyFormat
from headstart.serving.models import ServedModel
from headstart.serving.request import GenerationRequest

__all__ = ["Closed", "Entry", "Work", "closed"]


@dataclass(frozen=True)
class Work:
    """One HTTP request, ready for the scheduler: `replies_a_prompt` requests for each prompt in turn.
    `answered`: the rendered conversation, under which its replies are kept; None where there is none.
    `notes`: what of the conversation was left out or moved; warnings have them, too."""

    requests: tuple[GenerationRequest, ...]
    replies_a_prompt: int = 1
    warnings: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    report: bool = False
    conversation: Conversation | None = None
    format: ReplyFormat = PLAIN
    answered: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """Where a request is logged, under which id and for whom."""

    log: RequestLog
    request_id: str
    tenant: str


@dataclass(frozen=True)
class Closed:
    """What a request cost, and what headstart adds to its reply: warnings, and reports where asked for."""

    cost: Accounting
    added: dict[str, Any]


async def closed(
    model: ServedModel, work: Work, generation: Generation, entry: Entry, warnings: Sequence[str] = ()
) -> Closed:
    """The account of a request whose replies have all ended; logs their reports. `warnings`: what went wrong
    in the replies."""
    first_s, total_s = generation.first_token_s(), generation.total_s()
    ends = generation.ends()
    cost = account(ends, work.replies_a_prompt, first_token_s=first_s, total_s=total_s)
    replies = tuple(
        logged_reply(model, request.prompt, end.report, drafted=end.drafted, accepted=end.accepted)
        for request, end in zip(work.requests, ends, strict=True)
    )
    for reply, end in zip(generation.replies, ends, strict=True):
        # A reply that a stop string ended comes back without it, and cannot be told from one cut by hand.
        if work.answered is not None and end.stop is None:
            model.remember_reply(entry.tenant, work.answered, reply.tokens)
    entry.log.put(LoggedRequest(entry.request_id, entry.tenant, replies, work.conversation, work.notes))
    added: dict[str, Any] = {}
    if work.warnings or warnings:
        added["warnings"] = [*work.warnings, *warnings]
    if work.report:
        # Finding the message of the divergence may render the conversation again.
        reports = await run_in_threadpool(
            lambda: [describe_reply(model, reply, work.conversation, work.notes) for reply in replies]
        )
        added["report"] = reports[0]
        if len(reports) > 1:
            added["reports"] = reports
    return Closed(cost, added)
