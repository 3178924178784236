"""How long the verdict on two requests of 200,000 tokens takes.

    python bench/diff_speed.py       half a minute

Two requests of 800 kB that follow one another in a conversation, of several shapes, with the change at
several places, as bytes: from both texts to the verdict, and of that the part that is no JSON parsing.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headstart.blame.exchange import Dialect, Exchange, Reply, Timing, Usage
from headstart.blame.verdict import judge
from machine import write_results

NBYTES = 800_000
WORDS = "the second keeper wrote down every sail that passed between one and five o'clock, "
Body = dict[str, Any]


def text(nbytes: int, salt: int) -> str:
    """Words that differ a little all the way, as real ones do."""
    parts, length = [], 0
    while length < nbytes:
        parts.append(f"{WORDS}number {salt + len(parts)}.\n")
        length += len(parts[-1])
    return "".join(parts)[:nbytes]


def one_message() -> Body:
    """A file that was pasted."""
    said = [
        ("system", "Answer in short."),
        ("user", text(NBYTES, 0)),
        ("assistant", "Yes."),
        ("user", "Why?"),
    ]
    return {"model": "m", "messages": [{"role": role, "content": words} for role, words in said]}


def session(steps: int = 400) -> Body:
    """An agent's work: tools, and calls with their results."""
    tools = []
    for number in range(40):
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        function = {"name": f"tool_{number}", "description": text(800, number), "parameters": schema}
        tools.append({"type": "function", "function": function})
    messages: list[Body] = [{"role": "system", "content": text(30_000, 7)}]
    each = (NBYTES - 30_000 - 40 * 900) // steps - 300
    for number in range(steps):
        arguments = json.dumps({"path": f"src/{number}.py"})
        function = {"name": f"tool_{number % 40}", "arguments": arguments}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"call_{number}", "content": text(each, number * 99)}
        )
    messages.insert(1, {"role": "user", "content": "Tidy this up."})
    return {"model": "m", "tools": tools, "messages": messages}


def edited(index: int, share: float) -> Callable[[Body], None]:
    """One letter of a message becomes another."""

    def change(body: Body) -> None:
        message = body["messages"][index]
        place = int(share * (len(message["content"]) - 1))
        message["content"] = message["content"][:place] + "#" + message["content"][place + 1 :]

    return change


def reordered(body: Body) -> None:
    body["tools"].insert(0, body["tools"].pop(20))


def spaced(body: Body) -> None:
    """Every line end of every message becomes that of another system."""
    for message in body["messages"]:
        if message["content"]:
            message["content"] = message["content"].replace("\n", "\r\n")


def pruned(body: Body) -> None:
    """Half of the results are cut to a line."""
    for message in body["messages"][1:400]:
        if message["role"] == "tool":
            message["content"] = "[old result cleared]"


def unlike(body: Body) -> None:
    """Every message but the first two says something else."""
    for number, message in enumerate(body["messages"][2:]):
        if message["content"]:
            message["content"] = text(len(message["content"]), number * 7 + 3)


CASES: dict[str, tuple[Callable[[], Body], Callable[[Body], None]]] = {
    "one message, equal": (one_message, lambda body: None),
    "one message, a letter at its end": (one_message, edited(1, 1.0)),
    "one message, a letter in its middle": (one_message, edited(1, 0.5)),
    "one message, all line ends": (one_message, spaced),
    "session, equal": (session, lambda body: None),
    "session, a letter of the system prompt": (session, edited(0, 0.5)),
    "session, a letter of the last result": (session, edited(-1, 0.5)),
    "session, tools reordered": (session, reordered),
    "session, all line ends": (session, spaced),
    "session, old results cleared": (session, pruned),
    "session, all else unlike": (session, unlike),
}


def measure(case: tuple[Callable[[], Body], Callable[[Body], None]], times: int) -> dict[str, Any]:
    made, change = case
    before = made()
    after = copy.deepcopy(before)
    change(after)
    after["messages"] += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And now?"}]
    texts = [json.dumps(body).encode() for body in (before, after)]
    whole, parted, cause = [], [], None
    for _ in range(times):
        began = time.perf_counter()
        bodies = [json.loads(one) for one in texts]
        read = time.perf_counter()
        verdicts = judge(exchanges(bodies))
        ended = time.perf_counter()
        whole.append(ended - began)
        parted.append(ended - read)
        cause = verdicts[1].finding and verdicts[1].finding.cause
    return {
        "bytes": [len(one) for one in texts],
        "cause": cause,
        "from_bytes_s": statistics.median(whole),
        "verdict_s": statistics.median(parted),
        "worst_s": max(whole),
    }


def exchanges(bodies: list[Body]) -> list[Exchange]:
    path = "/v1/chat/completions"
    told = [Usage(200_000, 0, 2), Usage(200_010, 100_000, 2)]
    first = Exchange(1, 0.0, Dialect.OPENAI_CHAT, path, bodies[0], Reply("Done."), told[0], Timing(90.0))
    return [first, replace(first, number=2, body=bodies[1], usage=told[1], timing=Timing(45.0))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=7, help="verdicts on each pair (default: 7)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    flags = parser.parse_args()
    found = {name: measure(case, flags.times) for name, case in CASES.items()}
    for name, one in found.items():
        print(
            f"{name:<42}{one['cause']!s:<22}{one['from_bytes_s']:>7.3f} s, without JSON"
            f"{one['verdict_s']:>7.3f} s, worst{one['worst_s']:>7.3f} s"
        )
    write_results("diff_speed", {"cases": found}, *([flags.out] if flags.out else []))


if __name__ == "__main__":
    main()
