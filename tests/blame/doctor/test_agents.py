"""Agents' settings: read from where they are, and nothing secret kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.blame.doctor.agents import agents
from headstart.blame.doctor.facts import AgentFacts

SECRET = "sk-ant-oat01-do-not-show"


def nowhere(program: str) -> None:
    return None


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def claude(home: Path, env: object, environment: dict[str, str] | None = None) -> AgentFacts:
    put(home / ".claude" / "settings.json", json.dumps({"env": env, "apiKeyHelper": SECRET}))
    (found,) = agents(home, environment or {}, nowhere)
    return found


def test_nothing_is_installed(tmp_path: Path) -> None:
    assert agents(tmp_path, {"PATH": "/bin", "ANTHROPIC_API_KEY": SECRET}, nowhere) == ()


def test_claude_code(tmp_path: Path) -> None:
    found = claude(
        tmp_path,
        {
            "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
            "ANTHROPIC_AUTH_TOKEN": SECRET,
            "ANTHROPIC_BASE_URL": "http://[::1]:8080",
        },
        {"CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1", "CLAUDE_CODE_OAUTH_TOKEN": SECRET},
    )
    assert found.settings == {
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
    }
    assert found.sources["CLAUDE_CODE_ATTRIBUTION_HEADER"] == "settings.json"
    assert found.sources["CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS"] == "environment"
    assert found.local
    assert SECRET not in repr(found)


def test_the_environment_comes_first(tmp_path: Path) -> None:
    name = "CLAUDE_CODE_ATTRIBUTION_HEADER"
    found = claude(tmp_path, {name: "1"}, {name: "0", "ANTHROPIC_BASE_URL": "https://api.example.org"})
    assert (found.settings[name], found.sources[name], found.local) == ("0", "environment", False)


def test_a_secret_in_a_harmless_setting_is_not_shown(tmp_path: Path) -> None:
    found = claude(tmp_path, {"CLAUDE_CODE_ATTRIBUTION_HEADER": SECRET, "ENABLE_TOOL_SEARCH": {"a": SECRET}})
    assert set(found.settings.values()) == {"(not shown)"}
    assert SECRET not in repr(found)


@pytest.mark.parametrize("env", [None, [1], "x", {"CLAUDE_CODE_ATTRIBUTION_HEADER": False}])
def test_odd_settings(tmp_path: Path, env: object) -> None:
    assert claude(tmp_path, env).settings in ({}, {"CLAUDE_CODE_ATTRIBUTION_HEADER": "false"})


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00\xff", "[" * 100_000])
def test_files_that_are_none(tmp_path: Path, text: str) -> None:
    put(tmp_path / ".claude" / "settings.json", text)
    put(tmp_path / ".codex" / "config.toml", text)
    put(tmp_path / ".config" / "opencode" / "opencode.json", text or " ")
    assert [one.settings for one in agents(tmp_path, {}, nowhere)] == [{}, {}, {}]


@pytest.mark.parametrize("name", ["opencode.json", "opencode.jsonc", "config.json"])
def test_opencode(tmp_path: Path, name: str) -> None:
    file = tmp_path / ".config" / "opencode" / name
    put(
        file,
        json.dumps({"provider": {"x": {"options": {"baseURL": "http://localhost:1/v1", "apiKey": SECRET}}}}),
    )
    (found,) = agents(tmp_path, {}, nowhere)
    assert (found.name, found.settings, found.local) == ("opencode", {}, True)
    put(file, '{"model": "a/b", "small_model": "a/tiny"}')
    assert agents(tmp_path, {}, nowhere)[0].settings == {"small_model": "set"}
    put(file, '{\n  // "small_model": "a/tiny"\n  "model": "a/b"\n}')
    assert agents(tmp_path, {}, nowhere)[0].settings == {}


def test_opencode_elsewhere(tmp_path: Path) -> None:
    put(tmp_path / "x" / "opencode" / "opencode.json", "{}")
    (found,) = agents(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "x")}, nowhere)
    assert found.name == "opencode"


def test_codex(tmp_path: Path) -> None:
    put(
        tmp_path / ".codex" / "config.toml",
        'model_provider = "here"\nmodel_auto_compact_token_limit = 200000\nkey = "SECRET"\n'
        '[model_providers.here]\nbase_url = "http://127.0.0.1:8000/v1"\nwire_api = "responses"\n'.replace(
            "SECRET", SECRET
        ),
    )
    (found,) = agents(tmp_path, {}, nowhere)
    assert (found.name, found.local) == ("codex", True)
    assert found.settings == {"model_auto_compact_token_limit": "200000"}
    assert SECRET not in repr(found)


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "claude-code"
    put(package / "package.json", json.dumps({"version": "2.1.332", "bin": {"claude": "cli.js"}}))
    put(package / "cli.js", "")
    link = tmp_path / "bin" / "claude"
    link.parent.mkdir()
    link.symlink_to(package / "cli.js")
    (found,) = agents(tmp_path / "home", {}, {"claude": str(link)}.get)
    assert (found.name, found.version) == ("claude", "2.1.332")
    (lost,) = agents(tmp_path / "home", {}, {"claude": str(tmp_path / "gone")}.get)
    assert lost.version is None
