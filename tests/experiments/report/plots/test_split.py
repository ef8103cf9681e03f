"""The picture of a graph before and after ops are divided."""

from __future__ import annotations

from experiments.report.plots.split import HIDDEN, draw, example, places


def test_data_flows_to_the_right_and_devices_have_bands_of_their_own(tmp_path):
    whole, divided = (graph for _, graph in example())
    assert {op.part for op in whole.ops} == {None} and {op.part for op in divided.ops} == {None, 0, 1}
    for graph in (whole, divided):
        found = places(graph, lambda op: op.part or 0)
        assert len(set(found.values())) == len(found) == sum(op.type not in HIDDEN for op in graph.ops)
        assert all(found[e.src][0] < found[e.dst][0] for e in graph.edges if {e.src, e.dst} <= found.keys())
        bands = [{row for v, (_, row) in found.items() if (graph.ops[v].part or 0) == device} for device in (0, 1)]
        assert not bands[1] or max(bands[0]) < min(bands[1])
    draw([("whole", whole), ("divided", divided)], lambda op: op.part or 0, tmp_path / "split.png")
    assert (tmp_path / "split.png").read_bytes().startswith(b"\x89PNG")
