"""Replies that must be a call: the grammar of one call in a model's own form, for constrained decoding.

The grammar is Lark as llguidance has it, with JSON schemas inline (docs/syntax.md in its repository).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headstart.chat.replies import hermes, mistral
from headstart.chat.replies.syntax import Syntax
from headstart.errors import RequestError

__all__ = ["FORCED_FORMATS", "call_grammar"]

# What stands before the name, between name and arguments, and behind them.
_FORMS: Mapping[str, tuple[str, str, str]] = {
    "hermes": (f'{hermes.BEGIN}\n{{"name": "', '", "arguments": ', f"}}\n{hermes.END}"),
    "mistral": (f'{mistral.BEGIN}[{{"name": "', '", "arguments": ', "}]"),
    "llama3-json": ('{"name": "', '", "parameters": ', "}"),
}
FORCED_FORMATS = tuple(_FORMS)
"""Forms of calls that a grammar can be made of."""
_COMPACT = {"x-guidance": {"whitespace_flexible": False}}
_ANY = {"type": "object"}


def call_grammar(syntax: Syntax, tools: Mapping[str, Any], *, thinking: bool) -> str:
    """The grammar of a call of one of `tools`, the arguments' schema of each by its name. `thinking`: the
    prompt ends inside the thoughts, which come to their end first.

    Raises RequestError where the model's form cannot be held.
    """
    form = _FORMS.get(syntax.tools)
    if form is None:
        raise RequestError(
            f"tool_choice: a call cannot be required of this model, which writes calls as {syntax.tools!r}; "
            f"possible are {', '.join(FORCED_FORMATS)} (--tool-parser). Ask for it in words, with "
            "tool_choice auto",
            param="tool_choice",
        )
    before, between, behind = form
    rules = []
    for number, (name, schema) in enumerate(tools.items()):
        head = json.dumps(f"{before}{_within_json(name)}{between}", ensure_ascii=False)
        rules.append(f"call_{number}: {head} args_{number} {json.dumps(behind)}")
        given = schema if isinstance(schema, Mapping) and schema else _ANY
        rules.append(f"args_{number}: %json {json.dumps({**given, **_COMPACT})}")
    calls = " | ".join(f"call_{number}" for number in range(len(tools)))
    end = syntax.thinking[1] if thinking and syntax.thinking else ""
    thought = f"/[^<\\[]*/ {json.dumps(end)} /\\s*/ " if end else ""
    return "\n".join([f"start: {thought}call", f"call: {calls}", *rules])


def _within_json(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)[1:-1]
