"""Synchronous SGD on N devices, by formula: reading, copying, forward, backward, summing of gradients, update.

Each device holds a copy of the model and takes its part of the batch. The gradient of a layer can be summed over the
devices as soon as it is computed, while the layers before it are still in their backward pass ("wait-free
backpropagation", Zhang et al. 2017, Poseidon, section 3.1). A ring takes 2 (N - 1) rounds of 1/N of the bytes
(Patarasuk & Yuan 2009). A parameter server receives the gradients of all other devices and sends them the sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placer.errors import BadInputError, short
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Link, Topology
from surrogate.costs.cost_matrix import cost_matrix

Floats = NDArray[np.float64]
FORMS = ("ring", "server")
MOST_SLOTS = 1000
NONE = -1  # no backward op
BATCHES = ("fixed", "shared")


@dataclass(frozen=True)
class SgdSettings:
    """Settings of how devices train together."""

    form: str = "ring"  # how gradients are summed, one of FORMS
    overlap: bool = True  # sum while the backward pass goes on
    batch: str = "fixed"  # each device takes the graph's batch; or `shared`, each takes its share of it
    slots: int = 0  # optimizer slots per parameter among the graph's memory_bytes: 0 for SGD, 1 momentum, 2 Adam
    bucket_bytes: float = 0.0  # gradients are summed together until they have at least this many bytes
    input_bytes: float = 0.0  # bytes of the graph's batch
    io_bytes_per_s: float = math.inf  # the speed at which all devices together read input
    host_bytes_per_s: float = math.inf  # the speed at which input is copied to each device
    prefetch: bool = True  # read and copy the next batch during this iteration
    host_busy: float = (
        0.0  # the share of the copying that takes compute time, which prefetch cannot hide; 1 for CPU workers
    )

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise BadInputError(f"gradients cannot be summed by {short(self.form)}; choose {' or '.join(FORMS)}.")
        if self.batch not in BATCHES:
            raise BadInputError(f"the batch cannot be {short(self.batch)}; choose {' or '.join(BATCHES)}.")
        if not 0 <= self.slots <= MOST_SLOTS:
            raise BadInputError(f"slots are a number from 0 to {MOST_SLOTS}.")
        if not (self.bucket_bytes >= 0 and self.input_bytes >= 0):
            raise BadInputError("bucket bytes and input bytes are numbers of 0 or more.")
        if not (self.io_bytes_per_s > 0 and self.host_bytes_per_s > 0):
            raise BadInputError("bytes per second are above 0.")
        if not 0 <= self.host_busy <= 1:
            raise BadInputError("the share of the copying that devices compute for is from 0 to 1.")


class Layer(NamedTuple):
    """One piece of the backward pass, which takes backward_s, [devices], and computes a gradient of gradient_bytes."""

    name: str
    backward_s: tuple[float, ...]
    gradient_bytes: float


@dataclass(frozen=True)
class StepWork:
    """The work of a training step on each device, in seconds. layers: in the order of the backward pass, the last layer
    first. Backward ops after the last gradient form a layer of 0 bytes.
    """

    forward_s: tuple[float, ...]
    layers: tuple[Layer, ...]
    update_s: tuple[float, ...]

    def with_batch(self, share: float) -> StepWork:
        """Return the work for a share of the batch. Both passes shrink in proportion to it; the update is the same."""
        layers = [layer._replace(backward_s=tuple(s * share for s in layer.backward_s)) for layer in self.layers]
        return StepWork(tuple(s * share for s in self.forward_s), tuple(layers), self.update_s)


class Piece(NamedTuple):
    """A lane (`io`, `copy`, `compute`, `network`) is busy with `name` from start_s to end_s."""

    lane: str
    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Iteration:
    """One iteration on `devices` devices, seen from the slowest device. examples: how many of the graph's batches all
    devices train on. With prefetch, `copy` copies the next batch, and `io` reads the batch after it.
    """

    devices: int
    examples: float
    pieces: tuple[Piece, ...]

    @cached_property
    def iteration_s(self) -> float:
        """Seconds from the start of one iteration to the start of the next."""
        return max(piece.end_s for piece in self.pieces)

    @property
    def batches_per_s(self) -> float:
        """How many of the graph's batches all devices together train on per second."""
        return self.examples / self.iteration_s

    def busy_s(self, lane: str) -> float:
        return sum(piece.end_s - piece.start_s for piece in self.pieces if piece.lane == lane)

    @property
    def exposed_s(self) -> float:
        """Seconds of summing that computation does not hide, so that the device waits."""
        training = [piece for piece in self.pieces if piece.lane in ("compute", "network")]
        if not training:
            return 0.0
        lasts_s = max(piece.end_s for piece in training) - min(piece.start_s for piece in training)
        return max(lasts_s - self.busy_s("compute"), 0.0)

    def as_text(self, unit_s: float) -> str:
        """Draw the iteration with a column per `unit_s` seconds:

        compute |ffff321..u|
        network |.....3321.|
        """
        rows = {piece.lane: ["."] * round(self.iteration_s / unit_s) for piece in self.pieces}
        for piece in self.pieces:
            start, end = round(piece.start_s / unit_s), round(piece.end_s / unit_s)
            rows[piece.lane][start:end] = piece.name[: end - start].ljust(end - start, piece.name[-1])
        width = max(map(len, rows))
        return "\n".join(f"{lane:{width}} |{''.join(row)}|" for lane, row in rows.items())


