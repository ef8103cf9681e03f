"""A record as a search makes it, of a small graph that is simulated, and a large one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from placer.graph.coarsen import Groups, coarsen
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.page.campaign_record import CampaignRecord, CellRow, Failure
from search.page.drawing import drawing_of
from search.page.loads import loads_of
from search.page.panels import panel_of
from search.page.record import Baseline, Curve, Event, MeasuredRow, RunRecord
from surrogate.simulate.simulator import Simulator
from surrogate.simulate.timeline import Timeline

NAMES = ("worker:0", "worker:1")
SEARCHERS = ("single", "heft", "hybrid")
PHASES = ("forward", "backward", "update")
FAILED = 4  # the row that did


@pytest.fixture(scope="session")
def topology() -> Topology:
    links = (Link("*", "*", 1e-4, 1e9, send_s=2e-4, receive_s=2e-4),)
    return Topology(tuple(Device(name, "cpu", 2**30) for name in NAMES), links)


@pytest.fixture(scope="session")
def graph() -> OpGraph:
    """Two chains of twelve ops from one input to one output; the last two are parts of one op."""
    ops = [Op("input<b>", cost_s={"cpu": 1e-4}, phase="forward")]
    edges = []
    for i in range(24):
        part = (i - 22, "dense") if i >= 22 else (None, None)
        cost_s, phase = {"cpu": 1e-3 * (1 + i % 5)}, PHASES[i // 2 % 12 // 4]
        ops.append(Op(f"tower{i % 2}/op{i // 2}", "MatMul", cost_s, 2**20, phase=phase, part=part[0], part_of=part[1]))
        edges.append(Edge(max(0, i - 1), i + 1, 2**18))
    ops.append(Op("loss", cost_s={"cpu": 1e-4}, phase="update"))
    edges += [Edge(23, 25, 64), Edge(24, 25, 64)]
    return OpGraph("two chains", tuple(ops), tuple(edges))


@pytest.fixture(scope="session")
def groups(graph: OpGraph, topology: Topology) -> Groups:
    return coarsen(graph, 16, topology)


@pytest.fixture(scope="session")
def timelines(graph: OpGraph, topology: Topology) -> tuple[Timeline, Timeline]:
    """All on one device, and each chain on its own."""
    simulator = Simulator(graph, topology)
    apart = tuple(0 if i % 2 else 1 for i in range(len(graph)))
    return simulator.timeline((0,) * len(graph)), simulator.timeline(apart)


@pytest.fixture(scope="session")
def make_record(groups: Groups, topology: Topology, timelines: tuple[Timeline, Timeline]) -> Callable[[int], RunRecord]:
    """A record with so many measured rows."""
    before, after = timelines
    devices = [i % 2 for i in range(len(groups.graph))]

    def make(rows: int) -> RunRecord:
        nodes, edges = drawing_of(groups.graph, groups, topology, devices)
        delivered = Baseline("delivered mapping", 0.0512345, 0.001, 30, is_delivered=True, note="side by side")
        return RunRecord(
            "Placer: two chains </script><b>", "of a test", ("It is 1.80x as fast.",), NAMES,
            (delivered, Baseline("best single device", 0.0922221, 0.002, 30),
             Baseline("in this process", 0.0833333, is_reference=True)),
            tuple(measured_row(i) for i in range(rows)),
            (panel_of("before", before), panel_of("after", after)), nodes, edges, loads_of(after, before),
            (Event(0.5, 3, "moved", "load on worker:1 <up> 2.1x"), Event(1.5, 9, "stayed", "no gain", dry_run=True)),
        )  # fmt: skip

    return make


def measured_row(i: int) -> MeasuredRow:
    """Faster from row to row, with outliers."""
    step_s = 0.12 - 0.06 * i / (i + 5) + (0.04 if i % 7 == 3 else 0.0)
    found = {"failed": "memory: too large"} if i == FAILED else {"step_s": step_s, "spread_s": 1e-3, "repeats": 8}
    return MeasuredRow(
        SEARCHERS[min(i // 2, 2)], i + 1, (i % 17, 16 - i % 17), predicted_s=step_s * 1.05, at_s=2.5 * i, **found
    )  # fmt: skip


@pytest.fixture(scope="session")
def record(make_record: Callable[[int], RunRecord]) -> RunRecord:
    return make_record(20)


def curves(count: int = 20) -> tuple[Curve, ...]:
    """Each searcher falls to another level, on both axes; the last has one seed only."""
    found = []
    for k, name in enumerate(SEARCHERS):
        middle = tuple(0.09 / (1 + 0.1 * k * i) for i in range(count))
        spread = 0.0 if name == SEARCHERS[-1] else 0.1
        ends = [tuple(s * (1 + sign * spread) for s in middle) for sign in (-1, 1)]
        for axis, at in (("order", range(count)), ("seconds", [0.5 * i for i in range(count)])):
            found.append(Curve(name, axis, 2 if spread else 1, tuple(map(float, at)), middle, *ends))
    return tuple(found)


@pytest.fixture(scope="session")
def campaign(make_record: Callable[[int], RunRecord]) -> CampaignRecord:
    """Two cases, one predicted, of which the files are gone, and one measured; all searchers and two seeds of each."""
    whole = replace(make_record(20), title="b <i> on two", events=(), curves=curves(), known_searchers=SEARCHERS)
    bare = replace(
        whole, title="a on two", rows=(), panels=(), nodes=(), edges=(), loads=(), devices=(),
        missing=("No graph of the best mapping: a.json has changed.",),
    )  # fmt: skip
    cells = tuple(
        CellRow(
            case, name, seed, kind, "waiting" if seed else "done", 20, 20, 0.05 / (1 + k + seed / 9), 0.09, case == 1,
            1.5, 2 * case,
        )
        for case, kind in enumerate(("predicted", "measured"))
        for k, name in enumerate(SEARCHERS)
        for seed in range(2)
    )  # fmt: skip
    failure = Failure("2026-01-02 03:04:05", "b on two: heft, seed 0, mapping 5", "memory", "no room </script>")
    return CampaignRecord("Placer: campaign c", "of a test", ("It <went> well.",), (bare, whole), cells, (failure,))
