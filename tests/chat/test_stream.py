"""The text of a reply does not depend on how it is split into tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.chat.stream import TextStream
from headstart.engines.base import Vocabulary


def vocabulary(pieces: list[bytes], control: frozenset[int] = frozenset()) -> Vocabulary:
    return Vocabulary(pieces, control, frozenset(), bos=None, eos=None, adds_bos=False)


def stream_all(pieces: list[bytes], stops: tuple[str, ...]) -> tuple[list[str], str | None]:
    stream = TextStream(vocabulary(pieces), stops)
    texts = [stream.push(token) for token in range(len(pieces))]
    return [*texts, stream.finish()], stream.stopped


def naive(data: bytes, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """The whole text, cut at the stop that is complete first (of two that end together: the longer)."""
    text = data.decode("utf-8", "replace")
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if stop and text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return text, None


letters = st.sampled_from(["a", "b", "é", "€", "🙂", "\ufffd", "c"])
texts = st.lists(letters, max_size=30).map(lambda parts: "".join(parts).encode())
raw = st.lists(
    st.sampled_from(
        [b"a", b"b", b"\xc3", b"\xa9", b"\xe2", b"\x82", b"\xac", b"\xff", b"\xf0", b"\x9f", b"\xed\xa0"]
    ),
    max_size=20,
).map(b"".join)
stop_strings = st.lists(st.lists(letters, min_size=1, max_size=4).map("".join), max_size=4).map(tuple)


@given(st.one_of(texts, raw), stop_strings, st.data())
def test_any_split_gives_the_answer_of_the_whole_text(
    data: bytes, stops: tuple[str, ...], draw: st.DataObject
) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=len(data))))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    got, stopped = stream_all(pieces, stops)
    assert ("".join(got), stopped) == naive(data, stops)


@given(texts, stop_strings)
def test_only_what_may_become_a_stop_is_held_back(data: bytes, stops: tuple[str, ...]) -> None:
    stream = TextStream(vocabulary([bytes([b]) for b in range(256)]), stops)
    released = ""
    for count, byte in enumerate(data, start=1):
        released += stream.push(byte)
        if stream.stopped:
            return
        complete = data[:count].decode("utf-8", "ignore")
        held = complete[len(released) :]
        assert complete.startswith(released)
        assert held == "" or any(stop.startswith(held) for stop in stops)


def test_character_split_over_tokens_appears_when_complete() -> None:
    assert stream_all([b"\xf0\x9f", b"\x99", b"\x82!"], ())[0] == ["", "", "🙂!", ""]


def test_invalid_byte_is_replaced_at_once_and_cut_character_at_the_end() -> None:
    assert stream_all([b"a\xff", b"b", b"\xe2\x82"], ())[0] == ["a\ufffd", "b", "", "\ufffd"]


def test_byte_that_proves_a_character_broken_releases_it() -> None:
    assert stream_all([b"\xe2\x82", b"x"], ())[0] == ["", "\ufffdx", ""]


def test_stop_split_over_tokens_is_cut_and_ends_the_text() -> None:
    texts, stopped = stream_all([b"one </", b"st", b"op> two", b"three"], ("</stop>",))
    assert texts == ["one ", "", "", "", ""]
    assert stopped == "</stop>"


def test_text_held_for_a_stop_that_did_not_come_is_released() -> None:
    texts, stopped = stream_all([b"x </", b"st", b"all", b"<"], ("</stop>",))
    assert texts == ["x ", "", "</stall", "", "<"]
    assert stopped is None


def test_control_and_end_tokens_are_not_shown() -> None:
    words = Vocabulary([b"a", b"<|im_start|>", b"<|end|>"], frozenset({1}), frozenset({2}), None, 2, False)
    stream = TextStream(words, ("<|",))
    assert [stream.push(token) for token in (0, 1, 2, 0)] == ["a", "", "", "a"]
    assert stream.stopped is None


def test_work_per_token_does_not_grow_with_the_reply() -> None:
    stream = TextStream(vocabulary([b"ab", b"a"]), ("abc",))
    for _ in range(20_000):
        stream.push(0)
    assert len(stream._held) <= 2
