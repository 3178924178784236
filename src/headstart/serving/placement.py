"""Where a request's sequence starts: continue or fork a live one, restore stored rows, or from zero.

Holds the table of live sequences. The plan decides, the cache reads, the engine copies; here the
three meet, and what could not be done falls back to the next best start with its reason kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from headstart.engines.base import Engine, Logits, SeqId
from headstart.errors import EngineError, EngineFull
from headstart.prefix.block import Checkpoint, RowBytes
from headstart.prefix.cache import Failed, PrefixCache, Restored
from headstart.prefix.fetch import Fetch
from headstart.prefix.keys import namespace_key
from headstart.prefix.outlook import Outlook, outlook
from headstart.prefix.plan import LiveView, Plan, PromptHints, Stop, StopKind, without_cache
from headstart.prefix.record import Recorder
from headstart.prefix.report import CacheReport, Reason, Tier, report
from headstart.prefix.tokens import TokenRun, common_prefix
from headstart.serving.request import GenerationRequest
from headstart.serving.sequence import Running

log = logging.getLogger(__name__)


@dataclass
class Idle:
    """A finished request's sequence, still in the engine until its room is needed."""

    seq: SeqId
    namespace: bytes
    tokens: TokenRun


@dataclass(frozen=True)
class Start:
    """A sequence ready to go on at `position`, and the plan it followed in the end.

    `logits` only where the whole prompt was restored.
    """

    plan: Plan
    seq: SeqId
    position: int
    tier: Tier
    nbytes: int
    restore_s: float
    logits: Logits | None
    reason: Reason | None

    def report(self, fetch: Fetch | None) -> CacheReport:
        """What the cache did for this start, `fetch` included, which brought state from the SSD."""
        fetched = fetch is not None and fetch.tokens > 0
        return report(
            self.plan,
            restored=self.position,
            tier=Tier.SSD if fetched and self.tier is Tier.RAM else self.tier,
            reason=(fetch.reason if fetch else None) or self.reason,
            restored_bytes=self.nbytes,
            restore_s=self.restore_s,
            ssd_bytes=fetch.nbytes if fetch else 0,
            ssd_s=fetch.elapsed_s if fetch else 0.0,
        )


