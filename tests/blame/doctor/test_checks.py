"""Each check: what it complains of, how gravely, with which command; and what it lets pass."""

from __future__ import annotations

import pytest

from headstart.blame.doctor.checks import (
    attribution,
    block_size,
    cache_budget,
    checkpoints,
    compaction,
    context,
    disk,
    examine,
    git_status,
    memory,
    power,
    prefix_caching,
    side_requests,
    slots,
    speculation,
    windows,
)
from headstart.blame.doctor.facts import (
    GIB,
    AgentFacts,
    Complaint,
    Facts,
    MachineFacts,
    ServerFacts,
    Severity,
)
from headstart.blame.finding import Culprit

URL = "http://127.0.0.1:1"
GOOD = ServerFacts(
    "llama-server", URL, context_tokens=131072, slots=1, cache_mib=8192, checkpoints=128, checkpoint_step=1024
)
CAREFUL = AgentFacts(
    "claude",
    settings={
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
        "DISABLE_NON_ESSENTIAL_MODEL_CALLS": "1",
    },
    sources={"CLAUDE_CODE_ATTRIBUTION_HEADER": "environment"},
    local=True,
)


def server(kind: str = "llama-server", **facts: object) -> Facts:
    return Facts(servers=(ServerFacts(kind, URL, **facts),))  # type: ignore[arg-type]


def one(found: object) -> Complaint:
    (complaint,) = list(found)  # type: ignore[call-overload]
    assert isinstance(complaint, Complaint)
    assert complaint.why
    assert complaint.finding.said
    assert complaint.finding.fix.text
    return complaint


def test_a_good_machine_is_clean() -> None:
    machine = MachineFacts(64 * GIB, 40 * GIB, 0, {"x": 90 * GIB}, on_battery=False)
    assert examine(Facts((GOOD,), (CAREFUL,), machine)) == []
    assert examine(Facts()) == []


@pytest.mark.parametrize(
    ("tokens", "severity"),
    [(4096, Severity.ERROR), (32768, Severity.ERROR), (33001, Severity.WARNING), (65535, Severity.WARNING)],
)
def test_context(tokens: int, severity: Severity) -> None:
    found = one(context.check(server("ollama", context_tokens=tokens)))
    assert (found.severity, found.finding.cause) == (severity, "CONTEXT_TOO_SMALL")
    assert found.finding.fix.command == "OLLAMA_CONTEXT_LENGTH=65536 ollama serve"


def test_context_of_slots_and_models() -> None:
    two = one(context.check(server(context_tokens=8192, slots=2)))
    assert two.finding.fix.command == "llama-server -c 131072 -np 2"
    less = one(context.check(server("vllm", context_tokens=8192, trained_tokens=40960)))
    assert less.finding.fix.command == "vllm serve --max-model-len 40960"
    small = one(context.check(server(context_tokens=8192, trained_tokens=8192)))
    assert "take another one" in small.finding.fix.text
    assert list(context.check(server(context_tokens=65536))) == []
    assert list(context.check(server())) == []


def test_ollama_before_a_model_is_loaded() -> None:
    idle = server("ollama", loaded=False)
    found = one(context.check(idle))
    assert (found.severity, found.finding.cause) == (Severity.NOTE, "CONTEXT_BY_DEFAULT")
    assert list(context.check(Facts(idle.servers, variables={"OLLAMA_CONTEXT_LENGTH": "65536"}))) == []


def test_prefix_caching() -> None:
    found = one(prefix_caching.check(server("vllm", prefix_caching=False)))
    assert (found.severity, found.finding.fix.command) == (Severity.WARNING, "--enable-prefix-caching")
    assert list(prefix_caching.check(server("vllm", prefix_caching=True))) == []
    assert list(prefix_caching.check(server("vllm"))) == []


def test_block_size() -> None:
    never = one(block_size.check(server("vllm", block_tokens=8320, context_tokens=8192)))
    assert (never.severity, never.finding.fix.command) == (Severity.ERROR, "--max-model-len 65536")
    large = one(block_size.check(server("vllm", block_tokens=2096, context_tokens=65536)))
    assert (large.severity, large.finding.cause) == (Severity.WARNING, "SERVER_GAP")
    assert list(block_size.check(server("vllm", block_tokens=16, context_tokens=8192))) == []
    assert list(block_size.check(server("vllm", block_tokens=2096, context_tokens=None)))
    assert list(block_size.check(server("headstart", block_tokens=4096))) == []


