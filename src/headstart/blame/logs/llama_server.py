"""llama.cpp's server: lines of its slots and of its cache, old and new wording, whatever stands before them.

Counters decide what was reused: tokens read, tokens generated and the slot's length at the end. Several lines
only appear at a higher verbosity (`-lv 4`), so what they tell is used, and their absence means nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from headstart.blame.logs import llama_facts
from headstart.blame.logs.events import (
    Checkpoint,
    Evicted,
    FullReread,
    LogEvent,
    Picked,
    Restored,
    SlotChosen,
    Turn,
)
from headstart.blame.logs.parser import NOTHING, Parser, decimal, whole

_TASK = " | task "
_FRACTION = r"(-?\d{1,6}\.\d{1,9})"
_ALIKE = re.compile(rf"sim_best = {_FRACTION} \(> {_FRACTION} thold\), f_keep = {_FRACTION}")
_TOOK = re.compile(r"time += +(\d{1,15}\.\d{1,6}) ms / +(\d{1,12})")
_TIMES = re.compile(r"(?:prompt )?eval time +=.*")
_PAIR = re.compile(r"\((\d{1,12})/(\d{1,12})\)")
MAX_SLOTS = 1024
ROUNDED = 0.0005
"""Similarities are printed with three decimals."""
LEAST_ALIKE = 0.1
"""Default of --slot-prompt-similarity."""


@dataclass
class _Prompt:
    """A task in a slot, as far as it is known. `most`: tokens that any slot had in common with it; -1: fewer
    than would have chosen a slot."""

    task: str
    chosen: SlotChosen | None = None
    shared: int | None = None
    most: int | None = None
    total: int | None = None
    cached: int | None = None
    read: int | None = None
    prompt_ms: float | None = None
    generated: int | None = None
    restored: int | None = None
    wanted: int | None = None
    hint: bool = False


class LlamaServer(Parser):
    """Parser of llama-server's log. `name` of the turns may be another server's that runs it inside."""

    passed_over: tuple[str, ...] = (
        "| prompt processing",
        " launch_slot_: ",
        " total time =",
        " graphs reused =",
    )

    def __init__(self, name: str = "llama-server") -> None:
        self.name = name
        self._open: dict[int, _Prompt] = {}
        self._chosen: dict[int, SlotChosen] = {}
        self._sims: dict[int, int] = {}
        self._better: float | None = None
        self._timed: int | None = None
        self._used = False
        self._facts = llama_facts.LlamaFacts(name)

    def feed(self, line: str) -> tuple[LogEvent, ...] | None:
        at = line.find(_TASK)
        if at > 0:
            return self._slot_line(line, at)
        if self._timed is not None and " time =" in line:
            times = _TIMES.search(line)
            self._times(self._open.get(self._timed), times[0] if times else "")
            return NOTHING
        better = decimal(line, "f_sim = ") or decimal(line, ", sim = ") if "better prompt" in line else None
        if better is not None:
            self._note_better(line, better)
            return NOTHING
        return self._facts.feed(line)

    def finish(self) -> tuple[LogEvent, ...]:
        left = [self._turn(slot) for slot in list(self._open)]
        return tuple(turn for turn in left if turn)

    def _slot_line(self, line: str, at: int) -> tuple[LogEvent, ...] | None:
        """`slot FUNCTION: id SLOT | task TASK | MESSAGE`; `at`: where its ` | task ` is."""
        end = line.find(" |", at + len(_TASK))
        number, task = line[line.rfind(" ", 0, at) + 1 : at], line[at + len(_TASK) : end]
        if end < 0 or not number.isdecimal() or len(number) > 9 or line.rfind("slot ", 0, at) < 0:
            return None
        says = line[end + 2 :].strip()
        return self._slot(int(number), task[:20], says)

    def _slot(self, slot: int, task: str, says: str) -> tuple[LogEvent, ...]:
        if task == "-1":
            return self._pick(slot, says)
        prompt = self._open.get(slot)
        ended: tuple[LogEvent, ...] = ()
        if prompt is None or prompt.task != task:
            ended = self._close(slot)
            prompt = self._begin(slot, task)
        if not says:
            self._timed = slot
            return ended
        handle = _HANDLERS.get(says.split(" ", 1)[0])
        return ended + handle(self, slot, prompt, says) if handle else ended

    def _pick(self, slot: int, says: str) -> tuple[LogEvent, ...]:
        if says.startswith("- checking sim"):
            pair = _PAIR.search(says)
            if pair and len(self._sims) < MAX_SLOTS:
                self._sims[slot] = int(pair[1])
            return NOTHING
        if says.startswith("new slot"):
            return self._facts.context(whole(says, "n_ctx = ") or whole(says, "n_ctx_slot = "))
        if not says.startswith("selected slot by"):
            return NOTHING
        alike = _ALIKE.search(says)
        if alike:
            figures = (float(alike[1]), float(alike[3]), float(alike[2]))
            chosen = SlotChosen(slot, Picked.SIMILARITY, *figures)
        else:
            chosen = SlotChosen(slot, _picked(says), decimal(says, "sim_best = "))
        if len(self._chosen) < MAX_SLOTS:
            self._chosen[slot] = chosen
        self._better = None
        return (chosen,)

    def _note_better(self, line: str, similarity: float) -> None:
        """The search in the cache in memory: `looking for` tells of the slot, `found` of the entry."""
        kept = decimal(line, "f_keep = ")
        if "found better prompt" in line:
            self._better = similarity
            return
        if kept is None or kept < 0:
            return
        for slot, chosen in self._chosen.items():
            if chosen.similarity is None and chosen.picked is not Picked.EMPTY:
                self._chosen[slot] = replace(chosen, similarity=similarity, f_keep=kept)

    def _begin(self, slot: int, task: str) -> _Prompt:
        most = max(self._sims.values(), default=None)
        prompt = _Prompt(task, self._chosen.pop(slot, None), self._sims.get(slot), most)
        if most is None and self._used and prompt.chosen:
            prompt.most = -1
        self._sims.clear()
        if self._better is not None and prompt.chosen is not None:
            prompt.chosen = replace(prompt.chosen, similarity=self._better, f_keep=None)
            prompt.shared = None
        self._better = None
        if len(self._open) < MAX_SLOTS:
            self._open[slot] = prompt
        return prompt

    def _close(self, slot: int) -> tuple[LogEvent, ...]:
        turn = self._turn(slot)
        return (turn,) if turn else ()

    def _turn(self, slot: int, length: int | None = None, truncated: bool = False) -> Turn | None:
        """The slot's turn, if enough of it was seen to count it. `length`: of the slot at the end."""
        prompt = self._open.pop(slot, None)
        if prompt is None or (prompt.read is None and prompt.total is None):
            return None
        self._used = True
        total, cached = _counted(prompt, None if truncated else length)
        shared, within, held = _shared(prompt, total)
        return Turn(
            self.name,
            slot,
            prompt.task,
            total,
            cached,
            prompt.read,
            prompt.prompt_ms,
            prompt.generated,
            picked=prompt.chosen.picked if prompt.chosen else None,
            shared=shared,
            shared_within=within,
            shared_most=None if shared is not None else _most(prompt, total),
            held=held,
            restored=prompt.restored,
            hint=prompt.hint,
            truncated=truncated,
        )

    def _times(self, prompt: _Prompt | None, says: str) -> None:
        if prompt is None:
            return
        took = _TOOK.search(says)
        if took and says.startswith("prompt eval"):
            prompt.read, prompt.prompt_ms = int(took[2]), float(took[1])
        elif took:
            prompt.generated = int(took[2])

    def _prompt_line(self, slot: int, prompt: _Prompt, says: str) -> tuple[LogEvent, ...]:
        if says.startswith("prompt eval time"):
            self._times(prompt, says)
        elif says.startswith("prompt done"):
            prompt.total = prompt.total or whole(says, "n_past = ") or whole(says, "n_tokens = ")
        return NOTHING

    def _eval(self, slot: int, prompt: _Prompt, says: str) -> tuple[LogEvent, ...]:
        self._times(prompt, says)
        return NOTHING

    def _new(self, slot: int, prompt: _Prompt, says: str) -> tuple[LogEvent, ...]:
        prompt.total = whole(says, "task.n_tokens = ") or whole(says, "n_prompt_tokens = ")
        return self._facts.context(whole(says, "n_ctx_slot = "))

    def _removed(self, slot: int, prompt: _Prompt, says: str) -> tuple[LogEvent, ...]:
        """The cut before the first batch; later ones follow the reading."""
        if prompt.cached is None:
            cut = whole(says, "memory_seq_rm [")
            prompt.cached = cut if cut is not None else whole(says, "kv cache rm [")
        return NOTHING

    def _restored(self, slot: int, prompt: _Prompt, says: str) -> tuple[LogEvent, ...]:
        position = whole(says, "n_past = ") or whole(says, "n_tokens = ")
        if position is None:
            return NOTHING
        prompt.restored = position
        return (Restored(position, prompt.wanted, slot, decimal(says, "size = ")),)

    def _checking(self, slot: int, prompt: _Prompt, says: str) -> tuple[LogEvent, ...]:
        prompt.wanted = whole(says, "against ")
        return NOTHING

    def _erased(self, slot: int, prompt: _Prompt, says: str) -> tuple[LogEvent, ...]:
        if "context checkpoint" not in says:
            return NOTHING
        return (Checkpoint(False, whole(says, "n_tokens = "), slot, decimal(says, "size = ")),)

    def _created(self, slot: int, prompt: _Prompt, says: str) -> tuple[LogEvent, ...]:
        if not says.startswith("created context checkpoint"):
            return NOTHING
        position = whole(says, "n_tokens = ")
        if position is None:
            position = whole(says, "pos_max = ")
        number, limit = whole(says, "checkpoint "), whole(says, " of ")
        return (Checkpoint(True, position, slot, decimal(says, "size = "), number, limit),)

    def _forcing(self, slot: int, prompt: _Prompt, says: str) -> tuple[LogEvent, ...]:
        if not says.startswith("forcing full prompt"):
            return NOTHING
        prompt.hint = True
        return (FullReread(slot),)

    def _clearing(self, slot: int, prompt: _Prompt, says: str) -> tuple[LogEvent, ...]:
        return (Evicted(),) if "lora change" in says else NOTHING

    def _stop(self, slot: int, prompt: _Prompt, says: str) -> tuple[LogEvent, ...]:
        if not says.startswith("stop processing"):
            return NOTHING
        length = whole(says, "n_tokens = ")
        if length is None:
            length = whole(says, "n_past = ")
        turn = self._turn(slot, length, truncated=whole(says, "truncated = ") == 1)
        return (turn,) if turn else NOTHING


