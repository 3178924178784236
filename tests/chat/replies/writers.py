"""Each format's calls as a model writes them, the way its chat template does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

Call = tuple[str, dict[str, Any]]


def hermes(calls: Sequence[Call]) -> str:
    return "\n".join(
        f'<tool_call>\n{{"name": {_j(n)}, "arguments": {_j(a)}}}\n</tool_call>' for n, a in calls
    )


def qwen_xml(calls: Sequence[Call]) -> str:
    def one(name: str, arguments: dict[str, Any]) -> str:
        parts = [f"<parameter={k}>\n{_plain(v)}\n</parameter>\n" for k, v in arguments.items()]
        return f"<tool_call>\n<function={name}>\n{''.join(parts)}</function>\n</tool_call>"

    return "\n".join(one(*call) for call in calls)


def glm(calls: Sequence[Call]) -> str:
    def one(name: str, arguments: dict[str, Any]) -> str:
        parts = [
            f"<arg_key>{k}</arg_key>\n<arg_value>{_plain(v)}</arg_value>\n" for k, v in arguments.items()
        ]
        return f"<tool_call>{name}\n{''.join(parts)}</tool_call>"

    return "\n".join(one(*call) for call in calls)


def llama3_json(calls: Sequence[Call]) -> str:
    return "; ".join(f'{{"name": {_j(n)}, "parameters": {_j(a)}}}' for n, a in calls)


def pythonic(calls: Sequence[Call]) -> str:
    return "[" + ", ".join(_python(*call) for call in calls) + "]"


def gemma_python(calls: Sequence[Call]) -> str:
    return "```tool_code\n" + "\n".join(_python(*call) for call in calls) + "\n```"


def mistral(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{n}[ARGS]{_j(a)}" for n, a in calls)


def mistral_list(calls: Sequence[Call]) -> str:
    return "[TOOL_CALLS] " + _j([{"name": n, "arguments": a, "id": "123456789"} for n, a in calls])


def deepseek(calls: Sequence[Call]) -> str:
    def one(name: str, arguments: dict[str, Any]) -> str:
        head = f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n"
        return head + f"{_j(arguments)}\n```<｜tool▁call▁end｜>"

    return "<｜tool▁calls▁begin｜>" + "\n".join(one(*call) for call in calls) + "<｜tool▁calls▁end｜>"


def deepseek31(calls: Sequence[Call]) -> str:
    parts = [f"<｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{_j(a)}<｜tool▁call▁end｜>" for n, a in calls]
    return "<｜tool▁calls▁begin｜>" + "".join(parts) + "<｜tool▁calls▁end｜>"


def gemma4(calls: Sequence[Call]) -> str:
    return "".join(
        f"<|tool_call>call:{n}{_bare(a, chr(60) + '|' + chr(34) + '|>')}<tool_call|>" for n, a in calls
    )


def gemma_function(calls: Sequence[Call]) -> str:
    return "".join(
        f"<start_function_call>call:{n}{_bare(a, '<escape>')}<end_function_call>" for n, a in calls
    )


def _j(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _j(value)


def _python(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"


def _bare(value: Any, quote: str) -> str:
    if isinstance(value, str):
        return quote + value + quote
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{_bare(v, quote)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_bare(v, quote) for v in value) + "]"
    return _j(value)


WRITERS: dict[str, tuple[str, Callable[[Sequence[Call]], str]]] = {
    "hermes": ("hermes", hermes),
    "qwen-xml": ("qwen-xml", qwen_xml),
    "glm": ("glm", glm),
    "llama3-json": ("llama3-json", llama3_json),
    "pythonic": ("pythonic", pythonic),
    "gemma-python": ("gemma-python", gemma_python),
    "mistral": ("mistral", mistral),
    "mistral-list": ("mistral", mistral_list),
    "deepseek": ("deepseek", deepseek),
    "deepseek-3.1": ("deepseek", deepseek31),
    "gemma4": ("gemma4", gemma4),
    "gemma-function": ("gemma-function", gemma_function),
}
