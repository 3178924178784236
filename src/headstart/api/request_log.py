"""The last requests' cache reports, for GET /v1/headstart/requests and /v1/headstart/requests/{id}.

What costs time (which message the divergence lies in) is worked out when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from headstart.api.thought_cost import thoughts_note
from headstart.chat.boundaries import Rendered, render_with_boundaries
from headstart.chat.messages import Message
from headstart.errors import RequestError
from headstart.prefix.report import CacheReport
from headstart.prefix.tokens import TokenRun
from headstart.serving.models import ServedModel

WINDOW_TOKENS = 32
MAX_REQUESTS = 256
MAX_CHARS = 64_000_000


@dataclass(frozen=True)
class Conversation:
    """What a chat prompt was rendered from."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None
    kwargs: Mapping[str, Any]
    chars: int


@dataclass(frozen=True)
class LoggedReply:
    """One reply's report and the text around its divergence.

    `divergence_byte`: offset of the divergence in the prompt's UTF-8 text. `drafted`, `accepted`: tokens
    guessed for the reply, and those of them that were right.
    """

    report: CacheReport
    divergence_byte: int
    text_before: str
    text_after: str
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class LoggedRequest:
    """`notes`: what of the conversation was left out or moved, a sentence each."""

    id: str
    tenant: str
    replies: tuple[LoggedReply, ...]
    conversation: Conversation | None
    notes: tuple[str, ...] = ()


class RequestLog:
    """The newest requests, bounded in number and in characters of conversation. Thread-safe."""

    def __init__(self, max_requests: int = MAX_REQUESTS, max_chars: int = MAX_CHARS) -> None:
        self._max_requests = max_requests
        self._max_chars = max_chars
        self._chars = 0
        self._kept: OrderedDict[str, LoggedRequest] = OrderedDict()
        self._lock = Lock()

    def put(self, request: LoggedRequest) -> None:
        with self._lock:
            self._kept[request.id] = request
            self._chars += _chars(request)
            while self._kept and (len(self._kept) > self._max_requests or self._chars > self._max_chars):
                _, oldest = self._kept.popitem(last=False)
                self._chars -= _chars(oldest)

    def get(self, request_id: str, tenant: str) -> LoggedRequest | None:
        """A request of this tenant; None where it is another's or no longer kept."""
        with self._lock:
            found = self._kept.get(request_id)
        return found if found is not None and found.tenant == tenant else None

    def all(self, tenant: str) -> list[LoggedRequest]:
        """The requests of this tenant that are kept, in the order in which they ended."""
        with self._lock:
            return [request for request in self._kept.values() if request.tenant == tenant]


def logged_reply(
    model: ServedModel, prompt: TokenRun, report: CacheReport, *, drafted: int = 0, accepted: int = 0
) -> LoggedReply:
    """`report` with the decoded windows on both sides of its divergence in `prompt`."""
    at = min(report.divergence, len(prompt))
    return LoggedReply(
        report=report,
        divergence_byte=int(model.piece_bytes[prompt[:at]].sum()),
        text_before=model.text_of(prompt[max(0, at - WINDOW_TOKENS) : at]),
        text_after=model.text_of(prompt[at : at + WINDOW_TOKENS]),
        drafted=drafted,
        accepted=accepted,
    )


def describe(model: ServedModel, request: LoggedRequest) -> dict[str, Any]:
    """The JSON of a logged request: one report a reply, with the divergence's place in the prompt."""
    return {
        "id": request.id,
        "object": "headstart.request",
        "replies": [
            describe_reply(model, reply, request.conversation, request.notes) for reply in request.replies
        ],
    }


def listed(requests: Sequence[LoggedRequest]) -> dict[str, Any]:
    """The JSON of several logged requests: what the cache did, without the places in the prompts."""
    return {
        "object": "list",
        "data": [
            {
                "id": request.id,
                "object": "headstart.request",
                "replies": [reply.report.to_json() for reply in request.replies],
            }
            for request in requests
        ],
    }


def describe_reply(
    model: ServedModel, reply: LoggedReply, conversation: Conversation | None, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """A CacheReport as JSON, with `divergence_message` (index, None where unknown or not a chat) and `notes`:
    what of the conversation was left out or moved."""
    rendered = _rendered(model, conversation) if conversation is not None else None
    message, thoughts = None, None
    if conversation is not None and rendered is not None:
        char = len(rendered.text.encode()[: reply.divergence_byte].decode("utf-8", "ignore"))
        message = _message_at(rendered, char)
        thoughts = thoughts_note(model, conversation.messages, conversation.kwargs, rendered, (char, message))
    return {
        **reply.report.to_json(),
        "divergence_message": message,
        "text_before": reply.text_before,
        "text_after": reply.text_after,
        "drafted_tokens": reply.drafted,
        "accepted_tokens": reply.accepted,
        "notes": [*notes, *([thoughts] if thoughts else [])],
    }


def _rendered(model: ServedModel, conversation: Conversation) -> Rendered | None:
    """The prompt of a conversation with the places of its messages; None where it cannot be had again."""
    if model.template is None:
        return None
    try:
        return render_with_boundaries(
            model.template,
            conversation.messages,
            tools=conversation.tools,
            kwargs=conversation.kwargs,
            memo=model.boundaries,
        )
    except RequestError:
        return None


def _message_at(rendered: Rendered, char: int) -> int | None:
    """The message in which a character of the prompt stands."""
    known = [(start, index) for index, start in enumerate(rendered.message_starts) if start is not None]
    place = bisect_right([start for start, _ in known], char) - 1
    return known[place][1] if place >= 0 else None


def _chars(request: LoggedRequest) -> int:
    return request.conversation.chars if request.conversation else 0
