"""llama-server's log: real ones against the counters the server gave in its replies, and every wording."""

from __future__ import annotations

import re

import pytest

from headstart.blame.logs.events import (
    CacheState,
    Checkpoint,
    Evicted,
    Fact,
    FullReread,
    Picked,
    Restored,
    SlotChosen,
    Started,
    TooLarge,
)
from tests.blame.logs.reads import OLD_LLAMA as OLD
from tests.blame.logs.reads import REAL, events, of, read, turns

# What the replies of these very runs said: prompt_tokens and cached_tokens.
DENSE = [(748, 0), (772, 755), (796, 779), (800, 3), (800, 744), (37, 3), (800, 799)]
HYBRID = [(811, 0), (837, 818), (862, 833), (867, 0), (867, 351), (50, 0), (867, 863)]


def real(name: str) -> str:
    return (REAL / name).read_text()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("llama-server-dense.log", DENSE),
        ("llama-server-hybrid.log", HYBRID),
        ("llama-server-hybrid-verbose.log", HYBRID),
    ],
)
def test_a_real_log_gives_the_counters_of_the_replies(name: str, told: list[tuple[int, int]]) -> None:
    found, reader = read(real(name))
    assert reader.format == "llama-server"
    assert reader.tally.unknown == 0
    shown = [(turn.prompt_tokens, turn.cached) for turn in turns(real(name))]
    assert shown == told
    assert of(Started, found) == [Started("llama-server")]


def test_a_real_log_tells_where_prompts_part() -> None:
    exact = [turn.shared for turn in turns(real("llama-server-hybrid-verbose.log"))]
    assert exact == [None, 818, 839, None, 807, 5, 867]
    about = turns(real("llama-server-hybrid.log"))
    assert [turn.shared for turn in about] == [None, 818, 839, None, 807, None, None]
    assert {turn.shared_within for turn in about if turn.shared} == {1}
    assert [turn.shared_most for turn in about] == [None, None, None, 87, None, 5, 87]
    assert turns(real("llama-server-hybrid-verbose.log"))[3].shared_most == 4


def test_the_real_checkpoints() -> None:
    found = events(real("llama-server-hybrid-verbose.log"))
    points = of(Checkpoint, found)
    assert [one.position for one in points if one.made][:3] == [295, 807, 818]
    assert points[0] == Checkpoint(True, 295, 1, 0.037, 1, 32)
    assert of(Restored, found) == [
        Restored(833, 839, 1, 0.037),
        Restored(351, 807, 0, 0.037),
        Restored(863, 866, 0, 0.037),
    ]
    facts = {one.name: one.value for one in of(Fact, found)}
    assert facts["checkpoints"] == "32"
    assert facts["checkpoint_step"] == "64"
    assert facts["recurrent"] == "yes"
    assert (facts["slots"], facts["context_tokens"], facts["cache_limit_mib"]) == ("2", "4096", "8192")


@pytest.mark.parametrize("before", ["", "[57130] ", "Nov  3 00:03:06 box ollama[812]: ", "\x1b[32m"])
def test_all_prefix_styles_say_the_same(before: str) -> None:
    text = real("llama-server-hybrid-verbose.log")
    bare = re.sub(r"(?m)^\d\.\d\d\.\d{3}\.\d{3} [IW] ", "", text)
    assert bare != text
    wanted = turns(text)
    assert turns("".join(before + line + "\n" for line in bare.splitlines()), "llama-server") == wanted
    assert turns("".join(before + line + "\n" for line in text.splitlines()), "llama-server") == wanted
    assert turns(text.replace("operator():", "update_slots:").replace("f_sim_best", "sim_best")) == wanted
    assert turns(text.replace("\n", "\r\n")) == wanted


def test_the_old_wording() -> None:
    (turn,) = turns(OLD)
    assert (turn.prompt_tokens, turn.cached, turn.read, turn.prompt_ms) == (760, 500, 260, 520.0)
    assert (turn.shared, turn.held, turn.generated) == (700, 720, 30)
    assert turn.picked is Picked.SIMILARITY
    assert not turn.truncated
    oldest = OLD.replace("n_tokens = 500, memory_seq_rm [500, end)", "kv cache rm [500, end)")
    assert turns(oldest.replace("30 tokens (   10", "30 runs   (   10")) == [turn]