def test_windows() -> None:
    found = one(windows.check(server(window_tokens=1024)))
    assert (found.severity, found.finding.fix.command) == (Severity.WARNING, "--swa-full")
    assert list(windows.check(server(window_tokens=1024, flags={"--swa-full": ""}))) == []
    assert list(windows.check(server(window_tokens=1024, recurrent=True))) == []
    shift = one(windows.check(server(recurrent=True, flags={"--cache-reuse": "256"})))
    assert (shift.severity, shift.finding.cause) == (Severity.NOTE, "SETTING_WITHOUT_EFFECT")
    assert list(windows.check(server(flags={"--cache-reuse": "256"}))) == []
    assert one(windows.check(server("mlx-lm", recurrent=True))).finding.cause == "SERVER_NEVER_HITS"
    assert list(windows.check(server("ollama", window_tokens=1024))) == []


def test_checkpoints() -> None:
    hybrid = {"recurrent": True, "context_tokens": 131072}
    few = one(checkpoints.check(server(**hybrid, checkpoints=8, checkpoint_step=8192)))
    assert "8 checkpoints 8,192 tokens apart reach over 65,536 of 131,072" in few.finding.said
    assert few.finding.fix.command == "--checkpoint-min-step 2048 --ctx-checkpoints 64"
    far = one(checkpoints.check(server(**hybrid, checkpoints=32, checkpoint_step=16384)))
    assert "at least 16,384 tokens apart" in far.finding.said
    assert list(checkpoints.check(server(**hybrid, checkpoints=64, checkpoint_step=2048))) == []
    none = one(checkpoints.check(server(**hybrid, checkpoints=0)))
    assert none.finding.cause == "SERVER_NEVER_HITS"
    dense = {"context_tokens": 131072, "checkpoints": 8, "checkpoint_step": 8192}
    assert list(checkpoints.check(server(**dense))) == []
    assert list(checkpoints.check(server(**dense, window_tokens=512, flags={"--swa-full": ""}))) == []
    assert list(checkpoints.check(server(**hybrid, checkpoints=None))) == []


def test_cache_budget() -> None:
    off = one(cache_budget.check(server(cache_mib=0)))
    assert (off.severity, off.finding.fix.command) == (Severity.WARNING, "--cache-ram 8192")
    large = one(cache_budget.check(server(cache_mib=8192, state_bytes=131072, context_tokens=65536)))
    assert "takes about 8,192 MiB, the cache holds 8,192 MiB: 1 of them" in large.finding.said
    assert large.finding.fix.command == "--cache-ram 32768"
    assert (
        "no setting"
        in one(cache_budget.check(server("ollama", cache_mib=8192, state_bytes=262144))).finding.fix.text
    )
    assert list(cache_budget.check(server(cache_mib=8192, state_bytes=32768))) == []
    assert list(cache_budget.check(server(cache_mib=-1, state_bytes=131072))) == []
    assert list(cache_budget.check(server(cache_mib=8192))) == []
    assert list(cache_budget.check(server("vllm", cache_mib=0))) == []


def test_speculation() -> None:
    found = one(speculation.check(server("vllm", recurrent=True, speculative=True)))
    assert (found.severity, found.finding.cause) == (Severity.WARNING, "SPECULATION_ON_HYBRID")
    assert list(speculation.check(server("vllm", recurrent=False, speculative=True))) == []
    assert list(speculation.check(server("vllm", recurrent=True, speculative=None))) == []
    assert list(speculation.check(server("headstart", recurrent=True, speculative=True))) == []


def test_slots() -> None:
    found = one(slots.check(server(slots=1, cache_mib=0)))
    assert (found.severity, found.finding.fix.command) == (Severity.WARNING, "-np 2 --cache-ram 8192")
    many = one(slots.check(server(slots=4, recurrent=True)))
    assert many.severity is Severity.NOTE
    assert list(slots.check(server(slots=1, cache_mib=8192))) == []
    assert list(slots.check(server(slots=4))) == []
    assert list(slots.check(server("ollama", slots=1, cache_mib=0))) == []


