"""Wrong decisions: restored too little, too far, or for a prompt that is not this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from headstart.lab.defect import Defect, recast
from headstart.lab.engine import RecallEngine
from headstart.prefix.cache import Failed, NoMatch, PrefixCache, Restored
from headstart.prefix.plan import LiveView, Plan, PromptHints, Tier
from headstart.prefix.tokens import TokenRun, common_prefix

STEP = 512
_BLOCK = 64
_NEAR = 64


class StoredOnly(PrefixCache):
    """A cache that never goes on in a live sequence, so that everything it resumes was copied."""

    def _plan(self, namespace: bytes, prompt: TokenRun, live: Sequence[LiveView], hints: PromptHints) -> Plan:
        return super()._plan(namespace, prompt, [], hints)


class _InSteps(StoredOnly):
    minus = 0

    def _plan(self, namespace: bytes, prompt: TokenRun, live: Sequence[LiveView], hints: PromptHints) -> Plan:
        plan = super()._plan(namespace, prompt, live, hints)
        at = max(0, (plan.restore_at + self.minus) // STEP * STEP - self.minus)
        return replace(plan, restore_at=at, exact=False, tier=Tier.RAM if at else Tier.NONE)


class CoarseRestore(Defect):
    name = "coarse-restore"
    title = f"restores to multiples of {STEP} tokens only and reads the rest again"
    caught_by = ("exact_repeat", "append", "middle_edit")

    def cache(self, cache: PrefixCache) -> PrefixCache:
        return recast(_InSteps, cache)


class _InStepsMinusOne(_InSteps):
    minus = 1


class CoarseRestoreMinusOne(Defect):
    name = "coarse-minus-one"
    title = f"restores to multiples of {STEP} tokens, minus 1"
    caught_by = ("gap_sweep",)

    def cache(self, cache: PrefixCache) -> PrefixCache:
        return recast(_InStepsMinusOne, cache)


class _Remembering(PrefixCache):
    """Knows every prompt that was planned; `other` picks one of them to take this one for."""

    def _plan(self, namespace: bytes, prompt: TokenRun, live: Sequence[LiveView], hints: PromptHints) -> Plan:
        seen: list[TokenRun] = self.__dict__.setdefault("lab_prompts", [])
        plan = super()._plan(namespace, prompt, live, hints)
        other = next(
            (taken for old in reversed(seen) if (taken := self.other(old, prompt, plan)) is not None), None
        )
        if not any(len(old) == len(prompt) and bool((old == prompt).all()) for old in seen):
            seen.append(prompt.copy())
        return plan if other is None else super()._plan(namespace, other, [], hints)

    def other(self, old: TokenRun, prompt: TokenRun, plan: Plan) -> TokenRun | None:
        """A prompt as long as `prompt` that is planned in its place; None: plan this one."""
        raise NotImplementedError


class _OneTooFar(_Remembering):
    def other(self, old: TokenRun, prompt: TokenRun, plan: Plan) -> TokenRun | None:
        at = common_prefix(old, prompt)
        if at < _BLOCK or at < plan.divergence or at + 2 >= min(len(old), len(prompt)):
            return None
        taken = prompt.copy()
        taken[at] = old[at]
        return taken


class OneTokenTooFar(Defect):
    name = "one-too-far"
    title = "restores one token past the divergence, with the other branch's row"
    caught_by = ("middle_edit",)

    def cache(self, cache: PrefixCache) -> PrefixCache:
        return recast(_OneTooFar, cache)


class _Lookalike(_Remembering):
    def other(self, old: TokenRun, prompt: TokenRun, plan: Plan) -> TokenRun | None:
        if len(old) != len(prompt):
            return None
        differs = np.flatnonzero(old != prompt)
        return old if len(differs) and self.overlooked(differs, len(prompt)) else None

    def overlooked(self, differs: npt.NDArray[np.intp], length: int) -> bool:
        """Whether prompts that differ at these places only are one and the same to this cache."""
        raise NotImplementedError


class _MiddleUnseen(_Lookalike):
    def overlooked(self, differs: npt.NDArray[np.intp], length: int) -> bool:
        return bool(differs[0] >= _NEAR) and bool(differs[-1] < length - 8) and int(np.ptp(differs)) < _NEAR


class PastTheEdit(Defect):
    name = "past-the-edit"
    title = "a prompt edited in its middle is resumed past the edit, from the old text's state"
    caught_by = ("middle_edit",)

    def cache(self, cache: PrefixCache) -> PrefixCache:
        return recast(_MiddleUnseen, cache)


class _HeadUnseen(_Lookalike):
    def overlooked(self, differs: npt.NDArray[np.intp], length: int) -> bool:
        return int(differs[-1]) < 2 * _NEAR


class SaltIgnored(Defect):
    name = "salt-ignored"
    title = "the first tokens are not part of the key: a prompt with another salt gets the state of this one"
    caught_by = ("must_miss",)

    def cache(self, cache: PrefixCache) -> PrefixCache:
        return recast(_HeadUnseen, cache)


class StaleWeights(Defect):
    name = "stale-weights"
    title = "a model resumes from state that another model's weights made"
    caught_by = ("model_switch", "must_miss")

    def __init__(self) -> None:
        self._caches: list[PrefixCache] = []

    def engine(self, engine: RecallEngine) -> RecallEngine:
        parts = {**engine.facts.parts, "weights": "not looked at"}
        engine.facts = replace(engine.facts, parts=parts)
        return engine

    def cache(self, cache: PrefixCache) -> PrefixCache:
        if len(self._caches) >= 2:  # it was restarted
            self._caches.clear()
        self._caches.append(cache)
        return recast(StoredOnly, self._caches[0])


class _BlockEndsWrong(StoredOnly):
    def load(self, plan: Plan) -> Restored | NoMatch | Failed:
        found = super().load(plan)
        if not isinstance(found, Restored) or len(plan.prompt) % _BLOCK:
            return found
        logits = None if found.logits is None else np.roll(found.logits, 1)
        rows = [*found.rows[:-1], *found.rows[-2:-1]]
        sizes_match = sum(len(part) for part in rows) == found.position
        return replace(found, logits=logits, rows=rows if sizes_match else found.rows)


class WrongAtBlockEnds(Defect):
    name = "block-ends"
    title = "a prompt that ends with a block is resumed from the block before"
    caught_by = ("length_sweep",)

    def cache(self, cache: PrefixCache) -> PrefixCache:
        return recast(_BlockEndsWrong, cache)


DEFECTS: tuple[type[Defect], ...] = (
    CoarseRestore,
    CoarseRestoreMinusOne,
    OneTokenTooFar,
    PastTheEdit,
    SaltIgnored,
    StaleWeights,
    WrongAtBlockEnds,
)
