"""PrefixCache: plans where a prompt resumes and hands out the state to resume with.

The only class the server talks to. One thread uses it; it never blocks on anything.
"""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from headstart.errors import ConfigError
from headstart.prefix.block import RowBytes, StateLayout
from headstart.prefix.faults import FaultInjector
from headstart.prefix.fetch import Fetch
from headstart.prefix.holdings import Counts, Holdings
from headstart.prefix.keys import TOKEN_BYTES, TokenBytes, same_tenant, token_bytes
from headstart.prefix.outlook import Outlook, outlook
from headstart.prefix.plan import LiveView, Plan, PromptHints, Rules, Stored, make_plan, stored_restore
from headstart.prefix.ram import StoreReadError
from headstart.prefix.record import Recorder
from headstart.prefix.report import Reason, Tier
from headstart.prefix.ssd_counts import SsdStatistics
from headstart.prefix.ssd_tier import SsdTier, walk
from headstart.prefix.tokens import TokenRun
from headstart.prefix.tree import Entry, Mark, Match, Node, Tree

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Restored:
    """State to resume with at `position`.

    `rows`: of tokens 0..position, block by block, read-only (RAM; empty for LIVE).
    `window_rows`: of the last window before `position`, where a LIVE cut needs them.
    `checkpoint`: recurrent state at `position`. `logits`: next-token scores there, exact plans only.
    `nbytes`: size of all that.
    """

    position: int
    rows: list[RowBytes]
    window_rows: RowBytes | None
    checkpoint: bytes | None
    logits: npt.NDArray[np.float32] | None
    tier: Tier
    nbytes: int


@dataclass(frozen=True)
class NoMatch:
    """There is nothing to resume with."""

    reason: Reason


@dataclass(frozen=True)
class Failed:
    """State was there and could not be read. It is a miss: read the prompt from zero, or plan again."""

    reason: Reason
    detail: str


@dataclass(frozen=True)
class CacheStatistics:
    """`used_bytes` never exceeds `limit_bytes`. `counts`: entries held, evicted, refused and lost.
    `plans`: by tier. `failures`: of `load`, by reason. `restored_tokens`: over all successful loads."""

    used_bytes: int
    limit_bytes: int
    namespaces: int
    counts: Counts
    plans: Mapping[Tier, int]
    failures: Mapping[Reason, int]
    restored_tokens: int
    ssd: SsdStatistics | None = None


@dataclass
class _Running:
    plans: Counter[Tier] = field(default_factory=Counter)
    failures: Counter[Reason] = field(default_factory=Counter)
    restored_tokens: int = 0


