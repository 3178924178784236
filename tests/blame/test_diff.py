"""The place where two prompts part, to the character, and what became of the pieces behind it."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from headstart.blame.bodies import prompt_of
from headstart.blame.diff import change, common_end, common_length, edits, replaced
from headstart.blame.exchange import Dialect
from headstart.blame.prompt import Prompt


def chat(*messages: tuple[str, Any], tools: tuple[str, ...] = ()) -> Prompt:
    body = {
        "messages": [{"role": role, "content": content} for role, content in messages],
        "tools": [{"name": name} for name in tools],
    }
    return prompt_of(Dialect.OPENAI_CHAT, body)


def blocks(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def test_equal_and_appended_prompts_are_no_change() -> None:
    one = chat(("system", "s"), ("user", "a"))
    assert change(one, one) is None
    assert change(one, chat(("system", "s"), ("user", "a"), ("assistant", "b"))) is None


def test_the_character_is_exact() -> None:
    found = change(chat(("system", "abcdef"), ("user", "x")), chat(("system", "abcXef"), ("user", "x")))
    assert found is not None
    assert (found.path, found.index, found.char, found.chars_before) == ("messages[0].content", 0, 3, 0)


def test_what_stands_before_is_counted() -> None:
    found = change(chat(("system", "abc"), ("user", "xyz")), chat(("system", "abc"), ("user", "xyQ")))
    assert found is not None
    assert (found.index, found.chars_before, found.char) == (1, 3, 2)


@pytest.mark.parametrize("other", [("user", "ab"), ("system", "ab")])
def test_another_role_is_a_change_at_its_first_character(other: tuple[str, str]) -> None:
    found = change(chat(("assistant", "ab")), chat(other))
    assert found is not None
    assert found.char == 0


def test_a_text_that_goes_on_is_a_change_of_a_message_and_none_of_a_raw_prompt() -> None:
    found = change(chat(("user", "ab")), chat(("user", "abc")))
    assert found is not None
    assert found.char == 2
    raw = [prompt_of(Dialect.OPENAI_COMPLETIONS, {"prompt": text}) for text in ("ab", "abc")]
    assert change(*raw) is None


def test_a_prompt_that_ends_early_is_a_change_without_a_piece_after() -> None:
    found = change(chat(("user", "a"), ("assistant", "b")), chat(("user", "a")))
    assert found is not None
    assert found.after is None
    assert found.path == "messages[1].content"


def test_blocks_cut_otherwise_are_a_change_only_where_there_is_no_other() -> None:
    one = chat(("user", blocks("ab", "cd")), ("assistant", "x"))
    found = change(one, chat(("user", blocks("abcd")), ("assistant", "x")))
    assert found is not None
    assert (found.index, found.char) == (0, 2)
    found = change(one, chat(("user", blocks("a", "b", "cd")), ("assistant", "y")))
    assert found is not None
    assert (found.path, found.index, found.index_before) == ("messages[1].content", 3, 2)


def test_common_lengths_agree_with_counting() -> None:
    source = random.Random(6)
    for _ in range(500):
        one = "".join(source.choices("ab", k=source.randrange(12)))
        other = "".join(source.choices("ab", k=source.randrange(12)))
        count = next(
            (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
        )
        assert common_length(one, other) == count
        end = common_end(one, other, count)
        assert one[len(one) - end :] == other[len(other) - end :]
        assert count + end <= min(len(one), len(other))
        start, gone, come = replaced(one, other)
        assert one == one[:start] + gone + one[start + len(gone) :]
        assert other == one[:start] + come + one[start + len(gone) :]


def test_edits_tell_removed_inserted_moved_and_appended() -> None:
    before = chat(("system", "s"), ("user", "a"), ("user", "b"), ("user", "c"), ("user", "d"))
    after = chat(("system", "s"), ("user", "c"), ("user", "n"), ("user", "b"), ("user", "d"), ("user", "e"))
    found = change(before, after)
    assert found is not None
    what = edits(found)
    assert [piece.text for piece in what.removed] == ["a"]
    assert [piece.text for piece in what.inserted] == ["n"]
    assert [piece.text for piece in what.appended] == ["e"]
    assert len(what.moved) == 1
    assert {what.moved[0][0].text} <= {"b", "c"}
    assert what.kept == 3


def big(edit: int | None) -> Prompt:
    """About 800 kB in 400 messages: 200,000 tokens."""
    texts = [f"{number} " + "word and word again, " * 100 for number in range(400)]
    if edit is not None:
        texts[edit] = texts[edit][:-5] + "WORD" + texts[edit][-1:]
    return chat(*(("user", text) for text in texts))


@pytest.mark.parametrize("edit", [0, 200, 399])
def test_two_requests_of_200_000_tokens_take_less_than_a_second(edit: int) -> None:
    before, after = big(None), big(edit)
    assert before.chars > 800_000
    started = time.perf_counter()
    found = change(before, after)
    assert found is not None
    edits(found)
    replaced(before.pieces[edit].text, after.pieces[edit].text)
    assert time.perf_counter() - started < 1
    assert found.index == edit


def test_one_text_of_200_000_tokens_takes_less_than_a_second() -> None:
    text = "word and word again, " * 40_000
    before, after = chat(("user", text)), chat(("user", text[:400_000] + "X" + text[400_001:]))
    started = time.perf_counter()
    found = change(before, after)
    assert found is not None
    replaced(text, after.pieces[0].text)
    assert time.perf_counter() - started < 1
    assert found.char == 400_000
