"""What becomes of what passed: put together, recorded, judged and told of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headstart.blame.exchange import Exchange
from headstart.blame.proxy.passing import Passing
from headstart.blame.proxy.taking import exchange_of
from headstart.blame.recording import Recorder
from headstart.blame.verdict import CauseTotal, Judge, TurnVerdict, totals


class Watcher:
    """`shown` gets the verdict on every exchange, `troubled` what could not be done."""

    def __init__(
        self,
        judge: Judge,
        shown: Callable[[TurnVerdict], None],
        troubled: Callable[[str], None],
        recorder: Recorder | None = None,
    ) -> None:
        self._judge = judge
        self._shown = shown
        self._troubled = troubled
        self._recorder = recorder
        self._number = 0
        self._sums = Sums()

    def take(self, passing: Passing) -> None:
        """Takes in what passed, whatever it is."""
        self._number += 1
        try:
            exchange = exchange_of(passing, self._number)
            self._record(exchange)
            verdict = self._judge.add(exchange)
            self._sums.add(verdict)
            self._shown(verdict)
        except Exception as problem:  # noqa: BLE001 - whatever passed, the next one is to be taken too
            self._troubled(f"exchange {self._number} could not be taken in: {problem!r}")

    def totals(self) -> list[CauseTotal]:
        """What each cause cost so far, the most expensive first."""
        return self._sums.totals()

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()

    def _record(self, exchange: Exchange) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.write(exchange)
        except OSError as problem:
            self._troubled(f"exchange {exchange.number} was not recorded: {problem.strerror or problem}")


class Sums:
    """What each cause cost, added up turn by turn."""

    def __init__(self) -> None:
        self._by_cause: dict[str, CauseTotal] = {}

    def add(self, verdict: TurnVerdict) -> None:
        for one in totals([verdict]):
            known = self._by_cause.get(one.cause)
            self._by_cause[one.cause] = one if known is None else _sum(known, one)

    def totals(self) -> list[CauseTotal]:
        def dear(one: CauseTotal) -> tuple[float, int, int]:
            return one.seconds_lost or 0, one.tokens_lost or 0, one.turns

        return sorted(self._by_cause.values(), key=dear, reverse=True)


def _sum(known: CauseTotal, one: CauseTotal) -> CauseTotal:
    tokens = [lost for lost in (known.tokens_lost, one.tokens_lost) if lost is not None]
    seconds = [lost for lost in (known.seconds_lost, one.seconds_lost) if lost is not None]
    return replace(
        known,
        turns=known.turns + one.turns,
        tokens_lost=sum(tokens) if tokens else None,
        seconds_lost=sum(seconds) if seconds else None,
    )
