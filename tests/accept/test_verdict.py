"""How several outcomes become one."""

import pytest

from headstart.accept.verdict import Outcome, together, worst

FAIL, INCONCLUSIVE, UNSUPPORTED, PASS = (
    Outcome.FAIL,
    Outcome.INCONCLUSIVE,
    Outcome.UNSUPPORTED,
    Outcome.PASS,
)


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([PASS, UNSUPPORTED, PASS], PASS),
        ([UNSUPPORTED], UNSUPPORTED),
        ([], UNSUPPORTED),
        ([PASS, INCONCLUSIVE, UNSUPPORTED], INCONCLUSIVE),
        ([UNSUPPORTED, PASS, FAIL, INCONCLUSIVE], FAIL),
    ],
)
def test_a_gate_is_as_good_as_the_worst_of_what_could_be_asked(parts: list[Outcome], whole: Outcome) -> None:
    assert together(parts) is whole


def test_what_a_server_no_longer_offers_is_worse_than_a_pass() -> None:
    assert worst([PASS, UNSUPPORTED]) is UNSUPPORTED
