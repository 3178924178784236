"""The planted defects, by where they bend the server."""

from __future__ import annotations

from headstart.lab.defect import Defect
from headstart.lab.defects import counting, losing, plans, replies, state

DEFECTS: tuple[type[Defect], ...] = (
    *plans.DEFECTS,
    *state.DEFECTS,
    *losing.DEFECTS,
    *counting.DEFECTS,
    *replies.DEFECTS,
)