def test_counters_decide_and_the_notice_is_a_hint() -> None:
    notice = (
        "slot update_slots: id  0 | task 41 | forcing full prompt re-processing due to lack of cache data "
        "(likely due to SWA or hybrid/recurrent memory, see elsewhere)\n"
    )
    lines = OLD.splitlines(keepends=True)
    found = events("".join([*lines[:3], notice, *lines[3:]]))
    assert of(FullReread, found) == [FullReread(0)]
    (turn,) = turns("".join([*lines[:3], notice, *lines[3:]]))
    assert turn.hint
    assert turn.cached == 500
    silent = OLD.replace("[500, end)", "[0, end)").replace("/   260 tokens", "/   760 tokens")
    (cold,) = turns(silent)
    assert not cold.hint
    assert cold.cached == 0


def test_a_longer_prompt_found_in_the_memory_cache_is_what_was_shared() -> None:
    better = "srv          load:  - found better prompt with f_keep = 1.000, f_sim = 0.980\n"
    lines = OLD.replace("0.921", "0.200").splitlines(keepends=True)
    (turn,) = turns("".join([lines[0], better, *lines[1:]]))
    assert turn.shared == round(0.98 * 760)
    (without,) = turns("".join(lines))
    assert without.shared == 152


def test_a_search_in_the_memory_cache_tells_of_a_slot_taken_by_age() -> None:
    lru = "slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 1285608281393\n"
    looking = "srv          load:  - looking for better prompt, base f_keep = 0.024, sim = 0.050\n"
    rest = "".join(OLD.splitlines(keepends=True)[1:])
    (turn,) = turns(lru + looking + rest)
    assert (turn.picked, turn.shared, turn.held) == (Picked.LRU, 38, 1583)
    assert of(SlotChosen, events(lru + rest)) == [SlotChosen(0, Picked.LRU)]
    empty = lru.replace("1285608281393", "-1")
    assert turns(empty + rest)[0].picked is Picked.EMPTY


def test_the_cache_in_memory() -> None:
    found = events(
        "srv        update:  - cache state: 4 prompts, 7582.001 MiB (limits: 8192.000 MiB, 262144 tokens)\n"
        "srv  alloc:  - making room for prompt cache entry, removing oldest entry (size = 3418.112 MiB)\n"
        "update: - cache size limit reached, removing oldest entry (size = 62.124 MiB)\n"
        "srv  alloc:  - prompt state size 9000.500 MiB exceeds cache size limit 8192.000 MiB, skipping\n",
        "llama-server",
    )
    assert found == [
        CacheState(4, 7582.001, 8192.0),
        Evicted(3418.112),
        Evicted(62.124),
        TooLarge(9000.5, 8192.0),
    ]


@pytest.mark.parametrize("first", range(1, len(OLD.splitlines()) - 2))
def test_a_log_that_begins_in_a_turn(first: int) -> None:
    for turn in turns("".join(OLD.splitlines(keepends=True)[first:]), "llama-server"):
        assert turn.read in (None, 260)
        assert (turn.prompt_tokens, turn.cached) in (
            (760, 500),
            (760, None),
            (760, 628),
            (888, 628),
            (760, 0),
        )


@pytest.mark.parametrize("last", range(3, len(OLD.splitlines())))
def test_a_log_that_ends_in_a_turn(last: int) -> None:
    (turn,) = turns("".join(OLD.splitlines(keepends=True)[:last]), "llama-server")
    assert turn.prompt_tokens == 760
    assert turn.cached in (None, 500)


def test_a_truncated_turn_is_not_counted_by_the_length_of_its_slot() -> None:
    cut = OLD.replace("n_prompt_tokens = 760", "n_prompt_tokens = 900").replace(
        "truncated = 0", "truncated = 1"
    )
    (turn,) = turns(cut)
    assert turn.truncated
    assert turn.prompt_tokens == 900


def test_a_new_task_ends_the_one_before_it() -> None:
    lines = OLD.splitlines(keepends=True)
    without_end = "".join(lines[:-1])
    both = turns(without_end + OLD.replace("task 41", "task 99"))
    assert [(turn.task, turn.cached) for turn in both] == [("41", 500), ("99", 500)]


def test_two_slots_at_once() -> None:
    other = OLD.replace("id  0", "id  1").replace("task 41", "task 42").replace("[500", "[100")
    one, two = OLD.splitlines(keepends=True), other.splitlines(keepends=True)
    mixed = "".join(one[:7]) + "".join(two[:7]) + "".join(one[7:]) + "".join(two[7:])
    assert {(turn.slot, turn.cached) for turn in turns(mixed)} == {(0, 500), (1, 500)}
