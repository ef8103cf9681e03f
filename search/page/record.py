"""What a report page shows, as plain data: seconds, bytes, names and sentences, and nothing that has to be computed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Baseline:
    """A step time that other step times are compared with."""

    name: str
    step_s: float
    spread_s: float | None = None  # interquartile range
    repeats: int | None = None
    is_delivered: bool = False  # whether it is what the search hands back
    is_reference: bool = False  # whether it was measured apart from the others, so that it is no competitor
    note: str = ""


@dataclass(frozen=True)
class MeasuredRow:
    """One measured mapping, in the order of measuring; either `step_s` or `failed` is known."""

    searcher: str
    order: int  # from 1
    devices: tuple[int, ...]  # how many groups, or ops, each device of the record has
    step_s: float | None = None
    spread_s: float | None = None
    repeats: int = 0
    predicted_s: float | None = None  # before it was measured
    at_s: float | None = None  # seconds since the search began
    failed: str | None = None
    is_comparable: bool = True  # False: stopped early, so that it never counts as the best so far


@dataclass(frozen=True)
class Bar:
    """Work from start_s to end_s in one lane: one piece, or `count` short pieces that are drawn as one."""

    lane: int  # of its panel
    kind: str  # forward, backward, update, other, send, receive or transfer
    label: str
    start_s: float
    end_s: float
    busy_s: float  # seconds of work; less than end_s - start_s if there are gaps between pieces
    count: int = 1


@dataclass(frozen=True)
class Lane:
    """A device (its index), or a link between two devices."""

    name: str
    devices: tuple[int, ...]


@dataclass(frozen=True)
class Panel:
    """The timeline of one step."""

    name: str
    makespan_s: float
    lanes: tuple[Lane, ...]
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Node:
    """A group of ops; x and y are where it is drawn, both from 0 to 1."""

    name: str
    unit: int  # groups of one unit share a device
    device: int
    cost_s: float | None  # on its device
    memory_bytes: int
    ops: tuple[str, ...]  # names of some of its ops
    op_count: int
    phase: str
    part: str  # which part of a divided op it has, in words; "" for none
    x: float
    y: float


@dataclass(frozen=True)
class Edge:
    """Tensors from one node to another, by their indices."""

    src: int
    dst: int
    edge_bytes: int


@dataclass(frozen=True)
class DeviceLoad:
    """What a device has to do and to hold, as predicted."""

    name: str
    kind: str
    ops: int
    busy_s: float
    memory_bytes: int  # of variables
    peak_bytes: float  # the most at once, tensors included
    limit_bytes: int | None = None
    before_busy_s: float | None = None  # under the best single device


@dataclass(frozen=True)
class Event:
    """A decision within a training."""

    at_s: float  # since the training was begun
    step: int
    kind: str
    sentence: str
    dry_run: bool = False


@dataclass(frozen=True)
class Curve:
    """The progress of a searcher: the best step time so far, over several seeds, at the same places."""

    searcher: str
    axis: str  # "order" if places are counts of measurements, "seconds" if they are seconds of the search
    seeds: int
    at: tuple[float, ...]
    median_s: tuple[float, ...]
    low_s: tuple[float, ...]  # of the luckiest seed
    high_s: tuple[float, ...]


@dataclass(frozen=True)
class RunRecord:
    """All that a page shows of one search, or of all searches of one case. A part that is not known is empty."""

    title: str
    subtitle: str
    summary: tuple[str, ...]  # sentences
    devices: tuple[str, ...]
    baselines: tuple[Baseline, ...] = ()
    rows: tuple[MeasuredRow, ...] = ()
    panels: tuple[Panel, ...] = ()
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    loads: tuple[DeviceLoad, ...] = ()
    events: tuple[Event, ...] = ()
    curves: tuple[Curve, ...] = ()  # of a case, in place of one search's convergence
    missing: tuple[str, ...] = ()  # sentences: which figures are missing, and why
    known_searchers: tuple[str, ...] = ()  # of all cases, so that each has the same colour in all

    @property
    def searchers(self) -> tuple[str, ...]:
        """The names of the searchers: `known_searchers`, then others in the order of their first rows."""
        return tuple(dict.fromkeys((*self.known_searchers, *(row.searcher for row in self.rows))))

    @property
    def best_so_far_s(self) -> tuple[float | None, ...]:
        """For each row, the least comparable step time up to that row; None before there is one."""
        best: float | None = None
        found = []
        for row in self.rows:
            if row.step_s is not None and row.is_comparable:
                best = row.step_s if best is None else min(best, row.step_s)
            found.append(best)
        return tuple(found)
