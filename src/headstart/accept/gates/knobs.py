"""Options a client sets: honoured, refused or named as ignored. Anything else is a finding.

What the options do is judged in `knob_effects`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from headstart.accept.exchange import Ask, Exchange, FailureKind, Message
from headstart.accept.gates import Need, knob_effects
from headstart.accept.gates.knob_effects import Effect
from headstart.accept.gates.trouble import said, trouble
from headstart.accept.session import Session
from headstart.accept.verdict import Outcome, Verdict
from headstart.accept.wires import Wire

NAME = "knobs"
UNKNOWN = "no_such_option"
PASSAGE_TOKENS = 160
LONG, SHORT = 24, 3
SURE = 1.5
"""Temperature at which two replies hardly agree by chance."""


def verdict(option: str, asked: Sequence[Exchange], others: Sequence[Exchange], effect: Effect) -> Verdict:
    """`asked`: requests that set the option; `others`: those it is compared with. `effect`: what came of
    it, for requests that were answered."""
    cases = [one.case for one in (*asked, *others)]
    refused = next((one for one in asked if _refuses(one)), None)
    if refused is not None:
        reason = f"refused: {said(refused)}"
        return Verdict(NAME, Outcome.PASS, reason, part=option, figures={"how": "refused"}, cases=cases)
    failed = trouble(NAME, [*asked, *others], part=option)
    if failed is not None:
        return failed
    named = next((warning for one in asked for warning in one.warnings if _names(warning, option)), None)
    if effect.seen:
        outcome, how, reason = Outcome.PASS, "honoured", f"honoured: {effect.detail}"
    elif named is not None:
        outcome, how, reason = Outcome.PASS, "named", f"named in the reply: {named[:120]}"
    elif effect.seen is None:
        outcome, how, reason = Outcome.INCONCLUSIVE, "not seen", effect.detail
    else:
        outcome, how, reason = Outcome.FAIL, "ignored", f"ignored in silence: {effect.detail}"
    return Verdict(NAME, outcome, reason, part=option, figures={"how": how}, cases=cases)


def _refuses(exchange: Exchange) -> bool:
    return exchange.failure is not None and exchange.failure.kind is FailureKind.REFUSED


def _names(warning: str, option: str) -> bool:
    return option.lower() in warning.lower()


class Knobs:
    name = NAME
    title = "options"
    shows = "every option a client sets is honoured, refused or named as ignored"
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        text = f"{session.passage(PASSAGE_TOKENS).text}\n\nGo on with this text in your own words."
        ask = session.converse([Message("user", text)], max_tokens=LONG)
        plain = session.send(_with(ask, "plain"))
        found = [_max_tokens(session, ask, plain), _stop(session, ask, plain), _seed(session, ask)]
        if session.wire.scores:
            found.append(_logprobs(session, ask))
        if session.server.no_cache:
            found.append(_no_cache(session, ask))
        found.append(_unknown(session, ask))
        ollama = next((wire for wire in session.wires if wire.name == "ollama"), None)
        if ollama is not None:
            session.say("knobs: Ollama's own options; the model may be loaded again")
            found += _ollama(session, session.convert(ask, ollama), ollama)
        return found


def _with(ask: Ask, label: str, **changes: object) -> Ask:
    return replace(ask, label=label, **changes)  # type: ignore[arg-type]


def _max_tokens(session: Session, ask: Ask, plain: Exchange) -> Verdict:
    short = session.send(_with(ask, f"max_tokens {SHORT}", max_tokens=SHORT))
    return verdict("max_tokens", [short], [plain], knob_effects.limit(short, plain, SHORT))


def _stop(session: Session, ask: Ask, plain: Exchange) -> Verdict:
    stop = knob_effects.stop_text(plain.text)
    if stop is None:
        effect = Effect(None, f"the plain reply has no words to stop at: {plain.answer[:30]!r}")
        return verdict("stop", [], [plain], effect)
    stopped = session.send(_with(ask, "stop", stop=(stop,)))
    return verdict("stop", [stopped], [plain], knob_effects.stopped(stopped, plain, stop))


def _seed(session: Session, ask: Ask) -> Verdict:
    """Everything is asked once before, so that all samples are drawn from the same state."""
    seeds = (11, 11, 21, 21, 31)
    asks = [_with(ask, f"seed {seed}", seed=seed, temperature=SURE, max_tokens=SHORT * 4) for seed in seeds]
    sent = [session.send(one) for one in asks]
    return verdict("seed", sent, [], knob_effects.seeded(sent[:2], sent[2:4], sent[4]))


def _logprobs(session: Session, ask: Ask) -> Verdict:
    sent = [session.send(_with(ask, "logprobs", logprobs=3, max_tokens=SHORT))]
    if not sent[0].scores:
        whole = _with(ask, "logprobs, not streamed", logprobs=3, max_tokens=SHORT, stream=False)
        sent.append(session.send(whole))
    return verdict("logprobs", sent, [], knob_effects.scored(*sent))


def _no_cache(session: Session, ask: Ask) -> Verdict:
    option = next(iter(session.server.no_cache))
    warm = session.send(_with(ask, "with the cache"))
    options = {**ask.options, **session.server.no_cache}
    off = session.send(_with(ask, f"{option} off", options=options))
    return verdict(option, [off], [warm], knob_effects.uncached(off, warm))


def _unknown(session: Session, ask: Ask) -> Verdict:
    options = {**ask.options, UNKNOWN: 7}
    asked = session.send(_with(ask, "an option that does not exist", options=options, max_tokens=SHORT))
    return verdict(
        UNKNOWN, [asked], [], Effect(False, "an option that does not exist is taken like any other")
    )


def _ollama(session: Session, ask: Ask, wire: Wire) -> Iterator[Verdict]:
    """num_ctx, num_batch and keep_alive, which only Ollama's own format has."""

    def running() -> object:
        return session.http.get("/api/ps").get("models")

    def send(label: str, **options: object) -> Exchange:
        short = _with(ask, label, options={**ask.options, **options}, max_tokens=SHORT)
        return session.send(short, wire=wire)

    context = max(1024, (session.facts.context_tokens or 4096) // 2)
    sent = send("num_ctx", options={"num_ctx": context})
    yield verdict("num_ctx", [sent], [], knob_effects.context(running(), session.facts.model, context))
    sent = send("num_batch", options={"num_batch": 64})
    yield verdict("num_batch", [sent], [], Effect(None, "whether it is used cannot be seen from outside"))
    sent = send("keep_alive", keep_alive="7m")
    until_s = sent.started + sent.total_s + 7 * 60
    yield verdict("keep_alive", [sent], [], knob_effects.kept(running(), session.facts.model, until_s))


GATE = Knobs()
