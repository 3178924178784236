"""What is said about a loaded model: one line a subject."""

from __future__ import annotations

import re
from pathlib import Path

from headstart.cli.terminal import format_bytes
from headstart.config import Settings
from headstart.engines.base import Engine, EngineFacts
from headstart.prefix.ssd_tier import OpenReport, SsdTier

EMBEDDED_NAME = "SmolLM2-135M-Instruct"

_SHARD = re.compile(r"-\d+-of-\d+$")


def served_name(settings: Settings, facts: EngineFacts) -> str:
    """The name clients ask for the model by: the one given, else that of its file or folder."""
    if settings.model_name:
        return settings.model_name
    if settings.engine == "toy":
        return facts.model_name
    if settings.model == "embedded":
        return EMBEDDED_NAME
    name = Path(settings.model.removeprefix("hf:")).expanduser().resolve().name
    return _SHARD.sub("", name.removesuffix(".gguf")) or facts.model_name


def describe_model(settings: Settings, engine: Engine, load_s: float) -> str:
    """One line: what was loaded, how long a prompt may be and in what pieces it is read."""
    facts = engine.facts
    chunk = min(settings.prefill_chunk, engine.max_step_tokens)
    return (
        f"{served_name(settings, facts)} ({facts.architecture}, "
        f"{format_count(facts.parameters)} parameters, {facts.engine}), "
        f"context {engine.layout.context_tokens:,} tokens, read {chunk:,} at a time, loaded in {load_s:.1f} s"
    )


def describe_adapters(facts: EngineFacts) -> str:
    """One line: the adapters that are applied, each with its scale."""
    return ", ".join(f"{adapter.name} (scale {adapter.scale:g})" for adapter in facts.adapters)


def describe_cache(settings: Settings, engine: Engine) -> str:
    """One line: how much is kept and how."""
    if not settings.cache:
        return "off (--no-cache)"
    size = format_bytes(settings.ram_cache_bytes)
    row_bytes = engine.layout.row_bytes
    holds = f", about {settings.ram_cache_bytes // row_bytes:,} tokens" if row_bytes else ""
    kept = "reproducible" if settings.reproducible else f"{settings.batching} batching"
    return f"{size} of memory{holds}; blocks of {settings.block_size} tokens; {kept}"


def describe_ssd(tier: SsdTier | None) -> str:
    """One line: the cache on disk, how full it is, and what opening it put right."""
    if tier is None:
        return "off (--ssd-cache 0)"
    limit = tier.limit_bytes()
    used = format_bytes(tier.shelf.used_bytes)
    text = f"{tier.settings.directory}: {len(tier.shelf):,} entries, {used}"
    if tier.settings.read_only:
        text += ", read only"
    else:
        text += f" of {format_bytes(limit)}"
        if limit < tier.settings.budget_bytes:
            text += f" ({format_bytes(tier.settings.budget_bytes)} would leave too little free)"
    return f"{text}; opened in {tier.opened.open_s:.1f} s{_put_right(tier.opened)}"


def _put_right(found: OpenReport) -> str:
    """What was not as the list of entries said, where anything was."""
    parts = [
        f"{count:,} {what}"
        for count, what in (
            (found.adopted, "added to the list"),
            (found.missing, "missing"),
            (found.unusable, "unusable"),
            (found.stray, "removed for want of what they follow"),
            (found.temporary, "temporary removed"),
            (found.other_version, "of another format version left alone"),
        )
        if count
    ]
    return f"; files found: {', '.join(parts)}" if parts else ""


def describe_probe(facts: EngineFacts) -> str:
    """One line: what loading found out about this model on this machine."""
    if not facts.state_proved:
        return "rows could not be cut and put back; whole sequences are kept instead"
    repeat = (
        "an exact repeat gives the same bits"
        if facts.exact_repeat
        else "exact repeats may differ in last bits"
    )
    cold = "as a cold run does" if facts.restore_equals_cold else "within rounding of a cold run"
    return f"rows cut and put back; {repeat}; a resumed prompt computes {cold}"


def format_count(n: int) -> str:
    """`n` with a unit: "135 M"."""
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return str(n)
