"""Settings of coding agents, from their known files and the environment: only those named here."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headstart.blame.doctor.facts import AgentFacts
from headstart.config import is_loopback

CLAUDE_SETTINGS = (
    "CLAUDE_CODE_ATTRIBUTION_HEADER",
    "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS",
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS",
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW",
    "CLAUDE_CODE_MAX_CONTEXT_TOKENS",
    "DISABLE_NON_ESSENTIAL_MODEL_CALLS",
    "DISABLE_AUTO_COMPACT",
    "ENABLE_TOOL_SEARCH",
)
CODEX_SETTINGS = ("model_auto_compact_token_limit", "model_context_window")
MAX_BYTES = 1 << 20
_SMALL_MODEL = re.compile(r'^(?!\s*//).*"small_model"\s*:', re.MULTILINE)
_HARMLESS = re.compile(r"[\w.-]{1,20}")


def agents(
    home: Path, environment: Mapping[str, str], find: Callable[[str], str | None]
) -> tuple[AgentFacts, ...]:
    """Agents that are installed or have settings. `find`: where a program is, as `shutil.which`."""
    found = (
        _claude(home, environment, find),
        _opencode(home, environment, find),
        _codex(home, environment, find),
    )
    return tuple(one for one in found if one is not None)


def _claude(
    home: Path, environment: Mapping[str, str], find: Callable[[str], str | None]
) -> AgentFacts | None:
    program, file = find("claude"), home / ".claude" / "settings.json"
    in_file = _json(file).get("env")
    in_file = in_file if isinstance(in_file, Mapping) else {}
    settings, sources = {}, {}
    for source, values in (("settings.json", in_file), ("environment", environment)):
        for name in CLAUDE_SETTINGS:
            if name in values:
                settings[name], sources[name] = _shown(values[name]), source
    if program is None and not file.exists() and not settings:
        return None
    url = environment.get("ANTHROPIC_BASE_URL") or in_file.get("ANTHROPIC_BASE_URL")
    return AgentFacts("claude", _version(program), settings, sources, _is_local(url))


def _opencode(
    home: Path, environment: Mapping[str, str], find: Callable[[str], str | None]
) -> AgentFacts | None:
    folder = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    texts = [_text(folder / name) for name in ("opencode.json", "opencode.jsonc", "config.json")]
    if find("opencode") is None and not any(texts):
        return None
    whole = "\n".join(texts)
    settings = {"small_model": "set"} if _SMALL_MODEL.search(whole) else {}
    urls = re.findall(r'"baseURL"\s*:\s*"([^"\n]{1,500})"', whole)
    return AgentFacts(
        "opencode",
        _version(find("opencode")),
        settings,
        dict.fromkeys(settings, "file"),
        any(map(_is_local, urls)),
    )


def _codex(
    home: Path, environment: Mapping[str, str], find: Callable[[str], str | None]
) -> AgentFacts | None:
    file = Path(environment.get("CODEX_HOME") or home / ".codex") / "config.toml"
    try:
        told = tomllib.loads(_text(file))
    except (tomllib.TOMLDecodeError, RecursionError):
        told = {}
    if find("codex") is None and not file.exists():
        return None
    settings = {name: _shown(told[name]) for name in CODEX_SETTINGS if name in told}
    providers = told.get("model_providers")
    chosen = providers.get(told.get("model_provider")) if isinstance(providers, Mapping) else None
    url = chosen.get("base_url") if isinstance(chosen, Mapping) else None
    return AgentFacts(
        "codex", _version(find("codex")), settings, dict.fromkeys(settings, "config.toml"), _is_local(url)
    )


def _shown(value: Any) -> str:
    """A value that is a number or a short word; anything else is not repeated."""
    words = str(value).lower() if isinstance(value, bool) else str(value)
    return words if _HARMLESS.fullmatch(words) else "(not shown)"


def _is_local(url: Any) -> bool:
    if not isinstance(url, str):
        return False
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return False
    return bool(host) and is_loopback(host or "")


def _version(program: str | None) -> str | None:
    """From the package that the program belongs to; the program is not run."""
    if program is None:
        return None
    try:
        folders = Path(program).resolve().parents
    except (OSError, RuntimeError):
        return None
    for folder in list(folders)[:4]:
        found = _json(folder / "package.json")
        if isinstance(found.get("version"), str) and isinstance(found.get("bin"), str | dict):
            return _shown(found["version"])
    return None


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(_text(path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
