"""Five turns of both vendors' SDKs through `headstart watch` to real servers, with a fault at the fourth: the
live line names it, the recording does, and so does the server's own log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from headstart.blame.finding import Culprit, Step
from headstart.blame.recording import read
from headstart.blame.verdict import TurnVerdict, judge
from headstart.cli import main
from tests.cli.watching import Program, watching
from tests.e2e.llama_server import LlamaServer, llama_server
from tests.e2e.test_serve import Served, serving

RULES = """You keep the log of a lighthouse. Write short sentences, and no more than two of them.
Name each ship by its flag first and then by its name. Count in tens when there are many.
Never guess the weather; say what was seen from the gallery, and by whom.
When the lamp was out, say for how long, who lit it again and with what.
Letters for the harbour go into the red box, those for the island into the grey one.
The keeper sleeps from nine to one, the second keeper from one to five; do not wake either for a sail.
Oil is counted in cans, wicks in dozens, and both are ordered when a third is left.
"""
QUESTIONS = ("Who passed?", "When was that?", "What flag?", "Was the lamp lit?", "Who was awake?")
FAULT = 4
KEY = "sk-test-0123456789abcdef"


def tool(name: str, what: str) -> dict[str, Any]:
    properties = {"day": {"type": "string", "description": "the day, as in 3 May"}}
    schema = {"type": "object", "properties": properties, "required": ["day"]}
    return {"type": "function", "function": {"name": name, "description": what, "parameters": schema}}


TOOLS = [
    tool("ships", "the ships that passed on a day"),
    tool("oil", "how many cans of oil are left on a day"),
    tool("watches", "who was awake at which hour of a day"),
    tool("letters", "the letters that went into the red box and into the grey one on a day"),
    tool("lamp", "from when to when the lamp was out on a day, and who lit it again"),
]


def openai_turns(url: str, fields: Callable[[int], dict[str, Any]], system: Callable[[int], str]) -> None:
    """Five turns of a chat; `fields` and `system` are those of each turn."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=120)
    model = client.models.list().data[0].id
    said: list[Any] = []
    for turn, question in enumerate(QUESTIONS, 1):
        said.append({"role": "user", "content": question})
        stream = client.chat.completions.create(
            model=model,
            messages=[{"role": "system", "content": system(turn)}, *said],
            max_tokens=12,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            **fields(turn),
        )
        reply = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        said.append({"role": "assistant", "content": reply})


def anthropic_turns(url: str, system: Callable[[int], str]) -> None:
    client = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0, timeout=120)
    said: list[Any] = []
    for turn, question in enumerate(QUESTIONS, 1):
        said.append({"role": "user", "content": question})
        asked: dict[str, Any] = {
            "model": "m",
            "max_tokens": 12,
            "extra_body": {"temperature": 0},
            "system": system(turn),
            "messages": list(said),
        }
        with client.messages.stream(**asked) as stream:
            reply = stream.get_final_text()
        said.append({"role": "assistant", "content": reply})


def told(program: Program) -> list[dict[str, Any]]:
    """The objects of all five turns."""
    return [json.loads(program.line()) for _ in QUESTIONS]


def findings(verdicts: list[TurnVerdict]) -> dict[int, str]:
    return {one.turn.number: one.finding.cause for one in verdicts if one.finding is not None}


