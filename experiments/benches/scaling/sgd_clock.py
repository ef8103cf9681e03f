"""The formula of synchronous SGD (surrogate/scaling/sync_sgd.py) compared with the clock.

Each network's step on one device is profiled and the links are measured. The formula says what an iteration takes on
more devices that share the batch, and real steps are timed. There are three manners of input: the batch is in the
coordinating process's memory; it is read from a file before the step; it is read during the step before. Batches are
copied to the devices with the step that takes them.
"""

from __future__ import annotations

import gc
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.benches.bench import Facts
from experiments.benches.scaling.batches import BatchFile, bytes_per_s, copied
from experiments.benches.scaling.design import DEVICES, SPACES, Config, design, reference
from experiments.benches.scaling.runs import Clock, ReadyStep, TimedStep, ready, timed_pairs
from experiments.benches.scaling.shared_cores import dealt, open_one_core_workers, own_cores, workers_per_core
from placer.errors import PlacerError, one_line
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.profile.operators.drift import QUIET
from placer.result import summary
from surrogate.scaling.sync_sgd import SgdSettings, iteration

if TYPE_CHECKING:
    from placer.devices.cluster import Devices

MEMORY, READ, PREFETCH = "memory", "read first", "prefetch"
INPUTS = (MEMORY, READ, PREFETCH)
FORM = "server"  # the first device holds all variables, receives the others' gradients and sends out the variables
HOST_BUSY = 1.0  # all workers are CPUs, whose cores do the copying
SLOTS = {"sgd": 0, "momentum": 1, "adam": 2}
REPEATS = 9  # of reading and of copying a batch, and of the reference before and after a profile
TRACED = 11  # steps of a profile
DESIGN_SEED = 100  # other networks than the study's


def sgd_configs(kinds: Sequence[str], per_kind: int) -> list[Config]:
    """Networks on one device, drawn from the study's spaces by another seed."""
    seeds = {kind: DESIGN_SEED + i for i, kind in enumerate(SPACES)}
    drawn = [config for kind in kinds for config in design(kind, per_kind, seed=seeds[kind])]
    return [replace(config, devices=1, chunks=1, workers_per_core=1) for config in drawn]


def measure_sgd(records: Sequence[Facts], clock: Clock = time.perf_counter) -> Facts:
    """Return {"rows": of all networks, devices and manners of input, "lost": lines, "cores": of this process}, and
    "failed" if a network was lost, so that all are tried again. Call it in a process of its own.

    records: configs as plain data.
    """
    from tensorflow.errors import OpError

    rows: list[Facts] = []
    lost = []
    with (
        open_one_core_workers(max(DEVICES)) as devices,
        ready(reference(1), devices, clock) as beside,
        tempfile.TemporaryDirectory() as folder,
    ):
        devices.topology = with_server_links(devices)
        for config in (Config(**record) for record in records):
            try:
                rows += list(compared(config, devices, beside.timed, Path(folder) / "batches", clock))
            except (PlacerError, OpError, OSError) as error:
                lost.append(one_line(f"{config.columns}: {error}"))
            gc.collect()
    found = {"rows": rows, "lost": lost, "cores": len(own_cores())}
    return found | ({"failed": "; ".join(lost)} if lost else {})


def with_server_links(devices: Devices) -> Topology:
    """The topology with measured links between the first device and every other one, over which a server's sums go."""
    from placer.devices.links.link_probes import measure_links

    names = devices.topology.names
    links = [
        link
        for d in range(1, len(names))
        for link in measure_links((names[0], names[d]), (devices.tf_name(0), devices.tf_name(d)))
    ]
    return replace(devices.topology, links=tuple(links))


@dataclass(frozen=True)
class ProfiledConfig:
    """A network's step on one device: costs of its ops on each core's first worker, and the rates at which its batch is
    read and copied. reference_s: of the reference step beside the profile, a median like the costs.
    """

    config: Config
    graph: OpGraph
    input_bytes: float
    io_bytes_per_s: float
    host_bytes_per_s: float
    reference_s: float

    def predicted_s(self, topology: Topology, count: int, cores: Sequence[int], manner: str) -> float:
        """Seconds of an iteration on the first `count` devices.

        Workers that share a core take turns on it, so an op takes as many times as long as workers share its core.
        """
        settings = SgdSettings(
            FORM,
            batch="shared",
            slots=SLOTS[str(self.config.settings["optimizer"])],
            input_bytes=self.input_bytes,
            io_bytes_per_s=math.inf if manner == MEMORY else self.io_bytes_per_s,
            host_bytes_per_s=self.host_bytes_per_s,
            prefetch=manner == PREFETCH,
            host_busy=HOST_BUSY,
        )
        return iteration(on_shared_cores(self.graph, topology, count, cores), topology, count, settings).iteration_s


def on_shared_cores(graph: OpGraph, topology: Topology, count: int, cores: Sequence[int]) -> OpGraph:
    """The graph with costs on the first `count` workers when all of them compute.

    graph: with costs on each core's first worker.
    """
    first = [topology.names[i % len(cores)] for i in range(count)]
    crowd = workers_per_core(count, cores)
    names = topology.names[:count]
    ops = (
        replace(op, cost_s={name: op.cost_s[f] * n for name, f, n in zip(names, first, crowd, strict=True)})
        for op in graph.ops
    )
    return OpGraph(graph.name, tuple(ops), graph.edges, graph.source)


