"""A training step that stays live while the way it runs changes: untouched, or placed by one mapping or another.

Every call is one real step. What takes long (capturing, building, rehearsing) can be done by another thread; what a
call runs next is decided elsewhere (search/online/controller.py).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import tensorflow as tf

from placer.agreement import attempted, values
from placer.capture import Captured, capture, untouchable
from placer.errors import BadInputError, PlacerError
from placer.graph import OpGraph
from placer.links import QUICK_PROBES, QUICK_REPEATS, measure_links
from placer.mapping import Mapping
from placer.mapping_files import carried_over
from placer.measurement import Failed
from placer.pace import Pace
from placer.profiler import profile
from placer.rehearsal import Recording, Rehearsal
from placer.rewrite import PlacedStep, Template
from placer.signature import Layout, Signatures
from placer.site import Site
from placer.topology import Topology
from placer.watch import unwatched
from placer.ways import UNTOUCHED, Placed, Untouched, Way

T = TypeVar("T")
RECORDED = 2  # untouched steps that rehearsals repeat
PROFILED = 3  # traced steps on each device

__all__ = ["UNTOUCHED", "LiveStep", "Placed", "Untouched", "Variant", "Way"]


@dataclass(eq=False)
class Variant:
    """The step for one signature: shapes, types and Python arguments."""

    key: Hashable
    args: Sequence[Any]
    kwargs: dict[str, Any]
    layout: Layout
    calls: int = 0
    captured: Captured | None = None
    template: Template | None = None
    placed: Placed | None = None  # of another signature than the main one: what follows the main one's mapping
    follows: Placed | None = None


class LiveStep:
    """A caller's step, and the ways to run it. The training thread calls `run`; `background` is one other thread.

    main: the signature whose mapping is searched; others follow it.
    """

    def __init__(
        self, step: Callable[..., Any], site: Site, name: str, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.step, self.site, self.name, self.clock = step, site, name, clock
        self.function: Any = step if hasattr(step, "get_concrete_function") else tf.function(step)
        self.main: Variant | None = None
        self.way: Way = UNTOUCHED
        self.rehearsal: Rehearsal | None = None
        self.topology: Topology | None = None
        self.graph: OpGraph | None = None
        self.left_alone: str | None = None
        self._signatures = Signatures()
        self._variants: dict[Hashable, Variant] = {}
        self._recording: list[tuple[Any, Any, Any]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="placer")
        self._busy: list[Future[Any]] = []
        site.members.append(self)

    # The training thread.

    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, float | None]:
        """One step as the caller asked for it: what it returns, and the seconds of a step of the main signature."""
        with self.site.lock:
            key, tensors = self._signatures.of(args, kwargs)
            variant = self._variants.get(key)
            if variant is None:
                variant = self._first_call(key, args, kwargs)
            variant.calls += 1
            if variant is not self.main:
                return self._aside(variant, args, kwargs, tensors), None
            begin = self.clock()
            if isinstance(self.way, Placed):
                outputs, step_s = self._placed(variant, self.way, tensors)
                return outputs, step_s
            outputs = self._untouched(variant, args, kwargs)
            return outputs, self.clock() - begin

    def again(self, key: Any, tensors: Sequence[Any]) -> None:
        """As in `Member`."""
        variant = self._variants[key]
        way = self.way if variant is self.main else self._following(variant)
        if isinstance(way, Placed):
            self._run(way, tensors)
        else:
            self._here(variant, tensors)

    def _here(self, variant: Variant, tensors: Sequence[Any]) -> Any:
        """A step in this process, for want of devices."""
        self.site.copies.pull()
        with unwatched():
            args, kwargs = variant.layout.filled(tensors)
            outputs = self.function(*args, **kwargs)  # not what was captured: that was not compiled before joining
        self.site.copies.untouched_ran()
        return outputs

    def _first_call(self, key: Hashable, args: Sequence[Any], kwargs: dict[str, Any]) -> Variant:
        variant = self._variants[key] = Variant(key, args, kwargs, Layout.of(args, kwargs))
        if self.main is None:
            self.main = variant
            self.left_alone = untouchable(self.step) or self._untraceable(args, kwargs)
        return variant

    def _untraceable(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
        """Trace the step; why it cannot be."""
        try:
            self.function.get_concrete_function(*args, **kwargs)
        except Exception as error:  # whatever the caller's code raises under tracing
            line = next(iter(str(error).strip().splitlines()), "")
            self.function = self.step
            return f"TensorFlow cannot trace it: {type(error).__name__}: {line}"
        return None

    def _untouched(self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        self.site.copies.pull()
        recording = not self.left_alone and variant.calls > 1 and len(self._recording) < RECORDED
        start = self._state(variant) if recording else None
        with unwatched():
            outputs = self.function(*args, **kwargs)
        returned = _wait(outputs)
        if start is not None:
            self._record(variant, args, kwargs, start, returned)
        self.site.copies.untouched_ran()
        return outputs

    def _state(self, variant: Variant) -> dict[int, Any]:
        """The values of the variables that the step uses; from the first time on they are watched."""
        concrete = self.function.get_concrete_function(*variant.args, **variant.kwargs)
        self.site.copies.adopt(concrete.graph.variables)
        with unwatched():
            return {id(variable): variable.read_value() for variable in concrete.graph.variables}

    def _record(self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any], start: Any, returned: Any) -> None:
        """Keep this step for rehearsals, unless the caller wrote to variables since the one before."""
        if self._recording and self.site.copies.writes():
            self._recording.clear()
        _, tensors = self._signatures.of(args, kwargs)
        if any(tensor.dtype in (tf.resource, tf.variant) for tensor in tensors):
            tensors = []
        self._recording.append((start, list(tensors), returned))
        self.site.copies.writes()

    def _placed(self, variant: Variant, way: Placed, tensors: Sequence[Any]) -> tuple[Any, float]:
        assert variant.captured is not None
        try:
            outputs, step_s = self._run(way, tensors)
        except tf.errors.OpError:
            if not (self.site.fragile and self.site.is_loss()):
                raise
            self.site.recover()
            return self._placed_anew(variant, tensors)
        self.site.ran(self, variant.key, tensors, step_s)
        return variant.captured.pack(outputs), step_s

    def _placed_anew(self, variant: Variant, tensors: Sequence[Any]) -> tuple[Any, float]:
        """The step during which devices were lost, with those that are left."""
        way = self.way if variant is self.main else self._following(variant)
        if isinstance(way, Placed):
            return self._placed(variant, way, tensors)
        return self._here(variant, tensors), 0.0

    def _run(self, way: Placed, tensors: Sequence[Any]) -> tuple[list[Any], float]:
        """One placed step; its seconds without those that variables took to come."""
        assert way.use is not None
        self.site.copies.before(way.use)
        begin = self.clock()
        outputs = [self._fetched(tensor) for tensor in way.step.run_flat(tensors)]
        step_s = self.clock() - begin
        self.site.copies.after(way.use)
        return outputs, step_s

    def _fetched(self, tensor: Any) -> Any:
        """A returned tensor in this process, where no device can take it away."""
        if tensor.dtype in (tf.resource, tf.variant):
            return tensor
        with tf.device(self._host()):
            return tf.identity(tensor)

    def _aside(self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any], tensors: Sequence[Any]) -> Any:
        """A step of another signature than the main one."""
        if isinstance(self.way, Placed):
            try:
                way = self._following(variant)
            except PlacerError as error:
                warnings.warn(f"{self.name}: {error} Calls of this signature run eagerly.", stacklevel=4)
                return self._eagerly(args, kwargs)
            if isinstance(way, Placed):
                return self._placed(variant, way, tensors)[0]
        return self._untouched(variant, args, kwargs)

    def _eagerly(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Op by op in this process: functions first compiled while workers are joined lose updates."""
        function = getattr(self.function, "python_function", self.function)
        return function(*args, **kwargs)

    def _following(self, variant: Variant) -> Way:
        """The step of another signature under the main one's mapping."""
        main = self.way
        if not isinstance(main, Placed):
            return UNTOUCHED
        if variant.follows is not main:
            if variant.captured is None:
                variant.captured = capture(
                    self.function, variant.args, self.name, kwargs=variant.kwargs, needs_loss=False
                )
                variant.template = Template(variant.captured, self._host())
                self.site.copies.adopt(variant.captured.variables.values())
            variant.placed = self._carried(variant, main)
            variant.follows = main
        assert variant.placed is not None
        return variant.placed

    def _carried(self, variant: Variant, main: Placed) -> Placed:
        assert self.main is not None and self.main.captured is not None and variant.captured is not None
        topology = self._topology()
        names = {op.name: topology.names[d] for op, d in zip(self.main.captured.graph.ops, main.devices, strict=True)}
        graph = variant.captured.graph
        carried = carried_over(self.name, names, graph, topology)
        devices = [topology.index[carried[op.name]] for op in graph.ops]
        placed = self._build(variant, devices, [name for name in main.order if name in graph.index], main.name)
        return self.settle(placed)

    # Either thread.

    def background(self, work: Callable[[], T]) -> Future[T]:
        """Have `work` done by the other thread."""
        future = self._thread.submit(_unseen, work)
        self._busy = [busy for busy in self._busy if not busy.done()] + [future]
        return future

    def capture(self) -> OpGraph:
        """The main signature's graph. Raises BadInputError where the step cannot be placed."""
        main = self.main
        assert main is not None
        main.captured = capture(self.function, main.args, self.name, kwargs=main.kwargs, needs_loss=False)
        if main.captured.has_tables and self.site.spec is not None:
            raise BadInputError(f"{self.name} uses a lookup table, and joining workers drops every table of a process.")
        return main.captured.graph

    def join(self) -> Topology:
        """Join the devices; the training thread only, between steps."""
        with self.site.lock:
            self.site.join()
            main = self.main
            assert main is not None and main.captured is not None
            self.site.copies.adopt(main.captured.variables.values())
            main.template = Template(main.captured, self._host())
            self.rehearsal = Rehearsal(main.captured, self._recorded(main.captured), exact=self._exact())
            if self.site.fragile:
                self.site.save()
            self.topology = self.site.join().topology
            return self.topology

    def profile(self) -> tuple[OpGraph, Topology]:
        """The main signature's graph with costs, and the topology with its links as measured."""
        devices = self.site.join()
        main = self.main
        assert main is not None and main.captured is not None and self.rehearsal is not None
        names = devices.topology.names
        links = measure_links(
            names, [devices.tf_names[name] for name in names], probes=QUICK_PROBES, repeats=QUICK_REPEATS
        )
        self.topology = Topology(devices.topology.devices, links, devices.topology.contention)
        devices.topology = self.topology
        recording = self.rehearsal.recording
        batch = recording.batches[-1]
        self.graph = profile(main.captured, devices, batch, start=recording.start, runs=PROFILED, warm_up=1)
        return self.graph, self.topology

    def build(self, devices: Sequence[int], order: Sequence[str], name: str) -> Placed | Failed:
        """The main signature placed and rehearsed; `settle` makes it ready to run. A failure is a value."""
        assert self.main is not None and self.rehearsal is not None
        built: Placed | Failed = attempted(lambda: self._build(self.main, devices, order, name, self.rehearsal))
        return built

    def settle(self, placed: Placed) -> Placed:
        """Let a placed step train the live variables; the training thread only."""
        if placed.use is None:
            captured = placed.step.captured
            variables = captured.variables
            places = [placed.step.device_of[node] for node in variables]
            written = {i for i, node in enumerate(variables) if node in captured.written}
            placed.use = self.site.copies.use(list(variables.values()), places, written, placed.made)
            placed.made = {}
            placed.step.rebind(dict(zip(variables, placed.use.copies, strict=True)))
        return placed

    def release(self, keep: Sequence[Placed]) -> None:
        """Free the copies of variables that none of these ways needs; the training thread only."""
        self.site.copies.drop_unused([placed.use for placed in keep if placed.use is not None])

    @property
    def shares_cores(self) -> bool:
        """Whether the devices compute on cores of this process, so that what is measured on them disturbs the training
        and the other way round.
        """
        return (self.site.devices is not None and self.site.devices.workers is not None) or not self.site.fragile

    def pace(self) -> Pace:
        """Probes of the devices that are there."""
        assert self.site.devices is not None
        return Pace(self.site.devices)

    def mapping(self, devices: tuple[int, ...]) -> Mapping:
        """The main signature's ops on these devices."""
        main = self.main
        assert main is not None and main.captured is not None
        return Mapping(self.graph or main.captured.graph, self._topology(), devices)

    def is_current(self, placed: Placed) -> bool:
        """Whether a placed step may still be called: devices were not joined anew since."""
        return placed.generation == self.site.generation

    # When devices are lost, or come back.

    def pause(self) -> None:
        """As in `Member`."""
        for future in self._busy:
            future.cancel()
        for future in self._busy:
            if not future.cancelled():
                future.exception()
        self._busy.clear()

    def rebuild(self) -> None:
        """As in `Member`: the same mapping where its devices are there, else everything on the first one that is."""
        for variant in self._variants.values():
            variant.follows = variant.placed = None
        main = self.main
        if main is None or main.captured is None or self.rehearsal is None:
            return
        self.rehearsal.forget()
        main.template = Template(main.captured, self._host())
        if not isinstance(self.way, Placed):
            return
        if self.site.devices is None:
            self.way = UNTOUCHED
            return
        there = [self._topology().index[name] for name in self.site.devices.topology.names]
        same = set(self.way.devices) <= set(there)
        devices = self.way.devices if same else (there[0],) * len(self.way.devices)
        self.way = self.settle(self._build(main, devices, self.way.order if same else (), self.way.name))

    def close(self) -> None:
        """Leave the site, with the caller's variables true."""
        self.pause()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self.rehearsal is not None:
            self.rehearsal.forget()
        with self.site.lock:
            self.site.leave(self)
        self.way = UNTOUCHED

    def _build(
        self,
        variant: Variant | None,
        devices: Sequence[int],
        order: Sequence[str],
        name: str,
        rehearsal: Rehearsal | None = None,
    ) -> Placed:
        begin, generation = self.clock(), self.site.generation
        assert variant is not None and variant.template is not None and variant.captured is not None
        names = [self._tf_names()[self._topology().names[d]] for d in devices]
        device_of = {op.name: n for op, n in zip(variant.captured.graph.ops, names, strict=True)}
        mine = variant.captured.variables
        if rehearsal is not None:
            step = PlacedStep(variant.template, names, variables=rehearsal.variables(device_of), order=order)
            rehearsal.run(step)
        else:
            step = PlacedStep(variant.template, names, variables=mine, order=order)
        made = self.site.copies.missing(list(mine.values()), [device_of[node] for node in mine])
        if generation != self.site.generation:
            raise PlacerError("devices were joined anew while this was built.")
        return Placed(tuple(devices), tuple(order), name, step, generation, self.clock() - begin, made)

    def _recorded(self, captured: Captured) -> Recording:
        """What was recorded, by the captured graph's names."""
        if not self._recording:
            raise BadInputError(f"{self.name}: the caller writes to variables at every step; it cannot be rehearsed.")
        steps = [step for step in self._recording if step[1] or not captured.input_names]
        start = {node: steps[0][0][id(variable)] for node, variable in captured.variables.items()}
        end = {node: variable.read_value() for node, variable in captured.variables.items()}
        return Recording(start, [step[1] for step in steps], [step[2] for step in steps], end)

    def _exact(self) -> bool:
        assert self.site.devices is not None
        return self.site.devices.single_kind

    def _host(self) -> str:
        return self.site.devices.host if self.site.devices is not None else ""

    def _topology(self) -> Topology:
        """All devices, those lost included: indices stay what they are."""
        assert self.topology is not None
        return self.topology

    def _tf_names(self) -> dict[str, str]:
        assert self.site.devices is not None
        return self.site.devices.tf_names


def _wait(outputs: Any) -> list[Any]:
    """The returned tensors as arrays, once they are there."""
    return values([t for t in tf.nest.flatten(outputs, expand_composites=True) if tf.is_tensor(t)])


def _unseen(work: Callable[[], T]) -> T:
    """Work that looks at variables without anybody fetching their values."""
    with unwatched():
        return work()
