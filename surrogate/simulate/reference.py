"""The definition of the makespan: an event loop in plain Python, written to be read, which also makes Timelines.

A device runs one op at a time. When the device is free, it takes the op with the highest priority among the ops whose
inputs have all arrived. Transfers overlap compute. surrogate/simulate/kernels/event_loop.py computes the same, faster.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple

from placer.graph.op_graph import OpGraph
from placer.graph.topology import Link, Topology
from surrogate.simulate.timeline import Span, Timeline, Transfer

# Kinds of event. In an event the kind follows the time.
OP_ENDS, SEND_ENDS, ARRIVES, RECEIVE_ENDS = range(4)
UNREACHABLE = Link("*", "*", latency_s=math.inf, bandwidth_bytes_per_s=math.inf)


class Need(NamedTuple):
    """Op `dst` needs tensor number `tensor`, of `tensor_bytes` bytes."""

    dst: int
    tensor: int
    tensor_bytes: float


class Crossing(NamedTuple):
    """A tensor on its way to another device, where `waiting_ops` need it. In a tie the smaller `line` comes first."""

    ready_s: float
    line: tuple[int, int]
    src: int
    dst: int
    tensor: int
    tensor_bytes: float
    waiting_ops: list[int]


@dataclass(frozen=True, eq=False)
class ReferenceSimulator:
    """The inputs of the event loop. cost_s: [ops][devices] seconds. place: each op's place in line, None for fifo."""

    graph: OpGraph
    topology: Topology
    cost_s: list[list[float]]
    place: Sequence[int] | None

    @cached_property
    def tensors(self) -> tuple[tuple[int, int], ...]:
        """Return (op, output index) of each tensor."""
        return tuple(dict.fromkeys((e.src, e.output_index) for e in self.graph.edges))

    @cached_property
    def needs(self) -> list[list[Need]]:
        """Return who needs the tensors of each op, in file order. An op that needs a tensor twice is listed once."""
        number = {key: i for i, key in enumerate(self.tensors)}
        needs = []
        for out in self.graph.out_edges:
            once = dict.fromkeys((e.dst, (e.src, e.output_index)) for e in out)
            needs.append([Need(dst, number[key], self.graph.tensor_bytes[key]) for dst, key in once])
        return needs

    @cached_property
    def inputs(self) -> list[int]:
        """Return how many tensors each op needs."""
        inputs = [0] * len(self.graph)
        for needs in self.needs:
            for need in needs:
                inputs[need.dst] += 1
        return inputs

    @cached_property
    def links(self) -> list[list[Link]]:
        """Return links[src][dst]. A missing link is UNREACHABLE, which takes forever."""
        return [[link or UNREACHABLE for link in row] for row in self.topology.table]

    def makespan(self, devices: Sequence[int]) -> float:
        """Seconds of one training step with op i on device `devices[i]`; infinity if a needed link is missing."""
        return Run(self, devices).finish()

    def timeline(self, devices: Sequence[int]) -> Timeline:
        """Return the whole schedule, with infinite times if a needed link is missing."""
        run = Run(self, devices)
        run.finish()
        spans = tuple(sorted(run.spans, key=lambda span: (span.start_s, span.end_s)))
        # Only spans need sorting: transfers were noted as they started, but sending work was noted ahead of its time.
        return Timeline(self.graph, self.topology, tuple(devices), spans, tuple(run.transfers))


