"""What a trace says of GPUs: their kernels and copies, and which op of the step launched each.

Times of ops on a GPU are the host's, which only launches; the GPU's own come as rows of its streams, by the ordinal of
the card, whatever logical devices it is split into. A row is named after the op that launched it ("net/conv:Conv2D").
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# "/device:GPU:0/stream:all" holds every kernel once more than "/device:GPU:0/stream:7"; "/stream:" what is neither
# kernel nor copy (memsets).
TRACK = re.compile(r"^(?:.*/)?device:GPU:\d+/(stream:all|stream:|memcpy|sync)$")
SIZE = re.compile(r"\bsize:(\d+)")
EDGE = re.compile(r"^edge_\d+_(?P<op>.+)$")
SENDS, RECEIVES = ("_Send", "_HostSend"), ("_Recv", "_HostRecv")
CROSSING = ("H2D", "D2H", "P2P")
TRUNCATED_S = 0.5e-6  # durations come cut to whole microseconds, which on average takes half of one


class GpuActivity(NamedTuple):
    """A row of a GPU's tracks. kind: kernel, other, sync, or the direction of a copy (H2D, D2H, D2D, P2P).

    name: who launched it, as the trace says it. Times in seconds from the step's first op.
    """

    name: str
    kind: str
    start_s: float
    end_s: float
    work_bytes: int = 0


class Copy(NamedTuple):
    """Output of op `op` on its way between devices. row: the op that asked for the copy, "" where none is known."""

    work: GpuActivity
    op: str
    row: str


@dataclass(frozen=True)
class Attributed:
    """Who launched what. of_op: op name -> its kernels, and copies that are part of its work.

    unattributed_s: seconds of kernels that no op is known to have launched.
    """

    of_op: Mapping[str, Sequence[GpuActivity]]
    copies: tuple[Copy, ...]
    unattributed_s: float


def gpu_activities(step_stats: Any, zero_ns: int) -> list[GpuActivity]:
    """All that GPUs did in a StepStats proto, each once; empty where the trace has no such rows (CUPTI is missing).

    zero_ns: the moment that seconds are counted from.
    """
    found = []
    for stats in step_stats.dev_stats:
        if track := TRACK.match(stats.device):
            found += [_work(node, track[1], zero_ns) for node in stats.node_stats]
    return found


def attributed(work: Iterable[GpuActivity], types: Mapping[str, str]) -> Attributed:
    """types: name -> type of the ops that ran on GPUs, and of all that sent or received."""
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
    """A copy that a send or a receive asked for. TensorFlow names it after the edge ("edge_9_net/a"), or after the node
    that it put in for it ("net/a/_12:_Recv").
    """
    if row.kind in ("kernel", "other", "sync"):
        return None
    if edge := EDGE.match(row.name):
        return Copy(row, edge["op"], "")
    name, _, kind = row.name.rpartition(":") if ":" in row.name else (row.name, "", types.get(row.name, ""))
    return Copy(row, name.rpartition("/")[0], name) if kind in SENDS + RECEIVES else None


def owner(name: str, ops: Container[str]) -> str | None:
    """The op that launched what the trace calls `name`: "net/conv", "net/conv:Conv2D"; or, for what a function within
    an op launched, the op whose name it goes by: "net/while" of "net/while/body/add:AddV2".
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
