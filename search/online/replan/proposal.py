"""What a plan proposes, and how it was set: plain values, which a planner's process hands over."""

from __future__ import annotations

from dataclasses import dataclass

OpDevices = tuple[int, ...]
"""The device of each op of the captured graph, by its index in the whole topology."""


@dataclass(frozen=True)
class PlanSettings:
    """groups: how coarse the search is. headroom: the share of each device's memory that stays free."""

    groups: int = 192
    headroom: float = 0.1
    seed: int = 0
    searcher: str = "hybrid"  # search.offline.plan.DEFAULT_SEARCHER, which is slow to import


@dataclass(frozen=True)
class Proposal:
    """A mapping to measure. devices: one for each op of the captured graph, indices into the whole topology.

    order: names of ops, the order in which the placed step runs them; empty where one device runs everything.
    predicted_s: seconds of a step by the calibration of the moment. searcher: whose idea it was.
    """

    devices: OpDevices
    order: tuple[str, ...]
    predicted_s: float
    searcher: str
