"""Whatever a file holds, what is understood is used and the rest is counted."""

from __future__ import annotations

import codecs
import random
import tracemalloc
from io import BytesIO, RawIOBase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.blame.log_report import report_of
from headstart.blame.logs.events import Turn
from headstart.blame.logs.reading import FORMATS, LINES_TO_TELL, MAX_LINE, LogReader, detect, events_of
from tests.blame.logs.reads import OLD_LLAMA, REAL, of, read, turns
from tests.blame.logs.test_ollama import hit, progress

VLLM = (
    "INFO 02-25 20:49:56 [loggers.py:127] Engine 000: Avg prompt throughput: 67.6 tokens/s, Avg generation "
    "throughput: 75.0 tokens/s, Running: 4 reqs, Prefix cache hit rate: 54.2%\n"
)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (OLD_LLAMA, "llama-server"),
        (hit(900, 800, 700), "ollama"),
        (hit(900, 800, 700) + OLD_LLAMA, "ollama"),
        (OLD_LLAMA * 40 + VLLM, "llama-server"),
        (VLLM, "vllm"),
        ("nothing of the kind\n" * 20, None),
        ("", None),
    ],
)
def test_the_first_lines_tell_the_format(text: str, format: str | None) -> None:
    assert detect(text.split("\n")) == format
    assert read(text)[1].format == format


def test_a_mixed_log_is_read_whole() -> None:
    chatter = "proxy: request 12 went through\n"
    found, reader = read(chatter * 3 + OLD_LLAMA + VLLM + hit(900, 800, 700) + chatter)
    assert [turn.cached for turn in of(Turn, found)] == [500, 700]
    assert reader.tally.understood == {"vllm": 1, "ollama": 13}
    assert reader.tally.unknown == 4
    assert reader.tally.lines == 18


def test_another_format_long_after_the_first_lines() -> None:
    found, reader = read(VLLM * (LINES_TO_TELL + 10) + OLD_LLAMA)
    assert reader.format == "vllm"
    assert [turn.cached for turn in of(Turn, found)] == [500]


OLLAMA_LINES = st.one_of(
    st.builds(hit, st.just(9_000), st.integers(0, 800), st.sampled_from([0, 512])),
    st.builds(progress, st.sampled_from([1, 512, 5120]), st.sampled_from([1, 512, 5120]), st.just(9.0)),
    st.just("[GIN] 2026/09/04 - 14:08:06 | 200 | 2.5ms | 127.0.0.1 | POST /api/chat\n"),
    st.just(OLD_LLAMA),
)


@given(st.lists(OLLAMA_LINES, max_size=40))
def test_what_is_said_of_many_lines_is_what_is_said_of_each(parts: list[str]) -> None:
    lines = "".join(parts).splitlines()
    parser = FORMATS["ollama"]()
    each = [event for line in lines for event in parser.feed(line) or ()]
    found, reader = read("".join(parts), "ollama")
    assert found == [*each, *parser.finish()]
    assert reader.tally.lines == len(lines) == sum(reader.tally.understood.values())


def test_the_format_can_be_said() -> None:
    assert read(OLD_LLAMA, "omlx")[1].tally.understood == {"omlx": 0, "llama-server": 12}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings(encoding: str) -> None:
    text = (REAL / "llama-server-dense.log").read_text()
    assert turns(text.encode(encoding)) == turns(text)
    assert codecs.BOM_UTF16_LE in "x".encode("utf-16") or codecs.BOM_UTF16_BE in "x".encode("utf-16")


def test_chunks_cut_lines_anywhere() -> None:
    class Drip(RawIOBase):
        def __init__(self, data: bytes) -> None:
            self._data, self._random = data, random.Random(5)

        def read(self, size: int = -1) -> bytes:
            n = self._random.randint(1, 40)
            out, self._data = self._data[:n], self._data[n:]
            return out

    text = (REAL / "llama-server-hybrid-verbose.log").read_text() + "é" * 20
    dripped = list(events_of(Drip(text.encode()), LogReader()))  # type: ignore[arg-type]
    assert of(Turn, dripped) == turns(text)


def test_a_line_without_an_end_is_cut() -> None:
    junk = b"x" * (5 * MAX_LINE + (3 << 20))
    found, reader = read(junk + b"\n" + OLD_LLAMA.encode())
    assert len(of(Turn, found)) == 1
    assert reader.tally.too_long >= 2


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_junk_never_raises(data: st.DataObject) -> None:
    lines = (OLD_LLAMA + VLLM + hit(900, 800, 700)).encode().split(b"\n")
    pieces = []
    for _ in range(data.draw(st.integers(1, 12))):
        line = bytearray(data.draw(st.sampled_from(lines)))
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(line)))
            line[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=12))
        pieces.append(bytes(line))
    text = b"\n".join(pieces)
    for name in (None, *FORMATS):
        report_of(events_of(BytesIO(text), LogReader(name)))


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_beyond_measure(name: str) -> None:
    many = "9" * 5000
    text = OLD_LLAMA.replace("760", many).replace("500", many) + hit(900, 800, 700).replace("900", many)
    text += (
        f"Prompt tokens to decode: {many}\nPrompt processing progress: {many}/{many}\ncached_tokens={many}\n"
    )
    report_of(events_of(BytesIO(text.encode()), LogReader(name)))


def test_memory_does_not_grow_with_the_log() -> None:
    text = (REAL / "llama-server-hybrid-verbose.log").read_text()

    def peak(times: int) -> int:
        class Repeated(RawIOBase):
            left = times

            def read(self, size: int = -1) -> bytes:
                self.left -= 1
                return text.encode() if self.left >= 0 else b""

        tracemalloc.start()
        report = report_of(events_of(Repeated(), LogReader("llama-server")))  # type: ignore[arg-type]
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert report.totals.turns == 7 * times
        return used

    peak(40)
    assert peak(200) < peak(40) + 200_000
