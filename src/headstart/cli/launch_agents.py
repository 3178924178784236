"""How coding agents are pointed at a server: variables, flags and, for one of them, a file.

Found by running each against headstart (`make agents`) and in its own help: Claude Code 2.1, Codex 0.171,
OpenCode 1.18, Qwen Code 0.24, pi 0.73. Beside the address and the model's name each gets the settings that
keep its prompts' beginnings the same, and the server's context, so that it sums up before that is full.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["AGENTS", "Agent", "Setup", "Target"]

NO_KEY = "headstart"
"""Stands where an agent wants a key and the server wants none."""
OUTPUT_SHARE = 4
"""A quarter of the context is left for a reply."""
FOLDER = "@FOLDER@"
"""In a command: the folder that `files` are in."""


@dataclass(frozen=True)
class Target:
    """The server. `context_tokens` None: it is not asked yet."""

    url: str
    model: str
    context_tokens: int | None = None
    key: str | None = None


@dataclass(frozen=True)
class Setup:
    """What an agent is started with. `unset`: variables that would win over these. `files`: by name, put into
    a folder for the time it runs."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Agent:
    """`package`: what npm installs it by."""

    name: str
    program: str
    package: str
    setup: Callable[[Target], Setup]


def _claude(target: Target) -> Setup:
    environment = {
        "ANTHROPIC_BASE_URL": target.url,
        "ANTHROPIC_AUTH_TOKEN": target.key or NO_KEY,
        "ANTHROPIC_MODEL": target.model,
        "ANTHROPIC_SMALL_FAST_MODEL": target.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": target.model,
        # Without these the system prompt begins with a line that follows the first question's text.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if target.context_tokens:
        environment["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(target.context_tokens)
    return Setup(environment=environment, unset=("ANTHROPIC_API_KEY",))


def _codex(target: Target) -> Setup:
    provider = f'name="headstart", base_url="{target.url}/v1", wire_api="responses"'
    if target.key:
        provider += ', env_key="HEADSTART_API_KEY"'
    settings = [f'model="{target.model}"', 'model_provider="headstart"']
    settings.append(f"model_providers.headstart={{{provider}}}")
    if target.context_tokens:
        settings.append(f"model_context_window={target.context_tokens}")
    arguments = tuple(word for setting in settings for word in ("-c", setting))
    return Setup(arguments, {"HEADSTART_API_KEY": target.key} if target.key else {})


def _opencode(target: Target) -> Setup:
    limit = _limit(target)
    about = {"limit": {"context": limit[0], "output": limit[1]}} if limit else {}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{target.url}/v1", "apiKey": target.key or NO_KEY},
        "models": {target.model: about},
    }
    name = f"headstart/{target.model}"
    config = {"model": name, "small_model": name, "provider": {"headstart": provider}}
    return Setup(environment={"OPENCODE_CONFIG_CONTENT": json.dumps(config)})


def _qwen(target: Target) -> Setup:
    environment = {
        "OPENAI_BASE_URL": f"{target.url}/v1",
        "OPENAI_API_KEY": target.key or NO_KEY,
        "OPENAI_MODEL": target.model,
    }
    return Setup(("--auth-type", "openai"), environment)


def _pi(target: Target) -> Setup:
    """pi takes a provider from its settings file or from an extension, and leaves the former alone."""
    limit = _limit(target)
    model = {
        "id": target.model,
        "name": target.model,
        "reasoning": True,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        **({"contextWindow": limit[0], "maxTokens": limit[1]} if limit else {}),
    }
    provider = {
        "name": "headstart",
        "baseUrl": f"{target.url}/v1",
        "api": "openai-completions",
        "apiKey": "HEADSTART_API_KEY",
        "models": [model],
    }
    extension = f'export default (pi) => pi.registerProvider("headstart", {json.dumps(provider)});\n'
    return Setup(
        ("-e", f"{FOLDER}/headstart.js", "--provider", "headstart", "--model", target.model),
        {"HEADSTART_API_KEY": target.key or NO_KEY},
        files={"headstart.js": extension},
    )


def _limit(target: Target) -> tuple[int, int] | None:
    """Tokens of the context and of a reply."""
    context = target.context_tokens
    return None if context is None else (context, max(1, context // OUTPUT_SHARE))


AGENTS: Mapping[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent("claude", "claude", "@anthropic-ai/claude-code", _claude),
        Agent("codex", "codex", "@openai/codex", _codex),
        Agent("opencode", "opencode", "opencode-ai", _opencode),
        Agent("qwen", "qwen", "@qwen-code/qwen-code", _qwen),
        Agent("pi", "pi", "@mariozechner/pi-coding-agent", _pi),
    )
}
