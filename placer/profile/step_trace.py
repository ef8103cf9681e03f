"""Reads what ran when in one traced step: ops on devices, the kernels they launched on GPUs, and transfers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placer.profile.gpu_trace import RECEIVES, SENDS, Copy, GpuActivity, attributed, gpu_activities, union_s

NANO = 1e-9


@dataclass(frozen=True, slots=True)
class TracedOp:
    """One op, or one transfer, of a traced step."""

    name: str
    type: str
    device: str
    start_s: float  # from the step's first op; with kernels on a GPU, the start of the first one
    end_s: float  # with kernels on a GPU, the end of the last one
    launch_s: float = 0.0  # how long the host took to launch its kernels
    kernel_s: float | None = None  # how long at least one of its kernels ran; None without kernels on a GPU

    @property
    def cost_s(self) -> float:
        """Seconds for which the op occupies its device. A GPU works through a queue that the host fills in order, so an
        op delays the next one by its run time or its launch time, whichever is longer.
        """
        return max(self.end_s - self.start_s if self.kernel_s is None else self.kernel_s, self.launch_s)


@dataclass(frozen=True)
class TracedStep:
    """The ops of one step, by device, and the transfers between devices."""

    ops: tuple[TracedOp, ...]
    transfers: tuple[TracedOp, ...]
    kernel_s: float = 0.0  # seconds of all kernels on GPUs
    unattributed_s: float = 0.0  # seconds of kernels that no op of the step is known to have launched

    def cost_s(self, device: str | None = None) -> dict[str, float]:
        """Op name -> seconds, on all devices or on one; an op fused into another has no entry."""
        costs: dict[str, float] = defaultdict(float)
        for op in self.ops:
            if device in (None, op.device):
                costs[op.name] += op.cost_s
        return dict(costs)


def traced_step(step_stats: Any, names: Mapping[str, str]) -> TracedStep:
    """Read a StepStats proto. names: TensorFlow's full device name -> our name; other devices are left out."""
    rows = [(node, names[stats.device]) for stats in step_stats.dev_stats if stats.device in names
            for node in stats.node_stats]  # fmt: skip
    executed = [(node, device) for node, device in rows if node.node_name != "RecvTensor"]
    zero_ns = min((node.all_start_nanos + node.op_start_rel_nanos for node, _ in executed), default=0)
    ops = [_op(node, device, zero_ns) for node, device in executed]
    transfers = [_transfer(node, device, zero_ns) for node, device in rows if node.node_name == "RecvTensor"]
    gpus = {name for tf_name, name in names.items() if "device:GPU:" in tf_name}
    work = gpu_activities(step_stats, zero_ns) if gpus else []
    if not work:
        return TracedStep(tuple(ops), tuple(transfers))
    launched = attributed(work, {op.name: op.type for op in ops if op.device in gpus or op.type in SENDS + RECEIVES})
    syncs = [(w.start_s, w.end_s) for w in work if w.kind == "sync"]
    ends = _Ends(ops, gpus)
    copies = [copied for copy in launched.copies if (copied := _copied(copy, ends)) is not None]
    return TracedStep(
        tuple(_with_kernels(ops, launched.of_op, gpus, syncs)),
        (*transfers, *copies),
        sum(w.end_s - w.start_s for w in work if w.kind == "kernel"),
        launched.unattributed_s,
    )


def _op(node: Any, device: str, zero_ns: int) -> TracedOp:
    """An op's own time: from the kernel's start to its end, without the executor's bookkeeping."""
    begin_ns = node.all_start_nanos - zero_ns
    kind = node.timeline_label.partition(" = ")[2].partition("(")[0]
    start_s, end_s = (begin_ns + node.op_start_rel_nanos) * NANO, (begin_ns + node.op_end_rel_nanos) * NANO
    return TracedOp(node.node_name, kind, device, start_s, end_s)


def _transfer(node: Any, device: str, zero_ns: int) -> TracedOp:
    """A transfer to `device`; such rows have a resolution of microseconds."""
    begin_s = (node.all_start_micros * 1000 - zero_ns) * NANO
    return TracedOp(node.timeline_label, "RecvTensor", device, begin_s, begin_s + node.all_end_rel_micros * 1e-6)


def _with_kernels(
    ops: Sequence[TracedOp],
    of_op: Mapping[str, Sequence[GpuActivity]],
    gpus: set[str],
    syncs: Sequence[tuple[float, float]],
) -> list[TracedOp]:
    """Replace ops that launched kernels by rows with the kernels' times; an op that ran repeatedly becomes one row."""
    launches: dict[str, list[TracedOp]] = defaultdict(list)
    for op in ops:
        if op.device in gpus and op.name in of_op:
            launches[op.name].append(op)
    merged = (_merged(rows, of_op[name], syncs) for name, rows in launches.items())
    return [*(op for op in ops if op.name not in launches), *merged]


def _merged(rows: Sequence[TracedOp], kernels: Sequence[GpuActivity], syncs: Sequence[tuple[float, float]]) -> TracedOp:
    """One row for an op. Its waits for the GPU are not launch time, because they count in the kernels waited for."""
    spans = [(kernel.start_s, kernel.end_s) for kernel in kernels]
    waits = [(max(a, row.start_s), min(b, row.end_s)) for row in rows for a, b in syncs]
    waited_s = union_s([(a, b) for a, b in waits if a < b])
    return replace(
        rows[0],
        start_s=min(a for a, _ in spans),
        end_s=max(b for _, b in spans),
        launch_s=max(0.0, sum(row.end_s - row.start_s for row in rows) - waited_s),
        kernel_s=union_s(spans),
    )


class _Ends:
    """The device of each op, and the rows that received a tensor."""

    def __init__(self, ops: Sequence[TracedOp], gpus: set[str]) -> None:
        self.device = {op.name: op.device for op in ops}
        self.gpus, self.hosts = gpus, {op.device for op in ops} - gpus
        self.received: dict[str, list[TracedOp]] = defaultdict(list)
        for op in ops:
            if op.type in RECEIVES:
                self.received[op.name.rpartition("/")[0]].append(op)

    def reached(self, copy: Copy) -> str | None:
        """The device a copy went to: that of the row that received it, because the trace has one name for all logical
        GPUs of a card. If there are several such rows, it is the first that ended after the copy began, because that
        row waited for the copy. None if unknown.
        """
        there = self.hosts if copy.work.kind == "D2H" else self.gpus
        rows = [row for row in self.received[copy.op] if row.device in there]
        if named := [row for row in rows if row.name == copy.row]:
            return named[0].device
        if rows:
            after = [row for row in rows if row.end_s >= copy.work.start_s]
            return (min(after, key=lambda row: row.end_s) if after else rows[-1]).device
        return next(iter(there)) if len(there) == 1 else None


def _copied(copy: Copy, ends: _Ends) -> TracedOp | None:
    """A copy between devices, labelled like TensorFlow's transfers between processes; None for an unknown target."""
    device = ends.reached(copy)
    if device is None:
        return None
    work, src = copy.work, ends.device.get(copy.op, "an unknown device")
    label = f"[{work.work_bytes}B] edge_0_{copy.op} from {src} to {device}"
    return TracedOp(label, f"Memcpy{work.kind}", device, work.start_s, work.end_s)
