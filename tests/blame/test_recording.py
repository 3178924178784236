"""Recordings: what is written is read back, fits the schema, and whatever is damaged is named."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headstart.blame.exchange import Dialect, Exchange, Reply, Timing, ToolCall, Usage
from headstart.blame.har import to_har
from headstart.blame.json_paths import digest, digests, leaves
from headstart.blame.recording import Recorder, Recording, from_json, read, to_json, without_bodies
from headstart.errors import ConfigError
from tests.blame.corpus.agents import play

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "recording.schema.json"
KEY = "sk-abcDEF123456ghiJKL789"
BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": f"My key is {KEY}, \u00e9\ud800"}],
    "n": [1, {}],
}
EXCHANGE = Exchange(
    number=1,
    started=1.5,
    dialect=Dialect.ANTHROPIC,
    path="/v1/messages",
    body=BODY,
    reply=Reply("text", "thought", (ToolCall("c", "ls", f'{{"k": "{KEY}"}}', exact=False),), "stop"),
    usage=Usage(10, 0, None),
    timing=Timing(0.5, 1.0),
    status=200,
    server="ollama",
    headers={"authorization": "Bearer x", "accept": "*/*"},
    query="beta=true",
    reply_headers={"set-cookie": "a=b"},
    notes=("a note",),
)


def written(path: Path, *exchanges: Exchange, bodies: bool = True) -> list[dict[str, Any]]:
    recorder = Recorder(path, "http://127.0.0.1:1", bodies=bodies)
    for exchange in exchanges:
        recorder.write(exchange)
    recorder.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


def fits(value: Any, schema: dict[str, Any], whole: dict[str, Any]) -> list[str]:
    """What of `value` does not fit: the part of JSON Schema that ours uses."""
    if "$ref" in schema:
        return fits(value, whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    if "oneOf" in schema:
        return [] if sum(not fits(value, one, whole) for one in schema["oneOf"]) == 1 else ["not one of"]
    wrong = []
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    allowed = schema.get("type", [])
    allowed = [allowed] if isinstance(allowed, str) else allowed
    of_kind = [value is None if kind == "null" else isinstance(value, kinds[kind]) for kind in allowed]
    if allowed and not any(of_kind):
        return [f"{value!r} is no {allowed}"]
    if "const" in schema and value != schema["const"]:
        wrong.append(f"{value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        wrong.append(f"{value!r} is none of {schema['enum']}")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        wrong += [f"{name} is missing" for name in schema.get("required", []) if name not in value]
        for name, one in value.items():
            rest = schema.get("additionalProperties", True)
            if name not in known and rest is False:
                wrong.append(f"{name} is not in the schema")
            wrong += fits(one, known.get(name, rest if isinstance(rest, dict) else {}), whole)
    if isinstance(value, list) and "items" in schema:
        wrong += [problem for one in value for problem in fits(one, schema["items"], whole)]
    return wrong


@pytest.mark.parametrize("bodies", [True, False])
def test_every_line_fits_the_published_schema(tmp_path: Path, bodies: bool) -> None:
    schema = json.loads(SCHEMA.read_text())
    least = Exchange(2, 0.0, Dialect.OLLAMA_CHAT, "/api/chat", None, error="nothing answers")
    lines = written(tmp_path / "r", EXCHANGE, least, bodies=bodies)
    assert [fits(line, schema, schema) for line in lines] == [[], [], []]
    for name in lines[1]:
        assert fits({key: one for key, one in lines[1].items() if key != name}, schema, schema) or name in (
            schema["$defs"]["exchange"]["properties"].keys() - schema["$defs"]["exchange"]["required"]
        )
    assert fits({**lines[1], "more": 1}, schema, schema)
    assert fits({**lines[1], "dialect": "smalltalk"}, schema, schema)


def test_what_is_written_is_read_back_without_its_secrets(tmp_path: Path) -> None:
    path = tmp_path / "r"
    written(path, EXCHANGE)
    [back] = read(path)
    assert KEY not in path.read_text()
    assert "Bearer x" not in path.read_text()
    assert "a=b" not in path.read_text()
    said = back.body["messages"][0]["content"]
    assert said.startswith("My key is [redacted ")
    assert said.endswith("\u00e9\ud800")
    assert len(said) == len(BODY["messages"][0]["content"])  # type: ignore[index]
    assert back.reply.calls[0].exact is False
    assert (back.usage, back.timing, back.reply.text) == (EXCHANGE.usage, EXCHANGE.timing, "text")
    assert (back.notes, back.query, back.headers["accept"]) == (("a note",), "beta=true", "*/*")


def test_only_the_owner_can_read_it_and_nothing_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "r"
    written(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match="not written over"):
        Recorder(path, "u")
    with pytest.raises(ConfigError, match="cannot be written"):
        Recorder(tmp_path / "none" / "r", "u")


def test_without_bodies_only_digests_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "r"
    _, line = written(path, EXCHANGE, bodies=False)
    text = path.read_text()
    for said in ("My key", "thought", '"ls"', KEY):
        assert said not in text
    assert line["body"] is None
    assert line["digests"]["model"] == digest("m")
    assert line["digests"]["messages[0].role"] == digest("user")
    assert line["digests"]["$reply.text"] == digest("text")
    assert line["reply"] == {"text": "", "thinking": "", "calls": [], "finish": "stop"}


def test_paths_name_every_leaf_in_order() -> None:
    value = {"a": [{"b c": 1}, []], "x-y": {"z": None}, "": "e"}
    assert list(leaves(value)) == [('a[0]["b c"]', 1), ("a[1]", []), ("x-y.z", None), ('[""]', "e")]
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert len(digests(deep)) == 1


def test_lines_that_are_cut_or_no_json_are_passed_over_and_named(tmp_path: Path) -> None:
    path = tmp_path / "r"
    written(path, EXCHANGE, EXCHANGE)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + b"\xff{not json\n\n" + b'{"number": 1}\n[1]\n' + lines[2][:-40])
    recording = Recording(path)
    assert len(list(recording)) == 1
    assert recording.header["upstream"] == "http://127.0.0.1:1"
    assert [problem[:22] for problem in recording.problems] == [
        "line 3 is not JSON and", "line 5 was passed over", "line 6 was passed over", "line 7 is cut off and "
    ]  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"slot 1 | what\n", b"\x00\x01\xfe" * 100, b"{}\n"])
def test_what_is_no_recording_says_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    recording = Recording(path)
    assert list(recording) == []
    assert "is this a recording of headstart watch?" in recording.problems[0]
    with pytest.raises(ConfigError, match="cannot be read"):
        list(read(tmp_path / "none"))


def test_every_cut_of_a_recording_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "r"
    written(path, EXCHANGE)
    whole = path.read_bytes()
    for cut in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:cut])
        assert len(list(read(path))) == 0
    path.write_bytes(whole.rstrip(b"\n"))
    assert len(list(read(path))) == 1


def test_har() -> None:
    har = json.loads(
        json.dumps(
            to_har([EXCHANGE, Exchange(2, 0.0, Dialect.OLLAMA_CHAT, "/api/chat", None)], "http://h:1/")
        )
    )
    assert har["log"]["version"] == "1.2"
    first, second = har["log"]["entries"]
    assert first["startedDateTime"] == "1970-01-01T00:00:01.500000+00:00"
    assert first["request"]["url"] == "http://h:1/v1/messages?beta=true"
    assert first["request"]["queryString"] == [{"name": "beta", "value": "true"}]
    assert json.loads(first["request"]["postData"]["text"])["model"] == "m"
    assert (first["response"]["status"], first["response"]["statusText"]) == (200, "OK")
    assert json.loads(first["response"]["content"]["text"])["usage"]["prompt"] == 10
    assert first["timings"] == {"send": 0, "wait": 500.0, "receive": 500.0}
    assert second["response"]["status"] == 0
    for entry in (first, second):
        assert set(entry) >= {"startedDateTime", "time", "request", "response", "cache", "timings"}


REQUIRED = {
    "log": {"version", "creator", "entries"},
    "creator": {"name", "version"},
    "entries": {"startedDateTime", "time", "request", "response", "cache", "timings"},
    "request": {
        *("method", "url", "httpVersion", "cookies", "headers", "queryString", "headersSize", "bodySize")
    },
    "response": {
        *("status", "statusText", "httpVersion", "cookies", "headers", "content"),
        *("redirectURL", "headersSize", "bodySize"),
    },
    "content": {"size", "mimeType"},
    "postData": {"mimeType", "text"},
    "headers": {"name", "value"},
    "queryString": {"name", "value"},
    "timings": {"send", "wait", "receive"},
}


def lacking(value: Any, name: str = "") -> list[str]:
    """Fields that HAR 1.2 requires and `value` has not."""
    if isinstance(value, list):
        return [field for one in value for field in lacking(one, name)]
    if not isinstance(value, dict):
        return []
    own = [f"{name}.{field}" for field in sorted(REQUIRED.get(name, set()) - value.keys())]
    return [*own, *(field for key, one in value.items() for field in lacking(one, key))]


@pytest.mark.parametrize(
    ("timing", "waits"),
    [
        (Timing(0.5, 1.0), (500, 500)),
        (Timing(None, 1.0), (1000, 0)),
        (Timing(0.5, None), (500, 0)),
        (Timing(), (0, 0)),
        (Timing(1.5, 1.0), (1500, 0)),
    ],
)
def test_a_har_has_what_the_format_requires(timing: Timing, waits: tuple[int, int]) -> None:
    """No timing that is required may be negative, and an entry's time is the sum of them."""
    kept = [replace(EXCHANGE, timing=timing), without_bodies(replace(EXCHANGE, timing=timing))]
    har = json.loads(json.dumps(to_har(kept, "http://h:1")))
    assert lacking(har) == []
    for entry in har["log"]["entries"]:
        assert (entry["timings"]["wait"], entry["timings"]["receive"]) == waits
        assert entry["time"] == sum(waits)
        assert ("comment" in entry["timings"]) == (None in (timing.first_token, timing.total))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", "x"),
        ("number", True),
        ("started", None),
        ("headers", "x"),
        ("reply_headers", {"a": 3}),
        ("status", "200"),
        ("path", 3),
        ("server", []),
        ("error", 1),
        ("usage", {"prompt": "12"}),
        ("timing", {"first_token": "soon"}),
        ("reply", {"thinking": None}),
        ("notes", [3]),
    ],
)
def test_a_field_of_another_kind_makes_no_exchange(field: str, value: Any) -> None:
    """Such a line is passed over and named, and nothing behind it falls over."""
    good = to_json(play()[0])
    assert from_json(json.loads(json.dumps(good))).number == 1
    with pytest.raises(ValueError, match="not an exchange"):
        from_json({**good, field: value})
