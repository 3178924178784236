"""The scheduler: one engine thread that reads prompts, decodes replies and keeps what they leave.

Requests come in from any thread through `submit` and `cancel`; everything else happens on the
engine thread. One round of the loop takes in what is new, starts what there is room for, and
makes one step: a token, and a draft (`speculation.py`), for every decoding sequence and at most one
prefill chunk's worth of prompt, so no decode ever waits longer than one chunk.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from concurrent.futures import Future
from dataclasses import replace

from headstart.engines.base import Engine, Logits
from headstart.errors import ConfigError, EngineError, EngineFull, HeadstartError
from headstart.prefix.cache import PrefixCache
from headstart.prefix.outlook import Outlook
from headstart.prefix.plan import Plan, Stop, StopKind
from headstart.prefix.report import Reason
from headstart.prefix.ssd_tier import SsdTier
from headstart.serving.admission import check_prompt, check_queue, retry_after_s, shared_unread
from headstart.serving.calls import Calls
from headstart.serving.composing import Composer, Share
from headstart.serving.constraint import Constraint, ConstraintCompiler, compiled
from headstart.serving.placement import Placement, Start
from headstart.serving.request import Failed, FinishReason, GenerationRequest
from headstart.serving.sequence import Running, Sink, Ticket
from headstart.serving.settings import IDLE_S, SchedulerSettings, new_cache
from headstart.serving.snapshot import SchedulerSnapshot, Totals
from headstart.serving.speculation import Speculate, new_speculation
from headstart.serving.waiting import Waiting

log = logging.getLogger(__name__)


class Scheduler:
    """Serves requests on one engine. `start`, any number of `submit`, `stop`."""

    def __init__(
        self,
        engine: Engine,
        settings: SchedulerSettings,
        compiler: ConstraintCompiler | None = None,
        ssd: SsdTier | None = None,
        draft_engine: Engine | None = None,
    ) -> None:
        if settings.reproducible and engine.batches_sequences:
            raise ConfigError(
                "--reproducible needs --batching exact: in a shared batch the other sequences change "
                "the arithmetic of this one"
            )
        self._engine = engine
        self._settings = settings
        self._compiler = compiler
        chunk_tokens = min(settings.prefill_chunk_tokens, engine.max_step_tokens)
        self._grid = chunk_tokens if settings.reproducible else 0
        drafts = settings.speculate is not Speculate.OFF
        self._composer = Composer(chunk_tokens, self._grid, lambda: engine.max_step_tokens, drafts=drafts)
        self._speculation = new_speculation(engine, settings.speculate, settings.draft_tokens, draft_engine)
        self._cache = self._make_cache(ssd) if settings.cache_enabled else None
        self._placement = Placement(engine, self._cache, settings.block_tokens, self._grid)
        self.namespace = self._placement.namespace
        self._limit = min(settings.max_concurrent_requests, engine.max_sequences)
        self._wake = threading.Condition()
        if ssd is not None:
            ssd.wake_on_answers(self._notify)
        self._inbox: deque[Running] = deque()
        self._calls = Calls(self._notify)
        self._waiting = Waiting()
        self._running: list[Running] = []
        self._stopping = False
        self._news = False
        self._tails_due = self._idle = False
        self._ended = 0
        self._counts: Counter[str] = Counter()
        self._totals = Totals()
        self._publish()
        self._thread = threading.Thread(target=self._serve, name="headstart-engine", daemon=True)

    def _make_cache(self, ssd: SsdTier | None) -> PrefixCache:
        return new_cache(self._settings, self._engine.layout, self._grid, ssd)

    # -- any thread ---------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the engine thread; requests still under way fail with a message saying so. What they
        computed is stored, and what is stored is queued for the SSD, where there is one."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, request: GenerationRequest, sink: Sink) -> Ticket:
        """Queues `request`; `sink` gets its events on the engine thread.

        Raises RequestError where it can never be served, Overloaded where the queue is full.
        """
        layout = self._engine.layout
        check_prompt(request, layout.context_tokens, layout.vocab_size)
        run = Running(
            request,
            sink,
            namespace=self.namespace(request.tenant),
            vocabulary=self._engine.vocabulary,
            context_tokens=layout.context_tokens,
            vocab_size=layout.vocab_size,
            constraint=self._constraint(request),
        )
        with self._wake:
            if self._stopping:
                raise EngineError("the server is shutting down")
            waiting = len(self._inbox) + len(self._waiting)
            retry_s = retry_after_s(self._totals.busy_s, self._counts.total())
            check_queue(waiting, self._settings.queue_limit, retry_s)
            self._inbox.append(run)
            self._wake.notify()
        return Ticket(run)

    def _constraint(self, request: GenerationRequest) -> Constraint | None:
        """What the reply to `request` is held to. Raises RequestError where that cannot be compiled."""
        return compiled(request.constraint, self._compiler)

    def cancel(self, ticket: Ticket) -> None:
        """The client is gone. What was computed for it is kept."""
        with self._wake:
            ticket.run.cancelled = True
            self._wake.notify()

    def probe(self, request: GenerationRequest) -> Future[Outlook]:
        """What would be restored for `request` if it came now. Raises RequestError as `submit` does."""
        check_prompt(request, self._engine.layout.context_tokens, self._engine.layout.vocab_size)
        space = self.namespace(request.tenant)
        return self._calls.ask(lambda: self._placement.outlook(space, request, self._running))

    @property
    def alive(self) -> bool:
        """Whether the engine thread runs. Once it has ended, only a new scheduler serves again."""
        return self._thread.is_alive()

    def snapshot(self) -> SchedulerSnapshot:
        return replace(self._snapshot, waiting=len(self._inbox) + len(self._waiting))

    def _notify(self) -> None:
        """There is something for the engine thread to look at."""
        with self._wake:
            self._news = True
            self._wake.notify()

    # -- engine thread ------------------------------------------------------------------------

    def _serve(self) -> None:
        """The thread's body: the loop, and an answer for everyone left when it ends."""
        farewell = "the server is shutting down"
        try:
            self._loop()
        except Exception:
            log.exception("the engine thread stopped on an unexpected error")
            farewell = "the engine thread stopped on an unexpected error; see the server's log and restart it"
            raise
        finally:
            with self._wake:
                self._stopping = True
                left = [*self._inbox, *self._waiting, *self._running]
            for run in left:
                run.end_fetch()
                run.fail(Failed(EngineError(farewell)))
            self._calls.close(EngineError(farewell))
            self._keep_all()

    def _keep_all(self) -> None:
        """The end of the engine thread: what running sequences have read is stored and saved."""
        for run in self._running:
            self._placement.retire(run)
        if self._cache is not None:
            self._cache.save_tails()

    def _loop(self) -> None:
        while self._intake():
            started_s = time.perf_counter()
            self._calls.run()
            self._drop_cancelled()
            if self._cache is not None:
                self._cache.poll(idle=self._idle)
                self._waiting.fetch(self._placement, self._running, self._notify)
            self._admit()
            if self._running:
                self._step()
            self._speculation.keep_only(self._running)
            self._totals.busy_s += time.perf_counter() - started_s
            self._publish()

    def _intake(self) -> bool:
        """Moves what was submitted to the queue; sleeps when there is nothing to do. False: stop."""
        with self._wake:
            self._idle = False
            while not (
                self._inbox or self._running or self._stopping or self._news or self._waiting.startable()
            ):
                if not self._wake.wait(IDLE_S) and self._tails_due:
                    self._idle = True
                    break
            self._news = False
            self._tails_due = bool(self._inbox) or (self._tails_due and not self._idle)
            self._waiting.add(self._inbox)
            self._inbox.clear()
            return not self._stopping

    def _drop_cancelled(self) -> None:
        for run in [run for run in self._running if run.cancelled]:
            self._running.remove(run)
            self._retire(run, "cancelled")
            if run.report is not None:
                run.finish(FinishReason.CANCELLED)
        self._counts["cancelled"] += self._waiting.drop_cancelled()

    def _admit(self) -> None:
        """Starts waiting requests in order while there is room; one that gains by it waits on."""
        for run in self._waiting:
            back_too_soon = run.stepped_aside_at == self._ended and bool(self._running)
            if back_too_soon or len(self._running) >= self._limit:
                return
            if run.is_waiting() or run.fetching:
                continue
            try:
                plan = self._placement.plan(run, self._running)
                if self._waits_for_another(run, plan):
                    continue
                start = self._placement.start(run, plan, self._running)
            except EngineFull as error:
                if not self._running:
                    self._waiting.remove(run)
                    self._fail(run, error)
                return
            except HeadstartError as error:
                self._waiting.remove(run)
                self._fail(run, error)
                continue
            self._waiting.remove(run)
            self._begin(run, start)

    def _waits_for_another(self, run: Running, plan: Plan) -> bool:
        if plan.reason is Reason.DISABLED:
            return False
        found = shared_unread(run, plan.restore_at, self._running)
        if found is None:
            return False
        other, position = found
        if self._engine.layout.recurrent and position < other.prompt_tokens:
            other.add_stop(Stop(position, StopKind.FORK))
        run.wait_for(other, position)
        self._totals.shared_waits += 1
        return True

    def _begin(self, run: Running, start: Start) -> None:
        fetch = run.end_fetch()
        run.seq = start.seq
        run.clock.started_s = run.clock.started_s or time.perf_counter()
        run.advance(start.position)
        if self._cache is not None and run.request.use_cache:
            run.recorder = self._cache.recorder(run.namespace, run.tokens[: start.position])
            run.stops = deque(stop for stop in start.plan.stops if stop.position > start.position)
        run.announce(start.report(fetch))
        self._running.append(run)
        if start.logits is not None:
            self._sample(run, start.logits)
            self._sweep()

    def _step(self) -> None:
        shares = self._composer.compose(self._running, self._speculation.propose)
        runs = [share.run for share in shares]
        try:
            shares, logits = self._forward(shares)
        except EngineFull:
            if not self._placement.free_one():
                self._preempt(runs)
            return
        except EngineError as error:
            for run in runs:
                self._running.remove(run)
                self._lose(run, error)
            return
        for share, scores in zip(shares, logits, strict=True):
            self._after(share, scores)
        self._sweep()

    def _forward(self, shares: list[Share]) -> tuple[list[Share], list[Logits | None]]:
        """Makes the step, without its drafts where there is no room for them; answers what was read."""
        started_s = time.perf_counter()
        try:
            logits = self._engine.forward([share.step for share in shares])
        except EngineFull:
            if all(share.draft is None for share in shares):
                raise
            shares = [replace(share, draft=None) for share in shares]
            logits = self._engine.forward([share.step for share in shares])
        self._totals.engine_s += time.perf_counter() - started_s
        self._totals.steps += 1
        return shares, logits

    def _after(self, share: Share, logits: Logits | None) -> None:
        """The engine has read `share`: answer first, take back wrong guesses, then store."""
        run, draft = share.run, share.draft
        was_decoding = run.decoding
        before = run.position
        stop = run.advance(before + share.chunk)
        if logits is not None and run.position == run.prompt_tokens and run.recorder is not None:
            run.end_logits = logits.copy()
        if draft is not None and logits is not None:
            self._speculation.verify(run, draft, logits, self._sample)
        elif logits is not None:
            self._sample(run, logits)
        if was_decoding:
            self._totals.decoded_tokens += run.position - before
        else:
            self._totals.prefilled_tokens += share.chunk
        try:
            if draft is not None:
                self._speculation.settle(run, draft)
            self._placement.keep(run, before, prefill=not was_decoding)
            if stop is not None:
                self._placement.checkpoint(run, stop)
        except EngineError as error:
            self._running.remove(run)
            self._lose(run, error)

    def _sample(self, run: Running, logits: Logits) -> None:
        try:
            run.sample(logits)
        except HeadstartError as error:
            run.fail(Failed(error))

    def _sweep(self) -> None:
        """Retires what has finished."""
        for run in [run for run in self._running if run.finished]:
            self._running.remove(run)
            self._retire(run, "finished")

    def _retire(self, run: Running, outcome: str) -> None:
        self._counts[outcome] += 1
        self._ended += 1
        self._placement.retire(run)

    def _preempt(self, runs: list[Running]) -> None:
        """No room for this step: the youngest sequence steps aside, its rows kept, and comes again
        when another has ended; sooner it would only be back where there was no room."""
        youngest = max(runs, key=lambda run: run.clock.arrived_s)
        self._running.remove(youngest)
        if len(runs) == 1:
            self._lose(youngest, EngineFull("the engine has no room left for this sequence's rows"))
            return
        self._totals.preemptions += 1
        if self._totals.preemptions == 1:
            log.warning(
                "the shared context of %d tokens is too small for %d requests at once: the youngest waits "
                "and is resumed later; raise --ctx-size (this is said once, headstart_preemptions counts)",
                self._engine.layout.context_tokens,
                len(runs),
            )
        youngest.stepped_aside_at = self._ended
        self._placement.retire(youngest)
        self._placement.free_one()
        self._waiting.put_back(youngest)

    def _lose(self, run: Running, error: HeadstartError) -> None:
        if run.seq is not None:
            self._engine.close(run.seq)
            run.seq = None
        if run.recorder is not None:
            run.recorder.close()
            run.recorder = None
        self._fail(run, error)

    def _fail(self, run: Running, error: HeadstartError) -> None:
        run.end_fetch()
        self._counts["failed"] += 1
        self._ended += 1
        run.fail(Failed(error))

    def _publish(self) -> None:
        self._totals.drafted_tokens = self._speculation.drafted_tokens
        self._totals.accepted_tokens = self._speculation.accepted_tokens
        self._snapshot = SchedulerSnapshot(
            **vars(self._totals),
            running=len(self._running),
            waiting=len(self._waiting),
            idle_sequences=len(self._placement.idle),
            requests=dict(self._counts),
            cache=self._cache.statistics() if self._cache else None,
        )
