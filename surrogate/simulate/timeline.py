"""The timeline of a simulated step: spans on devices, transfers on links."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import Any, NamedTuple

from placer.graph.held_memory import Lack, own_bytes, worst_lack
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from surrogate.simulate.memory_peak import Stay, peaks


class Span(NamedTuple):
    """Device `device` is busy with `work` ("op", "send" or "receive") of op `op` from start_s to end_s."""

    device: int
    work: str
    op: int
    start_s: float
    end_s: float


class Transfer(NamedTuple):
    """Output `output_index` of op `op` on its way from device `src` to device `dst`."""

    src: int
    dst: int
    op: int
    output_index: int
    link_bytes: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """One simulated training step with op i on device `devices[i]`; spans and transfers are sorted by their start."""

    graph: OpGraph
    topology: Topology
    devices: tuple[int, ...]
    spans: tuple[Span, ...]
    transfers: tuple[Transfer, ...]

    @cached_property
    def makespan_s(self) -> float:
        """Seconds until the last span ends."""
        return max(span.end_s for span in self.spans)

    @cached_property
    def busy_s(self) -> tuple[float, ...]:
        """Seconds that each device computes, sends or receives."""
        busy = [0.0] * len(self.topology)
        for span in self.spans:
            busy[span.device] += span.end_s - span.start_s
        return tuple(busy)

    @cached_property
    def memory_peak_bytes(self) -> tuple[float, ...]:
        """Return the most bytes that each device holds at once: `memory_bytes` of its ops, and the tensors alive there.

        On the device that made it, a tensor lives from the end of its op; on another device, from its arrival. It lives
        until its last consumer there has ended and the last transfer from there has arrived. A variable that is read
        on its own device counts once.
        """
        resident = [0.0] * len(self.topology)
        for op, d in zip(self.graph.ops, self.devices, strict=True):
            resident[d] += op.memory_bytes
        return peaks(resident, self._stays())

    def lack(self, headroom: float = 0.0) -> Lack | None:
        """Return the device whose memory is exceeded most at some moment; None if the memory of all devices is enough.

        headroom: the share of each device's memory that stays free.
        """
        return worst_lack(self.topology, self.memory_peak_bytes, headroom)

    def as_text(self, unit_s: float) -> str:
        """Draw a Gantt chart, one column per `unit_s` seconds: ops by name, '>' sending, '<' receiving.

        a |aa>.dd|
        b |...cc.|
        a -> b |..a...|
        """
        columns = round(self.makespan_s / unit_s)
        rows = {name: ["."] * columns for name in self.topology.names}
        for span in self.spans:
            text = {"send": ">", "receive": "<"}.get(span.work, self.graph.ops[span.op].name)
            _draw(rows[self.topology.names[span.device]], text, span.start_s / unit_s, span.end_s / unit_s)
        for t in self.transfers:
            if round(t.start_s / unit_s) == round(t.end_s / unit_s):
                continue  # too short to draw
            row = rows.setdefault(self.link_name(t), ["."] * columns)
            _draw(row, self.graph.ops[t.op].name, t.start_s / unit_s, t.end_s / unit_s)
        return "\n".join(f"{name} |{''.join(row)}|" for name, row in rows.items())

    def to_trace(self, process: str = "simulated", pid: int = 1) -> dict[str, Any]:
        """Return Chrome trace events, for ui.perfetto.dev: a track per device and per link, times in microseconds.

        Slices that overlap on one device or link go to further tracks of the same name, because slices of one track
        must nest. process: the name over the tracks. pid: the number of this process in the trace.
        """
        tracks = _Tracks(self.topology.names, pid)
        events = [
            tracks.slice(self.topology.names[s.device], self.graph.ops[s.op].name, s.work, s.start_s, s.end_s)
            for s in sorted(self.spans, key=lambda s: s.start_s)
        ]
        for t in sorted(self.transfers, key=lambda t: t.start_s):
            slice_ = tracks.slice(self.link_name(t), self.graph.ops[t.op].name, "transfer", t.start_s, t.end_s)
            events.append({**slice_, "args": {"bytes": t.link_bytes, "output_index": t.output_index}})
        return {"traceEvents": [*tracks.named(process), *events], "displayTimeUnit": "ms"}

    def _stays(self) -> list[Stay]:
        """Return on which device and how long each tensor lives."""
        ended = [(0.0, 0.0)] * len(self.graph)  # per op: when it ended, and its number in the order of the run
        for number, span in enumerate(self.spans):
            if span.work == "op":
                ended[span.op] = span.end_s, float(number)
        begins: dict[tuple[int, int, int], tuple[float, float]] = {}
        until: dict[tuple[int, int, int], tuple[float, float]] = {}
        for e in self.graph.edges:
            begins[(e.src, e.output_index, self.devices[e.src])] = ended[e.src]
            there = (e.src, e.output_index, self.devices[e.dst])
            until[there] = max(until.get(there, (0.0, 0.0)), ended[e.dst])
        for t in self.transfers:
            begins[(t.op, t.output_index, t.dst)] = t.end_s, -math.inf
            here = (t.op, t.output_index, t.src)
            until[here] = max(until.get(here, (0.0, 0.0)), (t.end_s, math.inf))
        size, ops = self.graph.tensor_bytes, self.graph.ops
        return [
            Stay(
                d,
                own_bytes(ops[v], size[v, i]) if d == self.devices[v] else size[v, i],
                start_s,
                until[v, i, d][0],
                came,
                until[v, i, d][1],
            )
            for (v, i, d), (start_s, came) in begins.items()
        ]

    def link_name(self, t: Transfer) -> str:
        """Return the name of the link that carries `t`: source -> destination."""
        return f"{self.topology.names[t.src]} -> {self.topology.names[t.dst]}"


def _draw(row: list[str], text: str, start: float, end: float) -> None:
    """Fill the columns from `start` to `end` with `text`, whose last letter is repeated."""
    width = round(end) - round(start)
    row[round(start) : round(end)] = text[:width].ljust(width, text[-1])


class Rows:
    """The rows of a lane. Each item goes to the first row that is free when it starts, so that overlapping items are in
    different rows.
    """

    def __init__(self) -> None:
        self.end_s = -math.inf  # the latest end of all items
        self._busy: list[tuple[float, int]] = []  # a heap of (busy until, row)
        self._free: list[int] = []  # a heap

    def __len__(self) -> int:
        return len(self._busy) + len(self._free)

    def take(self, start_s: float, end_s: float) -> int:
        """Return the row of an item from `start_s` to `end_s`. start_s: never before the start of the last call."""
        while self._busy and self._busy[0][0] <= start_s:
            heappush(self._free, heappop(self._busy)[1])
        row = heappop(self._free) if self._free else len(self._busy)
        heappush(self._busy, (end_s, row))
        self.end_s = max(self.end_s, end_s)
        return row


class _Tracks:
    """The tracks of one process of a trace. A slice goes to the first free track of its lane."""

    def __init__(self, names: Iterable[str], pid: int) -> None:
        self.pid = pid
        self.number = {name: i for i, name in enumerate(names)}
        self._rows: dict[str, Rows] = {}  # by lane

    def slice(self, lane: str, name: str, category: str, start_s: float, end_s: float) -> dict[str, Any]:
        """Return a complete event ("X") of the trace event format."""
        row = self._rows.setdefault(lane, Rows()).take(start_s, end_s)
        track = f"{lane} ({row + 1})" if row else lane
        where = {"pid": self.pid, "tid": self.number.setdefault(track, len(self.number))}
        times = {"ts": start_s * 1e6, "dur": (end_s - start_s) * 1e6}
        return {"name": name, "cat": category, "ph": "X", **where, **times}

    def named(self, process: str) -> list[dict[str, Any]]:
        """Return metadata events ("M") that name the process and its tracks and keep both in order."""
        here = {"ph": "M", "pid": self.pid}
        named = [
            {"name": "process_name", **here, "args": {"name": process}},
            {"name": "process_sort_index", **here, "args": {"sort_index": self.pid}},
        ]
        for name, tid in self.number.items():
            named.append({"name": "thread_name", **here, "tid": tid, "args": {"name": name}})
            named.append({"name": "thread_sort_index", **here, "tid": tid, "args": {"sort_index": tid}})
        return named