@pytest.fixture(scope="module")
def behind(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`headstart serve --model embedded`."""
    log = tmp_path_factory.mktemp("serve") / "log"
    with serving(
        log, "--engine", "llamacpp", "--model", "embedded", "--ctx-size", "2048", "--threads", "1"
    ) as server:
        yield server


@pytest.fixture
def llama(smollm2: Path, tmp_path: Path) -> Iterator[LlamaServer]:
    with llama_server(smollm2, tmp_path / "llama.log") as server:
        yield server


def test_a_clock_that_moved_is_named_live_and_from_the_recording(behind: Served, tmp_path: Path) -> None:
    def system(turn: int) -> str:
        return f"It is {'10:31' if turn < FAULT else '10:47'} on the gallery.\n{RULES}"

    record = tmp_path / "r.jsonl"
    with watching(behind.url, "--record", str(record), "--json") as program:
        openai_turns(program.url, lambda turn: {}, system)
        live = told(program)
        assert program.stop() == 0
        sums = json.loads(program.line())["totals"]
    assert [(one["conversation"], one["turn"], one["purpose"]) for one in live] == [
        ("A", number, "turn") for number in range(1, 6)
    ]
    assert [one["finding"] and one["finding"]["cause"] for one in live] == [
        None,
        None,
        None,
        "TIMESTAMP",
        None,
    ]
    found = live[FAULT - 1]["finding"]
    assert (found["path"], found["offset"]) == ("messages[0].content", len("It is 10:"))
    assert (found["culprit"], found["step"], found["fix"]["repair"]) == ("client", "body", "date")
    assert found["tokens_lost"] == live[FAULT - 1]["read_again_tokens"] > 200
    assert found["seconds_lost"] > 0
    assert "10:31" in found["before"]
    assert "10:47" in found["after"]
    assert [(one["cause"], one["turns"], one["tokens_lost"]) for one in sums] == [
        ("TIMESTAMP", 1, found["tokens_lost"])
    ]
    verdicts = judge(read(record))
    assert findings(verdicts) == {FAULT: "TIMESTAMP"}
    assert [one.tokens_lost for one in verdicts[1:]] == [one["read_again_tokens"] for one in live[1:]]


def test_tools_in_another_order_are_named_live_from_the_recording_and_seen_in_the_servers_log(
    llama: LlamaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fields(turn: int) -> dict[str, Any]:
        return {"tools": TOOLS if turn < FAULT else [TOOLS[1], TOOLS[0], *TOOLS[2:]], "tool_choice": "none"}

    record = tmp_path / "r.jsonl"
    with watching(llama.url, "--record", str(record)) as program:
        openai_turns(program.url, fields, lambda turn: RULES)
        lines = [program.line() for _ in range(13)]
        assert program.stop() == 0
        sums = [program.line() for _ in range(2)]
    blamed = [line.split()[0] for line in lines if "(client)" in line]
    assert blamed == ["TOOLS_REORDERED"]
    assert lines[4].split()[:2] == ["A", "4"]
    assert (
        lines[5]
        .strip()
        .startswith("TOOLS_REORDERED (client): 5 tools in another order: tool 0 was ships, now oil")
    )
    assert lines[6].strip().startswith("at tools[0]")
    assert lines[6].strip().endswith(" s read again")
    assert lines[10].strip() == "fix: Sort the tools by name before they are sent."
    assert lines[11].strip() == "or headstart watch --fix tools, which does it on the way"
    assert sums[1].split()[:2] == ["TOOLS_REORDERED", "1"]
    verdicts = judge(read(record))
    assert findings(verdicts) == {FAULT: "TOOLS_REORDERED"}

    assert main(["explain", str(llama.log), "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert (explained["format"], explained["turns"]) == ("llama-server", 5)
    usages = [one.turn.exchange.usage for one in verdicts]
    assert explained["prompt_tokens"] == sum(usage.prompt or 0 for usage in usages)
    assert explained["cached_tokens"] == sum(usage.cached or 0 for usage in usages)
    # All of the first turn was new; of the later ones only one was read from far ahead of its end.
    [first, dear, *cheap] = explained["most_expensive_turns"]
    assert (first["number"], dear["number"]) == (1, FAULT)
    assert dear["changed_tokens"] > 256 > 10 * max(turn["read_tokens"] for turn in cheap)
    assert explained["lost_tokens"] == {"gap": 0, "changed": dear["changed_tokens"], "side_requests": 0}
    [seen] = explained["findings"]
    assert f"turn {FAULT} at token" in seen["said"]


def dated(turn: int) -> str:
    return f"{RULES}Today is {'3 May 1931' if turn < FAULT else '4 May 1931'}, and the log is kept in ink.\n"


def named_by_both(url: str, record: Path) -> list[TurnVerdict]:
    """Anthropic's SDK with a date that changes at the fault, watched: live and recording name it alike."""
    with watching(url, "--record", str(record), "--json") as program:
        anthropic_turns(program.url, dated)
        live = told(program)
        assert program.stop() == 0
    causes = [one["finding"] and one["finding"]["cause"] for one in live]
    assert causes == [None, None, None, "DATE_OR_CWD", None]
    assert live[FAULT - 1]["read_again_tokens"] > 60
    assert KEY not in record.read_text()
    verdicts = judge(read(record))
    assert findings(verdicts) == {FAULT: "DATE_OR_CWD"}
    found = verdicts[FAULT - 1].finding
    assert found is not None
    assert (found.culprit, found.step, found.path) == (Culprit.CLIENT, Step.BODY, "system")
    assert found.offset == dated(1).index("3 May")
    return verdicts


def test_a_date_before_anthropics_sdk_and_llama_server(llama: LlamaServer, tmp_path: Path) -> None:
    named_by_both(llama.url, tmp_path / "r.jsonl")


def test_a_date_before_anthropics_sdk_and_headstart(behind: Served, tmp_path: Path) -> None:
    """Here the server resumes at the very token: nothing but what the date changed is read again."""
    for verdict in named_by_both(behind.url, tmp_path / "r.jsonl"):
        if verdict.turn.number not in (1, FAULT):
            assert verdict.tokens_lost is not None
            assert verdict.tokens_lost <= 1


def test_the_repair_saves_what_the_fault_would_cost(llama: LlamaServer, tmp_path: Path) -> None:
    """The same tools in another order, with --fix: the server reads nothing again."""

    def fields(turn: int) -> dict[str, Any]:
        return {"tools": TOOLS if turn < FAULT else TOOLS[::-1], "tool_choice": "none"}

    with watching(llama.url, "--fix", "tools", "--json") as program:
        openai_turns(program.url, fields, lambda turn: RULES)
        live = told(program)
    assert [one["finding"] for one in live] == [None] * 5
    assert live[FAULT - 1]["notes"] == ["fix tools: put 4 of 5 tools back in their first order"]
    assert live[FAULT - 1]["read_again_tokens"] < 30
