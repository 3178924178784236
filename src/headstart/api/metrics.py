"""What `/metrics` shows: counts and times in Prometheus' text format, from a registry of its own.

Two sources, both counted and never estimated: events of requests as they pass (`observe`), and the
scheduler's snapshot, read at the moment of a scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headstart.api.auth import App, Message, Receive, Send
from headstart.prefix.cache import CacheStatistics
from headstart.prefix.report import CacheReport
from headstart.prefix.ssd_counts import SsdStatistics
from headstart.serving.models import Generates
from headstart.serving.request import Event, Failed, Finished, GenerationRequest, PrefillDone
from headstart.serving.snapshot import SchedulerSnapshot

CONTENT_TYPE = CONTENT_TYPE_LATEST

FIRST_TOKEN_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
DECODE_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)

SNAPSHOT_COUNTERS = {
    "steps": ("headstart_engine_steps", "Engine steps made."),
    "engine_s": ("headstart_engine_seconds", "Time the engine spent in forward passes."),
    "busy_s": ("headstart_scheduler_busy_seconds", "Time the engine thread spent on work of any kind."),
    "decoded_tokens": ("headstart_decoded_tokens", "Tokens read while decoding."),
    "prefilled_tokens": ("headstart_prefilled_tokens", "Prompt tokens read."),
    "shared_waits": (
        "headstart_shared_prefill_waits",
        "Requests that let another read their prefix.",
    ),
    "drafted_tokens": ("headstart_drafted_tokens", "Tokens guessed by speculation."),
    "accepted_tokens": ("headstart_accepted_tokens", "Guessed tokens that came out the same."),
    "preemptions": ("headstart_preemptions", "Sequences that stepped aside for want of room."),
}
SNAPSHOT_GAUGES = {
    "running": ("headstart_running_requests", "Requests that run now."),
    "waiting": ("headstart_waiting_requests", "Requests in the queue now."),
    "idle_sequences": ("headstart_idle_sequences", "Finished sequences still in the engine, ready to go on."),
}
SSD_GAUGES = {
    "used_bytes": ("headstart_ssd_bytes", "Bytes of the cache's files on disk."),
    "limit_bytes": ("headstart_ssd_limit_bytes", "Most bytes they may take now."),
    "waiting": ("headstart_ssd_unwritten_entries", "Entries on their way to the disk."),
}
SSD_COUNTERS = {
    "saved": ("headstart_ssd_saved_entries", "Entries written to the disk."),
    "refused": ("headstart_ssd_refused_entries", "Entries that did not fit in the budget."),
    "evicted": ("headstart_ssd_evicted_entries", "Entries dropped from the disk for room."),
    "write_errors": ("headstart_ssd_write_errors", "Entries that the disk refused."),
    "written_bytes": ("headstart_ssd_written_bytes", "Bytes of files written."),
    "read_bytes": ("headstart_ssd_read_bytes", "Bytes of state brought back from the disk."),
    "read_failures": ("headstart_ssd_read_failures", "Entries whose file could not be used."),
}


class ServerMetrics:
    """The metrics of one server. Thread-safe; `observe` is called on the engine thread."""

    def __init__(self, snapshot: Callable[[], SchedulerSnapshot]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_SnapshotCollector(snapshot))
        self._http = Counter(
            "headstart_http_requests",
            "HTTP requests answered, by endpoint and status.",
            ["path", "status"],
            registry=self.registry,
        )
        self._prompt = Counter(
            "headstart_prompt_tokens",
            "Prompt tokens: restored from a tier, replayed (read again before the divergence), new.",
            ["kind", "tier"],
            registry=self.registry,
        )
        self._completion = Counter(
            "headstart_completion_tokens", "Tokens of replies.", registry=self.registry
        )
        self._finished = Counter(
            "headstart_finished_requests",
            "Requests that ended, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self._misses = Counter(
            "headstart_cache_misses",
            "Prompts of which tokens were read that a perfect cache would have restored, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self._first_token = Histogram(
            "headstart_time_to_first_token_seconds",
            "From a request's arrival to its first token, by the tier it resumed from.",
            ["tier"],
            buckets=FIRST_TOKEN_BUCKETS_S,
            registry=self.registry,
        )
        self._decode = Histogram(
            "headstart_decode_seconds_per_token",
            "Mean time of a reply's tokens after the first.",
            buckets=DECODE_BUCKETS_S,
            registry=self.registry,
        )

    def render(self) -> bytes:
        """Everything, as the text a scrape gets."""
        return generate_latest(self.registry)

    def observe(self, event: Event) -> None:
        """Counts one event of one request. Never blocks for long."""
        if isinstance(event, PrefillDone):
            self._observe_prompt(event.report)
        elif isinstance(event, Finished):
            self._completion.inc(event.completion_tokens)
            self._finished.labels(event.reason.value).inc()
            if event.completion_tokens > 0:
                self._first_token.labels(event.report.tier.value).observe(event.timings.first_token_s)
            if event.completion_tokens > 1:
                self._decode.observe(event.timings.decode_s / (event.completion_tokens - 1))
        elif isinstance(event, Failed):
            self._finished.labels("failed").inc()

    def _observe_prompt(self, report: CacheReport) -> None:
        tier = report.tier.value
        for kind, tokens in (
            ("restored", report.restored),
            ("replayed", report.replayed),
            ("new", report.new),
        ):
            if tokens:
                self._prompt.labels(kind, tier).inc(tokens)
        if report.reason is not None:
            self._misses.labels(report.reason.value).inc()

    def count_reply(self, path: str, status: int) -> None:
        """Counts one HTTP reply. `path` is a route's template, never a raw URL."""
        self._http.labels(path, str(status)).inc()


