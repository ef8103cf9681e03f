"""`placer plan` on files: when tensors count as memory, and what it says where they do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.jobs.plan import plan_command, simulate_command
from placer.errors import BadInputError, PlacerError
from placer.graph.graph_files import read_graph, read_topology, write_graph, write_topology
from placer.graph.mapping import Mapping
from placer.graph.mapping_files import mapping_file, write_mapping
from placer.graph.memory_limits import MemoryLimits
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from tests.search.session.test_memory import keeping

FREE_LINK = Link("*", "*", 1e-6, 1e12)


@pytest.fixture
def plans(tmp_path: Path) -> Any:
    """Plans `keeping()`, on two devices with so many bytes each by the file: by variables alone, one holds all."""

    def run(in_file: int | None = None, *limits: int, graph: OpGraph | None = None, **more: Any) -> dict[str, Any]:
        write_graph(tmp_path / "graph.json", graph or keeping())
        devices = tuple(Device(f"d{i}", "cpu", in_file) for i in range(2))
        write_topology(tmp_path / "topology.json", Topology(devices, (FREE_LINK,)))
        texts = [f"d{i}={limit}" for i, limit in enumerate(limits)]
        found = plan_command(
            tmp_path / "graph.json", tmp_path / "topology.json", seconds=0.3, max_memory=MemoryLimits.parsed(texts),
            **more,
        )  # fmt: skip
        return json.loads(json.dumps(found.facts))  # type: ignore[no-any-return]

    return run


def peaks(facts: dict[str, Any]) -> list[float]:
    return [device["memory_peak_bytes"] for device in facts["devices"].values()]


def test_a_plan_keeps_to_max_memory_with_its_tensors(plans: Any) -> None:
    facts = plans(None, 250, 250)
    assert max(peaks(facts)) <= 250 and facts["best_single"] is None
    roomy = plans(None, 1000, 1000)
    assert roomy["best_single"] is not None and not roomy["notes"]


def test_no_mapping_that_fits_is_a_failure_with_how_much_the_nearest_lacks(plans: Any) -> None:
    with pytest.raises(PlacerError, match=r"'keeping' that was asked fits .*, as simulated; of the nearest, d\d would"):
        plans(None, 150, 150)
    with pytest.raises(BadInputError, match=r"needs 40 memory_bytes and all devices together hold 30 .*, 10 too few"):
        plans(None, 15, 15)


def test_the_mapping_of_ops_beside_that_of_their_groups_points_to_it(plans: Any, tmp_path: Path) -> None:
    """As in the folder of a search, whose graph.json is that of the groups."""
    plans()
    graph, topology = tmp_path / "graph.json", tmp_path / "topology.json"
    ops = OpGraph("keeping", (Op("a", cost_s={"cpu": 1.0}),), ())
    placed = read_topology(topology)
    for name, of in (("mapping.json", ops), ("groups.json", read_graph(graph))):
        write_mapping(tmp_path / name, mapping_file(Mapping.single(of, placed, 0), objective="makespan"))
    with pytest.raises(BadInputError, match=r"is of ops, and this graph of their groups; give .*groups\.json instead"):
        simulate_command(graph, topology, tmp_path / "mapping.json")
    for name in (".", "typo.json"):
        with pytest.raises(BadInputError, match=r"cannot be read|is no file"):
            simulate_command(graph, topology, tmp_path / name)
    write_topology(topology, Topology((Device("other", "cpu"),)))
    with pytest.raises(BadInputError, match="the topology has other"):
        simulate_command(graph, topology, tmp_path / "groups.json")
    write_topology(topology, placed)
    (tmp_path / "groups.json").unlink()
    with pytest.raises(BadInputError, match="was made for graph"):
        simulate_command(graph, topology, tmp_path / "mapping.json")


def test_the_memory_of_a_topology_file_is_for_variables_and_what_is_held_beside_it_is_said(plans: Any) -> None:
    facts = plans(100)
    assert max(peaks(facts)) > 100
    (note,) = facts["notes"]
    assert "would hold" in note and "only memory_bytes of ops were limited; --max-memory d" in note


def test_where_tensors_cannot_be_counted_it_says_so(plans: Any) -> None:
    whole = keeping()
    bare = OpGraph("bare", whole.ops, tuple(Edge(e.src, e.dst, 0, e.output_index) for e in whole.edges))
    (note,) = plans(None, 30, 30, graph=bare)["notes"]
    assert note.endswith("the graph's edges have no bytes.")
    (note,) = plans(None, 250, 250, objective="max-load")["notes"]
    assert "under way in a pipeline is not known" in note


def test_the_order_of_a_simulated_step_is_by_rank_whatever_tensors_take(tmp_path: Path) -> None:
    """s 0-1, a 1-2, b 2-3 and c 2-7, which waits for a; b alone would free memory if it ran before a."""
    ops = tuple(Op(name, cost_s={"cpu": seconds}) for name, seconds in (("s", 1), ("a", 1), ("b", 1), ("c", 5)))
    write_graph(tmp_path / "graph.json", OpGraph("g", ops, (Edge(0, 2, 1000), Edge(0, 1, 0, 1), Edge(1, 3, 0))))
    devices = tuple(Device(f"d{i}", "cpu", 100) for i in range(2))
    write_topology(tmp_path / "topology.json", Topology(devices, (Link("*", "*", 0.0, 1e9),)))
    mapping = {"format": "placer.mapping/1", "assignment": {"s": "d0", "a": "d0", "b": "d0", "c": "d1"}}
    (tmp_path / "mapping.json").write_text(json.dumps(mapping))
    found = simulate_command(*(tmp_path / f"{name}.json" for name in ("graph", "topology", "mapping")))
    assert found.facts["value"] == 7


def test_a_graph_whose_ops_no_link_joins_is_refused_in_one_line_however_many_mappings_there_are(tmp_path: Path) -> None:
    """More than are predicted whole, and none of them can run."""
    free = [Op(f"f{i}", cost_s={"gpu": 1.0, "cpu": 1.0}) for i in range(20)]
    ops = (Op("a", cost_s={"gpu": 1.0}), Op("b", cost_s={"cpu": 1.0}), *free)
    write_graph(tmp_path / "graph.json", OpGraph("g", ops, (Edge(0, 1, 8),)))
    write_topology(tmp_path / "topology.json", Topology((Device("gpu:0", "gpu"), Device("cpu:0", "cpu"))))
    with pytest.raises(BadInputError, match="no link"):
        plan_command(tmp_path / "graph.json", tmp_path / "topology.json", seconds=0.3)
