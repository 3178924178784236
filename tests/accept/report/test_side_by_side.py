from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from headstart.accept.report.results import Results
from headstart.accept.report.side_by_side import Change, Comparison, compare, objections
from headstart.accept.report.side_by_side_table import compared
from headstart.accept.report.table import Style
from headstart.accept.verdict import Outcome
from headstart.errors import ConfigError
from tests.accept.report import made_up


def both() -> Comparison:
    return compare(made_up.failing(), made_up.sound())


def changed(**target: object) -> Results:
    return replace(made_up.failing(), target=made_up.target(**target))


def test_runs_of_two_servers_on_one_model_and_machine_are_comparable() -> None:
    assert objections(made_up.failing(), made_up.sound()) == ()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (changed(context_tokens=8192), "context: 40,960 tokens in A, 8,192 tokens in B"),
        (changed(context_tokens=None), "context: 40,960 tokens in A, not known in B"),
        (changed(digest="00" * 32), "model digest: 9f2c41d09f2c41d0 in A, 0000000000000000 in B"),
        (changed(digest=None), "model digest: known in A only; --model-dir gives one to B"),
        (
            replace(made_up.failing(), machine=made_up.machine(processor="M4")),
            "machine, processor: AMD EPYC in A, M4 in B",
        ),
        (replace(made_up.failing(), machine=made_up.machine(cores=8)), "machine, cores: 2 in A, 8 in B"),
        (
            replace(made_up.failing(), machine=made_up.machine(memory_bytes=1 << 34)),
            "machine, memory: 23.5 GB in A, 16.0 GB in B",
        ),
        (
            replace(made_up.failing(), tiers=made_up.failing().tiers[:1]),
            r"tiers that ran: 8k (8,192), 32k (32,768) in A, 8k (8,192) in B",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_unless_told(other: Results, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        compare(made_up.failing(), other)
    assert "--anyway" in str(caught.value)
    comparison = compare(made_up.failing(), other, anyway=True)
    assert comparison.objections == (said,)
    assert f"not comparable: {said}" in compared(comparison)


def test_without_digests_the_names_decide() -> None:
    assert objections(changed(digest=None), changed(digest=None)) == ()
    assert objections(changed(digest=None), changed(digest=None, model="b")) == (
        "model: gemma-3-270m in A, b in B, and no digests",
    )
    assert any("same name" in note for note in compare(changed(digest=None), changed(digest=None)).remarks)


def test_memory_may_differ_by_what_the_system_keeps() -> None:
    near = replace(made_up.failing(), machine=made_up.machine(memory_bytes=25_000_000_000))
    assert objections(made_up.failing(), near) == ()


def test_every_verdict_of_both_is_a_row_in_the_order_of_the_gates() -> None:
    comparison = both()
    assert [row.gate for row in comparison.rows] == sorted(
        (row.gate for row in comparison.rows), key=[name for name, *_ in made_up.GATES].index
    )
    rows = {(row.gate, row.tier, row.part): row for row in comparison.rows}
    assert len(rows) == len(comparison.rows) == 15
    assert rows["gap_sweep", "8k", ""].change is Change.BETTER
    assert rows["cold", "8k", ""].change is Change.SAME
    assert rows["restart", "8k", ""].change is Change.ONLY_A
    assert {pair.name: (pair.a, pair.b) for pair in rows["gap_sweep", "8k", ""].figures}["step_tokens"] == (
        1024,
        1,
    )
    back = compare(made_up.sound(), made_up.failing())
    assert {row.change for row in back.rows if row.gate == "gap_sweep"} == {Change.WORSE}
    assert {row.change for row in back.rows if row.gate == "restart"} == {Change.ONLY_B}


def test_equal_places_are_paired_in_their_order() -> None:
    results = made_up.empty()
    twice = tuple(
        made_up.verdict("cold", outcome, "why", "8k") for outcome in (Outcome.PASS, Outcome.INCONCLUSIVE)
    )
    other = tuple(
        made_up.verdict("cold", outcome, "why", "8k") for outcome in (Outcome.PASS, Outcome.UNSUPPORTED)
    )
    rows = compare(replace(results, verdicts=twice), replace(results, verdicts=other)).rows
    assert [row.change for row in rows] == [Change.SAME, Change.MOVED]


def test_times_are_compared_by_their_medians() -> None:
    slow = made_up.failing()
    slow = replace(
        slow, tiers=tuple(replace(t, warm_s=(8.0, 9.0, 10.0)) if t.warm_s else t for t in slow.tiers)
    )
    comparison = compare(made_up.failing(), slow)
    warm = {pair.name: pair for pair in comparison.tiers[0].figures}["warm_s"]
    assert (warm.a, warm.b) == (0.084, 9.0)
    assert warm.ratio == pytest.approx(9 / 0.084)


def test_the_text() -> None:
    text = compared(both())
    assert text.startswith("A  llama_server b6812, gemma-3-270m, 2026-09-21 14:13 UTC: 4 checks failed")
    assert re.search(r"gap sweep \(8k\) +FAIL +PASS +better\n    step +1,024 tokens +1 token +1/1024\n", text)
    assert text.endswith("1 check better in B; 3 checks only in A\n")
    same = compared(compare(made_up.failing(), made_up.failing()))
    assert same.endswith("Every verdict is the same on both sides\n")
    assert "No verdicts on either side." in compared(compare(made_up.empty(), made_up.empty()))


def test_runs_that_were_stopped_are_named() -> None:
    comparison = compare(made_up.failing(), made_up.stopped())
    assert comparison.remarks == ("B was stopped before its end: what is missing there is not known",)
    assert "note: B was stopped" in compared(comparison)


@pytest.mark.parametrize("name", made_up.ALL)
def test_any_two_runs_can_be_set_side_by_side(name: str) -> None:
    for other in made_up.ALL.values():
        comparison = compare(made_up.ALL[name](), other(), anyway=True)
        bare = compared(comparison)
        assert "\x1b" not in bare
        bare.encode()
        assert re.sub(r"\x1b\[[\d;]*m", "", compared(comparison, Style(colour=True))) == bare
        json.dumps(comparison.to_json())
