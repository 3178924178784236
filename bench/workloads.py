"""What an agent sends, as token prompts: pure generators that know nothing of any server.

A workload yields steps and is sent the reply of each, so that a follow-up carries the conversation
as it really went. Token ids come from a `Source`; every workload starts with tokens of its own, so
that workloads share no prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

Tokens = list[int]


@dataclass(frozen=True)
class Step:
    """One request. `cold`: nothing of the prompt has been sent before."""

    name: str
    prompt: Tokens
    cold: bool = False


Talk = Generator[Step, Tokens, None]
"""Yields steps, is sent the tokens of each reply."""


class Source:
    """An endless supply of token ids: `text` over and over, with a mark of its own in front."""

    def __init__(self, text: Sequence[int], salt: int) -> None:
        self._text = text
        self._salt = salt
        self._taken = 0

    def take(self, count: int) -> Tokens:
        """The next `count` tokens; two takes never begin alike."""
        self._taken += 1
        n = len(self._text)
        start = (self._salt * 7919 + self._taken * 1009) % n
        mark = [self._text[(self._salt * 31 + self._taken * 17 + i * 5) % n] for i in range(min(4, count))]
        return mark + [self._text[(start + i) % n] for i in range(count - len(mark))]


def exact_repeat(source: Source, size: int) -> Talk:
    """The same prompt three times."""
    prompt = source.take(size)
    for count in range(3):
        yield Step(f"send {count + 1}", prompt, cold=count == 0)


def append(source: Source, size: int) -> Talk:
    """Ten turns: each adds the reply and a new message to what was sent before."""
    prompt = source.take(size // 2)
    for turn in range(10):
        prompt = prompt + source.take(size // 16)
        reply = yield Step(f"turn {turn + 1}", prompt, cold=turn == 0)
        prompt = prompt + reply


def edit_sweep(source: Source, size: int) -> Talk:
    """One prompt, then the same with one token changed at 10, 25, 50, 75 and 90 % of its length."""
    base = source.take(size)
    yield Step("base", base, cold=True)
    for percent in (10, 25, 50, 75, 90):
        at = size * percent // 100
        changed = next(token for token in source.take(64) if token != base[at])
        yield Step(f"edit at {percent} %", [*base[:at], changed, *base[at + 1 :]])


def edits_revisited(source: Source, size: int) -> Talk:
    """Edits at 25 and 75 % of a prompt, then other edits at the same places: second visits."""
    base = source.take(size)
    yield Step("base", base, cold=True)
    for visit in ("first", "second"):
        for percent in (25, 75):
            at = size * percent // 100
            changed = next(token for token in source.take(64) if token != base[at])
            yield Step(f"{visit} edit at {percent} %", [*base[:at], changed, *base[at + 1 :]])


def branch_and_back(source: Source, size: int) -> Talk:
    """A conversation goes one way, is taken back and goes another, then the first way goes on."""
    trunk = source.take(size * 3 // 4)
    first, second = trunk + source.take(size // 4), trunk + source.take(size // 4)
    first = first + (yield Step("first branch", first, cold=True))
    second = second + (yield Step("second branch", second))
    first = first + source.take(size // 16)
    first = first + (yield Step("first branch again", first))
    yield Step("second branch again", second + source.take(size // 16))


def four_conversations(source: Source, size: int) -> Talk:
    """Four conversations with one head (system prompt and tools), three rounds in turn."""
    head = source.take(size // 2)
    talks = [head + source.take(size // 4) for _ in range(4)]
    for turn in range(3):
        for index, prompt in enumerate(talks):
            cold = turn == 0 and index == 0
            reply = yield Step(f"round {turn + 1}, conversation {index + 1}", prompt, cold)
            talks[index] = prompt + reply + source.take(size // 16)


def side_requests(source: Source, size: int) -> Talk:
    """A long conversation; after each of its turns three small requests that nobody sends again."""
    prompt = source.take(size)
    for turn in range(4):
        prompt = prompt + (yield Step(f"turn {turn + 1}", prompt, cold=turn == 0)) + source.take(size // 16)
        for side in range(3):
            yield Step(f"side request {turn * 3 + side + 1}", source.take(max(8, size // 16)))


WORKLOADS: dict[str, Callable[[Source, int], Talk]] = {
    "exact repeat": exact_repeat,
    "ten-turn append": append,
    "edit sweep": edit_sweep,
    "edits revisited": edits_revisited,
    "branch and back": branch_and_back,
    "four conversations": four_conversations,
    "side requests": side_requests,
}


class PerfectCache:
    """A cache that keeps every row ever computed and resumes at any token: the least that must be read.

    The last token of a reply is not read by anyone, so it has no row; and one token of every
    prompt is read to get logits (a server that stores end logits may read none).
    """

    def __init__(self) -> None:
        self._runs: list[Tokens] = []

    def must_read(self, prompt: Tokens) -> int:
        """How many tokens of `prompt` have to be read."""
        known = max((common_prefix(prompt, run) for run in self._runs), default=0)
        return len(prompt) - min(known, len(prompt) - 1)

    def remember(self, prompt: Tokens, reply: Tokens) -> None:
        self._runs.append(prompt + reply[:-1])


def common_prefix(a: Tokens, b: Tokens) -> int:
    """How many tokens `a` and `b` share from the start."""
    for count, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return count
    return min(len(a), len(b))


def play(talk: Talk, send: Callable[[Step], Tokens]) -> Iterator[Step]:
    """Runs `talk` against `send`, step by step."""
    try:
        step = next(talk)
        while True:
            reply = send(step)
            yield step
            step = talk.send(reply)
    except StopIteration:
        return


def longest(talks: Iterable[Talk], reply: Tokens) -> int:
    """The longest prompt plus reply in `talks`, for choosing a context size."""
    return max(len(step.prompt) + len(reply) for talk in talks for step in play(talk, lambda _: list(reply)))
