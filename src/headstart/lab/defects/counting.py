"""Numbers that are not true."""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping
from dataclasses import replace
from typing import Any

from headstart.lab.defect import App, Defect
from headstart.lab.front import Receive, Send, json_object, replayed, whole_body
from headstart.lab.rewriting import Json, rewriting
from headstart.prefix.report import CacheReport, Tier
from headstart.prefix.tokens import TokenRun, common_prefix
from headstart.serving.models import Generates
from headstart.serving.request import Event, Finished, GenerationRequest, PrefillDone


def with_cached(payload: Json, change: Callable[[int], int | None]) -> Json:
    """`payload` with another number of cached tokens wherever it has one; None leaves the field out."""
    usage, timings = payload.get("usage"), payload.get("timings")
    if isinstance(usage, dict) and isinstance(usage.get("prompt_tokens_details"), dict):
        cached = change(usage["prompt_tokens_details"]["cached_tokens"])
        usage.pop("prompt_tokens_details")
        if cached is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": min(cached, usage["prompt_tokens"])}
    if isinstance(timings, dict) and "cache_n" in timings:
        cached = change(timings["cache_n"])
        whole = timings.pop("cache_n") + timings.pop("prompt_n")
        if cached is not None:
            timings |= {"cache_n": min(cached, whole), "prompt_n": max(0, whole - cached)}
    return payload


class ReportedZero(Defect):
    name = "reported-zero"
    title = "the cache works and every reply says that nothing was cached"
    caught_by = ("honesty", "exact_repeat")

    def app(self, app: App) -> App:
        return rewriting(app, answered=lambda _, payload: with_cached(payload, lambda _: 0))


class FieldMissing(Defect):
    name = "field-missing"
    title = "replies do not say how much was cached"
    caught_by = ("honesty", "exact_repeat")

    def app(self, app: App) -> App:
        return rewriting(app, answered=lambda _, payload: with_cached(payload, lambda _: None))


class StreamCountsElse(Defect):
    name = "stream-counts-else"
    title = "a streamed reply says that less was cached than the same reply whole"
    caught_by = ("honesty", "exact_repeat")

    def app(self, app: App) -> App:
        def halved(asked: Json, payload: Json) -> Json:
            return with_cached(payload, lambda cached: cached // 2) if asked.get("stream") else payload

        return rewriting(app, answered=halved)


class ClaimedPastDivergence(Defect):
    name = "claimed-past-divergence"
    title = "cached tokens are counted in whole blocks, so up to 63 too many are claimed"
    caught_by = ("middle_edit", "append", "honesty")

    def app(self, app: App) -> App:
        return rewriting(
            app, answered=lambda _, payload: with_cached(payload, lambda cached: -(-cached // 64) * 64)
        )


class ClaimedOnFirstSight(Defect):
    name = "claimed-on-first-sight"
    title = "claims a hit for prompts that were never sent before"
    caught_by = ("cold",)

    def app(self, app: App) -> App:
        return rewriting(
            app, answered=lambda _, payload: with_cached(payload, lambda cached: max(cached, 300))
        )


class _Claims:
    """Reads every prompt whole and reports what a perfect cache would have restored."""

    def __init__(self, scheduler: Generates) -> None:
        self._scheduler = scheduler
        self._seen: list[TokenRun] = []

    def submit(self, request: GenerationRequest, sink: Callable[[Event], None]) -> Any:
        best = max((common_prefix(old, request.prompt) for old in self._seen), default=0)
        if request.use_cache:
            self._seen.append(request.prompt)
        claimed = min(best, len(request.prompt) - 1) if request.use_cache else 0

        def said(event: Event) -> None:
            if isinstance(event, PrefillDone | Finished):
                event = replace(event, report=_claiming(event.report, claimed))
            sink(event)

        return self._scheduler.submit(replace(request, use_cache=False), said)

    def cancel(self, ticket: Any) -> None:
        self._scheduler.cancel(ticket)


def _claiming(report: CacheReport, claimed: int) -> CacheReport:
    new = report.prompt_tokens - claimed
    tier = Tier.RAM if claimed else Tier.NONE
    return replace(report, divergence=claimed, restored=claimed, replayed=0, new=new, tier=tier)


class HitButReads(Defect):
    name = "hit-but-reads"
    title = "reports hits and reads every prompt whole"
    caught_by = ("honesty",)

    def scheduler(self, scheduler: Generates) -> Generates:
        return _Claims(scheduler)


class KeepAliveFakes(HitButReads):
    name = "keep-alive-fakes"
    title = "reports hits, reads everything, and hides the waiting behind an empty frame sent at once"
    caught_by = ("honesty",)

    def app(self, app: App) -> App:
        async def early(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or not scope["path"].endswith("/completions"):
                await app(scope, receive, send)
                return
            body = await whole_body(receive)
            if not json_object(body).get("stream"):
                await app(scope, replayed(body, receive), send)
                return
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            chat = scope["path"].endswith("/chat/completions")
            await send({"type": "http.response.body", "body": _empty_frame(chat), "more_body": True})

            async def rest(message: MutableMapping[str, Any]) -> None:
                if message["type"] != "http.response.start":
                    await send(message)

            await app(scope, replayed(body, receive), rest)

        return early


def _empty_frame(chat: bool) -> bytes:
    said: Json = {"delta": {"role": "assistant", "content": ""}} if chat else {"text": ""}
    frame = {"choices": [{"index": 0, "finish_reason": None, **said}]}
    return b"data: " + json.dumps(frame).encode() + b"\n\n"


DEFECTS: tuple[type[Defect], ...] = (
    ReportedZero,
    FieldMissing,
    StreamCountsElse,
    ClaimedPastDivergence,
    ClaimedOnFirstSight,
    HitButReads,
    KeepAliveFakes,
)
