"""Reads the GPU rows of a trace: kernels and copies, and which op of the step launched each.

The trace's times of ops on a GPU are the host's, which only launches kernels. The GPU's own times are rows of its
streams. These are listed by the number of the physical card, whatever logical devices it is split into. A row is named
after the op that launched it ("net/conv:Conv2D").
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# "/device:GPU:0/stream:all" repeats every kernel of "/device:GPU:0/stream:7"; "/stream:" has what is neither kernel nor
# copy (memsets).
TRACK = re.compile(r"^(?:.*/)?device:GPU:\d+/(stream:all|stream:|memcpy|sync)$")
SIZE = re.compile(r"\bsize:(\d+)")
EDGE = re.compile(r"^edge_\d+_(?P<op>.+)$")
SENDS, RECEIVES = ("_Send", "_HostSend"), ("_Recv", "_HostRecv")
CROSSING = ("H2D", "D2H", "P2P")
TRUNCATED_S = 0.5e-6  # durations are truncated to whole microseconds, which loses half of one on average


class GpuActivity(NamedTuple):
    """A row of a GPU's tracks: a kernel, a copy, or a synchronisation."""

    name: str  # the op that launched it, as written in the trace
    kind: str  # kernel, other, sync, or the direction of a copy (H2D, D2H, D2D, P2P)
    start_s: float  # from the step's first op
    end_s: float
    work_bytes: int = 0


class Copy(NamedTuple):
    """A copy of an output of op `op` between devices. row: the op that requested the copy; "" if unknown."""

    work: GpuActivity
    op: str
    row: str


@dataclass(frozen=True)
class Attributed:
    """GPU activities by the op that launched them."""

    of_op: Mapping[str, Sequence[GpuActivity]]
    copies: tuple[Copy, ...]
    unattributed_s: float  # seconds of kernels that no op is known to have launched


def gpu_activities(step_stats: Any, zero_ns: int) -> list[GpuActivity]:
    """All GPU activities in a StepStats proto, each once; empty if the trace has none (CUPTI is missing).

    zero_ns: the time that seconds are counted from.
    """
    found = []
    for stats in step_stats.dev_stats:
        if track := TRACK.match(stats.device):
            found += [_work(node, track[1], zero_ns) for node in stats.node_stats]
    return found


def attributed(work: Iterable[GpuActivity], types: Mapping[str, str]) -> Attributed:
    """Group activities by op. types: name -> type of ops that ran on GPUs, and of all sends and receives."""
    of_op: dict[str, list[GpuActivity]] = defaultdict(list)
    copies, unattributed_s = [], 0.0
    for row in work:
        copy, op = _copy(row, types), owner(row.name, types)
        if row.kind == "sync":
            continue
        if copy is not None:
            copies.append(copy)
        elif op is not None:
            of_op[op].append(row)
        elif row.kind in CROSSING:
            copies.append(Copy(row, row.name, ""))
        elif row.kind == "kernel":
            unattributed_s += row.end_s - row.start_s
    return Attributed(dict(of_op), tuple(copies), unattributed_s)


def _copy(row: GpuActivity, types: Mapping[str, str]) -> Copy | None:
    """The copy that a send or a receive requested; None for other rows. TensorFlow names it after the edge
    ("edge_9_net/a") or after the node that it added for it ("net/a/_12:_Recv").
    """
    if row.kind in ("kernel", "other", "sync"):
        return None
    if edge := EDGE.match(row.name):
        return Copy(row, edge["op"], "")
    name, _, kind = row.name.rpartition(":") if ":" in row.name else (row.name, "", types.get(row.name, ""))
    return Copy(row, name.rpartition("/")[0], name) if kind in SENDS + RECEIVES else None


def owner(name: str, ops: Container[str]) -> str | None:
    """The op that launched the row called `name`: "net/conv" for "net/conv:Conv2D". For a row from a function inside an
    op, the op whose name is a prefix: "net/while" for "net/while/body/add:AddV2".
    """
    if name in ops:
        return name
    path = name.rpartition(":")[0] or name
    while path:
        if path in ops:
            return path
        path = path.rpartition("/")[0]
    return None


def union_s(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that (start, end) spans cover together.

    |aa.....|
    |.aa..a.|  -> 4
    """
    total_s, until_s = 0.0, float("-inf")
    for start_s, end_s in sorted(spans):
        total_s += max(0.0, end_s - max(start_s, until_s))
        until_s = max(until_s, end_s)
    return total_s


def _work(node: Any, track: str, zero_ns: int) -> GpuActivity:
    kind = {"stream:all": "kernel", "stream:": "other", "sync": "sync"}.get(track, "")
    label = node.timeline_label
    if not kind:
        kind = label.partition(" ")[0].removeprefix("Memcpy")
    size = SIZE.search(label)
    start_s = (node.all_start_micros * 1000 - zero_ns) * 1e-9
    end_s = start_s + node.op_end_rel_micros * 1e-6 + TRUNCATED_S
    return GpuActivity(node.node_name, kind, start_s, end_s, int(size[1]) if size else 0)
