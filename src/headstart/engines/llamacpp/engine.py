"""The llama.cpp engine: any GGUF model behind the engine port."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from headstart.engines.base import EngineFacts, Vocabulary
from headstart.engines.digests import remembered
from headstart.engines.llamacpp import memory
from headstart.engines.llamacpp.adapters import Adapters
from headstart.engines.llamacpp.binding import Context, ContextSettings, Model
from headstart.engines.llamacpp.examine import TOKENS, Examined, examine
from headstart.engines.llamacpp.facts import engine_facts
from headstart.engines.llamacpp.lanes import LANE_SCRATCH, LANE_SEQUENCE, Lane, Lanes
from headstart.engines.llamacpp.layout import StateMap
from headstart.engines.llamacpp.options import Batching, LlamaCppOptions
from headstart.engines.llamacpp.probe import Proof, prove
from headstart.engines.llamacpp.shared import Shared
from headstart.engines.llamacpp.snapshots import SnapshotTransfer, snapshot_layout
from headstart.engines.llamacpp.source import resolve, weights_digest
from headstart.engines.llamacpp.threads import ThreadPool
from headstart.engines.llamacpp.transfer import RowTransfer, Staging, Transfer
from headstart.engines.llamacpp.vocabulary import read_vocabulary, tokenize
from headstart.errors import ModelError
from headstart.prefix.block import StateLayout, TokenRun

__all__ = ["LlamaCppEngine", "load"]

logger = logging.getLogger(__name__)


class LlamaCppEngine:
    """A loaded GGUF model. Implements the Engine port by handing each call to its sequences."""

    def __init__(
        self,
        model: Model,
        sequences: Lanes | Shared,
        vocabulary: Vocabulary,
        facts: EngineFacts,
        pool: ThreadPool | None,
    ) -> None:
        self._model = model
        self._sequences = sequences
        self._pool = pool
        self.layout: StateLayout = sequences.layout
        self.vocabulary = vocabulary
        self.facts = facts
        self.max_sequences = sequences.max_sequences
        self.max_step_tokens = sequences.max_step_tokens
        self.batches_sequences = sequences.batches_sequences
        self.shares_rows = sequences.shares_rows
        self.open = sequences.open
        self.fork = sequences.fork
        self.cut = sequences.cut
        self.forward = sequences.forward
        self.is_open = sequences.is_open
        self.position = sequences.position
        self.window_start = sequences.window_start
        self.rows = sequences.rows
        self.checkpoint = sequences.checkpoint
        self.restore = sequences.restore
        self.close = sequences.close

    def tokenize(self, text: str, *, special: bool, add_bos: bool) -> TokenRun:
        return tokenize(self._model, text, special=special, add_bos=add_bos)

    def shutdown(self) -> None:
        self._sequences.free()
        self._model.free()
        if self._pool is not None:
            self._pool.free()


def load(
    path: str | Path,
    options: LlamaCppOptions | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> LlamaCppEngine:
    """Loads the model at `path` (a file, a folder, `embedded` or `hf:owner/repository/file`).

    `progress` gets bytes read and bytes in all while the weights' digest is taken.
    Raises ModelError or ConfigError, with the reason, where it cannot be run.

    The work is done in a thread that ends with it. A thread that computes keeps an OpenMP team while
    it lives; two teams are more threads than processors, and libgomp then puts threads to sleep at
    every barrier: 170 sleeps a token, a third of the decoding speed (measured on two cores).
    """
    with ThreadPoolExecutor(1, "headstart-load") as thread:
        return thread.submit(_load, path, options or LlamaCppOptions(), progress).result()


def _load(
    path: str | Path, options: LlamaCppOptions, progress: Callable[[int, int], None] | None
) -> LlamaCppEngine:
    files = resolve(str(path))
    bytes_available = memory.available_bytes()
    with ExitStack() as undo:
        model = Model(files.first, n_gpu_layers=options.n_gpu_layers)
        undo.callback(model.free)
        if not model.vocab_size:
            raise ModelError(f"{files.first.name} has no vocabulary")
        if not model.generates:
            raise ModelError(
                f"{files.first.name} ({model.architecture}) does not write text: it is an encoder, an "
                "embedding model or a diffusion model. Use a text generation model."
            )
        model.adapters = Adapters(model.handle, options.adapters, options.digest_memo)
        settings = _settings(model, options)
        examined = examine(model, settings)
        needs = _needs(files.nbytes + model.adapters.nbytes, examined, settings, options)
        cells, note = memory.context_tokens(options.ctx_size, model.training_context, needs, bytes_available)
        pool = ThreadPool.available(max(settings.threads, settings.threads_batch))
        if pool is not None:
            undo.callback(pool.free)
        vocabulary = read_vocabulary(model)
        make = _Maker(model, replace(settings, cells=cells), options, pool)
        sequences, proof = _proved(make, examined, vocabulary)
        undo.callback(sequences.free)
        notes = tuple(text for text in (note, *proof.notes) if text)
        digest = remembered(options.digest_memo, files.paths, lambda: weights_digest(files, progress))
        facts = engine_facts(model, files, digest, options, cells=cells, proof=replace(proof, notes=notes))
        engine = LlamaCppEngine(model, sequences, vocabulary, facts, pool)
        undo.pop_all()
    return engine


def _settings(model: Model, options: LlamaCppOptions) -> ContextSettings:
    """How contexts are made, but for their cells. One batch is one graph: n_batch = n_ubatch."""
    threads = options.threads or psutil.cpu_count(logical=False) or 1
    return ContextSettings(
        cells=0,
        batch_tokens=options.ubatch_tokens,
        ubatch_tokens=options.ubatch_tokens,
        sequences=1,
        outputs=options.step_scores,
        kv_type=options.kv_type,
        threads=threads,
        threads_batch=options.threads_batch or threads,
    )


def _needs(
    weights_bytes: int, examined: Examined, settings: ContextSettings, options: LlamaCppOptions
) -> memory.Needs:
    """Host memory. With layers on a GPU the weights are not counted: how many go there is not known."""
    state = examined.state
    contexts = options.max_sequences if options.batching is Batching.EXACT else 1
    sequences = 1 if options.batching is Batching.EXACT else options.max_sequences + 1
    window_cells = 0
    if state is not None and state.windowed is not None:
        window_cells = state.window_tokens * sequences + settings.ubatch_tokens
    cell_bytes = examined.snapshot_bytes // TOKENS if state is None else state.row_bytes(windowed=False)
    fixed = examined.compute_bytes
    if state is not None:
        fixed += window_cells * state.row_bytes(windowed=True) + sequences * state.checkpoint_bytes
    return memory.Needs(
        weights_bytes=0 if options.n_gpu_layers else weights_bytes,
        contexts=contexts,
        cell_bytes=cell_bytes + 2 * settings.ubatch_tokens,  # the attention mask, f16, a row a token
        fixed_bytes=fixed,
    )


@dataclass(frozen=True)
class _Maker:
    """Makes the live sequences, with rows where `state` is given and with snapshots where not."""

    model: Model
    settings: ContextSettings
    options: LlamaCppOptions
    pool: ThreadPool | None
    staging: Staging = field(default_factory=Staging)

    def sequences(self, state: StateMap | None, snapshot_bytes: int) -> Lanes | Shared:
        cells, vocab_size = self.settings.cells, self.model.vocab_size
        if state is None:
            layout = snapshot_layout(snapshot_bytes, cells, vocab_size)
        else:
            layout = state.layout(cells, vocab_size)
        if self.options.batching is Batching.EXACT:
            step = self.settings.ubatch_tokens
            return Lanes(layout, self.options.max_sequences, step, lambda: self._lane(state))
        return self._shared(layout, state)

    def _lane(self, state: StateMap | None) -> Lane:
        context = Context(self.model, self.settings, self.pool)
        if state is None:
            return Lane(context, SnapshotTransfer(context))
        return Lane(context, RowTransfer(context, state, self.staging, LANE_SCRATCH, lone=LANE_SEQUENCE))

    def _shared(self, layout: StateLayout, state: StateMap | None) -> Shared:
        """One more sequence for the scratch where every sequence has recurrent state of its own."""
        count = self.options.max_sequences
        own = count + 1 if layout.recurrent else count
        settings = replace(
            self.settings,
            sequences=own,
            outputs=own + count * (self.options.step_scores - 1),
            batch_tokens=count * self.settings.ubatch_tokens,
        )
        context = Context(self.model, settings, self.pool)
        transfer: Transfer = SnapshotTransfer(context)
        if state is not None:
            transfer = RowTransfer(context, state, self.staging, count, lone=None)
        step = self.settings.ubatch_tokens
        if layout.window_tokens:
            step = min(step, layout.window_tokens)
        return Shared(layout, count, step, context, transfer)


def _proved(make: _Maker, examined: Examined, vocabulary: Vocabulary) -> tuple[Lanes | Shared, Proof]:
    """Sequences whose rows stood the proof; without it, sequences with whole snapshots and a warning."""
    if examined.state is not None:
        sequences = make.sequences(examined.state, examined.snapshot_bytes)
        with _freed_on_error(sequences):
            proof = prove(sequences, vocabulary, make.model)
        if proof.state_proved:
            return sequences, proof
        sequences.free()
        reason = proof.notes[-1]
    else:
        reason = f"the state is laid out in an unknown way: {examined.reason}"
    warning = (
        f"rows of this model cannot be cut and put back ({reason}); "
        "only whole sequences are kept, and a prompt resumes only where one of them ended"
    )
    logger.warning("%s", warning)
    return make.sequences(None, examined.snapshot_bytes), Proof(False, False, False, (warning,))


@contextmanager
def _freed_on_error(sequences: Lanes | Shared) -> Iterator[None]:
    try:
        yield
    except BaseException:
        sequences.free()
        raise
