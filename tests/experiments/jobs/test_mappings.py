"""What `placer show` and `placer diff` find in mapping files whose content is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.jobs.mappings import compared, shown
from experiments.report.mappings import MOST_PAIRS, show_difference, show_mapping
from placer.errors import BadInputError
from placer.graph.graph_files import write_graph, write_topology
from placer.graph.mapping import Mapping
from placer.graph.mapping_files import SplitRegion, mapping_file, write_mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Topology

NAMES = ("model/a/MatMul", "model/a/Relu", "model/b/MatMul", "gradient_tape/model/b/MatMul", "loss")
DEVICES = ("worker:0", "worker:1", "worker:2")


def graph(name: str = "small", last: str = "loss") -> OpGraph:
    """A chain; the first op's only output goes to two ops."""
    names = (*NAMES[:-1], last)
    ops = tuple(Op(op, "MatMul", {"cpu": 0.25}, memory_bytes=2**20) for op in names)
    edges = (Edge(0, 1, 100), Edge(0, 2, 100), Edge(1, 2, 10), Edge(2, 3, 1000), Edge(3, 4, 0))
    return OpGraph(name, ops, edges)


TOPOLOGY = Topology(tuple(Device(name, "cpu", speed=2.0 if name.endswith("2") else 1.0) for name in DEVICES))


def written(folder: Path, devices: tuple[int, ...], of: OpGraph | None = None, **more: object) -> Path:
    mapping = Mapping(of or graph(), TOPOLOGY, devices)
    path = folder / f"{''.join(map(str, devices))}-{mapping.graph.name}.json"
    write_mapping(path, mapping_file(mapping, objective="makespan", **more))  # type: ignore[arg-type]
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    write_graph(tmp_path / "graph.json", graph())
    write_topology(tmp_path / "topology.json", TOPOLOGY)
    return tmp_path / "graph.json", tmp_path / "topology.json"


def test_a_file_alone_says_how_many_ops_each_device_runs_and_all_that_it_knows(tmp_path: Path) -> None:
    path = written(
        tmp_path, (0, 1, 1, 1, 0), measured_s=0.5, spread_s=0.1, repeats=7, baseline={"best_single": 0.8}, seed=3,
        searcher="hybrid", order=["loss"], splits=[SplitRegion("batch", 2, ["model/a/MatMul"])], in_flight=1,
    )  # fmt: skip
    facts = shown(path)
    assert facts["devices"] == {"worker:0": {"ops": 2}, "worker:1": {"ops": 3}}
    assert (facts["checked"], facts["crossing"], facts["ops"], facts["ordered"]) == (False, None, 5, 1)
    assert facts["ratio_to_best_single"] == pytest.approx(1.6)
    assert facts["splits"] == [{"way": "batch", "parts": 2, "ops": 1}]
    assert (facts["searcher"], facts["seed"], facts["repeats"], facts["in_flight"]) == ("hybrid", 3, 7, 1)


def test_with_its_graph_it_is_checked_and_a_tensor_crosses_once(tmp_path: Path, files: tuple[Path, Path]) -> None:
    facts = shown(written(tmp_path, (0, 1, 1, 2, 2)), *files)
    assert facts["checked"]
    assert facts["devices"]["worker:2"] == {"ops": 2, "busy_s": pytest.approx(0.25), "memory_bytes": 2**21}
    assert facts["crossing"] == [
        {"src": "worker:0", "dst": "worker:1", "tensors": 1, "bytes": 100},
        {"src": "worker:1", "dst": "worker:2", "tensors": 1, "bytes": 1000},
    ]


def test_a_device_without_ops_is_shown_where_the_topology_is_known(tmp_path: Path, files: tuple[Path, Path]) -> None:
    facts = shown(written(tmp_path, (0,) * 5), *files)
    assert [device["ops"] for device in facts["devices"].values()] == [5, 0, 0] and facts["crossing"] == []


def test_the_mapping_of_another_graph_is_refused(tmp_path: Path, files: tuple[Path, Path]) -> None:
    with pytest.raises(BadInputError, match=r"was made for graph \w+ \(5 ops\); this model is \w+"):
        shown(written(tmp_path, (0,) * 5, graph(last="another")), *files)
    with pytest.raises(BadInputError, match="give --graph and --topology"):
        shown(written(tmp_path, (0,) * 5), files[0])


def test_a_folder_is_that_of_a_search(tmp_path: Path, files: tuple[Path, Path]) -> None:
    """Its graph is that of the groups, and its mapping that of the ops."""
    ops = OpGraph("small", tuple(Op(f"op{i}", "Add", {"cpu": 0.0}) for i in range(12)), ())
    written(tmp_path, (0,) * 7 + (1,) * 5, ops).rename(tmp_path / "mapping.json")
    written(tmp_path, (0, 0, 1, 1, 1)).rename(tmp_path / "groups.json")
    facts = shown(tmp_path)
    assert [device["ops"] for device in facts["devices"].values()] == [7, 5, 0]
    assert facts["devices"]["worker:1"]["busy_s"] == pytest.approx(0.75) and facts["checked"]
    assert len(facts["crossing"]) == 1


def test_a_difference_counts_ops_that_moved_by_devices_and_layers(tmp_path: Path) -> None:
    facts = compared(written(tmp_path, (0, 0, 0, 0, 0)), written(tmp_path, (0, 0, 1, 1, 2)))
    assert (facts["same"], facts["moved"], facts["same_graph"], facts["only_one"]) == (2, 3, True, 0)
    assert facts["moves"] == [
        {"src": "worker:0", "dst": "worker:1", "ops": 2},
        {"src": "worker:0", "dst": "worker:2", "ops": 1},
    ]
    assert facts["scopes"][0] == {"scope": "model/b", "src": "worker:0", "dst": "worker:1", "ops": 2, "of": 2}
    assert facts["scopes"][1]["scope"] == ""


def test_mappings_of_different_graphs_are_compared_by_name(tmp_path: Path) -> None:
    facts = compared(written(tmp_path, (0,) * 5), written(tmp_path, (1,) * 5, graph("other", "another")))
    assert (facts["moved"], facts["only_one"], facts["only_other"], facts["same_graph"]) == (4, 1, 1, False)


def test_all_of_it_is_printed(tmp_path: Path, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    one = written(tmp_path, (0, 1, 1, 2, 2), measured_s=0.5, baseline={"best_single": 0.8}, predicted_s=0.4)
    show_mapping(shown(one, *files))
    out = capsys.readouterr().out
    assert "small (" in out and "500.00 ms" in out and "1.60 times as fast as the best single" in out
    assert "predicted: 400.00 ms (makespan)" in out and "Not checked" not in out
    show_mapping(shown(one))
    assert "Not checked" in capsys.readouterr().out
    show_difference(compared(one, written(tmp_path, (0,) * 5, graph("other", "another"))))
    out = capsys.readouterr().out
    assert (
        "different graphs" in out
        and "3 of 4 ops run on another device; 1 only in the first; 1 only in the second." in out
    )
    show_difference(compared(one, one))
    assert "0 of 5 ops run on another device." in capsys.readouterr().out


def test_many_pairs_of_devices_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = range(1, MOST_PAIRS + 4)
    link = {"dst": "d", "tensors": 1}
    crossing = [{**link, "src": f"from:{size}", "bytes": size * 2**20} for size in sizes]
    show_mapping({**shown(written(tmp_path, (0,) * 5)), "crossing": crossing})
    out = capsys.readouterr().out
    assert "from:4 " in out and "from:3 " not in out and "... and 3 pairs of devices with 6.0 MiB in all." in out
