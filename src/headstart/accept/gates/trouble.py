"""What a request that failed means for the gate that sent it."""

from __future__ import annotations

from collections.abc import Iterable

from headstart.accept.exchange import Exchange, FailureKind
from headstart.accept.verdict import Outcome, Verdict

_SERVERS_FAULT = {
    FailureKind.SERVER_ERROR: "the server answered with an error",
    FailureKind.HUNG: "the server hung",
    FailureKind.DROPPED: "the server dropped the connection",
    FailureKind.BROKEN: "the server sent what is not its wire format",
    FailureKind.UNREACHABLE: "the server could not be reached",
}
_NO_ANSWER = {
    FailureKind.REFUSED: "the server refused the request",
    FailureKind.CANCELLED: "the request was cancelled",
}


def trouble(
    gate: str, exchanges: Iterable[Exchange], *, tier: str | None = None, part: str = ""
) -> Verdict | None:
    """The verdict where one of `exchanges` did not come off, None where all did. An error of the server's
    weighs more than a refusal."""
    failed = [one for one in exchanges if one.failure is not None]
    if not failed:
        return None
    worst = next((one for one in failed if _kind(one) in _SERVERS_FAULT), failed[0])
    fault = _kind(worst) in _SERVERS_FAULT
    words = _SERVERS_FAULT[_kind(worst)] if fault else _NO_ANSWER[_kind(worst)]
    asked = f" to “{worst.ask.label}”" if worst.ask.label else ""
    return Verdict(
        gate,
        Outcome.FAIL if fault else Outcome.INCONCLUSIVE,
        f"{words}{asked}: {said(worst)}",
        tier=tier,
        part=part,
        figures={"failed_requests": len(failed), "status": worst.status},
        cases=[one.case for one in failed],
    )


def said(exchange: Exchange, most: int = 160) -> str:
    """How it failed, in one line of `most` characters; empty where it did not."""
    detail = " ".join(exchange.failure.detail.split()) if exchange.failure else ""
    return detail if len(detail) <= most else detail[: most - 3] + "..."


def _kind(exchange: Exchange) -> FailureKind:
    assert exchange.failure is not None
    return exchange.failure.kind