def iteration(graph: OpGraph, topology: Topology, devices: int, settings: SgdSettings | None = None) -> Iteration:
    """Return one iteration of data-parallel training on the first `devices` devices of the topology. If the topology
    has fewer, the missing devices are assumed to be as fast as its slowest device and linked like its devices.

    Raises BadInputError for a graph without a backward pass or parameters, ops that take no time, an iteration that
    takes forever, an op that a device cannot run, a missing link, or fewer than one device.
    """
    return iterations(graph, topology, settings)(devices)


def iterations(graph: OpGraph, topology: Topology, settings: SgdSettings | None = None) -> Callable[[int], Iteration]:
    """Return `iteration` as a function of the number of devices. The work of a step is cached, once for all numbers
    beyond the topology's.
    """
    settings = settings or SgdSettings()
    work_on = cache(lambda devices: work_of(graph, topology, devices, settings.slots))

    def on(devices: int) -> Iteration:
        if devices < 1:
            raise BadInputError(f"{devices} devices cannot train; give at least 1.")
        work = work_on(min(devices, len(topology)))
        if settings.batch == "shared":
            work = work.with_batch(1 / devices)
        found = laid_out(work, summing(topology, devices, settings.form), settings)
        if not found.pieces:
            raise BadInputError(f"the ops of graph {short(graph.name)} take no time; give them costs.")
        if not math.isfinite(found.iteration_s):
            raise BadInputError(
                "an iteration would take for ever; correct the bytes of a batch, or the bytes per second."
            )
        return found

    return on


@dataclass(frozen=True)
class Sum:
    """The time to sum a gradient over `devices` devices. out: the links of the ring, or from each device to the server,
    which is the first device. back: the links from the server to each device. queued: a device's transfers wait for
    each other (contention `port`); otherwise the server receives from all at once, each at the link's full speed. If
    there are more devices than links, links repeat.

    The compute time that a transfer takes at its two devices is never hidden: it delays the backward pass.
    """

    devices: int
    form: str
    out: tuple[Link, ...] = ()
    back: tuple[Link, ...] = ()
    queued: bool = False

    def network_s(self, gradient_bytes: float) -> float:
        if self.devices == 1:
            return 0.0
        if self.form == "ring":
            part_s = max(link.transfer_s(gradient_bytes / self.devices) for link in self.out)
            return 2 * (self.devices - 1) * self._turns * part_s
        total = sum if self.queued else max
        ways = (self._repeated(self.out), self._repeated(self.back))
        return sum(total([link.transfer_s(gradient_bytes) for link in way]) for way in ways)

    def ends_s(self, gradient_bytes: float) -> float:
        """Seconds that the busiest device sends and receives."""
        if self.devices == 1:
            return 0.0
        if self.form == "ring":
            part = gradient_bytes / self.devices
            busy_s = [
                link.send_busy_s(part) + before.receive_busy_s(part)
                for before, link in zip((self.out[-1], *self.out), self.out, strict=False)
            ]
            return 2 * (self.devices - 1) * max(busy_s)
        taken_s = sum(link.receive_busy_s(gradient_bytes) for link in self._repeated(self.out))
        return taken_s + sum(link.send_busy_s(gradient_bytes) for link in self._repeated(self.back))

    @property
    def _turns(self) -> int:
        """The number of turns for the transfers of one round: 1, or more if no device may take part in two at once."""
        return 1 if not self.queued else 2 + self.devices % 2

    def _repeated(self, links: Sequence[Link]) -> list[Link]:
        return [links[i % len(links)] for i in range(self.devices - 1)]


