"""Times operators on a device: inside traced training steps, and alone, one after the other in one session."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import tensorflow as tf

from placer.devices.cluster import Devices
from placer.profile.operators.dataset import Operator
from placer.profile.operators.fusion import absorbed, does_its_work
from placer.profile.operators.probes import Feed, Probe, constant_node, has_kernel, with_inputs
from placer.profile.partial_device import alone
from placer.profile.step_trace import TracedStep, traced_step
from placer.profile.traced_session import run_traced, session_config, trace_steps, warn_of_lost_kernels, watched_session
from placer.trace.capture import Captured

CHUNK = 200  # probes per session: oneDNN caches 1024 prepared kernels, and preparing one again would be timed
WARM_UP = 2
NUMBER = re.compile(r"\bprobe_(\d+)\b")
_serial = itertools.count()
Samples = dict[str, list[float]]


def step_samples(
    captured: Captured, operators: dict[str, Operator], devices: Devices, device: int, inputs: Sequence[Any], runs: int
) -> Samples:
    """Signature -> seconds in each of `runs` traced steps: the median of the ops with that signature. All ops that have
    a kernel on the device run there.

    An op whose work the kernel of another op did has no entry. Raises tf.errors.OpError if the device cannot run the
    step.
    """
    samples: Samples = defaultdict(list)
    taken = absorbed(captured)
    here = devices.topology.devices[device]
    steps = trace_steps(captured, devices, alone(captured.graph, devices.topology, device), inputs, runs)
    warn_of_lost_kernels(steps, here)
    for step in steps:
        alike: Samples = defaultdict(list)
        for name, seconds in op_seconds(step, here.name, operators, taken).items():
            alike[operators[name].signature].append(seconds)
        for signature, times in alike.items():
            samples[signature].append(median(times))
    return dict(samples)


def op_seconds(
    step: TracedStep, device: str, operators: Mapping[str, Operator], taken: Mapping[str, str]
) -> dict[str, float]:
    """Op name -> seconds on the device. A kernel that does the work of several ops runs under the name of the last op.
    Its time counts for the op that absorbs that one (`taken`), unless the absorbing op ran by itself. Kernels that are
    fused in another way are left out.
    """
    ran = {op.name for op in step.ops}
    found: dict[str, float] = defaultdict(float)
    for op in step.ops:
        by = taken.get(op.name, op.name)
        name = op.name if by in ran else by
        if op.device == device and name in operators and does_its_work(op.type, operators[name].type):
            found[name] += op.cost_s
    return dict(found)


def single_samples(probes: Sequence[Probe], devices: Devices, device: int, runs: int) -> list[Samples]:
    """Signature -> seconds of `runs` runs of each probe by itself, for each session of up to CHUNK probes.

    A probe that fails is left out.
    """
    kind = devices.topology.devices[device].kind
    able = [probe for probe in probes if has_kernel(probe, kind)]
    chunks = [able[i : i + CHUNK] for i in range(0, len(able), CHUNK)]
    return [_chunk_samples(chunk, devices, device, runs) for chunk in chunks]


def _chunk_samples(probes: Sequence[Probe], devices: Devices, device: int, runs: int) -> Samples:
    """As `single_samples`, for the probes of one session, which is restarted without a probe that fails."""
    left = list(probes)
    while left:
        try:
            return _run(left, devices, device, runs)
        except tf.errors.OpError as error:
            named = NUMBER.search(f"{error.node_def.name if error.node_def else ''} {error.message}")
            if named is None or int(named.group(1)) >= len(left):
                return {}
            del left[int(named.group(1))]
    return {}


def _run(probes: Sequence[Probe], devices: Devices, device: int, runs: int) -> Samples:
    samples: Samples = defaultdict(list)
    with _session(probes, devices, device) as session:
        last = f"probe_{len(probes) - 1}"
        for _ in range(WARM_UP):
            session.run(last)
        for _ in range(runs):
            step_stats = run_traced(session, last).step_stats
            for name, seconds in _probe_times(step_stats, devices.tf_name(device)):
                samples[probes[int(name.removeprefix("probe_"))].operator.signature].append(seconds)
    return dict(samples)


def _probe_times(step_stats: Any, tf_name: str) -> Iterator[tuple[str, float]]:
    """(name, seconds) of each probe that ran on the device."""
    for name, seconds in traced_step(step_stats, {tf_name: tf_name}).cost_s().items():
        if NUMBER.fullmatch(name):
            yield name, seconds


@contextmanager
def _session(probes: Sequence[Probe], devices: Devices, device: int) -> Iterator[Any]:
    """A session in which `probe_i` runs after `probe_i-1`, each on inputs that were written right before it."""
    where = devices.tf_name(device)
    with tf.Graph().as_default() as graph:
        with tf.device(where):
            pools = _Pools(probes)
        graph_def = _probes_graph(probes, {dtype: read.op.name for dtype, read in pools.reads.items()}, where)
        reads = {read.name: read for read in pools.reads.values()}
        tf.graph_util.import_graph_def(graph_def, input_map=reads, name="")
        config = session_config(soft="GPU" in where, cluster=devices.session_cluster)  # a GPU has no int32 variables
        with watched_session(devices.session_target, graph, config) as session:
            session.run(pools.fills)
            yield session
            session.run(pools.drops)


class _Pools:
    """One variable of random numbers per dtype, from which inputs are sliced."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        sizes: dict[tf.DType, int] = defaultdict(int)
        for feed in (f for probe in probes for f in probe.feeds if f.constant is None):
            sizes[feed.dtype] = max(sizes[feed.dtype], _count(feed))
        run = next(_serial)
        self.fills, self.drops, self.reads = [], [], {}
        for dtype, size in sizes.items():
            name = f"placer_pool_{run}_{dtype.name}"
            handle = tf.raw_ops.VarHandleOp(dtype=dtype, shape=[size], shared_name=name, name=name)
            self.fills.append(tf.raw_ops.AssignVariableOp(resource=handle, value=_random(dtype, size)))
            self.drops.append(tf.raw_ops.DestroyResourceOp(resource=handle))
            self.reads[dtype] = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype, name=f"{name}_read")