class Placement:
    """The live sequences of one engine and the ways to begin a new one. Engine thread only."""

    def __init__(
        self, engine: Engine, cache: PrefixCache | None, block_tokens: int, grid_tokens: int
    ) -> None:
        self._engine = engine
        self._cache = cache
        self._block_tokens = block_tokens
        self._grid = grid_tokens
        self.idle: list[Idle] = []
        """Least recently used first."""

    def namespace(self, tenant: str) -> bytes:
        """Where the state of `tenant`'s prompts is stored and found. Blocks of another size could not be
        walked; rows that are canonical on another grid have other bits."""
        parts = {**self._engine.facts.parts, "block_tokens": str(self._block_tokens)}
        if self._grid:
            parts["canonical_grid"] = str(self._grid)
        return namespace_key(parts, tenant)

    def views(self, running: Iterable[Running]) -> list[LiveView]:
        """All live sequences as the planner sees them."""
        views = [
            LiveView(item.seq, item.namespace, item.tokens, self._engine.window_start(item.seq), busy=False)
            for item in self.idle
        ]
        for run in running:
            if run.seq is not None and run.recorder is not None:
                read = run.tokens[: run.position]
                views.append(
                    LiveView(run.seq, run.namespace, read, self._engine.window_start(run.seq), busy=True)
                )
        return views

    def plan(self, run: Running, running: list[Running]) -> Plan:
        """What can be resumed for `run`, after live rows it could use have been stored."""
        if self._cache is None or not run.request.use_cache:
            return without_cache(run.namespace, run.tokens)
        plan = self._cache.plan(run.namespace, run.tokens, self.views(running), run.request.hints)
        if plan.fork_from is not None and self._publish(SeqId(plan.fork_from), plan.fork_at, running):
            plan = self._cache.plan(run.namespace, run.tokens, self.views(running), run.request.hints)
        return plan

    def outlook(self, namespace: bytes, request: GenerationRequest, running: list[Running]) -> Outlook:
        """What would be restored for `request` if it came now. Changes nothing."""
        prompt = request.prompt
        if self._cache is None or not request.use_cache:
            return outlook(without_cache(namespace, prompt), None, forks=False)
        found = self._cache.outlook(namespace, prompt, self.views(running), request.hints)
        at = found.restore_at
        shared = self._engine.shares_rows and self._sharing(namespace, prompt, at, running) is not None
        return found.found_live() if shared else found

    def fetch(self, run: Running, running: list[Running], wake: Callable[[], None]) -> Fetch | None:
        """Starts bringing back from the SSD what `run` could resume with; None where that is nothing."""
        if self._cache is None or not run.request.use_cache:
            return None
        return self._cache.fetch(self.plan(run, running), wake)

    def _publish(self, seq: SeqId, stop: int, running: list[Running]) -> bool:
        """Stores the rows of live sequence `seq` up to `stop`, so that another can start from them."""
        for run in running:
            if run.seq == seq and run.recorder is not None:
                self.record(run, min(stop, run.position), flush=True)
                return True
        for item in self.idle:
            if item.seq == seq and self._cache is not None:
                recorder = self._cache.recorder(item.namespace, item.tokens)
                copy_out(
                    self._engine, seq, recorder, item.tokens, min(stop, len(item.tokens)), canonical=False
                )
                recorder.close()
                return True
        return False

    def start(self, run: Running, plan: Plan, running: list[Running]) -> Start:
        """Begins `run` as `plan` says, or from zero. Raises EngineFull when all room is in use.

        State that could not be read is a miss with its reason: what lies before it is planned anew,
        and used.
        """
        if self._cache is None or plan.tier is Tier.NONE:
            return self._from_zero(plan, plan.reason)
        started_s = time.perf_counter()
        outcome = self._cache.load(plan)
        if isinstance(outcome, Failed):
            shorter = self.plan(run, running)
            if shorter.restore_at < plan.restore_at:
                return replace(self.start(run, shorter, running), reason=outcome.reason)
            return self._from_zero(plan, outcome.reason)
        if not isinstance(outcome, Restored):
            return self._from_zero(plan, outcome.reason)
        try:
            seq, tier = self._resume(plan, outcome, running)
        except EngineFull:
            raise
        except EngineError as error:
            log.warning("stored state was refused by the engine, reading the prompt anew: %s", error)
            return self._from_zero(plan, Reason.ENGINE_REFUSED)
        elapsed_s = time.perf_counter() - started_s
        nbytes = 0 if tier is Tier.LIVE and outcome.window_rows is None else outcome.nbytes
        return Start(plan, seq, outcome.position, tier, nbytes, elapsed_s, outcome.logits, plan.reason)

    def _from_zero(self, plan: Plan, reason: Reason | None) -> Start:
        return Start(plan, self._with_room(self._engine.open), 0, Tier.NONE, 0, 0.0, None, reason)

    def _resume(self, plan: Plan, outcome: Restored, running: list[Running]) -> tuple[SeqId, Tier]:
        if outcome.tier is Tier.LIVE:
            return self._continue(plan, outcome), Tier.LIVE
        if self._engine.shares_rows:
            source = self._sharing(plan.namespace, plan.prompt, outcome.position, running)
            if source is not None:
                window = self._last_window(outcome)
                fork = partial(self._engine.fork, source, outcome.position, window, outcome.checkpoint)
                return self._with_room(fork, keep=source), Tier.LIVE
        restore = partial(self._engine.restore, outcome.rows, outcome.checkpoint, outcome.position)
        return self._with_room(restore), outcome.tier

    def _continue(self, plan: Plan, outcome: Restored) -> SeqId:
        item = next(item for item in self.idle if item.seq == plan.live)
        self.idle.remove(item)
        if outcome.position < len(item.tokens):
            try:
                self._engine.cut(item.seq, outcome.position, outcome.window_rows, outcome.checkpoint)
            except EngineError:
                if self._engine.is_open(item.seq):
                    self._engine.close(item.seq)
                raise
        return item.seq

    def _sharing(
        self, namespace: bytes, prompt: TokenRun, position: int, running: list[Running]
    ) -> SeqId | None:
        """A live sequence whose rows 0..position are the prompt's, to share instead of copying."""
        for view in self.views(running):
            same = view.namespace == namespace
            if same and common_prefix(view.tokens, prompt) >= position > 0:
                return SeqId(view.seq)
        return None

    def _last_window(self, outcome: Restored) -> RowBytes | None:
        window = self._engine.layout.window_tokens
        if not window:
            return None
        parts: list[RowBytes] = []
        need = min(window, outcome.position)
        for rows in reversed(outcome.rows):
            if need <= 0:
                break
            take = min(need, len(rows))
            parts.insert(0, rows.cut(len(rows) - take, len(rows)))
            need -= take
        return RowBytes.join(parts) if parts else None

    def _with_room(self, make: Callable[[], SeqId], keep: SeqId | None = None) -> SeqId:
        """`make()`, closing idle sequences, least recently used first, as far as that takes."""
        while True:
            try:
                return make()
            except EngineFull:
                if not self.free_one(keep):
                    raise

    def free_one(self, keep: SeqId | None = None) -> bool:
        """Closes the least recently used idle sequence; False where there is none."""
        for item in self.idle:
            if item.seq != keep:
                self.idle.remove(item)
                self._engine.close(item.seq)
                return True
        return False

    def retire(self, run: Running) -> None:
        """`run` has ended: what it computed is stored, and its sequence stays as an idle one."""
        if run.seq is None:
            return
        if run.recorder is None:
            self._engine.close(run.seq)
        else:
            self.record(run, run.position, flush=True)
            if self._engine.layout.recurrent and run.recorder.active and run.position:
                state = Checkpoint(run.position, self._engine.checkpoint(run.seq))
                run.recorder.put_checkpoint(state, StopKind.MESSAGE)
            run.recorder.close()
            self.idle.append(Idle(run.seq, run.namespace, run.tokens[: run.position].copy()))
        run.seq = None
        run.recorder = None

    def checkpoint(self, run: Running, stop: Stop) -> None:
        """Stores the recurrent state of `run`, which stands at `stop`, and the rows before it."""
        if run.recorder is None or run.seq is None:
            return
        self.record(run, run.position, flush=True)
        if run.recorder.active:
            state = Checkpoint(run.position, self._engine.checkpoint(run.seq))
            run.recorder.put_checkpoint(state, stop.kind)
            if run.report is not None and run.position == run.report.divergence and run.report.replayed:
                self._put_first_rows_back(run)

    def _put_first_rows_back(self, run: Running) -> None:
        """`run` has read again tokens whose rows were stored before, in other chunks, so its own rows
        of them may have other bits. From here on it goes on with the stored ones, which are those
        that a repeat of this prompt will find. Raises EngineError, with `run` without a sequence."""
        if self._cache is None or run.seq is None or not self._engine.facts.exact_repeat:
            return
        position = run.position
        plan = self._cache.plan(run.namespace, run.tokens[: position + 1], [], PromptHints())
        outcome = self._cache.load(plan) if plan.restore_at == position else None
        if isinstance(outcome, Restored):
            self._engine.close(run.seq)
            run.seq = None
            run.seq = self._engine.restore(outcome.rows, outcome.checkpoint, position)

    def keep(self, run: Running, before: int, *, prefill: bool) -> None:
        """Stores rows of `run`, which has just read from `before` on, as soon as they are due: a
        block's worth of them, or window rows before the engine loses them. On a grid every chunk is
        stored by itself, because it is canonical or not as a whole."""
        recorder = run.recorder
        if recorder is None or not recorder.active:
            return
        if self._grid:
            whole = prefill and before % self._grid == 0 and run.position - before == self._grid
            self.record(run, run.position, canonical=whole)
            return
        pending = run.position - recorder.position
        window = self._engine.layout.window_tokens
        if pending >= self._block_tokens or (window and (prefill or pending >= max(1, window // 2))):
            self.record(run, run.position)

    def record(self, run: Running, stop: int, *, flush: bool = False, canonical: bool = False) -> None:
        """Stores the rows of `run` up to token `stop`, and its end logits once their rows are in."""
        recorder = run.recorder
        if recorder is None or run.seq is None:
            return
        copy_out(self._engine, run.seq, recorder, run.tokens, stop, canonical=canonical)
        if run.end_logits is not None and recorder.position >= run.prompt_tokens and recorder.active:
            recorder.put_logits(run.end_logits, at=run.prompt_tokens)
            run.end_logits = None
        if flush:
            recorder.flush()


def copy_out(
    engine: Engine, seq: SeqId, recorder: Recorder, tokens: TokenRun, stop: int, *, canonical: bool
) -> None:
    """Copies rows recorder.position..stop of `seq` from the engine into the store."""
    start = recorder.position
    if not recorder.active or stop <= start or start < engine.window_start(seq):
        return
    recorder.record(tokens[start:stop], engine.rows(seq, start, stop), canonical=canonical)
