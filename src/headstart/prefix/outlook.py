"""What would be restored for a prompt, told before anything is read: the answer to a probe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headstart.prefix.plan import Plan
from headstart.prefix.report import Reason, Tier


@dataclass(frozen=True)
class Outlook:
    """A prompt's start if it came now. Token counts, as in CacheReport.

    `restore_at`: tokens that would not be read again, from `tier`. `exact`: nothing but the next token
    would be computed. `reason`: why not more, None where nothing more could be.
    `memory_at`, `ssd_at`: where the state in memory alone, and that on the SSD alone, could resume.
    """

    prompt_tokens: int
    divergence: int
    restore_at: int
    tier: Tier
    exact: bool
    reason: Reason | None
    memory_at: int
    ssd_at: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `read` is how many tokens would be read."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "divergence": self.divergence,
            "restore_at": self.restore_at,
            "read": self.prompt_tokens - self.restore_at,
            "tier": self.tier.value,
            "exact": self.exact,
            "reason": None if self.reason is None else self.reason.value,
            "memory_at": self.memory_at,
            "ssd_at": self.ssd_at,
        }

    def found_live(self) -> Outlook:
        """The same, resumed by sharing a live sequence's rows."""
        return replace(self, tier=Tier.LIVE)


def outlook(plan: Plan, on_ssd: Plan | None, *, forks: bool) -> Outlook:
    """What `plan` comes to. `on_ssd`: the plan that the SSD's state alone would give, where there is
    any. `forks`: rows of a busy sequence can be stored first and used (`plan.fork_at`)."""
    length = len(plan.prompt)
    fork_at = plan.fork_at if forks else 0
    memory_at = max(plan.restore_at, fork_at)
    tier = Tier.RAM if fork_at > plan.restore_at else plan.tier
    reason, at = plan.reason, memory_at
    if on_ssd is not None and on_ssd.restore_at > memory_at:
        tier, reason, at = Tier.SSD, on_ssd.reason, on_ssd.restore_at
    elif fork_at > plan.restore_at and at >= min(plan.divergence, length - 1):
        reason = None
    return Outlook(
        prompt_tokens=length,
        divergence=plan.divergence,
        restore_at=at,
        tier=tier if at else Tier.NONE,
        exact=at == length > 0,
        reason=reason,
        memory_at=memory_at,
        ssd_at=0 if on_ssd is None else on_ssd.restore_at,
    )