def compared(config: Config, devices: Devices, beside: TimedStep, path: Path, clock: Clock) -> Iterator[Facts]:
    """Yield the measured and predicted seconds of each number of devices and manner of input. path: of a scratch file.

    Measured seconds are divided by the reference's and multiplied by the reference's beside the profile, so that the
    machine's drift in between cancels. Raises PlacerError and tf.errors.OpError if a step cannot run.
    """
    profiled = profiled_alone(config, devices, beside, path, clock)
    cores = own_cores()
    for count in DEVICES:
        for manner, step in timed_steps(replace(config, devices=count), devices, path, clock):
            pairs = timed_pairs(beside, step, clock)
            reference_s, step_s = np.quantile(pairs, QUIET, axis=0).tolist()
            level = profiled.reference_s / reference_s
            yield {
                "kind": config.kind,
                "settings": dict(config.settings),
                "devices": count,
                "workers_per_core": max(workers_per_core(count, cores)),
                "input": manner,
                "measured_s": step_s * level,
                "spread_s": summary([seconds for _, seconds in pairs]).spread_s * level,
                "repeats": len(pairs),
                "predicted_s": profiled.predicted_s(devices.topology, count, cores, manner),
                "input_bytes": profiled.input_bytes,
                "io_bytes_per_s": profiled.io_bytes_per_s,
                "host_bytes_per_s": profiled.host_bytes_per_s,
            }


def profiled_alone(config: Config, devices: Devices, beside: TimedStep, path: Path, clock: Clock) -> ProfiledConfig:
    """Profile the step on the first worker of each core, and time reading and copying its batch."""
    from placer.profile.profiler import profile

    topology = devices.topology
    apart = topology.devices[: len(set(dealt(len(topology), own_cores())))]
    with ready(config, devices, clock) as step, BatchFile(path, _arrays(step)) as file:
        reference_s = [beside() for _ in range(REPEATS)]
        graph = profile(step.placed.captured, replace(devices, topology=Topology(apart)), step.inputs, TRACED)
        reference_s += [beside() for _ in range(REPEATS)]
        arrays, first = file.read(), [devices.tf_name(0)] * len(step.inputs)
        io = bytes_per_s(file.read, file.batch_bytes, REPEATS, clock)
        host = bytes_per_s(lambda: copied(arrays, first), file.batch_bytes, REPEATS, clock)
    return ProfiledConfig(config, graph, file.batch_bytes, io, host, median(reference_s))


def timed_steps(config: Config, devices: Devices, path: Path, clock: Clock) -> Iterator[tuple[str, TimedStep]]:
    """Yield each manner of input, and a step that times a whole iteration with it."""
    with (
        ready(config, devices, clock) as step,
        BatchFile(path, _arrays(step)) as file,
        ThreadPoolExecutor(1) as reader,
    ):
        here = [devices.host] * len(step.inputs)
        yield MEMORY, step.timed
        yield READ, partial(_read_first, step, file, here, clock)
        yield PREFETCH, _Prefetched(step, lambda: copied(file.read(), here), reader, clock)


def _read_first(step: ReadyStep, file: BatchFile, names: Sequence[str], clock: Clock) -> float:
    begin_s = clock()
    step.timed_on(copied(file.read(), names))
    return clock() - begin_s


class _Prefetched:
    """A timed step during which the next batch is loaded; it takes as long as the longer of the two."""

    def __init__(self, step: ReadyStep, load: Callable[[], list[Any]], reader: Executor, clock: Clock) -> None:
        self.step, self.load, self.reader, self.clock = step, load, reader, clock
        self.batch = load()

    def __call__(self) -> float:
        begin_s = self.clock()
        following = self.reader.submit(self.load)
        self.step.timed_on(self.batch)
        self.batch = following.result()
        return self.clock() - begin_s


def _arrays(step: ReadyStep) -> list[Any]:
    return [tensor.numpy() for tensor in step.inputs]


def judged_sgd(found: Facts) -> Facts:
    """Errors of the predicted iterations: on several workers with a core each, on workers that share cores, and on one
    worker, where nothing is exchanged.
    """
    rows = [{**row, "error": row["predicted_s"] / row["measured_s"] - 1} for row in found["rows"]]
    apart = [row for row in rows if row["workers_per_core"] == 1 and row["devices"] > 1]
    return {
        **{key: fact for key, fact in found.items() if key != "failed"},  # `lost` names the lost networks
        "prefetched_to": "host",
        "rows": rows,
        "sgd_mape": _mape(apart),
        "sgd_mape_alone": _mape([row for row in rows if row["devices"] == 1]),
        "sgd_mape_oversubscribed": _mape([row for row in rows if row["workers_per_core"] > 1]),
        "by_devices": _speedups(rows),
        "by_input": {manner: _mape([row for row in apart if row["input"] == manner]) for manner in INPUTS},
    }


def _speedups(rows: Sequence[Facts]) -> list[Facts]:
    """For each number of devices: the error of the iterations, and of their speed-ups over one device."""
    alone = {_name(row): row for row in rows if row["devices"] == 1}
    table = []
    for count in dict.fromkeys(row["devices"] for row in rows):
        of_count = [row for row in rows if row["devices"] == count and _name(row) in alone]
        gains = [[alone[_name(row)][key] / row[key] for key in ("measured_s", "predicted_s")] for row in of_count]
        table.append(
            {
                "devices": count,
                "workers_per_core": of_count[0]["workers_per_core"],
                "mape": _mape(of_count),
                "bias": float(np.mean([row["error"] for row in of_count])),
                "speedup_measured": float(np.exp(np.mean([np.log(measured) for measured, _ in gains]))),
                "speedup_predicted": float(np.exp(np.mean([np.log(predicted) for _, predicted in gains]))),
                "speedup_mape": float(np.mean([abs(predicted / measured - 1) for measured, predicted in gains])),
            }
        )
    return table


def _name(row: Facts) -> tuple[str, ...]:
    return (row["kind"], str(row["settings"]), row["input"])


def _mape(rows: Sequence[Facts]) -> float | None:
    return float(np.mean([abs(row["error"]) for row in rows])) if rows else None
