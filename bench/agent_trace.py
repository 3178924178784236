"""What whole sessions of coding agents read again, and how long they wait, in each dialect.

    python bench/agent_trace.py --models gemma3        twelve minutes on two cores
    python bench/agent_trace.py --quick                two minutes

Six sessions (`agent_sessions`) are sent turn by turn to headstart in every dialect, each to a server of its
own, and to llama.cpp's own server at its default settings in OpenAI's. headstart's replies are given
(`headstart.lab.scripted`), so that its state holds what an agent would get back. llama-server says one token;
the reply that the session has is sent to it with the next turn, so it reads that as new.

Perfect: of each prompt all that is not the beginning of an earlier one with its reply. A reply that comes
back counts as known although clients write it down differently; llama-server is not charged for the replies
that it did not say. One token is read at least.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_dialects import DIALECTS, Cost, Dialect, OpenAIChat, ask, common, tokens_of
from agent_sessions import SESSIONS, Message, Request, sessions, spoken, template
from machine import write_results
from models import MODELS
from servers import HERE, running

CONTEXT_TOKENS = {"gemma3": 32768, "smollm2": 8192, "hybrid": 8192}
CHARS_A_TOKEN = {"gemma3": 2.9, "smollm2": 2.6, "hybrid": 1.9}
"""At least so many, so that what is sent fits the context."""


@dataclass(frozen=True)
class Turn:
    """One request and what it cost. `perfect_read_tokens`: what a cache that keeps everything reads."""

    model: str
    server: str
    dialect: str
    session: str
    turn: int
    main: bool
    prompt_tokens: int
    read_tokens: int
    perfect_read_tokens: int
    first_token_s: float


@dataclass(frozen=True)
class Known:
    """A request that was sent: its messages with the reply, its prompt's tokens, those of its reply."""

    tools: tuple[dict[str, Any], ...]
    messages: tuple[Message, ...]
    prompt: Sequence[int]
    reply: Sequence[int]


def fitting(requests: Sequence[Request], model: str) -> list[Request]:
    """A session as far as its prompts fit the model's context."""
    most_chars = (CONTEXT_TOKENS[model] - 600) * CHARS_A_TOKEN[model]
    tools_chars = len(json.dumps(requests[-1].tools or requests[0].tools)) + 800

    def chars(request: Request) -> int:
        return tools_chars + sum(len(one.text if not one.calls else spoken(one)) for one in request.messages)

    ends = next((at for at, one in enumerate(requests) if chars(one) > most_chars), len(requests))
    return list(requests[:ends])


def perfect_cached(request: Request, prompt: Sequence[int], known: Sequence[Known]) -> int:
    """Tokens at the beginning of `prompt` that were read or said before."""
    best = 0
    for one in known:
        told = len(one.messages)
        goes_on = request.messages[:told] == one.messages and request.tools == one.tools
        if goes_on and one.reply and len(request.messages) > told:
            best = max(best, len(one.prompt) + len(one.reply) - 1)  # nobody reads what ended the reply
        else:
            best = max(best, common(prompt, one.prompt))
    return min(best, len(prompt) - 1)


def rules_of(requests: Sequence[Request]) -> list[dict[str, str]]:
    return [{"when": one.when, "say": spoken(one.reply)} for one in requests]


@contextmanager
def headstart(model: str, requests: Sequence[Request], folder: Path) -> Iterator[tuple[str, Path]]:
    """A server that replies as the sessions say, and the file with the tokens of its requests."""
    rules, tokens, chat = folder / "rules.json", folder / "tokens.jsonl", folder / "chat.jinja"
    rules.write_text(json.dumps(rules_of(requests)))
    chat.write_text(template(model))
    command = [sys.executable, "-m", "headstart.lab.scripted", "--rules", str(rules), "--tokens", str(tokens)]
    command += ["--port", "0", "--model", str(MODELS[model]()), "--ctx-size", str(CONTEXT_TOKENS[model])]
    command += ["--chat-template", str(chat), "--base-path", str(folder / "base"), "--ssd-cache", "0"]
    with running(command) as url:
        yield url, tokens


@contextmanager
def llama_server(model: str, folder: Path) -> Iterator[str]:
    """llama.cpp's own server as it comes, with the sessions' template."""
    chat = folder / "chat.jinja"
    chat.write_text(template(model))
    script = str(HERE / "default_peer.py")
    with running(
        [sys.executable, script, str(MODELS[model]()), "m", "0", f"template={chat}"], r"^ready (http://\S+)"
    ) as url:
        yield url.rstrip("/")


