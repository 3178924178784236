"""The texts nest, carry their markers, and differ by their salt alone."""

from __future__ import annotations

import pytest

from headstart.accept.fixtures import Texts, parse_tiers, prose
from headstart.accept.text.compose import PATH, compose

TIERS = parse_tiers("32k,8k,128k")


def test_the_shipped_text_is_what_compose_makes() -> None:
    assert PATH.read_text(encoding="ascii") == compose()


def test_tiers_are_sorted_and_bounded() -> None:
    assert [(t.name, t.tokens) for t in TIERS] == [("8k", 8192), ("32k", 32768), ("128k", 131072)]
    assert (TIERS[0].least, TIERS[0].most) == (7373, 7936)
    for wrong in ("", "8q", "100", "1k,2k,3k,4k,5k,6k,7k"):
        with pytest.raises(ValueError):
            parse_tiers(wrong)


def test_longer_texts_begin_with_shorter_ones() -> None:
    family = Texts("s").family([(t, t.most * 4) for t in TIERS], 4.0)
    small, middle, large = (family.at(tier) for tier in TIERS)
    assert middle.text.startswith(small.text)
    assert large.text.startswith(middle.text)
    for passage in (small, middle, large):
        for marker in passage.markers:
            assert passage.text[marker.at :].startswith(marker.value)
    depths = [marker.at // 4 for marker in large.markers]
    assert [round(depth / 1024) for depth in depths] == [4, 20, 96]


def test_families_share_no_more_than_digits() -> None:
    texts = Texts("s")
    one, other = (texts.family([(TIERS[0], 30000)], 4.0).at(TIERS[0]).text for _ in range(2))
    assert one[:19] != other[:19]
    assert Texts("s").family([(TIERS[0], 30000)], 4.0).at(TIERS[0]).text == one


def test_an_edit_changes_one_value_of_equal_length() -> None:
    texts = Texts("s")
    passage = texts.passage(4000)
    value = passage.value("EARLY")
    assert value is not None
    edited = passage.edited("EARLY", texts.value(unlike=value))
    at = passage.markers[0].at
    assert (edited.text[:at], len(edited.text)) == (passage.text[:at], len(passage.text))
    assert edited.text[at] != passage.text[at]
    with pytest.raises(ValueError):
        passage.edited("EARLY", "1")


def test_prose_goes_on_in_numbered_parts() -> None:
    long = prose(300_000)
    assert len(long) == 300_000
    assert long.startswith(prose(1000))
    assert "Part 2." in long
