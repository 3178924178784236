"""Servers the harness knows, one file each: what they are, count and tell about themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, cast

from headstart.accept.exchange import Ask, Counters

NAMES = (
    "headstart",
    "omlx",
    "ollama",
    "lmstudio",
    "vllm",
    "sglang",
    "llama_server",
    "mlx_lm",
    "generic",
)
"""In the order `--server auto` tries them; generic recognises everything."""


@dataclass(frozen=True)
class Answer:
    """Reply to a small request of the harness's own. `status` 0: none came. `body`: parsed JSON, else
    None. `headers` in lower case."""

    status: int
    text: str = ""
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def get(self, *path: str | int) -> Any:
        """The value at `path` inside the body, None where there is none."""
        value = self.body
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value


class Http(Protocol):
    """Small requests to the server's root ("/metrics", not "/v1/metrics"). Never raises.

    Keeps cookies; sends the API key. `headers` are added. `api_key`: for servers that want it in a body;
    it goes nowhere else.
    """

    @property
    def root(self) -> str:
        """The server's address, without a password."""
        ...

    @property
    def api_key(self) -> str | None: ...

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer: ...

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer: ...


@dataclass(frozen=True)
class Facts:
    """What a server states about itself and the model; None where it does not state it.

    `context_tokens`: of one conversation. `slots`: requests that can run at once. `block_tokens`: the
    step of positions it says it can restore to (1: any token); the allowance of every gap. `parts`:
    anything else worth a line in the report, by name, never a secret. `models`: names it serves, and
    `digests`: their weights' digests where it gives them. `model_path`: the file it loaded. `adapters`:
    names a request may choose. `recurrent`: the model keeps recurrent state, so that the first visit of
    a divergence may be read from the checkpoint before it.
    """

    server: str
    version: str | None = None
    model: str | None = None
    context_tokens: int | None = None
    slots: int | None = None
    block_tokens: int | None = None
    recurrent: bool | None = None
    window_tokens: int | None = None
    speculative: str | None = None
    models: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    model_path: str | None = None
    adapters: tuple[str, ...] = ()
    cache: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)


class Server(Protocol):
    """One kind of server.

    `wires`: names it speaks, the best judge first. `no_cache`: request fields that ask it to answer
    without its cache (empty: it has none). `thinking_off`: request fields that keep a model from
    thinking aloud. `environment`: prefixes of the environment variables that
    change it, e.g. "LLAMA_".
    """

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def wires(self) -> tuple[str, ...]: ...
    @property
    def no_cache(self) -> Mapping[str, Any]: ...
    @property
    def thinking_off(self) -> Mapping[str, Any]: ...
    @property
    def environment(self) -> tuple[str, ...]: ...

    def recognise(self, http: Http) -> bool:
        """Whether it is this server that answers."""
        ...

    def facts(self, http: Http, model: str | None) -> Facts: ...

    def counters(self, http: Http, model: str | None) -> Counters | None:
        """Its numbers now; None where it has none or they are switched off."""
        ...

    def tokens(self, http: Http, ask: Ask, wire: str, model: str | None) -> tuple[int, ...] | None:
        """Token ids of the whole prompt of `ask`, template and all; None where it cannot be told. Must
        not read the prompt with the model."""
        ...

    def clear(self, http: Http, model: str | None) -> bool:
        """Empties its cache; False where it offers no way."""
        ...


def load(name: str) -> Server:
    """The server of that name. Raises KeyError where there is none."""
    if name not in NAMES:
        raise KeyError(name)
    return cast(Server, import_module(f"{__name__}.{name}").SERVER)


def available() -> Sequence[str]:
    """The names that can be loaded, in the order of `NAMES`."""
    return [name for name in NAMES if find_spec(f"{__name__}.{name}") is not None]