def summing(topology: Topology, devices: int, form: str) -> Sum:
    """Return how `devices` devices sum gradients. Raises BadInputError if a link is missing."""
    known = min(devices, len(topology))
    if devices == 1:
        return Sum(1, form)
    if known == 1:
        raise BadInputError("the topology has one device, and so no link to sum gradients over; list at least two.")
    queued = topology.contention == "port"
    if form == "ring":
        return Sum(devices, form, tuple(topology.link(d, (d + 1) % known) for d in range(known)), queued=queued)
    others = range(1, known)
    out, back = ([topology.link(d, 0) for d in others], [topology.link(0, d) for d in others])
    return Sum(devices, form, tuple(out), tuple(back), queued)


def work_of(graph: OpGraph, topology: Topology, devices: int, slots: int = 0) -> StepWork:
    """Return the work of a step of `graph` on the first `devices` devices. Raises BadInputError, see `iteration`.

    A layer is a set of colocated ops (`colocate`) that hold memory_bytes. Its gradient has the same bytes without the
    optimizer's slots. It is ready after the last backward op that the layer contains or that its update needs.
    """
    costs = cost_matrix(graph, topology)[:, :devices]
    if np.isinf(costs).any():
        op, device = np.argwhere(np.isinf(costs))[0]
        names = short(topology.names[device]), short(graph.ops[op].name)
        raise BadInputError(f"device {names[0]} cannot run the op {names[1]}, and each must run all; leave it out.")
    phases = phases_of(graph)
    backward = [v for v in graph.order if phases[v] == "backward"]
    due = _gradients(graph, phases, {v: i for i, v in enumerate(backward)})
    if not due:
        raise BadInputError(
            f"graph {short(graph.name)}: no backward op belongs to an op with memory_bytes, so it has no gradients; "
            "give the graph of a training step."
        )
    layers, since = [], np.zeros(devices)
    for i, v in enumerate(backward):
        since = since + costs[v]
        if i in due or v == backward[-1]:
            layers.append(Layer(graph.ops[v].name, tuple(since.tolist()), due.get(i, 0.0) / (1 + slots)))
            since = np.zeros(devices)
    of_phase = {name: costs[[p == name for p in phases]].sum(axis=0) for name in ("forward", "update")}
    return StepWork(tuple(of_phase["forward"].tolist()), tuple(layers), tuple(of_phase["update"].tolist()))


def phases_of(graph: OpGraph) -> list[str]:
    """Return the phase of each op. If the graph has no phases, the first op of those that share `colocate` is forward
    and the others backward, as in profiles whose backward pass mirrors the forward pass.
    """
    if any(op.phase for op in graph.ops):
        return [op.phase or "forward" for op in graph.ops]
    place = {v: i for i, v in enumerate(graph.order)}
    phases = ["backward"] * len(graph)
    for unit in graph.colocated:
        phases[min(unit, key=place.__getitem__)] = "forward"
    return phases


def _gradients(graph: OpGraph, phases: Sequence[str], place: dict[int, int]) -> dict[int, float]:
    """Return place of a backward op -> bytes held by the layers whose gradient is ready after it.

    place: op -> its place among the backward ops.
    """
    # The place of each backward op, and for each update op that of the last backward op it needs (also indirectly).
    known = dict(place)
    for v in graph.order:
        if phases[v] == "update":
            known[v] = max((known.get(e.src, NONE) for e in graph.in_edges[v]), default=NONE)
    found: dict[int, float] = {}
    for unit in graph.colocated:
        held = sum(graph.ops[v].memory_bytes for v in unit)
        last = max(known.get(v, NONE) for v in unit)
        if held > 0 and last != NONE:
            found[last] = found.get(last, 0.0) + held
    return found