class PrefixCache:
    """Everything stored for one layout, in RAM, within `ram_bytes`.

    `block_tokens`: tokens a block. `checkpoint_interval`: a GRID stop at its every multiple (0:
    none). `canonical_grid` > 0: only rows of canonical prefill are used, at multiples of it.
    Raises ConfigError for numbers that cannot work together.
    """

    def __init__(
        self,
        layout: StateLayout,
        *,
        ram_bytes: int,
        block_tokens: int = 256,
        checkpoint_interval: int = 2048,
        canonical_grid: int = 0,
        remembered_evictions: int = 2048,
        faults: FaultInjector | None = None,
        ssd: SsdTier | None = None,
    ) -> None:
        if block_tokens < 1:
            raise ConfigError(f"block size must be at least 1 token, got {block_tokens}")
        if ram_bytes < 0 or checkpoint_interval < 0 or canonical_grid < 0:
            raise ConfigError("RAM limit, checkpoint interval and canonical grid must not be negative")
        if canonical_grid % block_tokens:
            raise ConfigError(
                f"the canonical grid ({canonical_grid} tokens) must be a multiple of the block size "
                f"({block_tokens} tokens); change one of them"
            )
        self._layout = layout
        self._grid = canonical_grid
        self._rules = Rules(layout, checkpoint_interval, canonical_grid)
        self._limit_bytes = ram_bytes
        self._block_tokens = block_tokens
        self._remembered = remembered_evictions
        self._faults = faults
        self._ssd = ssd
        if ssd is not None:
            ssd.canonical_only = canonical_grid > 0
        self._recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()
        self._running = _Running()
        self._held = self._empty()

    def _empty(self) -> Holdings:
        return Holdings(
            self._layout,
            limit_bytes=self._limit_bytes,
            block_tokens=self._block_tokens,
            canonical=self._grid > 0,
            remembered_evictions=self._remembered,
            faults=self._faults,
            saver=None if self._ssd is None else self._ssd.save,
        )

    def plan(self, namespace: bytes, prompt: TokenRun, live: Sequence[LiveView], hints: PromptHints) -> Plan:
        """Where to resume `prompt`. Changes nothing but the count of plans."""
        plan = self._plan(namespace, prompt, live, hints)
        self._running.plans[plan.tier] += 1
        return plan

    def outlook(
        self, namespace: bytes, prompt: TokenRun, live: Sequence[LiveView], hints: PromptHints
    ) -> Outlook:
        """What would be restored of `prompt`, from any tier. Changes nothing."""
        plan = self._plan(namespace, prompt, live, hints)
        on_ssd = None
        if self._ssd is not None:
            tree, data = self._ssd.shelf.tree, token_bytes(prompt)
            stored = self._stored(tree, namespace, data, tree.match(namespace, data))
            on_ssd = make_plan(namespace, prompt, stored, [], hints=hints, rules=self._rules)
        return outlook(plan, on_ssd, forks=not self._grid and not self._layout.recurrent)

    def _plan(self, namespace: bytes, prompt: TokenRun, live: Sequence[LiveView], hints: PromptHints) -> Plan:
        data = token_bytes(prompt)
        match = self._held.tree.match(namespace, data)
        stored = self._stored(self._held.tree, namespace, data, match)
        plan = make_plan(namespace, prompt, stored, live, hints=hints, rules=self._rules)
        if self._ssd is not None:
            plan = self._with_ssd(self._ssd, plan, data, hints)
        return plan

    def _with_ssd(self, ssd: SsdTier, plan: Plan, prompt: TokenBytes, hints: PromptHints) -> Plan:
        """`plan` with what the SSD holds of its prompt."""
        match = ssd.match(plan.namespace, prompt)
        if not match.length:
            return plan
        stored = self._stored(ssd.shelf.tree, plan.namespace, prompt, match)
        at = stored_restore(stored, len(plan.prompt), self._rules)
        divergence = max(plan.divergence, match.length)
        reason = Reason.EVICTED if at > plan.restore_at else plan.reason
        if at <= plan.restore_at and match.length > plan.divergence:
            alone = make_plan(plan.namespace, plan.prompt, stored, [], hints=hints, rules=self._rules)
            reason = alone.reason or reason
        return replace(plan, ssd_at=at, divergence=divergence, reason=reason)

    def fetch(self, plan: Plan, wake: Callable[[], None]) -> Fetch | None:
        """Starts bringing back what the SSD holds beyond `plan.restore_at`; None where that is
        nothing. `wake` is called from other threads whenever there is something to `advance`."""
        ssd = self._ssd
        if ssd is None or plan.ssd_at <= plan.restore_at:
            return None
        prompt = token_bytes(plan.prompt[: plan.ssd_at])
        match = ssd.match(plan.namespace, prompt)
        recorder = self.recorder(plan.namespace, plan.prompt[: plan.ssd_at])
        blocks = [node for node in match.blocks if ssd.shelf.tree.stop(node) > recorder.position]
        marks: list[Mark] = []
        if self._layout.recurrent:
            _, mark = self._checkpoint(ssd.shelf.tree, match, prompt, plan.ssd_at)
            marks += [] if mark is None else [mark]
        if plan.ssd_at == len(plan.prompt):
            logits = ssd.shelf.tree.logits(match, prompt)
            marks += [] if logits is None else [logits]
        return Fetch(ssd, recorder, blocks, marks, wake)

    def poll(self, *, idle: bool = False) -> None:
        """Takes in what the SSD tier has done meanwhile. Cheap when that is nothing. `idle`: there has
        been nothing to do for a while, so the ends of sequences are saved too."""
        if idle:
            self.save_tails()
        if self._ssd is not None:
            self._ssd.poll()

    def save_tails(self) -> None:
        """Saves everything in RAM that is not on the SSD yet: partial blocks at the ends of
        sequences, above all. Done when idle and before the end."""
        if self._ssd is not None:
            for root in list(self._held.tree.roots.values()):
                for node in walk(root):
                    self._ssd.save_rest(node)

    def load(self, plan: Plan) -> Restored | NoMatch | Failed:
        """The state that `plan` resumes with. Counts as a use of it.

        Looks everything up again by tokens, so a plan that was overtaken by evictions is answered
        with NoMatch(EVICTED), never with other rows.
        """
        if plan.tier is Tier.NONE:
            return NoMatch(plan.reason or Reason.NO_PREFIX)
        answer: Restored | NoMatch | Failed
        try:
            answer = self._load(plan)
        except StoreReadError as failure:
            _log.warning("Stored state was not used: %s", failure)
            answer = Failed(failure.reason, str(failure))
        if isinstance(answer, Restored):
            self._running.restored_tokens += answer.position
        else:
            self._running.failures[answer.reason] += 1
        return answer

    def recorder(self, namespace: bytes, tokens: TokenRun) -> Recorder:
        """Follows a live sequence that has read `tokens` so far."""
        recorder = Recorder(self._held, namespace, tokens)
        self._recorders.add(recorder)
        return recorder

    def statistics(self) -> CacheStatistics:
        held, running = self._held, self._running
        return CacheStatistics(
            used_bytes=held.ram.used_bytes,
            limit_bytes=held.ram.limit_bytes,
            namespaces=len(held.tree.roots),
            counts=Counts(**vars(held.counts)),
            plans=dict(running.plans),
            failures=dict(running.failures),
            restored_tokens=running.restored_tokens,
            ssd=None if self._ssd is None else self._ssd.statistics(),
        )

    def clear(self) -> None:
        """Forgets everything. Recorders that are open store nothing from now on."""
        for recorder in self._recorders:
            recorder.active = False
        self._recorders = weakref.WeakSet()
        self._held = self._empty()

    def _stored(self, tree: Tree, namespace: bytes, prompt: TokenBytes, match: Match) -> Stored:
        canonical = 0
        for node in match.path[1:] if self._grid else ():
            if not node.canonical:
                break
            canonical += self._block_tokens
        return Stored(
            length=match.length,
            canonical_length=canonical,
            logits_at_end=not self._grid and tree.logits(match, prompt) is not None,
            checkpoint_at_most=lambda limit: self._checkpoint(tree, match, prompt, limit)[0],
            evicted_upto=lambda: self._evicted_upto(namespace, prompt, match),
            checkpoint_evicted=lambda above, limit: self._checkpoint_evicted(prompt, match, above, limit),
            elsewhere=lambda: max(
                (
                    tree.match(other, prompt).length
                    for other in tree.roots
                    if other != namespace and same_tenant(other, namespace)
                ),
                default=0,
            ),
        )

    def _checkpoint(
        self, tree: Tree, match: Match, prompt: TokenBytes, limit: int
    ) -> tuple[int, Mark | None]:
        for position, mark in tree.checkpoints(match, prompt, limit):
            if not self._grid or (mark.canonical and position % self._grid == 0):
                return position, mark
        return 0, None

    def _evicted_upto(self, namespace: bytes, prompt: TokenBytes, match: Match) -> int:
        node = match.path[-1] if match.path else None
        start = 0 if node is None else self._held.tree.stop(node)
        rest = prompt[start * TOKEN_BYTES : (start + self._block_tokens) * TOKEN_BYTES]
        key = namespace if node is None else node.key
        shared = self._held.evicted_blocks.shared(key, rest)
        return start + shared if shared else 0

    def _checkpoint_evicted(self, prompt: TokenBytes, match: Match, above: int, limit: int) -> bool:
        for node in reversed(match.path):
            start = node.level * self._block_tokens
            stop = min(limit, start + self._block_tokens)
            if stop <= above:
                break
            tail = prompt[start * TOKEN_BYTES : stop * TOKEN_BYTES]
            if tail and start + self._held.evicted_checkpoints.within(node.key, tail) > max(above, start):
                return True
        return False

    def _load(self, plan: Plan) -> Restored | NoMatch:
        at = plan.restore_at
        prompt = token_bytes(plan.prompt[:at])
        match = self._held.tree.match(plan.namespace, prompt)
        live = plan.tier is Tier.LIVE
        used: list[Entry] = list(match.used)
        rows: list[RowBytes] = []
        window_rows: RowBytes | None = None
        if not live or plan.window_rows_needed:
            if match.length < at:
                return NoMatch(Reason.EVICTED)
            first = max(0, at - self._layout.window_tokens) if live else 0
            rows = self._rows(match, first, at)
        if live:
            window_rows, rows = (RowBytes.join(rows) if rows else None), []
        checkpoint: bytes | None = None
        if plan.checkpoint_needed or (self._layout.recurrent and not live):
            position, mark = self._checkpoint(self._held.tree, match, prompt, at)
            if mark is None or position != at:
                return NoMatch(Reason.EVICTED)
            checkpoint = self._read_checkpoint(mark)
            used.append(mark)
        logits: npt.NDArray[np.float32] | None = None
        if plan.exact:
            end = self._held.tree.logits(match, prompt)
            if end is None:
                return NoMatch(Reason.EVICTED)
            logits = self._read_logits(end)
            used.append(end)
        self._held.touch(used)
        parts = [*rows, *([window_rows] if window_rows is not None else [])]
        nbytes = sum(part.nbytes for part in parts) + len(checkpoint or b"")
        nbytes += 0 if logits is None else logits.nbytes
        return Restored(at, rows, window_rows, checkpoint, logits, plan.tier, nbytes)

    def _rows(self, match: Match, first: int, stop: int) -> list[RowBytes]:
        """Rows first..stop of the matched path, a part a block."""
        parts = []
        for node in match.blocks:
            start = self._held.tree.start(node)
            end = min(stop, start + node.count)
            if end > first:
                parts.append(self._read_rows(node).cut(max(first, start) - start, end - start))
        return parts

    def _read_rows(self, node: Node) -> RowBytes:
        try:
            return self._held.ram.rows(node)
        except StoreReadError as failure:
            if failure.reason is Reason.CORRUPT:
                self._held.lose(node)
            raise

    def _read_checkpoint(self, mark: Mark) -> bytes:
        try:
            return self._held.ram.checkpoint(mark)
        except StoreReadError as failure:
            if failure.reason is Reason.CORRUPT:
                self._held.drop_mark(mark)
            raise

    def _read_logits(self, mark: Mark) -> npt.NDArray[np.float32]:
        try:
            return self._held.ram.logits(mark)
        except StoreReadError as failure:
            if failure.reason is Reason.CORRUPT:
                self._held.drop_mark(mark)
            raise
