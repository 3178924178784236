"""`headstart cache probe` and `warm`: a prompt shown to the running server, ahead of time."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from headstart.cli.cache_action import Action, add_server_flags, answer, client_of
from headstart.cli.cache_client import LONG_TIMEOUT_S, ServerRefusedError
from headstart.errors import ConfigError

PROBE = "/v1/headstart/cache/probe"
_OWN_FIELDS = ("stream", "stream_options", "max_completion_tokens", "n", "logprobs", "top_logprobs", "stop")
"""Fields of a request that are about its reply and have no place in warming."""

_WHERE = {"none": "nowhere", "live": "a live sequence", "ram": "memory", "ssd": "disk"}
WHY = {
    "no_prefix": "nothing stored begins like this prompt",
    "no_checkpoint": "no state of an exact position is stored nearer to where the prompt parts",
    "evicted": "more of it was stored once and was dropped to stay within the limits",
    "other_namespace": "it is stored for other weights, options or adapters",
    "too_short": "a prompt of one token has to be read",
    "disabled": "the request or the server wants no cache",
    "not_canonical": "--reproducible: the rest was not read in whole chunks",
    "busy": "it is in a sequence that is running and cannot be shared",
}
"""What the reasons of a plan mean, in words."""


def read_body(name: str) -> dict[str, Any]:
    """The request body in the file `name`, or on standard input for "-". Raises ConfigError."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        body = json.loads(text)
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{name} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    except ValueError as problem:
        raise ConfigError(f"{name} is not JSON: {problem}") from None
    if not isinstance(body, dict) or not ({"messages", "prompt"} & body.keys()):
        raise ConfigError(
            f"{name} is not a request: expected a JSON object with messages (chat) or prompt (completions)"
        )
    return body


def probe(arguments: argparse.Namespace) -> int:
    found = client_of(arguments).post(PROBE, read_body(arguments.file))
    if arguments.json:
        answer(found)
        return 0
    where = _WHERE[found["tier"]]
    print(f"prompt      {found['prompt_tokens']:,} tokens")
    print(f"stored      the first {found['divergence']:,} of them")
    print(
        f"restored    {found['restore_at']:,} tokens, from {where}"
        if found["restore_at"]
        else "restored    0"
    )
    print(f"read        {found['read']:,} tokens" + (", the whole prompt is there" if found["exact"] else ""))
    print(f"by tier     memory alone {found['memory_at']:,}, disk alone {found['ssd_at']:,}")
    reason = found["reason"]
    if reason is not None:
        print(f"why not more: {reason}: {WHY.get(reason, reason)}")
    return 0


def warm(arguments: argparse.Namespace) -> int:
    body = read_body(arguments.file)
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    asked = {name: value for name, value in body.items() if name not in _OWN_FIELDS}
    asked |= {"max_tokens": 1, "cache_prompt": True, "headstart": {"report": True}}
    reply = client_of(arguments).post(path, asked, timeout_s=LONG_TIMEOUT_S)
    report = reply.get("headstart", {}).get("report")
    if report is None:
        raise ServerRefusedError("the server's reply has no report: is it a headstart server?")
    if arguments.json:
        answer(report)
        return 0
    restored = (
        f"{report['restored']:,} restored from {_WHERE[report['tier']]}, " if report["restored"] else ""
    )
    read = report["prompt_tokens"] - report["restored"]
    print(f"{report['prompt_tokens']:,} tokens: {restored}{read:,} read")
    return 0


def _file_and_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="JSON body of a chat or completions request; - for standard input."
    )
    add_server_flags(parser)


ACTIONS = (
    Action(
        "probe",
        "probe FILE|- [flags]",
        "what would be restored for a request, from where, and why not more",
        "Asks a running server what it would restore for a request if it came now. Nothing is read,\n"
        "moved or counted.",
        _file_and_server,
        probe,
        epilog='example:\n  echo \'{"prompt": "Once upon a time"}\' | headstart cache probe -\n',
    ),
    Action(
        "warm",
        "warm FILE|- [flags]",
        "have the server read a prompt ahead of time",
        "Sends a request once and throws its one token away, so that what its prompt leaves behind is\n"
        "stored: a system prompt and tools, say, that the first user would otherwise wait for.",
        _file_and_server,
        warm,
        epilog='example:\n  headstart cache warm system.json    {"messages": [...], "tools": [...]}\n',
    ),
)