def _random(dtype: tf.DType, size: int) -> Any:
    """Random numbers in 0.1..1, because denormal ones are slow; integers are later taken modulo their bound."""
    if dtype.is_integer:
        return tf.cast(tf.random.stateless_uniform([size], [1, 2], maxval=2**30, dtype=tf.int32), dtype)
    numbers = tf.random.stateless_uniform([size], [3, 4], minval=0.1, maxval=1.0)
    return numbers > 0.5 if dtype == tf.bool else tf.cast(numbers, dtype)


def _probes_graph(probes: Sequence[Probe], reads: dict[tf.DType, Any], where: str) -> Any:
    """The GraphDef of a chain of probes. Each input is sliced from the pool, rewritten, and reshaped."""
    chain = _ProbeChain(reads)
    for i, probe in enumerate(probes):
        after = [f"^probe_{i - 1}"] if i else []
        inputs = [chain.feed(feed, after) for feed in probe.feeds]
        chain.add(with_inputs(probe.node, f"probe_{i}", [*inputs, *after]))
    for node in chain.graph_def.node:
        node.device = where
    return chain.graph_def


class _ProbeChain:
    """A GraphDef under construction, in which equal constants are shared."""

    def __init__(self, reads: dict[tf.DType, Any]) -> None:
        self.graph_def = tf.compat.v1.GraphDef()
        self.reads = reads
        self.constants: dict[tuple[Any, ...], str] = {}
        self.count = itertools.count()

    def add(self, node: Any) -> str:
        """Append a node; returns its name."""
        self.graph_def.node.append(node)
        return str(node.name)

    def feed(self, feed: Feed, after: list[str]) -> str:
        """The name of one input's tensor, computed after the nodes `after` have run."""
        if feed.constant is not None:
            return self.add(constant_node(f"given_{next(self.count)}", feed.constant))
        cut = self._op(
            "Slice", feed.dtype, [self.reads[feed.dtype], self._ints([0]), self._ints([_count(feed)])], after
        )
        if feed.dtype == tf.bool:
            written = self._op("LogicalNot", None, [cut])
        elif feed.below is not None:
            written = self._op("FloorMod", feed.dtype, [cut, self._constant(feed.below, feed.dtype)])
        else:
            written = self._op("AddV2", feed.dtype, [cut, self._constant(0, feed.dtype)])
        return self._op("Reshape", feed.dtype, [written, self._ints(list(feed.shape))])

    def _op(self, op: str, dtype: Any, inputs: list[str], after: Sequence[str] = ()) -> str:
        node = tf.compat.v1.NodeDef(name=f"make_{next(self.count)}", op=op, input=[*inputs, *after])
        index = {"Slice": "Index", "Reshape": "Tshape"}.get(op)
        if dtype is not None:
            node.attr["T"].type = dtype.as_datatype_enum
        if index is not None:
            node.attr[index].type = tf.int32.as_datatype_enum
        return self.add(node)

    def _ints(self, values: list[int]) -> str:
        return self._constant(values, tf.int32)

    def _constant(self, value: Any, dtype: Any) -> str:
        key = (str(value), dtype)
        if key not in self.constants:
            proto = tf.make_tensor_proto(value, dtype, [len(value)] if isinstance(value, list) else [])
            self.constants[key] = self.add(constant_node(f"constant_{next(self.count)}", proto))
        return self.constants[key]


def _count(feed: Feed) -> int:
    return int(tf.TensorShape(feed.shape).num_elements())
