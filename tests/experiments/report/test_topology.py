"""What people see of devices."""

from __future__ import annotations

from experiments.report.topology import show_topology, topology_facts
from placer.graph.topology import Device, Link, Topology

CPU = Device("cpu:0", "cpu")
TOPOLOGY = Topology((Device("gpu:0", "gpu", 2**30, hardware="NVIDIA [H200]"), CPU))


def test_hardware_is_named_where_it_is_known(capsys):
    show_topology(TOPOLOGY)
    shown = capsys.readouterr().out
    assert "hardware" in shown and "NVIDIA [H200]" in shown
    show_topology(Topology((CPU,)))
    assert "hardware" not in capsys.readouterr().out
    assert [device["hardware"] for device in topology_facts(TOPOLOGY)["devices"]] == ["NVIDIA [H200]", None]


def shown_links(capsys, per_node, nodes=("one", "two")):
    """What is shown of a cluster whose links are ten times as slow between nodes."""
    places = [(f"{node}/{i}", node) for node in nodes for i in range(per_node)]
    devices = tuple(Device(name, "cpu", node=node) for name, node in places)
    links = tuple(
        Link(src, dst, 1e-4 if here == there else 1e-3, 1e9)
        for src, here in places
        for dst, there in places
        if src != dst
    )
    show_topology(Topology(devices, links))
    return capsys.readouterr().out


def test_the_links_of_many_devices_are_shown_by_tier(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = shown_links(capsys, 6)
    assert "within nodes, cpu -> cpu (60 links)" in shown and "between nodes, cpu -> cpu (72 links)" in shown
    assert "one/0 ->" not in shown
    assert "1.15 ms" in shown and "2.05 ms" in shown


def test_those_of_few_are_shown_one_by_one(capsys):
    assert shown_links(capsys, 2).count(" -> ") == 12