def play_headstart(model: str, dialect: Dialect, asked: Sequence[Sequence[Request]]) -> list[Turn]:
    every = [request for session in asked for request in session]
    with tempfile.TemporaryDirectory() as name, headstart(model, every, Path(name)) as (url, tokens):
        costs = [ask(url, dialect, request) for request in every]
        lines = [json.loads(line) for line in tokens.read_text().splitlines()]
    prompts = [line["prompt"] for line in lines]
    replies = [line["reply"] for line in lines]
    return counted((model, "headstart", dialect.name), every, costs, prompts, replies)


def play_llama_server(model: str, asked: Sequence[Sequence[Request]]) -> list[Turn]:
    dialect, every = OpenAIChat(), [request for session in asked for request in session]
    with tempfile.TemporaryDirectory() as name, llama_server(model, Path(name)) as url:
        prompts = [tokens_of(url, dialect, request) for request in every]
        costs = [ask(url, dialect, request, max_tokens=1) for request in every]
    return counted((model, "llama-server", dialect.name), every, costs, prompts, [[] for _ in every])


def counted(
    names: tuple[str, str, str],
    requests: Sequence[Request],
    costs: Sequence[Cost],
    prompts: Sequence[Sequence[int]],
    replies: Sequence[Sequence[int]],
) -> list[Turn]:
    """Costs beside what is perfect. `names`: of model, server and dialect. Raises RuntimeError where a server
    counts a prompt otherwise."""
    turns: list[Turn] = []
    known: list[Known] = []
    for request, cost, prompt, reply in zip(requests, costs, prompts, replies, strict=True):
        if cost.prompt_tokens != len(prompt):
            raise RuntimeError(
                f"{', '.join(names)}: {request.when!r} has {len(prompt)} tokens, not {cost.prompt_tokens}"
            )
        number = sum(turn.session == request.session for turn in turns) + 1
        perfect = len(prompt) - perfect_cached(request, prompt, known)
        read = cost.prompt_tokens - cost.cached_tokens
        turns.append(
            Turn(
                *(*names, request.session, number, request.main),
                *(len(prompt), read, perfect, cost.first_token_s),
            )
        )
        known.append(Known(request.tools, (*request.messages, request.reply), prompt, reply))
    return turns


def table(turns: Sequence[Turn]) -> str:
    """A row for each model, server and dialect. *beyond*: tokens read beyond perfect, over perfect."""
    groups: dict[tuple[str, str, str], list[Turn]] = {}
    for turn in turns:
        groups.setdefault((turn.model, turn.server, turn.dialect), []).append(turn)
    lines = [
        "| model | server | dialect | requests | sent | reused | read | perfect | beyond | to first tokens |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for names, group in groups.items():
        sent, read, perfect = (
            sum(getattr(turn, field) for turn in group)
            for field in ("prompt_tokens", "read_tokens", "perfect_read_tokens")
        )
        waited_s = sum(turn.first_token_s for turn in group)
        beyond = (read - perfect) / perfect
        numbers = f"{sent:,} | {sent - read:,} | {read:,} | {perfect:,} | {beyond:.2%} | {waited_s:.1f} s"
        lines.append(f"| {' | '.join(names)} | {len(group)} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="gemma3,smollm2,hybrid", help="some of %(default)s")
    parser.add_argument("--dialects", default=",".join(DIALECTS), help="some of %(default)s")
    parser.add_argument("--sessions", default=",".join(SESSIONS), help="some of %(default)s")
    parser.add_argument("--turns", type=int, help="of each session, instead of 15 to 24")
    parser.add_argument("--no-peer", action="store_true", help="without llama.cpp's own server")
    parser.add_argument("--quick", action="store_true", help="the hybrid, two dialects, eight turns")
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    flags = parser.parse_args()
    models, dialects = flags.models.split(","), flags.dialects.split(",")
    if flags.quick:
        models, dialects, flags.turns = ["hybrid"], ["openai", "anthropic"], 8
    turns: list[Turn] = []
    for model in models:
        asked = [fitting(one, model) for one in sessions(flags.sessions.split(","), flags.turns)]
        for dialect in dialects:
            turns += play_headstart(model, DIALECTS[dialect], asked)
            print(table(turns[-sum(map(len, asked)) :]).splitlines()[-1], flush=True)
        if not flags.no_peer:
            turns += play_llama_server(model, asked)
    print(table(turns))
    rows = [asdict(turn) for turn in turns]
    write_results(f"agent_trace_{'_'.join(models)}", {"turns": rows}, *([flags.out] if flags.out else []))


if __name__ == "__main__":
    main()
