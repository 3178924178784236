"""The decision where to resume: live or stored, exact or not, and why not further."""

from __future__ import annotations

from dataclasses import replace

from headstart.prefix.block import StateLayout
from headstart.prefix.plan import LiveView, Plan, PromptHints, Rules, StopKind, Stored, make_plan
from headstart.prefix.report import Reason, Tier
from headstart.prefix.tokens import TokenRun
from tests.prefix.fake import DENSE, MY, RECURRENT, WINDOW, counting, glue, run, view

PROMPT = counting(0, 100)
NOTHING = Stored(
    length=0,
    canonical_length=0,
    logits_at_end=False,
    checkpoint_at_most=lambda _: 0,
    evicted_upto=lambda: 0,
    checkpoint_evicted=lambda above, limit: False,
    elsewhere=lambda: 0,
)


def stored(length: int, *checkpoints: int, logits: bool = False) -> Stored:
    return replace(
        NOTHING,
        length=length,
        logits_at_end=logits,
        checkpoint_at_most=lambda limit: max((c for c in checkpoints if c <= min(limit, length)), default=0),
    )


def plan(
    facts: Stored,
    *live: LiveView,
    layout: StateLayout = DENSE,
    prompt: TokenRun = PROMPT,
    grid: int = 0,
) -> Plan:
    return make_plan(MY, prompt, facts, live, hints=PromptHints(), rules=Rules(layout, 0, grid))


def parted(at: int, length: int) -> TokenRun:
    """A sequence of `length` tokens that shares the first `at` with the prompt."""
    return glue(counting(0, at), counting(1000, 1000 + length - at))


def test_stored_rows_are_used_to_the_divergence() -> None:
    made = plan(stored(57))
    assert (made.divergence, made.restore_at, made.tier, made.reason) == (57, 57, Tier.RAM, None)


def test_one_token_is_left_to_compute_unless_the_logits_are_stored() -> None:
    assert plan(stored(100)).restore_at == 99
    exact = plan(stored(100, logits=True))
    assert (exact.restore_at, exact.exact) == (100, True)


def test_recurrent_layouts_resume_at_the_highest_checkpoint() -> None:
    made = plan(stored(57, 20, 40, 60), layout=RECURRENT)
    assert (made.divergence, made.restore_at, made.reason) == (57, 40, Reason.NO_CHECKPOINT)
    assert made.stops[0].position == 57 and made.stops[0].kind is StopKind.DIVERGENCE


def test_an_exact_recurrent_repeat_needs_logits_and_checkpoint() -> None:
    assert plan(stored(100, 90, logits=True), layout=RECURRENT).restore_at == 90
    made = plan(stored(100, 90, 100, logits=True), layout=RECURRENT)
    assert (made.restore_at, made.exact, made.stops) == (100, True, ())
    assert plan(stored(100, 90, 100), layout=RECURRENT).restore_at == 90


def test_a_live_sequence_goes_on_where_it_stands() -> None:
    made = plan(stored(60), view(7, counting(0, 60)))
    assert (made.tier, made.live, made.restore_at) == (Tier.LIVE, 7, 60)
    assert not made.window_rows_needed and not made.checkpoint_needed


def test_a_live_sequence_is_cut_where_it_restores_further() -> None:
    made = plan(stored(30), view(7, parted(60, 200)))
    assert (made.tier, made.live, made.restore_at, made.divergence) == (Tier.LIVE, 7, 60, 60)


def test_of_equal_restores_the_live_one_wins_only_while_half_of_it_stays() -> None:
    assert plan(stored(60), view(7, parted(60, 120))).tier is Tier.LIVE
    assert plan(stored(60), view(7, parted(60, 121))).tier is Tier.RAM


def test_of_equal_live_sequences_the_one_that_loses_least_is_cut() -> None:
    made = plan(stored(0), view(1, parted(60, 90)), view(2, parted(60, 70)), view(3, parted(50, 50)))
    assert made.live == 2


def test_a_busy_sequence_is_never_cut_but_reported() -> None:
    made = plan(stored(30), view(7, parted(60, 80), busy=True))
    assert (made.tier, made.live, made.restore_at) == (Tier.RAM, None, 30)
    assert (made.fork_from, made.fork_at, made.reason) == (7, 60, Reason.BUSY)


def test_nothing_is_reported_once_the_rows_of_a_busy_sequence_are_stored() -> None:
    made = plan(stored(60), view(7, parted(60, 80), busy=True))
    assert (made.fork_from, made.restore_at) == (None, 60)


def test_a_sequence_of_another_namespace_does_not_exist() -> None:
    made = plan(stored(0), view(7, PROMPT, namespace=b"other"))
    assert (made.tier, made.divergence, made.fork_from) == (Tier.NONE, 0, None)


