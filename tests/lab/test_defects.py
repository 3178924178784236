"""Every planted defect shows, by the shortest scene in which a client could see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headstart.accept.gates import NAMES
from headstart.lab.defect import SOUND, Defect, Sound
from headstart.lab.defects import DEFECTS
from headstart.lab.defects.replies import WELL
from headstart.lab.server import MODELS, LabServer
from tests.lab.asking import Asker, Reply, text

Scene = Callable[[Asker, LabServer], bool]
"""Whether what the client sees is wrong."""

MOVED = 1.0
"""A difference of a log-probability that the harness does not take for noise."""
EDITED = "93214"


def cached(reply: Reply) -> int:
    return -1 if reply.cached is None else reply.cached


def moved(asker: Asker, prompt: str, warm: Reply) -> bool:
    return warm.differs(asker.cold(prompt)) > MOVED


def edit_is_short(asker: Asker, _: LabServer) -> bool:
    asker.ask(text("edit", early="11111"))
    edited = text("edit", early=EDITED)
    return 0 <= cached(asker.ask(edited)) < edited.index(EDITED) - 64


def edit_is_long(asker: Asker, _: LabServer) -> bool:
    asker.ask(text("edit", early="11111"))
    edited = text("edit", early=EDITED)
    reply = asker.ask(edited)
    return cached(reply) > edited.index(EDITED) and not reply.text.startswith(EDITED)


def edit_is_claimed_long(asker: Asker, _: LabServer) -> bool:
    asker.ask(text("edit", early="11111"))
    edited = text("edit", early=EDITED)
    return cached(asker.ask(edited)) > edited.index(EDITED)


def edit_moves_scores(asker: Asker, _: LabServer) -> bool:
    asker.ask(text("edit", early="11111"))
    edited = text("edit", early=EDITED)
    return moved(asker, edited, asker.ask(edited))


def append_moves_scores(asker: Asker, _: LabServer) -> bool:
    longer = text("append")[:-7] + "and so it went on for a while.\nEARLY="
    asker.ask(text("append")[:-7])
    return moved(asker, longer, asker.ask(longer))


def edit_says_the_old(asker: Asker, _: LabServer) -> bool:
    asker.ask(text("edit", early="11111"))
    return asker.ask(text("edit", early=EDITED)).text.startswith("11111")


def old_branch_is_cold(asker: Asker, _: LabServer) -> bool:
    for early in ("11111", EDITED):
        asker.ask(text("edit", early=early))
    return cached(asker.ask(text("edit", early="11111"))) < 600


def other_head_is_warm(asker: Asker, _: LabServer) -> bool:
    asker.ask("First " + text("head"))
    other = "Other " + text("head")
    reply = asker.ask(other)
    return cached(reply) > 64 and moved(asker, other, reply)


def other_model_is_warm(asker: Asker, _: LabServer) -> bool:
    asker.ask(text("model"))
    reply = asker.ask(text("model"), model=MODELS[1])
    return cached(reply) > 64 and reply.differs(asker.cold(text("model"), model=MODELS[1])) > MOVED


def lengths_move_scores(asker: Asker, _: LabServer) -> bool:
    wrong = []
    for length in (639, 640, 641):
        prompt = text("length", length)
        asker.ask(prompt)
        wrong.append(moved(asker, prompt, asker.ask(prompt)))
    return wrong == [False, True, False]


def together_is_wrong(asker: Asker, _: LabServer) -> bool:
    values = [f"{n}{n}{n}{n}5" for n in range(2, 6)]

    def ask(early: str) -> Reply:
        return asker.ask(text(f"beside {early}", early=early), max_tokens=40)

    alone = [asker.cold(text(f"beside {early}", early=early), max_tokens=40) for early in values]
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(ask, values))
    assert all(cached(reply) < 16 for reply in replies)
    return any(reply.text != one.text for reply, one in zip(replies, alone, strict=True))


def churn_moves_scores(asker: Asker, _: LabServer) -> bool:
    asker.ask(text("old"))
    assert not moved(asker, text("old"), asker.ask(text("old")))
    for other in range(5):
        asker.ask(text(f"{other} new"))
    return moved(asker, text("old"), asker.ask(text("old")))


def repeat_moves_scores(asker: Asker, _: LabServer) -> bool:
    asker.ask(text("repeat"))
    return moved(asker, text("repeat"), asker.ask(text("repeat")))


def restart_moves_scores(asker: Asker, server: LabServer) -> bool:
    first = asker.ask(text("disk"))
    assert server.restart() is None
    again = asker.ask(text("disk"))
    return cached(again) > 600 and again.differs(first) > MOVED


def kill_moves_scores(asker: Asker, server: LabServer) -> bool:
    first = asker.ask(text("disk"))
    server.settle()
    assert server.kill() is None
    again = asker.ask(text("disk"))
    return cached(again) > 600 and again.differs(first) > MOVED


def restart_loses(asker: Asker, server: LabServer) -> bool:
    asker.ask(text("disk"))
    assert server.restart() is None
    return cached(asker.ask(text("disk"))) == 0


def side_request_costs_it(asker: Asker, _: LabServer) -> bool:
    asker.ask(text("main")[:-7])
    asker.ask("Title? " + text("side", 80))
    return cached(asker.ask(text("main"))) < 64


def cancelled_is_lost(asker: Asker, server: LabServer) -> bool:
    asker.leave(text("left", 2400), 0.15)
    return cached(asker.ask(text("left", 2400))) < 64


def hit_says_zero(asker: Asker, _: LabServer) -> bool:
    asker.ask(text("zero"))
    before = asker.read_tokens()
    return cached(asker.ask(text("zero"))) == 0 and asker.read_tokens() - before < 16


def hit_says_nothing(asker: Asker, _: LabServer) -> bool:
    reply = asker.ask(text("silent"))
    return reply.cached is None and "cache_n" not in json.dumps(reply.body)


def stream_counts_else(asker: Asker, _: LabServer) -> bool:
    asker.ask(text("stream"))
    whole, lines = cached(asker.ask(text("stream"))), asker.stream(text("stream"))
    usage = next(line for _, line in reversed(lines) if '"usage"' in line and "cached_tokens" in line)
    told = json.loads(usage.removeprefix("data: "))["usage"]["prompt_tokens_details"]["cached_tokens"]
    return bool(told < whole - 64)


def first_sight_is_claimed(asker: Asker, _: LabServer) -> bool:
    return cached(asker.ask(text("first"))) > 64


def claimed_but_read(asker: Asker, _: LabServer) -> bool:
    first = asker.ask(text("claim"))
    before = asker.read_tokens()
    again = asker.ask(text("claim"))
    read = asker.read_tokens() - before
    return cached(again) > 600 and read > 600 and again.took_s > first.took_s / 2


def frame_comes_early(asker: Asker, _: LabServer) -> bool:
    lines = asker.stream(text("frame"))
    says = [at for at, line in lines if line.startswith("data: {") and '"text": ""' not in line]
    return lines[0][0] < says[0] / 3


def repeat_is_empty(asker: Asker, _: LabServer) -> bool:
    return bool(asker.ask(text("again", 1200)).text) and not asker.ask(text("again", 1200)).text


def repeat_fails(asker: Asker, _: LabServer) -> bool:
    return asker.ask(text("again", 1200)).status == 200 and asker.ask(text("again", 1200)).status >= 500


def repeat_drops(asker: Asker, _: LabServer) -> bool:
    return asker.ask(text("again", 1200)).status == 200 and asker.ask(text("again", 1200)).status == 0


def too_long_is_cut(asker: Asker, _: LabServer) -> bool:
    reply = asker.ask(text("long", 6000))
    return reply.status == 200 and reply.prompt_tokens < 3000


def limit_is_passed(asker: Asker, _: LabServer) -> bool:
    return len(asker.ask(text("limit"), max_tokens=4).text) > 4


def unknown_is_swallowed(asker: Asker, _: LabServer) -> bool:
    return "num_batch" not in json.dumps(asker.ask(text("option"), num_batch=3).body)


def stream_is_broken(asker: Asker, _: LabServer) -> bool:
    for _ in range(WELL):
        asker.stream(text("broken"), max_tokens=1)
    lines = [line for _, line in asker.stream(text("broken"), max_tokens=12)]
    payloads = [line.removeprefix("data: ") for line in lines if line != "data: [DONE]"]
    return any(not payload.endswith("}") for payload in payloads)


SCENES: dict[str, Scene] = {
    "coarse-restore": edit_is_short,
    "coarse-minus-one": edit_is_short,
    "one-too-far": edit_is_long,
    "past-the-edit": edit_is_long,
    "salt-ignored": other_head_is_warm,
    "stale-weights": other_model_is_warm,
    "block-ends": lengths_move_scores,
    "off-by-one": edit_moves_scores,
    "recurrent-ahead": append_moves_scores,
    "window-lost": append_moves_scores,
    "wrong-together": together_is_wrong,
    "foreign-state": together_is_wrong,
    "wrong-after-churn": churn_moves_scores,
    "speculative-cached": append_moves_scores,
    "lossy-ssd": restart_moves_scores,
    "torn-after-kill": kill_moves_scores,
    "side-requests-evict": side_request_costs_it,
    "old-branch-lost": old_branch_is_cold,
    "cancel-discards": cancelled_is_lost,
    "restart-loses": restart_loses,
    "reported-zero": hit_says_zero,
    "field-missing": hit_says_nothing,
    "stream-counts-else": stream_counts_else,
    "claimed-past-divergence": edit_is_claimed_long,
    "claimed-on-first-sight": first_sight_is_claimed,
    "hit-but-reads": claimed_but_read,
    "keep-alive-fakes": frame_comes_early,
    "empty-on-repeat": repeat_is_empty,
    "error-on-repeat": repeat_fails,
    "old-answer": edit_says_the_old,
    "front-truncation": too_long_is_cut,
    "limit-ignored": limit_is_passed,
    "options-swallowed": unknown_is_swallowed,
    "broken-stream": stream_is_broken,
    "drops-repeats": repeat_drops,
}


def test_there_are_enough_of_them_with_names_of_their_own() -> None:
    names = [defect.name for defect in (*SOUND, *DEFECTS)]
    assert len(DEFECTS) >= 20
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_each_names_the_gates_that_must_catch_it(defect: type[Defect]) -> None:
    assert defect.caught_by
    assert set(defect.caught_by) <= set(NAMES)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_each_shows(defect: type[Defect]) -> None:
    with LabServer(defect()) as server, Asker(server.url) as asker:
        assert SCENES[defect.name](asker, server)


@pytest.mark.parametrize("scene", sorted(set(SCENES.values()), key=lambda scene: scene.__name__))
def test_the_sound_server_shows_none(scene: Scene) -> None:
    with LabServer(Sound()) as server, Asker(server.url) as asker:
        assert not scene(asker, server)
