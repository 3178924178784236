"""Opens a session: which server answers, what it states, which wires work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from headstart.accept import servers, wires
from headstart.accept.calibrate import CannotJudge
from headstart.accept.endpoint import Endpoint
from headstart.accept.exchange import Ask, Exchange, Message
from headstart.accept.live import Target
from headstart.accept.servers import Facts, Http, Server
from headstart.accept.wires import Wire

LOGPROBS = 5
PROBED = ("/v1/models", "/health", "/")
_HELLO = "Count from one to five in words."


def find_server(http: Http, name: str | None) -> Server:
    """The server named, or the first that recognises itself. Raises CannotJudge where nothing answers."""
    if name not in (None, "auto"):
        return servers.load(str(name))
    if not any(http.get(path).status for path in PROBED):
        tried = ", ".join(PROBED)
        raise CannotJudge(
            f"nothing answers at {http.root} (tried {tried}); start the server, or check address and port"
        )
    found = (servers.load(one) for one in servers.available())
    return next(server for server in found if server.recognise(http))


def open_target(
    endpoint: Endpoint,
    http: Http,
    *,
    server: str | None = None,
    wire: str | None = None,
    model: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Target:
    """Tries the server's wires with a few words. Raises CannotJudge where none works."""
    kind = find_server(http, server)
    facts = kind.facts(http, model)
    say(f"{facts.server} {facts.version or ''} with {model or facts.model or 'its model'}".replace("  ", " "))
    names = [wire] if wire else kind.wires
    tried = [_try(endpoint, wires.load(name), facts, model) for name in names]
    working = [(one, done) for one, done in tried if done.ok]
    if not working:
        words = "; ".join(f"{one.name}: {done.failure.detail}" for one, done in tried if done.failure)
        raise CannotJudge(f"no wire format works on {http.root} ({words}){_advice(facts, model)}")
    working.sort(key=lambda pair: _worth(pair[1]), reverse=True)
    best, done = working[0]
    logprobs = LOGPROBS if done.scores else 0
    names_found = ", ".join(one.name for one, _ in working)
    say(f"wires: {names_found}; log-probabilities: {'yes' if logprobs else 'no'}")
    return Target(endpoint, http, kind, facts, best, [one for one, _ in working], logprobs)


def _advice(facts: Facts, model: str | None) -> str:
    if facts.models and (model is None or model not in facts.models):
        return f"; give --model with a name it lists: {', '.join(facts.models[:5])}"
    return "; see what --model, --wire and --api-key say"


def _try(endpoint: Endpoint, wire: Wire, facts: Facts, model: str | None) -> tuple[Wire, Exchange]:
    ask = Ask(
        prompt=None if wire.chat else _HELLO,
        messages=(Message("user", _HELLO),) if wire.chat else (),
        max_tokens=4,
        logprobs=LOGPROBS if wire.scores else 0,
        label="hello",
    )
    done = endpoint.send(ask, wire, model=model or facts.model)
    if done.failure is not None and ask.logprobs and done.status is not None and 400 <= done.status < 500:
        done = endpoint.send(replace(ask, logprobs=0), wire, model=model or facts.model)
    return wire, done


def _worth(done: Exchange) -> int:
    """A wire with log-probabilities judges answers best; one that tells what was reused, hits."""
    return 2 * bool(done.scores) + (done.reused is not None) + 4 * bool(done.text or done.completion_tokens)


def known_wires(names: Sequence[str] = wires.NAMES) -> str:
    return ", ".join(names)
