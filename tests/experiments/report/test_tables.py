"""What people see of devices."""

from __future__ import annotations

from experiments.report.tables import show_topology, topology_facts
from placer.graph.topology import Device, Topology

TOPOLOGY = Topology((Device("gpu:0", "gpu", 2**30), Device("cpu:0", "cpu")))
CARD = {"gpu:0": "NVIDIA [H200]"}


def test_hardware_is_named_where_it_is_known(capsys):
    show_topology(TOPOLOGY, CARD)
    shown = capsys.readouterr().out
    assert "hardware" in shown and "NVIDIA [H200]" in shown
    show_topology(TOPOLOGY, {})
    assert "hardware" not in capsys.readouterr().out
    assert [device["hardware"] for device in topology_facts(TOPOLOGY, CARD)["devices"]] == ["NVIDIA [H200]", None]
