"""Devices and the links between them, as facts and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

from rich.table import Table

from experiments.report.console import literal_console
from experiments.report.text import cell
from placer.devices.links.link_pairs import ALL
from placer.graph.topology import Link, Topology
from placer.number_format import mib

Facts = dict[str, Any]


def topology_facts(topology: Topology) -> Facts:
    """The facts that `placer devices --json` prints."""
    devices = [
        {
            "name": d.name,
            "kind": d.kind,
            "memory_bytes": d.memory_bytes,
            "hardware": d.hardware or None,
            "node": d.node,
        }
        for d in topology.devices
    ]
    fields = ("src", "dst", "latency_s", "bandwidth_bytes_per_s", "send_s", "send_s_per_byte")
    links = [
        {name: getattr(link, name) for name in (*fields, "receive_s", "receive_s_per_byte")} for link in topology.links
    ]
    return {"devices": devices, "links": links, "contention": topology.contention}


def show_topology(topology: Topology) -> None:
    """Print devices and links as two tables."""
    console = literal_console()
    is_known = any(d.hardware for d in topology.devices)
    table = Table("device", "kind", "memory", *(["hardware"] if is_known else []))
    for d in topology.devices:
        table.add_row(
            cell(d.name),
            cell(d.kind),
            "unlimited" if d.memory_bytes is None else _memory(d.memory_bytes),
            *([cell(d.hardware)] if is_known else []),
        )
    console.print(table)
    if topology.links:
        table = Table("link", "on the way", "work at each end", "1 MiB in all")
        for name, links in _link_rows(topology).items():
            k = sorted(links, key=_mebibyte_s)[len(links) // 2]
            work = f"{k.send_s * 1e6:.0f} us + {k.send_s_per_byte * 1e9:.2f} ns/byte"
            way = f"{k.latency_s * 1e6:.0f} us, {k.bandwidth_bytes_per_s / 1e9:.3g} GB/s"
            table.add_row(cell(name, 160), way, work, _range_ms([_mebibyte_s(link) for link in links]))
        console.print(table)


def _memory(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 else mib(size_bytes)


def _link_rows(topology: Topology) -> dict[str, list[Link]]:
    """Each link by itself. If there are more than ALL devices and their nodes are known, the links of a tier between
    the same kinds are one row.
    """
    if len(topology) <= ALL or None in topology.nodes:
        return {f"{link.src} -> {link.dst}": [link] for link in topology.links}
    rows: dict[str, list[Link]] = {}
    for s, d in permutations(range(len(topology)), 2):
        link, ends = topology.table[s][d], (topology.devices[s], topology.devices[d])
        if link is not None:
            rows.setdefault(f"{topology.tier(s, d)} nodes, {ends[0].kind} -> {ends[1].kind}", []).append(link)
    return {f"{name} ({len(links)} links)": links for name, links in sorted(rows.items(), reverse=True)}


def _mebibyte_s(link: Link) -> float:
    return link.transfer_s(2**20) + link.send_busy_s(2**20) + link.receive_busy_s(2**20)


def _range_ms(seconds: Sequence[float]) -> str:
    """The median in ms, and the least and the most if they differ."""
    low, middle, high = min(seconds), sorted(seconds)[len(seconds) // 2], max(seconds)
    between = f" ({low * 1e3:.2f} to {high * 1e3:.2f})" if high > low else ""
    return f"{middle * 1e3:.2f} ms{between}"
