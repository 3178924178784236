"""Reading a log in a test."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import TypeVar

from headstart.blame.logs.events import LogEvent, Turn
from headstart.blame.logs.reading import LogReader, events_of

REAL = Path(__file__).parent / "real"
E = TypeVar("E", bound=LogEvent)

# A slot kept 700 of its 720 tokens; the prompt has 760 and was read from 500 on.
OLD_LLAMA = """\
slot get_availabl: id  0 | task -1 | \
selected slot by LCP similarity, sim_best = 0.921 (> 0.100 thold), f_keep = 0.972
slot launch_slot_: id  0 | task 41 | processing task
slot update_slots: id  0 | task 41 | new prompt, n_ctx_slot = 8192, n_keep = 0, n_prompt_tokens = 760
slot update_slots: id  0 | task 41 | n_tokens = 500, memory_seq_rm [500, end)
slot update_slots: id  0 | task 41 | prompt processing progress, n_tokens = 628, progress = 0.8
slot update_slots: id  0 | task 41 | n_tokens = 628, memory_seq_rm [628, end)
slot update_slots: id  0 | task 41 | prompt done, n_past = 760, n_tokens = 132
slot print_timing: id  0 | task 41 |
prompt eval time =     520.00 ms /   260 tokens (    2.00 ms per token,   500.00 tokens per second)
       eval time =     300.00 ms /    30 tokens (   10.00 ms per token,   100.00 tokens per second)
      total time =     820.00 ms /   290 tokens
slot      release: id  0 | task 41 | stop processing: n_tokens = 789, truncated = 0
"""


def read(text: str | bytes, format: str | None = None) -> tuple[list[LogEvent], LogReader]:
    """Events of a whole log, and the reader that counted its lines."""
    reader = LogReader(format)
    data = text.encode() if isinstance(text, str) else text
    return list(events_of(BytesIO(data), reader)), reader


def events(text: str | bytes, format: str | None = None) -> list[LogEvent]:
    return read(text, format)[0]


def of(kind: type[E], found: Iterable[LogEvent]) -> list[E]:
    return [one for one in found if isinstance(one, kind)]


def turns(text: str | bytes, format: str | None = None) -> list[Turn]:
    return of(Turn, events(text, format))