def laid_out(work: StepWork, sums: Sum, settings: SgdSettings) -> Iteration:
    """Return the iteration with all its pieces. A sum waits for the slowest device; an update waits for its sum and the
    end of the backward pass.
    """
    shared = settings.batch == "shared"
    io_s = settings.input_bytes * (1 if shared else sums.devices) / settings.io_bytes_per_s
    copy_s = settings.input_bytes / (sums.devices if shared else 1) / settings.host_bytes_per_s
    begin_s = 0.0 if settings.prefetch else io_s + copy_s
    pieces = [Piece("io", "io", 0.0, io_s), Piece("copy", "copy", begin_s - copy_s, begin_s)]
    if settings.prefetch:
        pieces[1] = Piece("copy", "copy", 0.0, copy_s)
    clock = _Clock(begin_s, len(work.forward_s))
    if settings.prefetch:
        clock.run("copy", np.full(len(work.forward_s), copy_s * settings.host_busy))
    clock.run("forward", work.forward_s)
    waiting: list[tuple[str, float]] = []
    for name, gradient_bytes in _backward(work, settings.bucket_bytes, clock):
        waiting.append((name, gradient_bytes))
        if settings.overlap:
            clock.sum(sums, *waiting.pop())
    for name, gradient_bytes in waiting:
        clock.sum(sums, name, gradient_bytes)
    clock.update(np.array(work.update_s))
    found = [piece for piece in (*pieces, *clock.pieces()) if piece.end_s > piece.start_s]
    return Iteration(sums.devices, 1.0 if shared else float(sums.devices), tuple(found))


def _backward(work: StepWork, bucket_bytes: float, clock: _Clock) -> Iterator[tuple[str, float]]:
    """Run the backward pass, and yield (name, bytes) of each gradient, or bucket of gradients, when it is ready."""
    held = 0.0
    for i, layer in enumerate(work.layers):
        clock.run(layer.name, layer.backward_s)
        held += layer.gradient_bytes
        if held > 0 and (held >= bucket_bytes or i == len(work.layers) - 1):
            yield layer.name, held
            held = 0.0


class _Clock:
    """The time at which each device and the network are free, and what they have done."""

    def __init__(self, begin_s: float, devices: int) -> None:
        self.now = np.full(devices, begin_s)
        self.network_s = begin_s
        self.computed: list[tuple[str, Floats, Floats]] = []
        self.summed: list[tuple[Piece, float]] = []

    def run(self, name: str, seconds: ArrayLike) -> None:
        """Let each device compute for `seconds`."""
        before = self.now
        self.now = before + np.asarray(seconds)
        self.computed.append((name, before, self.now))

    def sum(self, sums: Sum, name: str, gradient_bytes: float) -> None:
        """Sum a gradient over the network, after the gradients before it."""
        self.run(name, np.full(len(self.now), sums.ends_s(gradient_bytes)))
        start_s = max(self.network_s, float(self.now.max()))
        self.network_s = start_s + sums.network_s(gradient_bytes)
        self.summed.append((Piece("network", name, start_s, self.network_s), gradient_bytes))

    def update(self, seconds: Floats) -> None:
        """Apply each gradient once it is summed. Its share of the update is in proportion to its bytes."""
        total = sum(gradient_bytes for _, gradient_bytes in self.summed)
        for piece, gradient_bytes in self.summed:
            self.now = np.maximum(self.now, piece.end_s)
            self.run("update", seconds * (gradient_bytes / total))

    def pieces(self) -> list[Piece]:
        """Return the pieces of the device that ends last, and of the network."""
        last = int(self.now.argmax())
        mine = [Piece("compute", name, float(a[last]), float(b[last])) for name, a, b in self.computed]
        return [*mine, *(piece for piece, _ in self.summed)]
