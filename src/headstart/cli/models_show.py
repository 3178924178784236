"""`headstart models show MODEL`: what a model is, from its files."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from headstart.chat.abilities import Abilities, abilities
from headstart.cli.cache_action import Action, answer, counted, printable
from headstart.cli.describe import format_count
from headstart.cli.engines import NAME, engine_of_model
from headstart.cli.terminal import format_bytes
from headstart.engines.fact_sheet import FactSheet, StateSize

__all__ = ["ACTION", "engine_of", "lines", "sheet_for"]

DIGEST_DIGITS = 12
LABEL_COLUMNS = 15


def sheet_for(model: str, engine: str = "auto") -> FactSheet:
    """The fact sheet of `model`, words as `serve --model` takes them. Raises ModelError, ConfigError."""
    if engine == "auto":
        engine = engine_of(model)
    if engine == "mlx":
        from headstart.engines.mlx.sheet import fact_sheet as mlx_sheet

        return mlx_sheet(model)
    from headstart.engines.llamacpp.sheet import fact_sheet as gguf_sheet

    return gguf_sheet(model)


def engine_of(model: str) -> str:
    """The engine for these words, where nothing is fetched."""
    return "mlx" if _is_repository(model) else engine_of_model(model)


def _is_repository(model: str) -> bool:
    """Whether `model` can only be a repository: what is not there is then looked for in the hub cache."""
    return bool(NAME.match(model)) and not model.endswith(".gguf") and not Path(model).exists()


def show(arguments: argparse.Namespace) -> int:
    sheet = sheet_for(arguments.model, arguments.engine)
    chat = _chat(sheet)
    if arguments.json:
        answer(sheet.to_json() | {"chat_template": None if chat is None else asdict(chat)})
        return 0
    for label, text in lines(sheet, chat):
        print(f"{label:<{LABEL_COLUMNS}}{printable(text)}")
    return 0


def _chat(sheet: FactSheet) -> Abilities | None:
    if sheet.chat_template is None:
        return None
    return abilities(sheet.chat_template, bos=sheet.bos, eos=sheet.eos)


def lines(sheet: FactSheet, chat: Abilities | None) -> Iterable[tuple[str, str]]:
    """One line a subject: its label and what is to be known."""
    yield "name", sheet.name
    yield "path", sheet.path
    yield "format", f"{sheet.format}, {counted(sheet.files, 'file')}, {format_bytes(sheet.nbytes)}"
    yield "engine", sheet.engine
    yield "architecture", sheet.architecture
    yield "parameters", f"{format_count(sheet.parameters)} ({sheet.parameters:,})"
    yield "quantisation", f"{sheet.quantisation}; {sheet.bits_per_weight:.2f} bits a weight"
    yield "layers", _known(sheet.layers) + (f", {sheet.hidden_width:,} wide" if sheet.hidden_width else "")
    yield "attention", _attention(sheet)
    yield "kinds", ", ".join(one.words for one in sheet.layer_kinds) or "not known"
    yield "resumes at", sheet.resumes_at
    yield "state", _state(sheet.state)
    yield "context", _tokens(sheet.context_tokens, ", as trained")
    yield "vocabulary", _tokens(sheet.vocabulary)
    yield "chat template", _template(chat)
    yield "MTP heads", sheet.prediction_heads.words
    for note in sheet.notes:
        yield "note", note


def _known(number: int | None) -> str:
    return "not said" if number is None else f"{number:,}"


def _tokens(number: int | None, more: str = "") -> str:
    return "not said" if number is None else f"{number:,} tokens{more}"


def _attention(sheet: FactSheet) -> str:
    if sheet.heads is None:
        return "none"
    return (
        f"{counted(sheet.heads, 'head')}, {sheet.kv_heads or sheet.heads} for keys and values, "
        f"{sheet.head_width or '?'} wide"
    )


def _state(state: StateSize | None) -> str:
    if state is None:
        return "not known"
    parts = []
    if state.token_bytes:
        windows = f" (of them {state.window_token_bytes:,} in windows)" if state.window_token_bytes else ""
        parts.append(f"{state.token_bytes:,} bytes a token{windows}")
    if state.sequence_bytes:
        parts.append(f"{state.sequence_bytes:,} bytes a sequence and a checkpoint")
    return f"{', '.join(parts) or 'none'}; from {state.source}"


def _template(chat: Abilities | None) -> str:
    if chat is None:
        return "none: /v1/chat/completions needs one, serve --chat-template FILE gives it"
    if chat.problem is not None:
        return f"sha256 {chat.digest[:DIGEST_DIGITS]}, which cannot be used: {chat.problem}"
    thinking = "yes" if chat.thinking else "no"
    switches = f" ({', '.join(chat.switches)} in chat_template_kwargs)" if chat.switches else ""
    return (
        f"sha256 {chat.digest[:DIGEST_DIGITS]}; tools: {'yes' if chat.tools else 'no'}; "
        f"thinking: {thinking}{switches}"
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="A GGUF file or a folder with one, an MLX folder, owner/name or hf:... in the hub cache, or "
        "embedded: as `serve --model` takes it.",
    )
    parser.add_argument(
        "--engine",
        choices=("auto", "llamacpp", "mlx"),
        default="auto",
        help="Which weights to look at where a folder has both kinds. (default: auto)",
    )


def _epilog() -> str:
    return """\
what the lines mean:
  kinds          how many layers look back to the beginning, over a window or chunk, or keep one state of
                 the whole past (recurrent)
  resumes at     where a prompt can go on from what an earlier one left behind
  state          what a token leaves in the cache, and what a sequence has whatever its length
  MTP heads      multi-token-prediction heads: whether the files have them, and whether they can be used

Nothing is loaded or fetched: hf:... is looked up in the hub cache. With mlx-lm installed its model class is
made without numbers, so that sizes are exact; without it, an MLX folder's state is not known.
"""


ACTION = Action(
    name="show",
    usage="show MODEL [flags]",
    summary="what a model is: size, layers, state, context, template, MTP heads",
    description="""\
Says what a model is from its config or header: size and quantisation, layers and what they keep,
where prompts can resume, the chat template, and multi-token-prediction heads.""",
    add_arguments=_add_arguments,
    run=show,
    epilog=_epilog(),
)
