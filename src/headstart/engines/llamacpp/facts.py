"""What is stated about a loaded model, and what makes its state reusable."""

from __future__ import annotations

import importlib.metadata
import os

import llama_cpp

from headstart.engines.base import AdapterFacts, EngineFacts
from headstart.engines.llamacpp.binding import Model
from headstart.engines.llamacpp.options import KvType, LlamaCppOptions
from headstart.engines.llamacpp.probe import Proof
from headstart.engines.llamacpp.source import ModelFiles

__all__ = ["engine_facts"]

CODEC_VERSION = "1"
"""Raised whenever the meaning of a plane's or checkpoint's bytes changes."""

SEVERAL_ADAPTERS = (
    "llama.cpp adds up several adapters in an order that may change from start to start: replies of two "
    "starts may differ in last bits"
)


def engine_facts(
    model: Model, files: ModelFiles, digest: str, options: LlamaCppOptions, *, cells: int, proof: Proof
) -> EngineFacts:
    adapters = model.adapters.facts
    return EngineFacts(
        engine="llamacpp",
        model_name=model.metadata.get("general.name") or files.first.stem,
        architecture=model.architecture,
        parameters=model.parameters,
        state_proved=proof.state_proved,
        exact_repeat=proof.exact_repeat,
        restore_equals_cold=proof.restore_equals_cold,
        parts=_parts(model, digest, options, cells, proof.state_proved) | _adapter_parts(adapters),
        chat_template=model.chat_template(),
        notes=proof.notes
        + ((SEVERAL_ADAPTERS,) if sum(adapter.scale != 0 for adapter in adapters) > 1 else ()),
        adapters=adapters,
        step_scores=options.step_scores,
    )


def _adapter_parts(adapters: tuple[AdapterFacts, ...]) -> dict[str, str]:
    """The adapters in their order. Nothing where there are none: the namespace is then the model's own."""
    if not adapters:
        return {}
    return {"adapters": ", ".join(f"{adapter.digest} x {adapter.scale!r}" for adapter in adapters)}


def _parts(
    model: Model, digest: str, options: LlamaCppOptions, cells: int, state_proved: bool
) -> dict[str, str]:
    """All that the bytes of a row or checkpoint depend on besides the tokens.

    The digest covers the metadata, so the model's own rope settings with it. The context size is
    left out but for LongRoPE, which turns to other factors when the context is longer than the
    original one (llama_model::get_rope_factors).
    """
    parts = {
        "weights": digest,
        "architecture": model.architecture,
        "kv_type": options.kv_type.value,
        "flash_attention": "on" if options.flash_attention else "off",
        "engine": f"llamacpp {importlib.metadata.version('llama-cpp-python')}",
        "state_version": f"{llama_cpp.LLAMA_STATE_SEQ_VERSION}.{CODEC_VERSION}",
        "state_kind": "rows" if state_proved else "snapshots",
    }
    rotation = os.environ.get(
        "LLAMA_ATTN_ROT_DISABLE"
    )  # llama.cpp turns quantized keys and values unless set
    if rotation is not None and options.kv_type is not KvType.F16:
        parts["attention_rotation"] = f"disabled {rotation}"
    original = model.metadata.get(f"{model.architecture}.rope.scaling.original_context_length")
    if original is not None:
        parts["rope_factors"] = "long" if cells > int(original) else "short"
    return parts
