"""LoRA adapters: small matrices in files of their own, whose product is added to the model's weights."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp

from headstart.engines.base import AdapterFacts
from headstart.engines.digests import identity, remembered
from headstart.engines.llamacpp.gguf_header import check_types
from headstart.engines.llamacpp.logs import capture_logs
from headstart.engines.llamacpp.options import LoraAdapter
from headstart.engines.llamacpp.source import ModelFiles, check_gguf, weights_digest
from headstart.errors import ModelError

__all__ = ["Adapters"]


class Adapters:
    """Adapters loaded for one model, which must outlive them and frees them.

    They are loaded before any context is made: llama.cpp counts them when it plans a context's graph.
    `facts` state them in their order; `nbytes` is the size of their files, about what they take in memory.
    Raises ModelError, with llama.cpp's own reason, where one does not fit the model.
    """

    def __init__(self, model: Any, wanted: Sequence[LoraAdapter] = (), memo: Path | None = None) -> None:
        loaded = [_load(model, adapter, memo) for adapter in wanted]
        self.facts = tuple(facts for _, facts in loaded)
        self.nbytes = sum(adapter.path.stat().st_size for adapter in wanted)
        self._handles = (llama_cpp.llama_adapter_lora_p_ctypes * len(wanted))(
            *(handle for handle, _ in loaded)
        )
        self._scales = (ctypes.c_float * len(wanted))(*(adapter.scale for adapter in wanted))

    def apply(self, context: Any) -> None:
        """Makes a new context compute with the adapters. Nothing is done where there are none."""
        count = len(self._handles)
        if count and llama_cpp.llama_set_adapters_lora(context, self._handles, count, self._scales):
            raise ModelError("llama.cpp could not apply the LoRA adapters to a context")


def _load(model: Any, adapter: LoraAdapter, memo: Path | None) -> tuple[Any, AdapterFacts]:
    """The adapter in llama.cpp, and what is stated of it. A trainer may be writing the file: what was
    digested must be what was loaded, or state would be kept under another adapter's name."""
    path = adapter.path
    if not path.is_file():
        raise ModelError(f"there is no LoRA adapter at {path}")
    check_gguf(path)
    check_types(path)
    before = identity((path,))
    digest = remembered(memo, (path,), lambda: weights_digest(ModelFiles((path,))))
    with capture_logs() as log:
        handle = llama_cpp.llama_adapter_lora_init(model, str(path).encode())
    if not handle:
        raise ModelError(f"the LoRA adapter {path} cannot be applied to this model: {log.reason()}")
    if llama_cpp.llama_adapter_get_alora_n_invocation_tokens(handle):
        raise ModelError(
            f"{path} is an activated LoRA, which counts only after certain tokens; headstart applies an "
            "adapter to every token. Use a plain LoRA adapter."
        )
    if identity((path,)) != before:
        raise ModelError(f"the LoRA adapter {path} changed while it was read: start again when it is whole")
    return handle, AdapterFacts(path.name, digest, adapter.scale)
