"""The coding agents as data: how each is started without a person, where its settings stand, what it calls.

Every one runs with a home of its own and a key that opens nothing. `@URL@` stands for the server's address,
`@HOME@` for the client's home, `@REPO@` for the folder it works in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MODEL = "local-model"
KEY = "no-key-is-needed"
Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Client:
    """`first`, `resume`: the command up to the prompt, for a new session and for the last one.
    `environment` and `files` (by their path below the home) hold its settings. `reads`: the calls of its
    tools that read app.py and main.py; `edits`: the one that has app.py say Salve; `edited`: what its
    result says. `aside`: words that occur in requests beside the conversation only. `resume_parts`: what
    stands right before the first words that a resumed session changes, in a repository where files were
    edited; empty where it changes nothing and all of the session is reused. `new_session_parts`: the same
    for a new session."""

    name: str
    first: tuple[str, ...]
    resume: tuple[str, ...]
    environment: Mapping[str, str]
    reads: tuple[Call, Call]
    edits: Call
    edited: str
    files: Mapping[str, str] = field(default_factory=dict)
    aside: tuple[str, ...] = ()
    resume_parts: str = ""
    new_session_parts: str = "<|im_start|>user\n"


OLD, NEW = '    return "Hello, " + name', '    return "Salve, " + name'
READ_BOTH = ("@REPO@/app.py", "@REPO@/main.py")

CLAUDE = Client(
    name="claude",
    first=("claude", "-p", "--permission-mode", "acceptEdits"),
    resume=("claude", "-p", "--permission-mode", "acceptEdits", "--continue"),
    environment={
        "ANTHROPIC_BASE_URL": "@URL@",
        "ANTHROPIC_AUTH_TOKEN": KEY,
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    },
    reads=tuple(("Read", {"limit": 40, "file_path": path}) for path in READ_BOTH),  # type: ignore[arg-type]
    edits=("Edit", {"new_string": NEW, "old_string": OLD, "file_path": "@REPO@/app.py"}),
    edited="has been updated successfully",
    new_session_parts="Status:\n",
)

CODEX = Client(
    name="codex",
    first=("codex", "exec", "--dangerously-bypass-approvals-and-sandbox"),
    resume=("codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "resume", "--last"),
    environment={"CODEX_HOME": "@HOME@/.codex"},
    files={
        ".codex/config.toml": f"""\
model = "{MODEL}"
model_provider = "headstart"
model_context_window = 65536

[model_providers.headstart]
name = "headstart"
base_url = "@URL@/v1"
wire_api = "responses"
"""
    },
    reads=(("exec_command", {"cmd": "cat app.py"}), ("exec_command", {"cmd": "cat main.py"})),
    edits=("exec_command", {"cmd": "sed -i s/Hello/Salve/ app.py && echo app.py is edited"}),
    edited="app.py is edited",
)

OPENCODE = Client(
    name="opencode",
    first=("opencode", "run", "-m", f"headstart/{MODEL}"),
    resume=("opencode", "run", "-m", f"headstart/{MODEL}", "--continue"),
    environment={
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_CONFIG_CONTENT": json.dumps(
            {
                "share": "disabled",
                "permission": {"edit": "allow"},
                "provider": {
                    "headstart": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": {"baseURL": "@URL@/v1", "apiKey": KEY},
                        "models": {MODEL: {"limit": {"context": 65536, "output": 4096}}},
                    }
                },
            }
        ),
    },
    reads=tuple(("read", {"limit": 40, "filePath": path}) for path in READ_BOTH),  # type: ignore[arg-type]
    edits=("edit", {"newString": NEW, "oldString": OLD, "filePath": "@REPO@/app.py"}),
    edited="Edit applied successfully",
    aside=("Generate a title",),
)

QWEN = Client(
    name="qwen",
    first=("qwen", "--auth-type", "openai", "--yolo"),
    resume=("qwen", "--auth-type", "openai", "--yolo", "--continue"),
    environment={"OPENAI_BASE_URL": "@URL@/v1", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": MODEL},
    reads=tuple(("read_file", {"limit": 40, "file_path": path}) for path in READ_BOTH),  # type: ignore[arg-type]
    edits=("edit", {"new_string": NEW, "old_string": OLD, "file_path": "@REPO@/app.py"}),
    edited="has been updated. Showing lines",
    aside=("Existing memory files",),
    resume_parts="git: Status:\ngit:",
    new_session_parts="</system-reminder>\n",
)

PI = Client(
    name="pi",
    first=("pi", "-p", "--provider", "headstart", "--model", MODEL),
    resume=("pi", "-p", "--provider", "headstart", "--model", MODEL, "--continue"),
    environment={"PI_OFFLINE": "1"},
    files={
        ".pi/agent/models.json": json.dumps(
            {
                "providers": {
                    "headstart": {
                        "baseUrl": "@URL@/v1",
                        "api": "openai-completions",
                        "apiKey": KEY,
                        "models": [
                            {"id": MODEL, "reasoning": True, "contextWindow": 65536, "maxTokens": 4096}
                        ],
                    }
                }
            }
        )
    },
    reads=(("read", {"limit": 40, "path": "app.py"}), ("read", {"path": "main.py"})),
    edits=("edit", {"edits": [{"newText": NEW, "oldText": OLD}], "path": "app.py"}),
    edited="Successfully replaced",
)

CLIENTS = (CLAUDE, CODEX, OPENCODE, QWEN, PI)
