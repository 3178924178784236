"""A llama.cpp model and its contexts, as thin owners of the C objects."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from headstart.engines.base import Logits
from headstart.engines.llamacpp import calls
from headstart.engines.llamacpp.adapters import Adapters
from headstart.engines.llamacpp.logs import capture_logs
from headstart.engines.llamacpp.options import KvType
from headstart.engines.llamacpp.threads import ThreadPool
from headstart.errors import EngineError, EngineFull, ModelError
from headstart.prefix.block import Bytes, TokenRun

__all__ = ["Context", "ContextSettings", "Model", "Run"]

GGML_TYPES = {
    KvType.F16: llama_cpp.GGML_TYPE_F16,
    KvType.Q8_0: llama_cpp.GGML_TYPE_Q8_0,
    KvType.Q4_0: llama_cpp.GGML_TYPE_Q4_0,
}
PARTIAL = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
NO_SLOT, ABORTED = 1, 2
_INT32_POINTER = ctypes.POINTER(ctypes.c_int32)


@cache
def _start_backend() -> None:
    """`llama_backend_init` is once a process; there is nothing to undo at its end."""
    llama_cpp.llama_backend_init()


class Model:
    """Loaded weights. Raises ModelError, with llama.cpp's own reason, where they cannot be loaded.

    `repacked`: some weights were laid out for products that take several tokens' rows at once, and
    the last rows of a chunk that fill no group another way (ggml-cpu/repack.cpp).
    `adapters`: applied to every context made from then on; llama.cpp frees them with the model.
    `vocab_only`: without weights, for its vocabulary and metadata.
    """

    def __init__(self, path: Path, *, n_gpu_layers: int, vocab_only: bool = False) -> None:
        _start_backend()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.vocab_only = vocab_only
        with capture_logs() as log:
            handle = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not handle:
            raise ModelError(f"{path} cannot be loaded: {log.reason()}")
        self.handle = handle
        self.adapters = Adapters(handle)
        self.repacked = bool(log.containing("repack: repack tensor"))
        self.vocab = llama_cpp.llama_model_get_vocab(handle)
        self.vocab_size = int(llama_cpp.llama_vocab_n_tokens(self.vocab))
        self.metadata: Mapping[str, str] = self._metadata()
        self.architecture = self.metadata.get("general.architecture", "unknown")
        self.parameters = int(llama_cpp.llama_model_n_params(handle))
        self.training_context = int(llama_cpp.llama_model_n_ctx_train(handle))
        self.window = int(llama_cpp.llama_model_n_swa(handle))

    @property
    def generates(self) -> bool:
        """Whether it is a model that writes text token by token. One that pools is for embeddings."""
        pooling = self.metadata.get(f"{self.architecture}.pooling_type", "0")
        return (
            bool(llama_cpp.llama_model_has_decoder(self.handle))
            and not llama_cpp.llama_model_has_encoder(self.handle)
            and not llama_cpp.llama_model_is_diffusion(self.handle)
            and int(pooling) == llama_cpp.LLAMA_POOLING_TYPE_NONE
        )

    def chat_template(self) -> str | None:
        text = llama_cpp.llama_model_chat_template(self.handle, None)
        return text.decode("utf-8", "replace") if text else None

    def free(self) -> None:
        if self.handle:
            llama_cpp.llama_model_free(self.handle)
            self.handle = None

    def _metadata(self) -> dict[str, str]:
        count = llama_cpp.llama_model_meta_count(self.handle)
        entry = self._metadata_text
        return {
            entry(llama_cpp.llama_model_meta_key_by_index, i): entry(
                llama_cpp.llama_model_meta_val_str_by_index, i
            )
            for i in range(count)
        }

    def _metadata_text(self, call: Callable[..., int], index: int) -> str:
        """One key or value. llama.cpp answers the full length, whatever fitted."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = call(self.handle, index, buffer, size)
            if length < size:
                return buffer.value.decode("utf-8", "replace")
            size = length + 1


@dataclass(frozen=True)
class ContextSettings:
    """How a context is made. `sequences` counts those with recurrent state of their own."""

    cells: int
    batch_tokens: int
    ubatch_tokens: int
    sequences: int
    outputs: int
    kv_type: KvType
    threads: int
    threads_batch: int


