"""What is known about this machine. None: not told. Nothing secret is ever kept here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from headstart.blame.finding import Culprit, Finding, Fix, Step

AGENT_TOKENS = 33_000
"""About what an agent's first request takes."""
ROOM_TOKENS = 65_536
"""A context in which an agent can work for a while."""
MIB = 1 << 20
GIB = 1 << 30


class Severity(IntEnum):
    """NOTE: good to know. WARNING: prompts will be read again. ERROR: an agent cannot work so."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


@dataclass(frozen=True)
class ServerFacts:
    """A running server. `kind`: llama-server, ollama, lmstudio, omlx, vllm, sglang, mlx-lm or headstart.

    `context_tokens`: of one conversation; `trained_tokens`: the most the model can. `loaded`: a model is.
    `cache_mib`: memory for cached prompts (0: off, -1: no limit). `window_tokens`: of sliding windows;
    `recurrent`: layers with one state of the whole past. `state_bytes`: what a token leaves in the cache;
    `checkpoint_bytes`: a state of recurrent layers. `flags`: known flags of its command line.
    """

    kind: str
    url: str
    version: str | None = None
    model: str | None = None
    loaded: bool = True
    context_tokens: int | None = None
    trained_tokens: int | None = None
    slots: int | None = None
    model_bytes: int | None = None
    gpu_bytes: int | None = None
    cache_mib: int | None = None
    checkpoints: int | None = None
    checkpoint_step: int | None = None
    window_tokens: int | None = None
    recurrent: bool | None = None
    speculative: bool | None = None
    prefix_caching: bool | None = None
    block_tokens: int | None = None
    state_bytes: int | None = None
    checkpoint_bytes: int | None = None
    model_path: str | None = None
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For people: what it is and where."""
        return f"{self.kind} on {self.url}"


@dataclass(frozen=True)
class AgentFacts:
    """A coding agent. `settings`: values of named, harmless settings; `sources`: where each was read.
    `local`: it is told to use a server on this machine."""

    name: str
    version: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    local: bool = False


@dataclass(frozen=True)
class MachineFacts:
    """Bytes; `disks`: free bytes by what is kept there. `on_battery`: None where there is none."""

    memory_bytes: int | None = None
    available_bytes: int | None = None
    swap_used_bytes: int | None = None
    disks: Mapping[str, int] = field(default_factory=dict)
    on_battery: bool | None = None
    battery_percent: float | None = None


@dataclass(frozen=True)
class Facts:
    servers: tuple[ServerFacts, ...] = ()
    agents: tuple[AgentFacts, ...] = ()
    machine: MachineFacts = field(default_factory=MachineFacts)
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Complaint:
    """`about`: the server, agent or part of the machine. `why`: what it costs."""

    severity: Severity
    about: str
    finding: Finding
    why: str


def complain(
    severity: Severity,
    about: str,
    cause: str,
    said: str,
    why: str,
    *,
    fix: Fix,
    culprit: Culprit = Culprit.SERVER,
) -> Complaint:
    """A complaint with its finding."""
    step = Step.SERVER if culprit is Culprit.SERVER else Step.BODY
    return Complaint(severity, about, Finding(cause, culprit, step, said, fix=fix), why)
