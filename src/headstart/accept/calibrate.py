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

Trial = tuple[Passage, Exchange, QuestionKind]

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
    problems: list[str] = []
    short = [_trial(session, small, kind, problems) for kind in (QuestionKind.ASK, QuestionKind.COPY)]
    long = [_trial(session, large, kind, problems) for kind in (QuestionKind.ASK, QuestionKind.COPY)]
    whole = [[trial for trial in trials if trial[1].ok] for trials in (short, long)]
    if not any(whole):
        raise CannotJudge(f"no request was answered: {problems[-1]}")
    last = [*whole[0], *whole[1]][-1][1]
    warm = [session.send(replace(last.ask, label="again")) for _ in range(session.options.samples)]
    problems += [problem for one in warm if (problem := _problem(one, "a repeated prompt"))]
    warm = [one for one in warm if _problem(one, "") is None]
    fitted = _fit(session, whole[0], whole[1], warm, question_of(short + long))
    session.calibration = replace(fitted, problems=tuple(dict.fromkeys(problems)))
    for problem in session.calibration.problems:
        session.say(f"calibrating: {problem}; going on without it")
    _measure_floor(session, last)
    return session.calibration


def _measure_sizes(session: LiveSession) -> None:
    """Characters a token, as far as the server counts; what fails is found again by the trials."""
    sizes = []
    for length in PROBE_CHARS:
        passage = session.texts.passage(length)
        done = session.send(session.ask(passage, label=f"{length} characters"))
        sizes.append((len(passage.text), done.prompt_tokens if done.ok else None))
    (short, short_tokens), (long, long_tokens) = sizes
    if short_tokens is not None and long_tokens is not None:
        session.ratio = counting.ratio_of((short, short_tokens), (long, long_tokens))


def _trial(session: LiveSession, tokens: int, kind: QuestionKind, problems: list[str]) -> Trial:
    """A new text; once more with another one where that fails."""
    for _ in range(2):
        passage = session.passage(tokens)
        done = session.send(session.ask(passage, label=f"{tokens} tokens, {kind}", question=kind))
        problem = _problem(done, f"a prompt of {tokens} tokens")
        if problem is not None:
            problems.append(problem)
        if done.ok:
            break
    return passage, done, kind


def _problem(done: Exchange, what: str) -> str | None:
    if done.failure is not None:
        return f"{what} failed: {done.failure.detail}"
    if not done.text and not done.reasoning and not done.completion_tokens:
        return f"{what} was answered with nothing"
    return None


def question_of(trials: Sequence[Trial]) -> QuestionKind | None:
    """The first kind of question that was answered right every time."""
    from headstart.accept.questions import heard

    for kind in QuestionKind:
        tried = [(passage, done) for passage, done, asked in trials if asked is kind]
        if tried and all(heard(done, "EARLY") == passage.value("EARLY") for passage, done in tried):
            return kind
    return None


def _fit(
    session: LiveSession,
    short: Sequence[Trial],
    long: Sequence[Trial],
    warm: Sequence[Exchange],
    question: QuestionKind | None,
) -> Calibration:
    """Where a size is missing, speed is unknown (0), and the clock will tell nothing."""
    done = [exchange for _, exchange, _ in (*short, *long)]
    waits = [min((one.waited_s for _, one, _ in part), default=None) for part in (short, long)]
    sizes = [[_tokens(session, passage, one) for passage, one, _ in part] for part in (short, long)]
    per_token_s, base_s = 0.0, min(wait for wait in waits if wait is not None)
    if waits[0] is not None and waits[1] is not None:
        tokens = median(sizes[1]) - median(sizes[0])
        per_token_s = max(0.0, (waits[1] - waits[0]) / tokens) if tokens > 0 else 0.0
        base_s = max(0.0, waits[0] - per_token_s * median(sizes[0]))
    again = [one.waited_s for one in warm]
    rates = [_decode_s(exchange) for exchange in [*done, *warm]]
    known = [rate for rate in rates if rate is not None]
    return Calibration(
        base_s=base_s,
        read_s_per_token=per_token_s,
        warm_s=median(again) if again else base_s,
        decode_s_per_token=median(known) if known else 0.0,
        chars_per_token=session.ratio.chars_per_token,
        overhead_tokens=session.ratio.overhead_tokens,
        question=question,
        floor=Floor(None, False),
        cold=Timing(tuple(one.waited_s for _, one, _ in long)),
        warm=Timing(tuple(again)),
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