class Observed:
    """A scheduler whose requests' events are shown to `observe` before their receivers see them."""

    def __init__(self, scheduler: Generates, observe: Callable[[Event], None]) -> None:
        self._scheduler = scheduler
        self._observe = observe

    def submit(self, request: GenerationRequest, sink: Callable[[Event], None]) -> Any:
        def both(event: Event) -> None:
            self._observe(event)
            sink(event)

        return self._scheduler.submit(request, both)

    def cancel(self, ticket: Any) -> None:
        self._scheduler.cancel(ticket)


class _SnapshotCollector(Collector):
    def __init__(self, snapshot: Callable[[], SchedulerSnapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        for field, (name, text) in SNAPSHOT_COUNTERS.items():
            yield CounterMetricFamily(name, text, value=getattr(snapshot, field))
        for field, (name, text) in SNAPSHOT_GAUGES.items():
            yield GaugeMetricFamily(name, text, value=getattr(snapshot, field))
        if snapshot.cache is not None:
            yield from _cache_families(snapshot.cache)


def _cache_families(cache: CacheStatistics) -> Iterator[Metric]:
    yield GaugeMetricFamily("headstart_cache_bytes", "Bytes in use, index included.", value=cache.used_bytes)
    yield GaugeMetricFamily("headstart_cache_limit_bytes", "Most bytes it may use.", value=cache.limit_bytes)
    counts = cache.counts
    entries = GaugeMetricFamily("headstart_cache_entries", "Entries held now.", labels=["kind"])
    evicted = CounterMetricFamily("headstart_cache_evictions", "Entries dropped for room.", labels=["kind"])
    for kind in ("blocks", "checkpoints", "logits"):
        entries.add_metric([kind], getattr(counts, kind))
        evicted.add_metric([kind], getattr(counts, f"evicted_{kind}"))
    yield entries
    yield evicted
    yield CounterMetricFamily("headstart_cache_refusals", "Entries too large to keep.", value=counts.refused)
    failures = CounterMetricFamily(
        "headstart_cache_failures", "Loads that failed, by reason.", labels=["reason"]
    )
    for reason, count in cache.failures.items():
        failures.add_metric([reason.value], count)
    yield failures
    if cache.ssd is not None:
        yield from _ssd_families(cache.ssd)


def _ssd_families(ssd: SsdStatistics) -> Iterator[Metric]:
    entries = GaugeMetricFamily("headstart_ssd_entries", "Entries on disk now.", labels=["kind"])
    entries.add_metric(["blocks"], ssd.blocks)
    entries.add_metric(["marks"], ssd.marks)
    yield entries
    for field, (name, text) in SSD_GAUGES.items():
        yield GaugeMetricFamily(name, text, value=getattr(ssd, field))
    for field, (name, text) in SSD_COUNTERS.items():
        yield CounterMetricFamily(name, text, value=getattr(ssd, field))


class ReplyCounter:
    """ASGI middleware that counts replies by route and status."""

    def __init__(self, app: App, metrics: ServerMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = scope.get("route")
                self._metrics.count_reply(getattr(route, "path", "other"), message["status"])
            await send(message)

        await self._app(scope, receive, counted)
