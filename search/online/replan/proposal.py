"""A planner's settings and proposals: plain values, which are passed between processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placer.errors import PlacerError
from placer.graph.defaults import GROUPS, HEADROOM
from placer.train.steps.modes import WHOLE
from search.defaults import DEFAULT_SEARCHER

OpDevices = tuple[int, ...]
"""The device of each op of the captured graph, by its index in the whole topology."""
LEAST_PREDICTED = 0.03  # least predicted gain, a share of a step, for which a mapping is tried during a load


class NoRoomError(PlacerError):
    """No mapping that was asked fits into the memory of the devices in use."""


@dataclass(frozen=True)
class PlanSettings:
    """How a planner searches."""

    groups: int = GROUPS  # the search moves at most about this many groups
    headroom: float = HEADROOM  # share of each device's memory that stays free
    seed: int = 0  # of the searcher
    searcher: str = DEFAULT_SEARCHER
    plan: int = WHOLE  # number of the plan of splits that gives the graph

    @property
    def is_chosen(self) -> bool:
        """Whether a searcher other than the default was chosen: then exactly what it asks is measured."""
        return self.searcher != DEFAULT_SEARCHER


@dataclass(frozen=True)
class Proposal:
    """A mapping to measure."""

    op_devices: OpDevices
    order: tuple[str, ...]  # names of ops as the placed step runs them; empty: as the executor does
    predicted_s: float  # seconds of a step, by the calibration at that moment
    searcher: str  # that proposed it
    plan: int = WHOLE  # number of the plan of splits by which ops are divided
    notes: tuple[str, ...] = ()  # what the searcher noted when it asked this mapping and the next ones


def below(bar_s: float, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Return the proposals that are predicted to take less than `bar_s` seconds a step."""
    return [proposal for proposal in proposals if proposal.predicted_s < bar_s]
