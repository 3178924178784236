"""State thrown away that could have been used."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headstart.lab.defect import Defect, recast
from headstart.prefix.cache import PrefixCache
from headstart.prefix.plan import LiveView, Plan, PromptHints, without_cache
from headstart.prefix.tokens import TokenRun, common_prefix
from headstart.serving.models import Generates
from headstart.serving.request import Event, GenerationRequest
from headstart.serving.settings import SchedulerSettings

_LEAST_SHARED = 64


class SideRequestsEvict(Defect):
    name = "side-requests-evict"
    title = "there is one slot and no store: a short request in between costs the conversation its prefix"
    caught_by = ("side_requests",)

    def settings(self, settings: SchedulerSettings) -> SchedulerSettings:
        return replace(settings, ram_cache_bytes=0)

    def cache(self, cache: PrefixCache) -> PrefixCache:
        return recast(_LastOnly, cache)


class _LastOnly(PrefixCache):
    """Resumes nothing but the sequence that was used last."""

    def _plan(self, namespace: bytes, prompt: TokenRun, live: Sequence[LiveView], hints: PromptHints) -> Plan:
        idle = [view for view in live if not view.busy]
        return super()._plan(namespace, prompt, idle[-1:], hints)


class OldBranchLost(SideRequestsEvict):
    name = "old-branch-lost"
    title = "an edit overwrites the branch it parted from: going back reads it again"
    caught_by = ("middle_edit",)


class _Forgetting(PrefixCache):
    """Reads from nothing every prompt that shares a beginning with one of `lab_lost`, once."""

    def _plan(self, namespace: bytes, prompt: TokenRun, live: Sequence[LiveView], hints: PromptHints) -> Plan:
        lost: list[TokenRun] = self.__dict__["lab_lost"]
        for old in lost:
            if common_prefix(old, prompt) >= _LEAST_SHARED:
                return without_cache(namespace, prompt)
        return super()._plan(namespace, prompt, live, hints)


class _TellsCancelled:
    def __init__(self, scheduler: Generates, lost: list[TokenRun]) -> None:
        self._scheduler = scheduler
        self._lost = lost

    def submit(self, request: GenerationRequest, sink: Callable[[Event], None]) -> Any:
        return self._scheduler.submit(request, sink)

    def cancel(self, ticket: Any) -> None:
        self._lost.append(ticket.run.request.prompt)
        self._scheduler.cancel(ticket)


class CancelDiscards(Defect):
    name = "cancel-discards"
    title = "what a cancelled prefill had read is thrown away"
    caught_by = ("cancel",)

    def __init__(self) -> None:
        self._lost: list[TokenRun] = []

    def cache(self, cache: PrefixCache) -> PrefixCache:
        cache.__dict__["lab_lost"] = self._lost
        return recast(_Forgetting, cache)

    def scheduler(self, scheduler: Generates) -> Generates:
        return _TellsCancelled(scheduler, self._lost)


class RestartLoses(Defect):
    name = "restart-loses"
    title = "keeps a cache on disk and does not find it again after a restart"
    caught_by = ("restart",)
    ssd = True

    def stopped(self, directory: Path | None, *, killed: bool) -> None:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


DEFECTS: tuple[type[Defect], ...] = (SideRequestsEvict, OldBranchLost, CancelDiscards, RestartLoses)
