"""A prompt longer than the context: refused or named as cut, never cut in silence."""

from __future__ import annotations

from headstart.accept.exchange import Exchange, FailureKind
from headstart.accept.fixtures import Marker, Passage
from headstart.accept.gates import Need
from headstart.accept.gates.evidence import prompt_length
from headstart.accept.gates.trouble import said, trouble
from headstart.accept.session import Session
from headstart.accept.verdict import Figure, Outcome, Verdict

NAME = "truncation"
FACT = "EARLY"
OVER = 1.1
PIECE_TOKENS = 8000
ALL, NEARLY_ALL = 0.97, 0.85
"""Parts of a prompt that count as all of it, its length being known and estimated."""
LARGEST_CONTEXT = 300_000
_OF_LENGTH = ("context", "too long", "too large", "length", "n_ctx", "maximum", "exceed", "tokens")
_FLAGS = (b'"truncated":true', b'"truncated": true', b'"finish_reason":"context', b'"truncation"')


def verdict(
    over: Exchange, sent_tokens: int, context: int, right: bool | None, *, exact: bool = True
) -> Verdict:
    """`over`: the reply to a prompt of `sent_tokens` tokens, more than `context`; not `exact`: about so
    many. `right`: whether it gives the fact in the prompt's first line; None where the model cannot be
    asked."""
    figures: dict[str, Figure] = {
        "context_tokens": context,
        "sent_tokens": sent_tokens,
        "read_tokens": over.prompt_tokens,
        "status": over.status,
        "first_fact_right": right,
    }
    if over.failure is not None:
        outcome, reason = _refused(over)
    else:
        outcome, reason = _taken(over, sent_tokens, context, exact=exact)
    if outcome is None:
        failed = trouble(NAME, [over])
        assert failed is not None
        return failed
    if over.failure is None and right is not None:
        reason += f"; the fact in its first line is {'known' if right else 'lost'}"
    if outcome is Outcome.INCONCLUSIVE and right and (over.prompt_tokens or 0) > context:
        outcome = Outcome.PASS
    return Verdict(NAME, outcome, reason, figures=figures, cases=[over.case])


def _refused(over: Exchange) -> tuple[Outcome | None, str]:
    """What a failed request says; no outcome where it is no refusal."""
    assert over.failure is not None
    about_length = any(word in over.failure.detail.lower() for word in _OF_LENGTH)
    detail = said(over)
    if over.failure.kind is FailureKind.REFUSED and (about_length or over.status == 413):
        return Outcome.PASS, f"refused: {detail}"
    if over.failure.kind is FailureKind.REFUSED:
        return Outcome.INCONCLUSIVE, f"refused, but not for its length: {detail}"
    if over.failure.kind is FailureKind.SERVER_ERROR and about_length:
        return Outcome.PASS, f"refused, though as the server's own fault, which clients try again: {detail}"
    return None, ""


def _taken(over: Exchange, sent: int, context: int, *, exact: bool) -> tuple[Outcome, str]:
    """What an answer says that came without an error."""
    read = over.prompt_tokens
    flagged = next((one for one in over.warnings if _about_cut(one)), None)
    if flagged is None and any(flag in over.raw for flag in _FLAGS):
        flagged = "truncated"
    if flagged is not None:
        return Outcome.PASS, f"{sent:,} tokens for a context of {context:,} were cut, and named so: {flagged}"
    if read is None:
        return Outcome.INCONCLUSIVE, "answered without a word, and the server does not say how much it read"
    if read > context and read >= ALL * sent:
        return Outcome.INCONCLUSIVE, f"it counts all {read:,} tokens, more than the {context:,} it states"
    if not exact and read >= NEARLY_ALL * sent:
        return Outcome.INCONCLUSIVE, f"the prompt had {read:,} tokens and was not longer than the context"
    half = ", half of the context," if abs(read - context / 2) <= 8 else ""
    return Outcome.FAIL, f"cut in silence: {read:,}{half} of {sent:,} tokens were read, status {over.status}"


def _about_cut(warning: str) -> bool:
    return any(word in warning.lower() for word in ("truncat", "cut", "dropped", "removed", "shortened"))


class Truncation:
    name = NAME
    title = "truncation"
    shows = "a prompt over the context is refused or named as cut, never cut in silence"
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        context = session.facts.context_tokens
        if context is None:
            reason = "the server does not state its context length, so no prompt is known to be too long"
            return [Verdict(NAME, Outcome.INCONCLUSIVE, reason)]
        if context > LARGEST_CONTEXT:
            reason = f"a prompt longer than its context of {context:,} tokens is more than this gate sends"
            return [Verdict(NAME, Outcome.UNSUPPORTED, reason, figures={"context_tokens": context})]
        aim = max(int(context * OVER), context + 400)
        session.say(f"truncation: a prompt of about {aim:,} tokens for a context of {context:,}")
        passage = over_long(session, aim)
        ask = session.ask(passage, marker=FACT, label="longer than the context", max_tokens=12)
        known = prompt_length(session, ask)
        over = session.send(ask)
        right = session.facts_right(over, passage, FACT) if over.ok else None
        sent = aim if known is None else known
        return [verdict(over, sent, context, right, exact=known is not None)]


def over_long(session: Session, tokens: int) -> Passage:
    """A text of about so many tokens, whose only planted fact stands in its first line."""
    pieces: list[str] = []
    value = ""
    left = tokens
    while left > 0:
        piece = session.passage(max(200, min(left, PIECE_TOKENS)))
        value = value or piece.markers[0].value
        pieces.append(_without_facts(piece))
        left -= PIECE_TOKENS
    head = f"{value[::-1]} {FACT}={value}.\n\n"
    return Passage(head + "\n\n".join(pieces), (Marker(FACT, value, head.index("=") + 1),))


def _without_facts(passage: Passage) -> str:
    text = passage.text
    for marker in passage.markers:
        text = text.replace(f"{marker.name}={marker.value}", "nothing")
    return text


GATE = Truncation()