def test_windowed_cuts_need_the_window() -> None:
    tokens = parted(60, 90)
    live = plan(stored(0), view(7, tokens, window_start=55), layout=WINDOW)
    assert (live.tier, live.restore_at, live.window_rows_needed) == (Tier.LIVE, 60, False)
    gone = plan(stored(0), view(7, tokens, window_start=56), layout=WINDOW)
    assert (gone.tier, gone.restore_at, gone.divergence) == (Tier.NONE, 0, 0)
    given = plan(stored(60), view(7, tokens, window_start=56), layout=WINDOW)
    assert (given.tier, given.restore_at, given.window_rows_needed) == (Tier.LIVE, 60, True)
    standing = plan(stored(0), view(7, counting(0, 60), window_start=60), layout=WINDOW)
    assert (standing.tier, standing.restore_at, standing.window_rows_needed) == (Tier.LIVE, 60, False)


def test_recurrent_cuts_need_a_checkpoint_unless_the_sequence_stands_there() -> None:
    standing = plan(stored(0), view(7, counting(0, 60)), layout=RECURRENT)
    assert (standing.tier, standing.restore_at, standing.checkpoint_needed) == (Tier.LIVE, 60, False)
    cut = plan(stored(60, 50), view(7, parted(60, 70)), layout=RECURRENT)
    assert (cut.tier, cut.restore_at, cut.checkpoint_needed) == (Tier.LIVE, 50, True)
    none = plan(stored(0), view(7, parted(60, 70)), layout=RECURRENT)
    assert (none.tier, none.restore_at) == (Tier.NONE, 0)


def test_a_busy_recurrent_sequence_that_stands_at_the_divergence_is_worth_a_checkpoint() -> None:
    made = plan(stored(60, 20), view(7, counting(0, 60), busy=True), layout=RECURRENT)
    assert (made.restore_at, made.fork_from, made.fork_at) == (20, 7, 60)
    elsewhere = plan(stored(60, 20), view(7, parted(60, 80), busy=True), layout=RECURRENT)
    assert (elsewhere.restore_at, elsewhere.fork_from) == (20, None), "storing it again would not help"
    done = plan(stored(60, 20, 60), view(7, counting(0, 60), busy=True), layout=RECURRENT)
    assert (done.restore_at, done.fork_from) == (60, None)


def test_a_live_sequence_at_the_prompts_end_is_exact_only_with_stored_logits() -> None:
    assert plan(stored(100), view(7, PROMPT)).restore_at == 99
    made = plan(stored(100, logits=True), view(7, PROMPT))
    assert (made.tier, made.restore_at, made.exact) == (Tier.LIVE, 100, True)
    recurrent = plan(stored(100, logits=True), view(7, PROMPT), layout=RECURRENT)
    assert (recurrent.tier, recurrent.restore_at, recurrent.checkpoint_needed) == (Tier.LIVE, 100, False)


def test_the_grid_allows_canonical_rows_at_its_multiples_only() -> None:
    facts = replace(stored(90, 16, 32, 60), canonical_length=60)
    made = plan(facts, view(7, PROMPT), grid=32)
    assert (made.tier, made.restore_at, made.exact, made.reason) == (
        Tier.RAM,
        32,
        False,
        Reason.NOT_CANONICAL,
    )
    full = plan(replace(stored(100, logits=True), canonical_length=100), grid=50)
    assert (full.restore_at, full.exact) == (50, False)
    recurrent = plan(replace(stored(90, 32), canonical_length=64), layout=RECURRENT, grid=32)
    assert (recurrent.restore_at, recurrent.reason) == (32, Reason.NO_CHECKPOINT)


def test_reasons() -> None:
    assert plan(NOTHING).reason is Reason.NO_PREFIX
    assert plan(NOTHING, prompt=run(1)).reason is Reason.TOO_SHORT
    assert plan(replace(NOTHING, elsewhere=lambda: 5)).reason is Reason.OTHER_NAMESPACE
    assert plan(replace(NOTHING, evicted_upto=lambda: 5)).reason is Reason.EVICTED
    assert plan(replace(stored(30), evicted_upto=lambda: 31)).reason is Reason.EVICTED
    assert plan(replace(stored(30), evicted_upto=lambda: 30)).reason is None
    assert plan(replace(stored(30), elsewhere=lambda: 50)).reason is None
    dropped = replace(stored(60, 20), checkpoint_evicted=lambda above, limit: above < 50 <= limit)
    assert plan(dropped, layout=RECURRENT).reason is Reason.EVICTED
    before = replace(stored(60, 20), checkpoint_evicted=lambda above, limit: above < 10 <= limit)
    assert plan(before, layout=RECURRENT).reason is Reason.NO_CHECKPOINT


def test_only_recurrent_layouts_have_stops() -> None:
    assert plan(stored(10)).stops == plan(stored(10), layout=WINDOW).stops == ()
    assert plan(stored(10), layout=RECURRENT).stops


def test_an_empty_prompt_is_planned_too() -> None:
    made = plan(NOTHING, view(1, PROMPT), prompt=run())
    assert (made.restore_at, made.tier, made.exact, made.stops) == (0, Tier.NONE, False, ())
