"""`headstart explain` of recordings and of two requests: text, JSON, page and HAR, and what it refuses."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headstart.blame.exchange import Dialect, Exchange, Timing
from headstart.blame.recording import Recorder
from headstart.cli import main
from tests.blame.corpus import front_cases, server
from tests.blame.corpus.agents import play
from tests.cli.test_explain import refused, told

# The first case of each cause.
CASES = {case.cause: case for case in reversed((*front_cases.CASES, *server.CASES))}


def timed(sent: list[Exchange]) -> list[Exchange]:
    """A server that reads 500 tokens a second."""
    return [replace(one, timing=Timing(first_token=(one.usage.read or 1) / 500)) for one in sent]


def recorded(path: Path, sent: list[Exchange], **how: Any) -> str:
    recorder = Recorder(path, "http://127.0.0.1:8080", **how)
    for exchange in timed(sent):
        recorder.write(exchange)
    recorder.close()
    return str(path)


@pytest.fixture
def stamped(tmp_path: Path) -> str:
    """A recording whose client writes the time into its system prompt."""
    return recorded(tmp_path / "today.jsonl", CASES["TIMESTAMP"].sent())


def test_in_words(capsys: pytest.CaptureFixture[str], stamped: str) -> None:
    lines = told(capsys, stamped).splitlines()
    assert lines[0] == f"recording  {stamped}: 6 exchanges, 1 conversation"
    assert lines[2] == "reading    500 tokens a second, the median of what this server read"
    row = next(line for line in lines if line.startswith("TIMESTAMP")).split()
    verdict = next(line for line in lines if line.startswith("1. TIMESTAMP (client): "))
    lost = int(row[2].replace(",", ""))
    assert f"{lost:,} tokens, {lost / 500:,.1f} s, turn 3" in verdict
    turns = [line.split() for line in lines if line.startswith("  ") and line.split()[0].isdecimal()]
    assert [turn[0] for turn in turns] == ["1", "2", "3", "4", "5", "6"]
    assert turns[2][3] == row[2] and turns[2][-1] == "TIMESTAMP"
    first = next(index for index, line in enumerate(lines) if line.startswith("   before:"))
    before, now, mark = lines[first : first + 3]
    at = mark.index("^")
    assert before[:at] == now[:at].replace("now:   ", "before:") and before[at] != now[at]
    assert "   fix: " in "\n".join(lines) and "headstart watch --fix date" in "\n".join(lines)


def test_as_json(capsys: pytest.CaptureFixture[str], stamped: str) -> None:
    found: dict[str, Any] = json.loads(told(capsys, stamped, "--json"))
    assert [one["cause"] for one in found["totals"]] == ["TIMESTAMP"]
    (talk,) = found["conversations"]
    assert [row["causes"] for row in talk["turns"]] == [[], [], ["TIMESTAMP"], [], [], []]
    for row in talk["turns"]:
        assert row["reused"] + (row["again"] or 0) + row["new"] == row["prompt"]
    (one,) = talk["findings"]
    assert one["turns"] == [3] and one["tokens_lost"] == talk["tokens_read_again"]
    assert one["finding"]["culprit"] == "client" and one["finding"]["path"] == "messages[0].content"
    assert found["tokens_per_second"] == pytest.approx(500)


def test_with_the_models_template_the_place_is_counted_in_tokens(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sent = [replace(one, usage=replace(one.usage, prompt=None)) for one in CASES["TIMESTAMP"].sent()]
    source = recorded(tmp_path / "a.jsonl", sent)
    text = told(capsys, source, "--model", "embedded")
    assert ", token " in text and " behind it" in text
    found = json.loads(told(capsys, source, "--model", "embedded", "--json"))
    finding = found["conversations"][0]["findings"][0]["finding"]
    assert finding["token"] > 0 and finding["tokens_behind"] > 100
    pair = json.loads(told(capsys, source, "--turns", "2,3", "--model", "embedded", "--json"))
    assert (pair["parting"]["token"], pair["parting"]["tokens_behind"]) == (
        finding["token"],
        finding["tokens_behind"],
    )


def test_a_template_that_is_not_the_servers_is_named(
    capsys: pytest.CaptureFixture[str], stamped: str
) -> None:
    assert "they are not the server's own" in told(capsys, stamped, "--model", "embedded")


def test_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sent = CASES["TIMESTAMP"].sent()
    for exchange in sent:
        system = exchange.body["messages"][0]
        system["content"] = "<script>alert(1)</script>\x1b[31m" + system["content"]
    page = tmp_path / "page.html"
    assert main(["explain", recorded(tmp_path / "<b>.jsonl", sent), "--html", str(page)]) == 0
    captured = capsys.readouterr()
    assert captured.out == "" and str(page) in captured.err
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text()
    assert "<script" not in text and "\x1b" not in text and "<b>.jsonl" not in text
    assert "TIMESTAMP" in text and "headstart watch --fix date" in text and text.count("<mark>") == 2
    assert "there is such a file already" in refused(
        capsys, 2, str(tmp_path / "<b>.jsonl"), "--html", str(page)
    )


def test_nothing_to_find(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = told(capsys, recorded(tmp_path / "a.jsonl", play(Dialect.ANTHROPIC)))
    assert "findings   none" in out


def test_what_a_server_does_not_tell_is_no_zero(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sent = [replace(one, usage=replace(one.usage, cached=None)) for one in play(Dialect.ANTHROPIC)]
    out = told(capsys, recorded(tmp_path / "a.jsonl", sent))
    assert "the server told no counts of reused tokens" in out
    rows = [line.split() for line in out.splitlines() if line[:4].strip().isdecimal()]
    assert {row[2] for row in rows} == {"?"}


def test_two_exchanges_of_a_recording(capsys: pytest.CaptureFixture[str], stamped: str) -> None:
    out = told(capsys, stamped, "--turns", "2,3")
    assert "parting    messages[0].content, character" in out and "1. TIMESTAMP (client)" in out
    assert "parting    none" in told(capsys, stamped, "--turns", "1,2")
    assert "exchanges 1 to 6" in refused(capsys, 2, stamped, "--turns", "2,9")
    assert "must come after" in refused(capsys, 2, stamped, "--turns", "3,2")
    far = told(capsys, stamped, "--turns", "1,4")
    assert "read again" not in far and "SERVER_" not in far
    for wrong in ("2", "2,x", "1,2,3", ","):
        assert "two exchanges" in refused(capsys, 2, stamped, "--turns", wrong)


def test_as_har(capsys: pytest.CaptureFixture[str], stamped: str, tmp_path: Path) -> None:
    assert told(capsys, stamped, "--har", str(tmp_path / "a.har")) == ""
    assert stat.S_IMODE((tmp_path / "a.har").stat().st_mode) == 0o600
    har = json.loads((tmp_path / "a.har").read_text())
    assert [entry["request"]["url"] for entry in har["log"]["entries"]] == [
        "http://127.0.0.1:8080/v1/chat/completions"
    ] * 6


def test_a_recording_that_was_cut_and_mixed(capsys: pytest.CaptureFixture[str], stamped: str) -> None:
    path = Path(stamped)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"srv: a log line\n" + b"".join(lines[1:6]) + lines[6][:200])
    out = told(capsys, stamped)
    assert "5 exchanges" in out
    assert "note       line 2 is not JSON" in out and "note       line 8 is cut off" in out


def test_bad_recordings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"format":"headstart-recording","version":1}\n')
    assert "no exchange that can be read" in refused(capsys, 1, str(path))
    path.write_text('{"format":"headstart-recording","version":1}\n{"number": 1}\n')
    assert "not an exchange" in refused(capsys, 1, str(path))
    assert "there is no model" in refused(
        capsys, 1, recorded(tmp_path / "b", play()), "--model", "/none.gguf"
    )


def bodies(tmp_path: Path, *values: object) -> list[str]:
    paths = []
    for number, value in enumerate(values):
        paths.append(str(tmp_path / f"{number}.json"))
        Path(paths[-1]).write_text(value if isinstance(value, str) else json.dumps(value))
    return paths


def test_two_requests(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sent = CASES["TOOLS_REORDERED"].sent()
    number = CASES["TOOLS_REORDERED"].number
    one, other = bodies(tmp_path, sent[number - 2].body, sent[number - 1].body)
    out = told(capsys, one, other)
    assert "parting    tools[" in out and "1. TOOLS_REORDERED (client)" in out
    assert "tokens" not in out.split("1. ")[0], "nobody counted any"
    found = json.loads(told(capsys, one, other, "--json"))
    assert found["parting"]["path"].startswith("tools[") and found["tokens_read_again"] is None
    page = tmp_path / "a.html"
    assert main(["explain", one, other, "--html", str(page)]) == 0
    assert "TOOLS_REORDERED" in page.read_text()
    capsys.readouterr()
    assert "parting    none" in told(capsys, one, one)


def test_a_user_who_asks_anew_is_not_blamed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Why is it wet?"}]
    other = [said[0], {"role": "user", "content": "Why is it dry?"}]
    out = told(capsys, *bodies(tmp_path, {"messages": said}, {"messages": other}))
    assert "parting    messages[1].content, character 10" in out and "No cause is named" in out


@pytest.mark.parametrize(
    ("values", "flags", "words"),
    [
        (("{", {"messages": []}), (), "is not JSON"),
        (({"a": 1}, {"messages": []}), (), "looks like no request"),
        (([1], {"messages": []}), (), "looks like no request"),
        (({"messages": 3}, {"messages": []}), (), "messages"),
        (({"messages": []}, {"messages": []}), ("--turns", "1,2"), "--turns does not go with two requests"),
        (({"messages": []}, {"messages": []}), ("--har", "x"), "--har does not go with two requests"),
    ],
)
def test_bad_requests(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    values: tuple[object, ...],
    flags: tuple[str, ...],
    words: str,
) -> None:
    assert words in refused(capsys, 2, *bodies(tmp_path, *values), *flags)


def test_a_closed_pipe_is_no_error(stamped: str) -> None:
    """As in `headstart explain FILE | head -1`."""
    line = f'"{sys.executable}" -m headstart explain "{stamped}" | true; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert (done.stderr, done.stdout.strip()) in (("", "0"), ("", "141"))


def test_a_log_from_a_named_pipe_is_read_from_its_beginning() -> None:
    log = "tests/blame/logs/real/llama-server-hybrid.log"
    line = f'"{sys.executable}" -m headstart explain <(cat {log}) --json'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    whole = subprocess.run(
        [sys.executable, "-m", "headstart", "explain", log, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["turns"] == json.loads(whole.stdout)["turns"] > 1
