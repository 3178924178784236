"""What is measured before the first gate: sizes, speed, what the model can answer, the floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from headstart.accept import counting
from headstart.accept.exchange import Exchange
from headstart.accept.fixtures import Passage, QuestionKind
from headstart.accept.judge import Calibration, Floor, Timing, floor_of
from headstart.accept.live import LiveSession, ask_streams
from headstart.errors import HeadstartError

PROBE_CHARS = (600, 1800)
LARGEST_TOKENS = 2048
SHARE_OF_TIER = 0.5


class CannotJudge(HeadstartError):
    """The server does not answer even the smallest requests; the message says what came instead."""


def calibrate(session: LiveSession) -> Calibration:
    """Measures, and gives the session what was found. Raises CannotJudge."""
    session.say("calibrating: sizes")
    _measure_sizes(session)
    tier = session.options.tiers[0].tokens
    large = min(LARGEST_TOKENS, int(tier * SHARE_OF_TIER))
    small = max(session.ratio.overhead_tokens + 40, large // 4)
    session.say(f"calibrating: speed on prompts of {small} and {large} tokens")
    short = [_trial(session, small, kind) for kind in (QuestionKind.ASK, QuestionKind.COPY)]
    long = [_trial(session, large, kind) for kind in (QuestionKind.ASK, QuestionKind.COPY)]
    warm = [
        _ok(session.send(replace(long[-1][1].ask, label="again"))) for _ in range(session.options.samples)
    ]
    session.calibration = _fit(session, short + long, warm, question_of(short + long))
    _measure_floor(session, long[-1][1])
    return session.calibration


def _measure_sizes(session: LiveSession) -> None:
    sizes = []
    for length in PROBE_CHARS:
        passage = session.texts.passage(length)
        done = _ok(session.send(session.ask(passage, label=f"{length} characters")))
        sizes.append((len(passage.text), done.prompt_tokens))
    (short, short_tokens), (long, long_tokens) = sizes
    if short_tokens is not None and long_tokens is not None:
        session.ratio = counting.ratio_of((short, short_tokens), (long, long_tokens))


def _trial(session: LiveSession, tokens: int, kind: QuestionKind) -> tuple[Passage, Exchange, QuestionKind]:
    passage = session.passage(tokens)
    done = _ok(session.send(session.ask(passage, label=f"{tokens} tokens, {kind}", question=kind)))
    return passage, done, kind


def _ok(done: Exchange) -> Exchange:
    if done.failure is not None:
        raise CannotJudge(f"a request of {len(done.request_body)} bytes failed: {done.failure.detail}")
    return done


def question_of(trials: Sequence[tuple[Passage, Exchange, QuestionKind]]) -> QuestionKind | None:
    """The first kind of question that was answered right every time."""
    from headstart.accept.questions import heard

    for kind in QuestionKind:
        tried = [(passage, done) for passage, done, asked in trials if asked is kind]
        if tried and all(heard(done, "EARLY") == passage.value("EARLY") for passage, done in tried):
            return kind
    return None


def _fit(
    session: LiveSession,
    cold: Sequence[tuple[Passage, Exchange, QuestionKind]],
    warm: Sequence[Exchange],
    question: QuestionKind | None,
) -> Calibration:
    done = [exchange for _, exchange, _ in cold]
    half = len(done) // 2
    short, long = ([one.waited_s for one in part] for part in (done[:half], done[half:]))
    sizes = [_tokens(session, passage, exchange) for passage, exchange, _ in cold]
    tokens = median(sizes[half:]) - median(sizes[:half])
    per_token_s = max(0.0, (min(long) - min(short)) / tokens) if tokens > 0 else 0.0
    base_s = max(0.0, min(short) - per_token_s * median(sizes[:half]))
    rates = [_decode_s(exchange) for exchange in [*done, *warm]]
    known = [rate for rate in rates if rate is not None]
    return Calibration(
        base_s=base_s,
        read_s_per_token=per_token_s,
        warm_s=median(exchange.waited_s for exchange in warm),
        decode_s_per_token=median(known) if known else 0.0,
        chars_per_token=session.ratio.chars_per_token,
        overhead_tokens=session.ratio.overhead_tokens,
        question=question,
        floor=Floor(None, False),
        cold=Timing(tuple(long)),
        warm=Timing(tuple(exchange.waited_s for exchange in warm)),
    )


def _tokens(session: LiveSession, passage: Passage, done: Exchange) -> int:
    return done.prompt_tokens or session.ratio.tokens(len(passage.text))


def _decode_s(done: Exchange) -> float | None:
    if not ask_streams(done) or not done.completion_tokens or done.completion_tokens < 2:
        return None
    return (done.total_s - (done.first_token_s or 0.0)) / (done.completion_tokens - 1)


def _measure_floor(session: LiveSession, done: Exchange) -> None:
    """Two cold runs of one prompt, where the server offers a way; else its first run stands alone."""
    again = [session.uncached(replace(done.ask, label="floor")) for _ in range(2)]
    runs = [done, *(run for run in again if run is not None)]
    if len(runs) < 2:
        return
    floors = [floor_of(one, other) for one, other in pairwise(runs)]
    scores = [floor.score for floor in floors if floor.score is not None]
    floor = Floor(max(scores) if scores else None, all(floor.text for floor in floors))
    session.calibration = replace(session.calibration, floor=floor)
