"""What the cache did for one request, in numbers that add up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headstart.prefix.plan import Plan


class Tier(StrEnum):
    """Where the state was found."""

    NONE = "none"
    LIVE = "live"
    RAM = "ram"
    SSD = "ssd"


class Reason(StrEnum):
    """Why tokens had to be read that a perfect cache would not have read.

    NO_PREFIX        nothing that is stored shares a token with the prompt
    NO_CHECKPOINT    recurrent layers have no checkpoint at the divergence, only before it
    EVICTED          the store held more of this prompt and dropped it to stay within its limit
    OTHER_NAMESPACE  the tokens are stored, but for other weights, options or adapters
    TOO_SHORT        a prompt of one token: it has to be read to get its logits
    DISABLED         the request or the server asked for no cache
    NOT_CANONICAL    `--reproducible`: the rows were not made by canonical prefill on the grid
    BUSY             the rows are only in a sequence that is running and could not be shared
    IO_ERROR         reading stored state failed
    CORRUPT          stored state was damaged and was not used
    UNREADABLE_VERSION  stored state was written in a form this version does not read
    ENGINE_REFUSED   the engine did not take the state
    """

    NO_PREFIX = "no_prefix"
    NO_CHECKPOINT = "no_checkpoint"
    EVICTED = "evicted"
    OTHER_NAMESPACE = "other_namespace"
    TOO_SHORT = "too_short"
    DISABLED = "disabled"
    NOT_CANONICAL = "not_canonical"
    BUSY = "busy"
    IO_ERROR = "io_error"
    CORRUPT = "corrupt"
    UNREADABLE_VERSION = "unreadable_version"
    ENGINE_REFUSED = "engine_refused"


@dataclass(frozen=True)
class CacheReport:
    """Token counts of one prompt: `prompt_tokens` = `restored` + `replayed` + `new`.

    `divergence`: how many leading tokens had all their rows somewhere.
    `restored`: forward passes really skipped. `replayed`: read again although before the divergence.
    `restored_bytes`: copied into the engine (0 where a live sequence went on in place).
    `ssd_bytes`, `ssd_s`: read from the SSD for this prompt, and how long that took.
    """

    prompt_tokens: int
    divergence: int
    restored: int
    replayed: int
    new: int
    tier: Tier = Tier.NONE
    reason: Reason | None = None
    restored_bytes: int = 0
    restore_s: float = 0.0
    plan_s: float = 0.0
    ssd_bytes: int = 0
    ssd_s: float = 0.0

    @property
    def gap(self) -> int:
        """Tokens a perfect cache would have restored and this one did not; never below 0.

        The last prompt token does not count: without stored end logits it has to be read.
        """
        return max(0, min(self.divergence, self.prompt_tokens - 1) - self.restored)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, `gap` included."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "divergence": self.divergence,
            "restored": self.restored,
            "replayed": self.replayed,
            "new": self.new,
            "gap": self.gap,
            "tier": self.tier.value,
            "reason": None if self.reason is None else self.reason.value,
            "restored_bytes": self.restored_bytes,
            "restore_s": self.restore_s,
            "plan_s": self.plan_s,
            "ssd_bytes": self.ssd_bytes,
            "ssd_s": self.ssd_s,
        }


def report(
    plan: Plan,
    *,
    restored: int,
    tier: Tier | None = None,
    reason: Reason | None = None,
    restored_bytes: int = 0,
    restore_s: float = 0.0,
    plan_s: float = 0.0,
    ssd_bytes: int = 0,
    ssd_s: float = 0.0,
) -> CacheReport:
    """The report of a request that followed `plan` and really resumed at `restored`.

    `reason` replaces the plan's where the deed fell short of the plan, for example because loading
    failed; `tier` likewise, for example for a fork made in the engine. Left out, both come from
    the plan, and the tier is NONE where nothing was restored. A plan's reason for reading tokens
    is left out when more was restored than it had planned and no gap remains.
    Raises ValueError unless 0 <= restored <= prompt length.
    """
    prompt_tokens = len(plan.prompt)
    if not 0 <= restored <= prompt_tokens:
        raise ValueError(f"restored must be 0..{prompt_tokens}, the length of the prompt; got {restored}")
    divergence = max(plan.divergence, restored)
    replayed = max(0, min(divergence, prompt_tokens - 1) - restored)
    used = tier if tier is not None else plan.tier
    why = reason if reason is not None else plan.reason
    if reason is None and restored > plan.restore_at and replayed == 0:
        why = None
    return CacheReport(
        prompt_tokens=prompt_tokens,
        divergence=divergence,
        restored=restored,
        replayed=replayed,
        new=prompt_tokens - restored - replayed,
        tier=used if restored else Tier.NONE,
        reason=why,
        restored_bytes=restored_bytes,
        restore_s=restore_s,
        plan_s=plan_s,
        ssd_bytes=ssd_bytes,
        ssd_s=ssd_s,
    )
