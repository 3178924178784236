"""`headstart cache` over real stores: each command, in words and as JSON, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from headstart.cli import main
from headstart.cli.cache import ACTIONS
from headstart.cli.cache_action import ago, printable, table
from headstart.prefix.report import Tier
from tests.cli.served_store import Cache
from tests.prefix.stores import Storing, files_of, make_store
from tests.serving.harness import prompt_of

FIRST = prompt_of(90)
SECOND = np.concatenate([FIRST[:41], prompt_of(30, seed=1)])
SECOND[41] = FIRST[41] ^ 1


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADSTART_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cache:
    return Cache(make_store(tmp_path / "store", FIRST, SECOND), capsys)


def ids(cache: Cache) -> dict[int, str]:
    """Ids of conversations by length."""
    return {one["tokens"]: one["id"] for one in cache("ls", "--json").json["conversations"]}


def test_help_lists_every_command_and_teaches_each(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cache", "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    for action in ACTIONS:
        assert f"headstart cache {action.name}" in shown
    for action in ACTIONS:
        with pytest.raises(SystemExit):
            main(["cache", action.name, "--help"])
        shown = capsys.readouterr().out
        assert f"usage: headstart cache {action.name}" in shown
        assert "--json" in shown
        assert action.description.split(".")[0].split("\n")[0] in shown


def test_ls_shows_conversations_with_what_they_share(cache: Cache) -> None:
    shown = cache("ls")
    assert shown.status == 0
    assert "\x1b" not in shown.out
    lines = shown.out.splitlines()
    assert lines[0].split()[:5] == ["ID", "TOKENS", "SHARED", "SIZE", "TIER"]
    assert sorted(line.split()[1] for line in lines[1:]) == ["71", "90"]
    assert {line.split()[2] for line in lines[1:]} == {"41"}
    assert f"tokens {FIRST[0]} {FIRST[1]}" in lines[1]
    found = cache("ls", "--json").json
    assert found["total"] == 2
    by_length = {one["tokens"]: one for one in found["conversations"]}
    assert by_length[71]["own_token_ids"] == SECOND[41:].tolist()
    assert by_length[90]["tier"] == "ssd"
    assert by_length[90]["text"] is None
    limited = cache("ls", "--limit", "1")
    assert limited.out.splitlines()[-1] == "1 more; --limit 0 shows all"
    assert len(cache("ls", "--limit", "0").out.splitlines()) == 3


def test_stat_counts_what_is_there(cache: Cache) -> None:
    files = files_of(cache.directory)
    facts = cache("stat", "--json").json
    assert (facts["entries"], facts["bytes"]) == (len(files), sum(map(len, files.values())))
    assert sum(kind["entries"] for kind in facts["kinds"].values()) == len(files)
    assert facts["kinds"]["logits"]["entries"] == 2
    assert [space["conversations"] for space in facts["namespaces"]] == [2]
    assert facts["catalog"] == {"state": "ok", "missing": 0, "unlisted": 0}
    assert facts["in_use_by"] is None
    assert facts["oldest_use"] <= facts["newest_use"]
    shown = cache("stat")
    assert "catalog       lists what there is" in shown.out
    assert "2 conversations" in shown.out
    assert "to tidy" not in shown.out


def test_verify_finds_a_flipped_bit_and_gc_removes_it(cache: Cache) -> None:
    shown = cache("verify")
    assert (shown.status, shown.out.splitlines()[-1].endswith("all good")) == (0, True)
    path = sorted(cache.directory.rglob("*.safetensors"))[0]
    data = bytearray(path.read_bytes())
    data[-5] ^= 2
    path.write_bytes(data)
    shown = cache("verify", "--json")
    assert shown.status == 1
    assert [problem["path"] for problem in shown.json["problems"]] == [str(path)]
    shown = cache("verify")
    assert shown.status == 1
    assert "corrupt: " in shown.out
    assert cache("gc").status == 0
    assert cache("verify").status == 1, "without --verify what is inside files is not looked at"
    assert cache("gc", "--verify").status == 0
    assert cache("verify").status == 0
    assert not path.exists()
    assert cache("stat", "--json").json["stray"] == 0


def test_gc_removes_leftovers_and_evicts_to_a_size(cache: Cache) -> None:
    folder = next(cache.directory.rglob("*.safetensors")).parent
    (folder / ".tmp-1-x").write_bytes(b"12345")
    assert "to tidy       1 temporary" in cache("stat").out
    done = cache("gc", "--json").json
    assert done["swept"] == {"entries": 1, "nbytes": 5}
    assert done["disk_bytes"] == cache("stat", "--json").json["disk_bytes"]
    half = done["disk_bytes"] // 2
    done = cache("gc", "--to", str(half), "--json").json
    assert done["disk_bytes"] <= half
    assert done["evicted"]["entries"] > 0
    assert cache("verify").status == 0
    assert "evicted   0 removed" in cache("gc", "--to", "1GB").out


def test_rm_takes_one_conversation_and_leaves_the_other(cache: Cache) -> None:
    shown = cache("rm", ids(cache)[71][:8], "--yes")
    assert shown.status == 0
    assert ids(cache).keys() == {90}
    with Storing(cache.directory) as server:
        report = server.ask(FIRST, 1)[1].report
        assert (report.tier, report.restored) == (Tier.SSD, 90)


def test_rm_by_namespace_and_all(cache: Cache) -> None:
    with Storing(cache.directory) as server:
        server.ask(prompt_of(50, seed=5), 1, tenant="other")
    spaces = {one["tokens"]: one["namespace"] for one in cache("ls", "--json").json["conversations"]}
    shown = cache("rm", "--namespace", spaces[50], "--yes", "--json")
    assert shown.json["removed"]["entries"] > 0
    assert ids(cache).keys() == {71, 90}
    assert cache("rm", "--all", "--yes").status == 0
    assert files_of(cache.directory) == {}
    assert cache("ls").out.startswith("no conversations in")


class Answering(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("word", "status", "left"), [("y\n", 0, 1), ("n\n", 1, 2), ("\n", 1, 2), ("", 1, 2)])
def test_rm_asks_on_a_terminal(
    word: str, status: int, left: int, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ids(cache)[71]
    monkeypatch.setattr(sys, "stdin", Answering(word))
    shown = cache("rm", key)
    assert shown.status == status
    assert "[y/N]" in shown.err
    assert len(ids(cache)) == left


def test_rm_without_anyone_to_ask_needs_yes(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    shown = cache("rm", "--all")
    assert shown.status == 2
    assert "give --yes" in shown.err
    assert len(ids(cache)) == 2


def test_export_and_import_carry_a_conversation_to_another_place(
    cache: Cache, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "one.tar"
    shown = cache("export", archive, ids(cache)[71][:10])
    assert shown.status == 0
    assert "1 conversation, " in shown.out
    there = Cache(tmp_path / "there", capsys)
    shown = there("import", archive, "--json")
    assert (shown.status, shown.json["present"]) == (0, 0)
    assert ids(there).keys() == {71}
    with Storing(there.directory) as server:
        report = server.ask(SECOND, 1)[1].report
        assert (report.tier, report.restored) == (Tier.SSD, 71)
    assert there("import", archive, "--json").json["entries"] == 0
    assert there("verify").status == 0
    everything = tmp_path / "all.tar"
    assert cache("export", everything, "--json").json["conversations"] == 2
    assert there("import", everything).status == 0
    assert ids(there).keys() == {71, 90}


def test_a_bad_archive_changes_nothing(
    cache: Cache, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "all.tar"
    cache("export", archive)
    with tarfile.open(archive) as tar:
        last = tar.getmembers()[-1]
    data = bytearray(archive.read_bytes())
    data[last.offset_data + last.size - 1] ^= 1
    archive.write_bytes(data)
    there = Cache(tmp_path / "there", capsys)
    shown = there("import", archive)
    assert shown.status == 2
    assert shown.err.count("\n") == 1
    assert not there.directory.exists()


def test_export_says_what_it_had_to_leave_out(cache: Cache, tmp_path: Path) -> None:
    path = sorted(cache.directory.rglob("*.safetensors"))[0]
    path.write_bytes(path.read_bytes()[:-3] + b"abc")
    shown = cache("export", tmp_path / "all.tar")
    assert shown.status == 1
    assert f"left out: {path}" in shown.out


def test_looking_and_export_work_beside_a_server_and_changes_do_not(cache: Cache, tmp_path: Path) -> None:
    key = ids(cache)[71]
    with Storing(cache.directory):
        assert cache("stat", "--json").json["in_use_by"] == os.getpid()
        assert f"in use by process {os.getpid()}" in cache("stat").out
        assert cache("verify").status == 0
        assert len(ids(cache)) == 2
        assert cache("export", tmp_path / "a.tar").status == 0
        for arguments in (["gc"], ["rm", key, "--yes"], ["import", str(tmp_path / "a.tar")]):
            shown = cache(*arguments)
            assert shown.status == 2
            assert "stop that server first" in shown.err
            assert shown.err.count("\n") == 1
    assert len(ids(cache)) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rm", "zz", "--yes"], "key 'zz': no conversation has it"),
        (["rm", "", "--yes"], "key '': no conversation has it"),
        (["rm", "--yes"], "rm needs one of"),
        (["rm", "aa", "--all", "--yes"], "rm needs one of"),
        (["rm", "--namespace", "nope", "--yes"], "--namespace 'nope': there is none of that name"),
        (["export", "{tmp}/x.tar", "nope"], "key 'nope'"),
        (["export", "{tmp}/no/such/folder/x.tar"], "cannot be written"),
        (["export", "{tmp}"], "exists already"),
        (["import", "{tmp}/nowhere.tar"], "No such file"),
        (["ls", "--limit", "many"], "argument --limit: expected a whole number"),
        (["gc", "--to", "5 gigs"], "expected a size"),
        (["ls", "--limt", "3"], "unknown argument --limt; did you mean --limit?"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_status_2(
    arguments: list[str], message: str, cache: Cache, tmp_path: Path
) -> None:
    shown = cache(*[word.format(tmp=tmp_path) for word in arguments])
    assert shown.status == 2
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert len(ids(cache)) == 2


@pytest.mark.parametrize("action", ["ls", "stat", "verify", "gc", "rm", "export"])
def test_no_store_or_something_else_is_one_line_and_status_2(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {"rm": ["--all", "--yes"], "export": [str(tmp_path / "x.tar")]}.get(action, [])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    for name, message in (("nowhere", "there is no cache at"), ("other", "is not a headstart cache")):
        shown = Cache(tmp_path / name, capsys)(action, *arguments)
        assert (shown.status, shown.err.count("\n"), shown.out) == (2, 1, "")
        assert message in shown.err
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["notes.txt"]


def test_an_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["cache", "lss"], ["cache"]):
        assert main(arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_the_place_comes_from_where_the_server_takes_it(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "base").mkdir()
    cache.directory.rename(tmp_path / "base" / "ssd")
    found = cache("stat", "--base-path", tmp_path / "base", "--json", store=False).json
    assert found["directory"] == str(tmp_path / "base" / "ssd")
    settings = tmp_path / "headstart.toml"
    settings.write_text(f'ssd-cache-dir = "{tmp_path / "base" / "ssd"}"\nssd-cache = "7GB"\n')
    found = cache("stat", "--config", settings, "--json", store=False).json
    assert found["budget_bytes"] == 7 << 30
    monkeypatch.setenv("HEADSTART_BASE_PATH", str(tmp_path / "base"))
    assert cache("ls", store=False).status == 0


def test_text_from_prompts_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[31mb\r\nc\u202e d\x07") == "a [31mb c d"


def test_tables_line_up() -> None:
    assert table([("A", "N", "T"), ("bb", "1,000", "x")], right=(1,)) == ["A       N  T", "bb  1,000  x"]


@pytest.mark.parametrize(
    ("seconds_s", "text"),
    [(-3, "0 s ago"), (59, "59 s ago"), (60, "1 min ago"), (7300, "2 h ago"), (9e5, "10 d ago")],
)
def test_ago(seconds_s: float, text: str) -> None:
    assert ago(seconds_s) == text


def test_json_is_one_value_for_every_command(cache: Cache, tmp_path: Path) -> None:
    for arguments in (["ls"], ["stat"], ["verify"], ["gc"], ["export", str(tmp_path / "a.tar")]):
        json.loads(cache(*arguments, "--json").out)