@pytest.mark.parametrize(
    ("settings", "source", "local", "severity"),
    [
        ({}, "", True, Severity.WARNING),
        ({}, "", False, Severity.NOTE),
        ({attribution.VARIABLE: "1"}, "environment", True, Severity.WARNING),
        ({attribution.VARIABLE: "0"}, "settings.json", True, Severity.NOTE),
        ({attribution.VARIABLE: "0"}, "environment", True, None),
    ],
)
def test_attribution(settings: dict[str, str], source: str, local: bool, severity: Severity | None) -> None:
    agent = AgentFacts("claude", settings=settings, sources=dict.fromkeys(settings, source), local=local)
    found = list(attribution.check(Facts(agents=(agent,))))
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    assert all(one.finding.culprit is Culprit.CLIENT for one in found)
    assert all(one.finding.fix.command == f"export {attribution.VARIABLE}=0" for one in found)
    assert list(attribution.check(Facts(agents=(AgentFacts("codex"),)))) == []


def test_git_status() -> None:
    assert one(git_status.check(Facts(agents=(AgentFacts("claude"),)))).severity is Severity.NOTE
    assert list(git_status.check(Facts(agents=(CAREFUL, AgentFacts("codex"))))) == []


def test_side_requests() -> None:
    agent = AgentFacts("opencode", local=True)
    assert one(side_requests.check(Facts(agents=(agent,)))).severity is Severity.NOTE
    alone = Facts((ServerFacts("llama-server", URL, slots=1, cache_mib=0),), (agent,))
    assert one(side_requests.check(alone)).severity is Severity.WARNING
    assert (
        list(side_requests.check(Facts(agents=(AgentFacts("opencode", settings={"small_model": "set"}),))))
        == []
    )
    assert one(side_requests.check(Facts(agents=(AgentFacts("claude"),)))).about == "Claude Code"


def test_compaction() -> None:
    agent = AgentFacts("codex", settings={compaction.SETTING: "200000"}, local=True)
    servers = (ServerFacts("llama-server", URL, context_tokens=65536),)
    found = one(compaction.check(Facts(servers, (agent,))))
    assert found.finding.fix.command == "model_auto_compact_token_limit = 49152"
    assert list(compaction.check(Facts((), (agent,)))) == []
    assert (
        list(compaction.check(Facts((GOOD,), (AgentFacts("codex", settings={compaction.SETTING: "90000"}),))))
        == []
    )


def test_memory() -> None:
    low = MachineFacts(16 * GIB, GIB // 2, 3 * GIB)
    assert "3.0 GiB are swapped out" in one(memory.check(Facts(machine=low))).finding.said
    full = Facts(
        (ServerFacts("llama-server", URL, model_bytes=12 * GIB, cache_mib=8192),), (), MachineFacts(16 * GIB)
    )
    assert one(memory.check(full)).finding.fix.command == "--cache-ram 2048"
    on_gpu = ServerFacts("ollama", URL, model_bytes=12 * GIB, gpu_bytes=12 * GIB, cache_mib=8192)
    assert list(memory.check(Facts((on_gpu,), (), MachineFacts(16 * GIB, 9 * GIB)))) == []
    assert list(memory.check(Facts())) == []


def test_disk() -> None:
    assert one(disk.check(Facts(machine=MachineFacts(disks={"x": GIB})))).severity is Severity.WARNING
    assert one(disk.check(Facts(machine=MachineFacts(disks={"x": 5 * GIB})))).severity is Severity.NOTE
    assert list(disk.check(Facts(machine=MachineFacts(disks={"x": 11 * GIB})))) == []


def test_power() -> None:
    found = one(power.check(Facts(machine=MachineFacts(on_battery=True, battery_percent=41.6))))
    assert "42 % left" in found.finding.said
    assert list(power.check(Facts(machine=MachineFacts(on_battery=False)))) == []
    assert list(power.check(Facts(machine=MachineFacts(on_battery=None)))) == []


def test_the_gravest_comes_first() -> None:
    found = examine(
        Facts((ServerFacts("llama-server", URL, context_tokens=4096, cache_mib=0),), (AgentFacts("claude"),))
    )
    assert [one.severity for one in found] == sorted((one.severity for one in found), reverse=True)
    assert {Severity.ERROR, Severity.WARNING, Severity.NOTE} <= {one.severity for one in found}
