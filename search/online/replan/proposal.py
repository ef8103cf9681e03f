"""A planner's settings and proposals: plain values, which are passed between processes."""

from __future__ import annotations

from dataclasses import dataclass

OpDevices = tuple[int, ...]
"""The device of each op of the captured graph, by its index in the whole topology."""


@dataclass(frozen=True)
class PlanSettings:
    """How a planner searches."""

    groups: int = 192  # the search moves at most about this many groups
    headroom: float = 0.1  # share of each device's memory that stays free
    seed: int = 0  # of the searcher
    searcher: str = "hybrid"  # search.offline.plan.DEFAULT_SEARCHER, which is slow to import
    plan: int = 0  # number of the plan of splits that gives the graph


@dataclass(frozen=True)
class Proposal:
    """A mapping to measure."""

    devices: OpDevices
    order: tuple[str, ...]  # names of ops as the placed step runs them; empty where one device runs everything
    predicted_s: float  # seconds of a step, by the calibration at that moment
    searcher: str  # that proposed it
    plan: int = 0  # number of the plan of splits by which ops are divided