def _picked(says: str) -> Picked:
    if "by LRU" in says:
        return Picked.EMPTY if says.rstrip().endswith("t_last = -1") else Picked.LRU
    return Picked.ID if "by id" in says else Picked.SIMILARITY


def _counted(prompt: _Prompt, length: int | None) -> tuple[int | None, int | None]:
    """Tokens of the prompt and those that were cached. The slot's length at the end is what was in the
    prompt and all generated tokens but the last, which was never computed."""
    total = prompt.total
    if total is None and length is not None and prompt.generated:
        total = length - prompt.generated + 1
    if total is None and prompt.read is not None and prompt.cached is not None:
        total = prompt.read + prompt.cached
    if total is not None and prompt.read is not None:
        return max(total, prompt.read), max(0, total - prompt.read)
    return total, prompt.cached


def _shared(prompt: _Prompt, total: int | None) -> tuple[int | None, int, int | None]:
    """Tokens in common with what the slot held, how exact that is, and how many it held."""
    chosen = prompt.chosen
    shared, within = prompt.shared if prompt.shared is not None else prompt.wanted, 0
    if shared is None and chosen and chosen.similarity is not None and total:
        shared, within = round(chosen.similarity * total), max(1, round(ROUNDED * total))
    if shared is None or chosen is None or not chosen.f_keep or chosen.f_keep < 0:
        return shared, within, None
    return shared, within, round(shared / chosen.f_keep)