@dataclass(frozen=True)
class Run:
    """Tokens for one sequence at its positions from `start` on; `wants_logits` says after how
    many of the last of them scores are wanted."""

    sequence: int
    start: int
    tokens: TokenRun
    wants_logits: int


class Context:
    """A llama_context with its memory. Sequence numbers here are llama.cpp's, not SeqIds."""

    def __init__(self, model: Model, settings: ContextSettings, pool: ThreadPool | None) -> None:
        with capture_logs() as log:
            handle = llama_cpp.llama_init_from_model(model.handle, _context_params(settings))
        if not handle:
            raise ModelError(f"no context of {settings.cells} tokens can be made: {log.reason()}")
        self.handle = handle
        try:
            model.adapters.apply(handle)
        except ModelError:
            llama_cpp.llama_free(handle)
            raise
        self.memory = llama_cpp.llama_get_memory(handle)
        if not self.memory:
            llama_cpp.llama_free(handle)
            raise ModelError(
                f"a model of architecture {model.architecture} does not write text: it keeps no state "
                "between tokens, as embedding models do. Use a text generation model."
            )
        self.cells = int(llama_cpp.llama_n_ctx(handle))
        self.window_cells = _window_cells(log.containing("creating     SWA KV cache, size ="))
        self.compute_bytes = _compute_bytes(log.containing("compute buffer size ="))
        self._vocab_size = model.vocab_size
        self._pool = pool
        if pool is not None:
            calls.attach_threadpool(handle, pool.handle, pool.handle)
        self._make_batch(settings.batch_tokens)

    def _make_batch(self, tokens: int) -> None:
        """Arrays the batch points into, filled anew for every decode."""
        self._tokens = np.zeros(tokens, np.int32)
        self._positions = np.zeros(tokens, np.int32)
        self._counts = np.ones(tokens, np.int32)
        self._sequences = np.zeros(tokens, np.int32)
        addresses = self._sequences.ctypes.data + 4 * np.arange(tokens, dtype=np.uintp)
        self._sequence_pointers = addresses
        self._outputs = np.zeros(tokens, np.int8)
        batch: Any = llama_cpp.llama_batch()
        batch.token = self._tokens.ctypes.data_as(_INT32_POINTER)
        batch.pos = self._positions.ctypes.data_as(_INT32_POINTER)
        batch.n_seq_id = self._counts.ctypes.data_as(_INT32_POINTER)
        batch.seq_id = self._sequence_pointers.ctypes.data_as(ctypes.POINTER(_INT32_POINTER))
        batch.logits = self._outputs.ctypes.data_as(ctypes.POINTER(ctypes.c_int8))
        self._batch = batch

    def decode(self, runs: list[Run]) -> list[Logits | None]:
        """Reads all runs in one llama_decode.

        Raises EngineFull when there are not enough cells: llama.cpp has then changed nothing.
        Raises EngineError when the computation failed: the sequences are then not to be used again.
        """
        if sum(len(run.tokens) for run in runs) > len(self._tokens):
            raise EngineError(f"a batch has more than {len(self._tokens)} tokens")
        at = 0
        ends = []
        for run in runs:
            stop = at + len(run.tokens)
            self._tokens[at:stop] = run.tokens
            self._positions[at:stop] = np.arange(run.start, run.start + stop - at, dtype=np.int32)
            self._sequences[at:stop] = run.sequence
            self._outputs[at:stop] = 0
            self._outputs[stop - run.wants_logits : stop] = 1
            ends.append(stop - 1)
            at = stop
        self._decode(at)
        return [self._scores(end, run.wants_logits) for run, end in zip(runs, ends, strict=True)]

    def decode_one(self, sequence: int, position: int, token: int) -> Logits:
        """Reads one token and answers its scores: `decode` for the commonest case."""
        self._tokens[0] = token
        self._positions[0] = position
        self._sequences[0] = sequence
        self._outputs[0] = 1
        self._decode(1)
        return self._logits(0)

    def _decode(self, tokens: int) -> None:
        self._batch.n_tokens = tokens
        status = calls.decode(self.handle, self._batch)
        if status == 0:
            return
        if status == NO_SLOT:
            raise EngineFull(f"no room for {tokens} more tokens in a context of {self.cells}")
        if status == ABORTED:
            raise EngineError("the computation was stopped")
        raise EngineError(f"llama.cpp could not compute {tokens} tokens (llama_decode answered {status})")

    def _scores(self, end: int, count: int) -> Logits | None:
        if count <= 1:
            return self._logits(end) if count else None
        return np.stack([self._logits(index) for index in range(end + 1 - count, end + 1)])

    def _logits(self, index: int) -> Logits:
        address = calls.get_logits_ith(self.handle, index)
        if not address:
            raise EngineError(f"llama.cpp has no scores for token {index} of the batch")
        scores = np.empty(self._vocab_size, np.float32)
        ctypes.memmove(scores.ctypes.data, address, scores.nbytes)
        return scores

    def get_state(self, sequence: int, *, partial: bool, capacity: int | None = None) -> Bytes:
        """A sequence's state as a blob in new memory. `capacity`: an upper bound of its size, if known."""
        flags = PARTIAL if partial else 0
        if capacity is None:
            capacity = calls.state_seq_get_size(self.handle, sequence, flags)
        blob = np.empty(capacity, np.uint8)
        size = calls.state_seq_get_data(self.handle, blob.ctypes.data, capacity, sequence, flags)
        if size == 0:
            raise EngineError(f"llama.cpp could not copy out the state of sequence {sequence}")
        return blob[:size]

    def set_state(self, sequence: int, blob: Bytes, *, partial: bool) -> None:
        """Puts a blob into a sequence. Raises EngineFull without cells for it, EngineError if refused."""
        flags = PARTIAL if partial else 0
        with capture_logs() as log:
            size = calls.state_seq_set_data(self.handle, blob.ctypes.data, len(blob), sequence, flags)
        if size == len(blob):
            return
        if log.containing("available cells") or log.containing("not enough cells"):
            raise EngineFull(f"no room to restore a sequence: {log.reason()}")
        raise EngineError(f"llama.cpp took {size} of {len(blob)} bytes of a state: {log.reason()}")

    def copy_sequence(self, source: int, target: int, start: int, stop: int) -> None:
        """Adds `target` to the cells of `source` at positions start..stop. Copies no rows."""
        calls.memory_seq_cp(self.memory, source, target, start, stop)

    def remove(self, sequence: int, start: int = -1) -> bool:
        """Takes positions from `start` on out of a sequence; all without it."""
        return bool(calls.memory_seq_rm(self.memory, sequence, start, -1))

    def keep_only(self, sequence: int) -> None:
        calls.memory_seq_keep(self.memory, sequence)

    def clear(self) -> None:
        """Empties all cells; the next token goes into cell 0."""
        calls.memory_clear(self.memory, False)

    def lowest_position(self, sequence: int) -> int:
        """Lowest position held (of the window where there is one), -1 for an empty sequence."""
        return int(calls.memory_seq_pos_min(self.memory, sequence))

    def free(self) -> None:
        if self.handle:
            llama_cpp.llama_free(self.handle)
            self.handle = None


def _context_params(settings: ContextSettings) -> Any:
    """`kv_unified` for copies of ranges, flash attention for values stored by row, no `swa_full`: the
    window cache is a ring."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = settings.cells
    params.n_batch = settings.batch_tokens
    params.n_ubatch = settings.ubatch_tokens
    params.n_seq_max = settings.sequences
    params.n_outputs_max = settings.outputs
    params.n_threads = settings.threads
    params.n_threads_batch = settings.threads_batch
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.type_k = params.type_v = GGML_TYPES[settings.kv_type]
    params.kv_unified = True
    params.swa_full = False
    params.no_perf = True
    return params


def _window_cells(lines: list[str]) -> int:
    """Cells of the window cache, which llama.cpp says only in its log; 0 where there is none."""
    return int(lines[-1].split("size =")[1].split()[0]) if lines else 0


def _compute_bytes(lines: list[str]) -> int:
    """Work memory of all devices, which llama.cpp says only in its log."""
    return int(sum(float(line.split("size =")[1].split()[0]) for line in lines) * (1 << 20))
