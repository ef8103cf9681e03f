"""A campaign small enough to be run many times: two towers of ops on two devices, by prediction only."""

import pytest

from experiments.campaign.run import Campaign
from experiments.campaign.spec import read_spec
from experiments.campaign.store import CampaignStore
from placer.graph.graph_files import write_graph, write_topology
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology

SPEC = """\
format = "placer.campaign/1"
searchers = ["random", "local"]
seeds = [0, 1]
measurements = [2, 5]

[[predicted]]
graphs = ["towers.json"]
topologies = ["two.json"]
"""


def towers(cost_s=1.0):
    """A fork, two chains of three ops, a join."""
    ops = [Op("fork", cost_s={"cpu": 0.01})]
    edges = []
    for t in range(2):
        ops += [Op(f"tower{t}/{i}", cost_s={"cpu": cost_s + 0.1 * i}) for i in range(3)]
        edges += [Edge(0, 3 * t + 1, 1), Edge(3 * t + 1, 3 * t + 2, 1), Edge(3 * t + 2, 3 * t + 3, 1)]
    ops.append(Op("join", cost_s={"cpu": 0.01}))
    return OpGraph("towers", tuple(ops), (*edges, Edge(3, 7, 1), Edge(6, 7, 1)))


@pytest.fixture
def folder(tmp_path):
    """A folder with the graph, the topology, and the campaign over them."""
    write_graph(tmp_path / "towers.json", towers())
    devices = (Device("cpu:0", "cpu"), Device("cpu:1", "cpu", speed=0.9))
    write_topology(tmp_path / "two.json", Topology(devices, (Link("*", "*", 0.2, 100.0),)))
    (tmp_path / "campaign.toml").write_text(SPEC)
    return tmp_path


@pytest.fixture
def done(folder):
    """The folder of a campaign that has ended."""
    spec = read_spec(folder / "campaign.toml")
    with CampaignStore(spec.store) as store:
        Campaign(spec, store).run()
    return folder


@pytest.fixture
def edited(folder):
    """Writes the campaign anew with one text replaced by another; returns its path."""

    def edit(before, after):
        path = folder / "campaign.toml"
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after, 1))
        return path

    return edit