def _most(prompt: _Prompt, total: int | None) -> int | None:
    """Where no slot was like enough: what the most alike holds, or less than what would have chosen it."""
    chosen = prompt.chosen
    if chosen is None or chosen.picked not in (Picked.LRU, Picked.EMPTY) or prompt.most is None:
        return None
    return prompt.most if prompt.most >= 0 else round((chosen.threshold or LEAST_ALIKE) * (total or 0))


_Handler = Callable[[LlamaServer, int, _Prompt, str], tuple[LogEvent, ...]]

_HANDLERS: dict[str, _Handler] = {
    "prompt": LlamaServer._prompt_line,
    "eval": LlamaServer._eval,
    "new": LlamaServer._new,
    "cached": LlamaServer._removed,
    "n_tokens": LlamaServer._removed,
    "n_past": LlamaServer._removed,
    "kv": LlamaServer._removed,
    "restored": LlamaServer._restored,
    "checking": LlamaServer._checking,
    "Checking": LlamaServer._checking,
    "erased": LlamaServer._erased,
    "erasing": LlamaServer._erased,
    "superseding": LlamaServer._erased,
    "created": LlamaServer._created,
    "forcing": LlamaServer._forcing,
    "clearing": LlamaServer._clearing,
    "stop": LlamaServer._stop,
}
