"""A training step that stays live while its mode changes: untouched, or placed by one mapping or another.

Every call is one real step. What takes long (capturing, building, trial runs) can be done by another thread; which mode
runs next is decided elsewhere (search/online/controller.py).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from placer import tf_internals
from placer.devices.gpu_wait import drain
from placer.devices.link_probes import QUICK_PROBES, QUICK_REPEATS, measure_links
from placer.devices.load_probes import LoadProbes
from placer.errors import BadInputError, PlacerError
from placer.execute.output_check import attempted
from placer.execute.rewrite import PlacedStep, Template
from placer.graph.mapping import Mapping
from placer.graph.mapping_files import carried_over
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.profile.profiler import profile
from placer.result import Failed
from placer.trace.capture import Captured, capture, untouchable
from placer.trace.iterator_inputs import Feeding
from placer.trace.signature import Layout, Signatures
from placer.train.modes import UNTOUCHED, Built, MappedStep, Mode, Placed
from placer.train.recorder import Recorder
from placer.train.session import DeviceSession
from placer.train.trial_run import TrialRun
from placer.train.untouched import UntouchedFunction
from placer.train.variable_hooks import unwatched
from placer.train.variant import Variant

T = TypeVar("T")
PROFILED = 3  # traced steps on each device
DRAINED = 64  # calls after a change of mode that are timed until all they started is done; later ones overlap
PROFILE_LIMIT_S = 60.0  # for one of them, on workers that may get lost
KEPT_EFFECTS = frozenset({"LookupTableInsertV2", "LookupTableRemoveV2", "LookupTableImportV2"})


@dataclass(frozen=True)
class Joined:
    """What is known of a live step once its devices are joined."""

    main: Variant  # the signature whose mapping is searched
    captured: Captured  # its graph
    trial_run: TrialRun
    topology: Topology  # all devices, lost ones included, so that indices stay what they are
    graph: OpGraph | None = None  # the captured one with costs, once profiled


class LiveStep:
    """A user's step, and the modes it can run in. The training thread uses `call`; `background` is one other thread."""

    def __init__(
        self,
        step: Callable[..., Any],
        session: DeviceSession,
        name: str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.session, self.name, self.clock = session, name, clock
        self.untouched = UntouchedFunction(step, session, name, clock)
        self.main: Variant | None = None  # the signature whose mapping is searched; others follow it
        self._mode: Mode = UNTOUCHED
        self._calls_so = 0  # placed ones since the mode changed
        self._joined: Joined | None = None
        self.left_alone: str | None = None
        self._signatures = Signatures()
        self._variants: dict[Hashable, Variant] = {}
        self._recorder = Recorder(session)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="placer")
        self._busy: list[Future[Any]] = []
        session.members.append(self)

    @property
    def joined(self) -> Joined:
        """What is known since `join`. Raises PlacerError before it."""
        if self._joined is None:
            raise PlacerError(f"{self.name} has not joined its devices yet.")
        return self._joined

    @property
    def is_joined(self) -> bool:
        """Whether `join` is done."""
        return self._joined is not None

    @property
    def graph(self) -> OpGraph | None:
        """The main signature's graph with costs, once profiled."""
        return None if self._joined is None else self._joined.graph

    # The training thread.

    @property
    def mode(self) -> Mode:
        """How calls of the main signature run."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        """Change the mode; what was placed on the devices of before a loss must never be called, so it is ignored."""
        if mode is self._mode or (isinstance(mode, Placed) and not self.is_current(mode)):
            return
        drain()
        self._mode, self._calls_so = mode, 0

    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, float | None]:
        """Run one step: what it returns, and its seconds if it is of the main signature.

        Within another function's trace, or under a gradient tape, the user's own function is called.
        """
        if tf_internals.is_recorded():
            return self.untouched.within(args, kwargs), None
        with self.session.lock:
            key, tensors = self._signatures.of(args, kwargs)
            variant = self._variants.get(key)
            if variant is None:
                variant = self._first_call(key, args, kwargs)
            variant.calls += 1
            if self.session.suspected:
                self.session.look()
            if variant is not self.main:
                return self._aside(variant, args, kwargs, tensors), None
            mode = self._mode
            if isinstance(mode, Placed):
                return self._placed(variant, mode, self._given(variant, tensors))
            return self._untouched(variant, args, kwargs, tensors)

    def _given(self, variant: Variant, tensors: Sequence[Any]) -> Sequence[Any]:
        """What a placed step takes: a batch where the user gave an iterator. Raises OutOfRangeError at its end."""
        return tensors if variant.feeding is None else variant.feeding.taken(tensors)

    def again(self, key: Any, tensors: Sequence[Any]) -> None:
        """As in `Member`."""
        variant = self._variants[key]
        mode = self.mode if variant is self.main else self._following(variant)
        if isinstance(mode, Placed):
            self._run(mode, tensors)
        else:
            self.untouched.run_flat(variant, tensors)

    def _first_call(self, key: Hashable, args: Sequence[Any], kwargs: dict[str, Any]) -> Variant:
        variant = self._variants[key] = Variant(key, args, kwargs, Layout.of(args, kwargs))
        if self.main is None:
            self.main = variant
            self.left_alone = untouchable(self.untouched.step) or self.untouched.trace(variant)
        if not self.left_alone:
            variant.feeding = Feeding.of(variant.layout)
        return variant

    def _untouched(
        self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any], tensors: Sequence[Any]
    ) -> tuple[Any, float]:
        wanted = variant is self.main and not self.is_joined and not self._recorder.is_full
        if not wanted or self.left_alone or variant.calls <= 1:
            return self.untouched.run(variant, args, kwargs)
        given = self._given(variant, tensors)
        if variant.feeding is not None:
            variant.shapes = variant.feeding.shapes(given)
        trained = self.untouched.function.get_concrete_function(*variant.args, **variant.kwargs).graph.variables
        return self._recorder.record(trained, given, lambda: self.untouched.run_flat(variant, given))

    def _placed(self, variant: Variant, mode: Placed, tensors: Sequence[Any]) -> tuple[Any, float]:
        if self.session.fragile:
            self.session.before_placed()
            if mode.generation != self.session.generation:  # a loss showed in that
                return self._placed_anew(variant, tensors)
        try:
            outputs, step_s = self._run(mode, tensors)
        except BaseException as error:
            if not self.session.is_loss(error):
                self.session.broke_off()
                raise
            self.session.recover()
            return self._placed_anew(variant, tensors)
        if self.session.fragile:
            self.session.ran(self, variant.key, tensors, step_s)
        return mode.step.captured.pack(outputs), step_s

    def _placed_anew(self, variant: Variant, tensors: Sequence[Any]) -> tuple[Any, float]:
        """Run a step in the mode of now: devices may have been lost since it began."""
        mode = self.mode if variant is self.main else self._following(variant)
        if isinstance(mode, Placed):
            return self._placed(variant, mode, tensors)
        return self.untouched.run_flat(variant, tensors)

    def _run(self, mode: Placed, tensors: Sequence[Any]) -> tuple[list[Any], float]:
        """One placed step; its seconds do not include fetching variables."""
        self.session.replicas.before(mode.use)
        begin = self.clock()
        try:
            outputs = mode.step.run_flat(tensors)
            self._calls_so += 1
            if self._calls_so <= DRAINED:
                drain()
            step_s = self.clock() - begin
        finally:  # a step that failed may have written
            self.session.replicas.after(mode.use)
        return outputs, step_s

    def _aside(self, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any], tensors: Sequence[Any]) -> Any:
        """A step of another signature than the main one."""
        if not isinstance(self.mode, Placed) or variant.refused:
            return self._untouched(variant, args, kwargs, tensors)[0]
        given = self._given(variant, tensors)
        if variant.feeding is not None:
            variant.shapes = variant.feeding.shapes(given)
        try:
            return self._placed_anew(variant, given)[0]
        except PlacerError as error:
            warnings.warn(f"{self.name}: {error} Calls of this signature run untouched.", stacklevel=4)
            variant.refused = True
        return self.untouched.run_flat(variant, given)[0]

    def _following(self, variant: Variant) -> Mode:
        """The step of another signature under the main one's mapping."""
        main = self.mode
        if not isinstance(main, Placed):
            return UNTOUCHED
        if variant.following is None or variant.following[0] is not main:
            if variant.captured is None:
                variant.captured = self._captured(variant)
                self.session.adopt(variant.captured.variables.values())
            if variant.template is None:
                variant.template = self._template(variant.captured)
            variant.following = main, self._carried(variant.template, main)
        return variant.following[1]

    def _carried(self, template: Template, main: Placed) -> Placed:
        topology = self.joined.topology
        names = {op.name: topology.names[d] for op, d in zip(main.step.captured.graph.ops, main.devices, strict=True)}
        graph = template.captured.graph
        carried = carried_over(self.name, names, graph, topology)
        devices = [topology.index[carried[op.name]] for op in graph.ops]
        built = self._build(template, devices, [name for name in main.order if name in graph.index], main.name)
        return self._settled(built)

    # Either thread.

    def background(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on the other thread."""
        future = self._thread.submit(_unseen, work)
        self._busy = [busy for busy in self._busy if not busy.done()] + [future]
        return future

    def capture(self) -> OpGraph:
        """Capture the main signature: its graph. Raises BadInputError where the step cannot be placed."""
        if self.main is None:
            raise BadInputError(f"{self.name} was not called yet, so its signature is not known.")
        self.main.captured = self._captured(self.main)
        return self.main.captured.graph

    def _captured(self, variant: Variant) -> Captured:
        how: dict[str, Any] = {"kwargs": variant.kwargs, "needs_loss": False, "elements": variant.shapes}
        captured = capture(self.untouched.function, variant.args, self.name, **how)
        if self.session.replicas.aside:
            raise BadInputError(f"{self.name}: {self.session.replicas.aside} reads its variables while steps run.")
        if captured.has_tables and self.session.joins:
            raise BadInputError(f"{self.name} uses a lookup table, and joining workers drops every table of a process.")
        for node in (captured.nodes[name] for name in captured.host_ops):
            if node.op in KEPT_EFFECTS:
                raise BadInputError(
                    f"{self.name}: op {node.name} ({node.op}) has an effect that cannot be tried without keeping it."
                )
        return captured

    def join(self) -> Topology:
        """Join the devices; the training thread only, between steps."""
        with self.session.lock:
            devices, main = self.session.join(), self.main
            if main is None or main.captured is None:
                raise PlacerError(f"{self.name} joins devices once it is captured.")
            captured = main.captured
            self.session.adopt(captured.variables.values())
            main.template = self._template(captured)
            trial_run = TrialRun(
                captured, self._recorder.recording(captured, self.name), exact=self.session.present.same_bits
            )
            self._recorder.clear()
            if self.session.fragile:
                self.session.save()
            self._joined = Joined(main, captured, trial_run, devices.topology)
            return devices.topology

    def profile(self) -> tuple[OpGraph, Topology]:
        """The main signature's graph with costs, and the topology with its links as measured."""
        devices, joined = self.session.join(), self.joined
        names = devices.topology.names
        links = measure_links(
            names, [devices.tf_names[name] for name in names], probes=QUICK_PROBES, repeats=QUICK_REPEATS
        )
        devices.topology = topology = Topology(devices.topology.devices, links, devices.topology.contention)
        self._joined = replace(joined, topology=topology)
        recording = joined.trial_run.recording
        limit_s = PROFILE_LIMIT_S if self.session.fragile else None
        graph = profile(
            joined.captured,
            devices,
            recording.batches[-1],
            runs=PROFILED,
            start=recording.start,
            warm_up=1,
            limit_s=limit_s,
        )
        self._joined = replace(joined, topology=topology, graph=graph)
        return graph, topology

    def build(self, devices: Sequence[int], order: Sequence[str], name: str) -> Built | Failed:
        """Place the main signature and try it; `settle` makes it ready to run. A failure is a value."""
        joined = self.joined
        joined.main.template = template = joined.main.template or self._template(joined.captured)
        built: Built | Failed = attempted(lambda: self._build(template, devices, order, name, joined.trial_run))
        if isinstance(built, Failed) and built.reason == "device":
            self.session.suspected = True
        return built

    def settle(self, built: Built) -> Placed | Failed:
        """Let a step that was built train the live variables; the training thread only. Failed where devices were
        joined anew since.
        """
        if not self.is_current(built):
            return Failed("device", "devices were joined anew since this was built.")
        return self._settled(built)

    def _settled(self, built: Built) -> Placed:
        captured = built.step.captured
        variables = captured.variables
        places = [built.step.device_of[node] for node in variables]
        written = {i for i, node in enumerate(variables) if node in captured.written}
        use = self.session.replicas.use(list(variables.values()), places, written, built.blank)
        built.blank.clear()  # whoever still holds what was built keeps no replica alive
        built.step.rebind(dict(zip(variables, use.replicas, strict=True)))
        return Placed(built.devices, built.order, built.name, built.step, built.generation, built.switch_s, use)

    def release(self, keep: Sequence[Placed]) -> None:
        """Free the replicas of variables that none of these needs; the training thread only."""
        self.session.replicas.drop_unused([placed.use for placed in keep])

    @property
    def shares_cores(self) -> bool:
        """Whether the devices compute on cores of this process, so measuring and training disturb each other."""
        return (
            self.session.devices is not None and self.session.devices.workers is not None
        ) or not self.session.fragile

    def pace(self) -> LoadProbes:
        """Probes of the devices that are there."""
        return LoadProbes(self.session.present)

    def mapping(self, devices: tuple[int, ...]) -> Mapping:
        """The main signature's ops on these devices."""
        joined = self.joined
        return Mapping(joined.graph or joined.captured.graph, joined.topology, devices)

    def is_current(self, step: MappedStep) -> bool:
        """Whether a step may still be called: devices were not joined anew since it was built."""
        return step.generation == self.session.generation

    # When devices are lost, or come back.

    def pause(self) -> None:
        """As in `Member`."""
        for future in self._busy:
            future.cancel()
        self.finish()

    def finish(self) -> None:
        """As in `Member`."""
        wait(self._busy)
        self._busy.clear()

    def rebuild(self) -> None:
        """As in `Member`: the same mapping where its devices are there, else everything on the first one that is."""
        for variant in self._variants.values():
            variant.following = variant.template = None
        if self._joined is None:
            return
        joined = self._joined
        joined.trial_run.forget()
        joined.main.template = template = self._template(joined.captured)
        if not isinstance(self.mode, Placed):
            return
        if self.session.devices is None:
            self.mode = UNTOUCHED
            return
        there = [joined.topology.index[name] for name in self.session.devices.topology.names]
        same = set(self.mode.devices) <= set(there)
        devices = self.mode.devices if same else (there[0],) * len(self.mode.devices)
        self.mode = self._settled(self._build(template, devices, self.mode.order if same else (), self.mode.name))

    def close(self) -> None:
        """Leave the session, with the user's variables true."""
        self.pause()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._joined is not None:
            self._joined.trial_run.forget()
        with self.session.lock:
            self.session.leave(self)
        self.mode = UNTOUCHED

    def _build(
        self,
        template: Template,
        devices: Sequence[int],
        order: Sequence[str],
        name: str,
        trial_run: TrialRun | None = None,
    ) -> Built:
        begin, generation = self.clock(), self.session.generation
        tf_names, topology = self.session.present.tf_names, self.joined.topology
        names = [tf_names[topology.names[d]] for d in devices]
        device_of = {op.name: n for op, n in zip(template.captured.graph.ops, names, strict=True)}
        mine = template.captured.variables
        if trial_run is not None:
            step = PlacedStep(template, names, variables=trial_run.variables(device_of), order=order)
            trial_run.run(step)
        else:
            step = PlacedStep(template, names, variables=mine, order=order)
        blank = self.session.replicas.missing(list(mine.values()), [device_of[node] for node in mine])
        if generation != self.session.generation:
            raise PlacerError("devices were joined anew while this was built.")
        return Built(tuple(devices), tuple(order), name, step, generation, self.clock() - begin, blank)

    def _template(self, captured: Captured) -> Template:
        """A captured step made ready for the devices of now."""
        return Template(captured, self.session.devices.host if self.session.devices is not None else "")


def _unseen(work: Callable[[], T]) -> T:
    """Run `work` without fetching the variables that it looks at."""
    with unwatched():
        return work()
