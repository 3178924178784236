"""llama.cpp's server: /props, and the flags of its process where that is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headstart.blame.doctor.facts import ServerFacts
from headstart.blame.doctor.http import Loopback, text, whole
from headstart.blame.doctor.processes import flags_of

CACHE_MIB, CHECKPOINTS, STEP = 8192, 32, 8192
"""Its defaults."""


def read(http: Loopback, commands: Sequence[Sequence[str]]) -> ServerFacts | None:
    props = http.get("/props")
    if not isinstance(props.get("default_generation_settings"), Mapping):
        return None
    flags = flags_of("llama-server", http.port, commands)
    model = http.get("/v1/models").entries("data")
    meta = model[0].get("meta") if model else None
    meta = meta if isinstance(meta, Mapping) else {}
    types = text(props.get("default_generation_settings", "params", "speculative.types"))
    spoken = props.get("default_generation_settings", "speculative")
    return ServerFacts(
        "llama-server",
        http.url,
        version=text(props.get("build_info")),
        model=text(model[0].get("id")) if model else None,
        context_tokens=whole(props.get("default_generation_settings", "n_ctx")),
        trained_tokens=whole(meta.get("n_ctx_train")),
        slots=whole(props.get("total_slots")),
        model_bytes=whole(meta.get("size")),
        cache_mib=_number(flags, "--cache-ram", CACHE_MIB),
        checkpoints=_number(flags, "--ctx-checkpoints", CHECKPOINTS),
        checkpoint_step=_number(flags, "--checkpoint-min-step", STEP),
        speculative=spoken is True or types not in (None, "none") or "--model-draft" in flags,
        prefix_caching=False if "--no-cache-prompt" in flags else None,
        model_path=text(props.get("model_path")),
        flags=flags,
    )


def _number(flags: Mapping[str, str], name: str, default: int) -> int | None:
    given = flags.get(name)
    if given is None:
        return default
    return int(given) if given.lstrip("-").isdecimal() else None