class Run:
    """One run of the event loop. All events of one instant happen before any free device takes new work."""

    def __init__(self, model: ReferenceSimulator, devices: Sequence[int]) -> None:
        self.model = model
        self.devices = devices
        self.now = 0.0
        self.events: list[tuple[float, int, int]] = []
        self.crossings: list[Crossing] = []
        self.waits_for = model.inputs.copy()
        n = len(model.topology)
        self.free = [True] * n
        self.ready: list[list[tuple[float, int]]] = [[] for _ in range(n)]
        self.arrived: list[list[tuple[float, tuple[int, int], int]]] = [[] for _ in range(n)]
        self.contention = model.topology.contention
        self.queues: dict[tuple[int, int], list[tuple[float, tuple[int, int], int]]] = {}  # of each device pair
        self.taken: set[tuple[int, ...]] = set()
        self.spans: list[Span] = []
        self.transfers: list[Transfer] = []

    def finish(self) -> float:
        """Run to the end and return the time of the last event, in seconds."""
        for v, inputs in enumerate(self.waits_for):
            if not inputs:
                self._becomes_ready(v)
        self._dispatch()
        while self.events:
            self.now = self.events[0][0]
            while self.events and self.events[0][0] == self.now:
                while self.events and self.events[0][0] == self.now:
                    self._happen(*heappop(self.events)[1:])
                if self.queues:
                    self._start_transfers()
            self._dispatch()
        return self.now

    def _happen(self, kind: int, which: int) -> None:
        if kind == OP_ENDS:
            self._op_ends(which)
        elif kind == ARRIVES:
            self._arrives(which)
        elif kind == SEND_ENDS:
            self._send_ends(which)
        else:
            self.free[self.crossings[which].dst] = True
            self._available(which)

    def _op_ends(self, v: int) -> None:
        """Give local consumers their input now; send the tensors that other devices need, one by one."""
        here = self.devices[v]
        outgoing: dict[tuple[int, int], int] = {}
        busy_until = self.now
        for i, (w, tensor, tensor_bytes) in enumerate(self.model.needs[v]):
            there = self.devices[w]
            if there == here:
                self._input_comes(w)
            elif (tensor, there) in outgoing:
                self.crossings[outgoing[tensor, there]].waiting_ops.append(w)
            else:
                outgoing[tensor, there] = len(self.crossings)
                busy_until += self.model.links[here][there].send_busy_s(tensor_bytes)
                crossing = Crossing(busy_until, (v, i), here, there, tensor, tensor_bytes, [w])
                self.crossings.append(crossing)
        self._send(v, list(outgoing.values()))
        if busy_until == self.now:
            self.free[here] = True

    def _send(self, v: int, outgoing: list[int]) -> None:
        """Start the crossings of op v: after its sending work, which ends in an event, or now if there is none."""
        begin_s = self.now
        for which in outgoing:
            crossing = self.crossings[which]
            if crossing.ready_s > begin_s:
                self.spans.append(Span(crossing.src, "send", v, begin_s, crossing.ready_s))
            begin_s = crossing.ready_s
            if crossing.ready_s > self.now:
                heappush(self.events, (crossing.ready_s, SEND_ENDS, which))
            else:
                self._request(which)

    def _send_ends(self, which: int) -> None:
        """Request the transfer. After the op's last crossing the device is free."""
        self._request(which)
        crossing = self.crossings[which]
        # An op's crossings have consecutive numbers, so the next crossing tells whether the device has more to send.
        after = self.crossings[which + 1] if which + 1 < len(self.crossings) else None
        if after is None or after.line[0] != crossing.line[0]:
            self.free[crossing.src] = True

    def _request(self, which: int) -> None:
        """Let a tensor cross: now if links never queue, else when its link or ports are free."""
        if self.contention == "none":
            self._depart(which)
        else:
            crossing = self.crossings[which]
            insort(self.queues.setdefault((crossing.src, crossing.dst), []), (self.now, crossing.line, which))

    def _start_transfers(self) -> None:
        """Start the transfers whose link (or ports) is free, first come, first served.

        All requests of a device pair need the same link or ports, so only the first of each pair may start.
        """
        for _, _, which in sorted(queue[0] for queue in self.queues.values()):
            crossing = self.crossings[which]
            held = self._holds(crossing)
            if self.taken.isdisjoint(held):
                self.taken.update(held)
                self._depart(which)
                queue = self.queues[crossing.src, crossing.dst]
                del queue[0]
                if not queue:
                    del self.queues[crossing.src, crossing.dst]

    def _holds(self, crossing: Crossing) -> tuple[tuple[int, ...], ...]:
        """Return what a transfer has for itself alone: its ordered device pair, or the ports of both ends."""
        if self.contention == "link":
            return ((crossing.src, crossing.dst),)
        return ((crossing.src,), (crossing.dst,))

    def _depart(self, which: int) -> None:
        _, _, src, dst, tensor, tensor_bytes, _ = self.crossings[which]
        end_s = self.now + self.model.links[src][dst].transfer_s(tensor_bytes)
        self.transfers.append(Transfer(src, dst, *self.model.tensors[tensor], tensor_bytes, self.now, end_s))
        heappush(self.events, (end_s, ARRIVES, which))

    def _arrives(self, which: int) -> None:
        crossing = self.crossings[which]
        if self.contention != "none":
            self.taken.difference_update(self._holds(crossing))
        link = self.model.links[crossing.src][crossing.dst]
        if link.receive_busy_s(crossing.tensor_bytes) > 0:
            heappush(self.arrived[crossing.dst], (self.now, crossing.line, which))
        else:
            self._available(which)

    def _available(self, which: int) -> None:
        for w in self.crossings[which].waiting_ops:
            self._input_comes(w)

    def _input_comes(self, w: int) -> None:
        self.waits_for[w] -= 1
        if not self.waits_for[w]:
            self._becomes_ready(w)

    def _becomes_ready(self, v: int) -> None:
        first = self.now if self.model.place is None else self.model.place[v]
        heappush(self.ready[self.devices[v]], (first, v))

    def _dispatch(self) -> None:
        """Give each free device work: first a tensor that has arrived for it, else the first op in line."""
        for d, free in enumerate(self.free):
            if not free:
                continue
            if self.arrived[d]:
                which = heappop(self.arrived[d])[2]
                crossing = self.crossings[which]
                busy_s = self.model.links[crossing.src][d].receive_busy_s(crossing.tensor_bytes)
                self._occupy(d, "receive", crossing.line[0], busy_s, (RECEIVE_ENDS, which))
            elif self.ready[d]:
                v = heappop(self.ready[d])[1]
                self._occupy(d, "op", v, self.model.cost_s[v][d], (OP_ENDS, v))

    def _occupy(self, d: int, work: str, op: int, busy_s: float, event: tuple[int, int]) -> None:
        end_s = self.now + busy_s
        self.free[d] = False
        self.spans.append(Span(d, work, op, self.now, end_s))
        heappush(self.events, (end_s, *event))
