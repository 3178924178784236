"""The server loaded the model anew between two turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.blame.causes.context import Context, server_finding, short
from headstart.blame.finding import Change, Culprit, Finding, Fix

CODE = "CONTEXT_RELOADED"
PLAIN = (
    "The server loaded the model again before this turn: another request asked for another context "
    "length, another model took its place, or it had been unloaded. All that was cached is gone with "
    "that."
)
FIX = Fix("Have every request, titles and summaries too, ask for the same model and context length.")
OLLAMA = Fix(
    "Have every request, titles and summaries too, ask for the same context length: set it once at the "
    "server by this variable and leave num_ctx out of requests.",
    "OLLAMA_CONTEXT_LENGTH=65536",
)
ROOM = Fix("Use one model for side requests as well, or give the server room for both at once.")
# Ollama tells some hundredths of a second for a model that is there.
_LOAD_SECONDS = 1.0


def detect(change: Change | None, context: Context) -> Finding | None:
    load = context.exchange.timing.load
    contexts = [prompt.options.get("num_ctx") for prompt in (context.before_prompt, context.prompt)]
    loaded = load is not None and load > _LOAD_SECONDS
    other = contexts[0] != contexts[1]
    if not loaded and (not other or load is not None):
        return None
    if context.shortfall is not None and not context.server_lost:
        return None
    took = f"the model was loaded again in {load:.1f} s" if loaded else "the model has to be loaded again"
    same = OLLAMA if context.served_by("ollama") else FIX
    if other:
        was, now = ("the server's" if value is None else value for value in contexts)
        said = f"{took}: context length {was} -> {now}"
        return server_finding(CODE, context, said, same, Culprit.CLIENT)
    if wanted := _other_context(context):
        said = f"{took}; a request in between asked for a context of {wanted}"
        return server_finding(CODE, context, said, same, Culprit.CLIENT)
    if model := _other_model(context):
        return server_finding(CODE, context, f"{took}; {short(model)} was used in between", ROOM)
    return server_finding(CODE, context, took, FIX)


def _bodies(context: Context) -> list[Mapping[str, Any]]:
    return [one.body for one in context.between if isinstance(one.body, Mapping)]


def _other_context(context: Context) -> Any:
    for body in _bodies(context):
        options = body.get("options")
        wanted = options.get("num_ctx") if isinstance(options, Mapping) else None
        if wanted is not None and wanted != context.prompt.options.get("num_ctx"):
            return wanted
    return None


def _other_model(context: Context) -> str:
    models = [body.get("model") for body in _bodies(context)]
    return next((str(model) for model in models if model not in (None, context.prompt.model)), "")
