"""Makes placed steps of a step's signatures: captures and builds them, tries them, and lets them train."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from weakref import WeakSet

import tensorflow as tf

from placer.devices.workers.deadline import waiting
from placer.errors import BadInputError, PlacerError, listed, one_line, what_failed
from placer.execute.agreement import LossDiffersError
from placer.execute.outputs import attempted
from placer.execute.rewrite import PlacedStep, Template
from placer.execute.variable_copies import Held, Place, by_node, by_whole_node, nodes_of, places_of
from placer.graph.held_memory import lack_in_order
from placer.graph.mapping_files import carried_over
from placer.graph.topology import Topology
from placer.result import Failed
from placer.splits.plan import PlanError, SplitPlan
from placer.splits.step import split_step
from placer.trace.capture import Captured, capture
from placer.trace.effects import unrepeatable_effect
from placer.train.device_session import DeviceSession
from placer.train.steps.modes import UNTOUCHED, WHOLE, Built, MappedStep, Placed, Untouched, Wanted
from placer.train.steps.recorder import Recorder
from placer.train.steps.scratch_run import ScratchRun
from placer.train.steps.untouched import UntouchedFunction, lent
from placer.train.steps.variant import Variant
from placer.train.variables.replicas import Use


class Builder:
    """Builds the steps of one function for the devices that are joined now.

    Any thread may capture and build, because neither touches a variable of the training. `settle` and `follow` are
    for the training thread. Nothing that was built may be called after devices were joined again: see `is_current`.
    """

    def __init__(
        self,
        untouched: UntouchedFunction,
        session: DeviceSession,
        name: str,
        clock: Callable[[], float] = time.perf_counter,
        plans: Iterable[SplitPlan] = (),
    ) -> None:
        """name: of the step, for messages. clock: seconds. plans: plans of splits that may be used, numbered from 1."""
        self.untouched, self.session, self.name, self.clock = untouched, session, name, clock
        self.plans = [SplitPlan(), *plans]
        self._placed: WeakSet[Placed] = WeakSet()
        self._rejected: WeakSet[MappedStep] = WeakSet()

    def capture(self, variant: Variant) -> Captured:
        """Capture the step of one signature. Raises BadInputError if it cannot be placed."""
        variant.captured_shapes = variant.shapes  # the next batch of an iterator may have others
        captured = capture(
            self.untouched.step, (), self.name, needs_loss=False, elements=variant.captured_shapes,
            layout=variant.layout, traced=variant.traced,
        )  # fmt: skip
        if self.session.replicas.aside:
            raise BadInputError(f"{self.name}: {self.session.replicas.aside} reads its variables while steps run.")
        if captured.has_tables and self.session.connection.joins_workers:
            raise BadInputError(f"{self.name} uses a lookup table, and joining workers drops every table of a process.")
        alone = captured.repeats or unrepeatable_effect(captured.graph_def)
        if alone is None and captured.is_random:
            alone = "it draws random numbers in a loop or branch, or by an op whose stream cannot be moved"
        if alone is not None:
            raise BadInputError(f"{self.name}: {alone}.")
        return captured

    def divided(self, variant: Variant, plan: int) -> Captured:
        """The captured step of a signature, divided by a plan. Raises PlanError if the plan is for another step."""
        assert variant.captured is not None
        if plan == WHOLE:
            return variant.captured
        if plan not in variant.divided:
            variant.divided[plan] = split_step(variant.captured, self.plans[plan], stored=False).captured
        return variant.divided[plan]

    def add_plan(self, variant: Variant, plan: SplitPlan) -> int:
        """Add a plan of splits and return its number. Raises PlanError if it does not fit this signature."""
        self.plans.append(plan)
        try:
            self.check_plans(variant)
        except Exception:  # TensorFlow's, too: the caller may go on without the plan
            self.plans.pop()
            raise
        return len(self.plans) - 1

    def check_plans(self, variant: Variant) -> None:
        """Check that all plans fit a signature that was captured. Raises as `divided`."""
        for plan in range(len(self.plans)):
            self.divided(variant, plan)

    def template(self, variant: Variant, plan: int = WHOLE) -> Template:
        """The signature's step, divided by a plan, ready for the current devices. Captures the step first if it was not
        captured yet. Raises as `capture` and `divided`.
        """
        if variant.captured is None:
            variant.captured = self.capture(variant)
            self.session.adopt(variant.captured.variables.values())
        if plan not in variant.templates:
            devices = self.session.devices
            host, stages_from = ("", None) if devices is None else (devices.host, devices.stages_from)
            variant.templates[plan] = Template(self.divided(variant, plan), host, stages_from, variant.arrived)
        return variant.templates[plan]

    @waiting("a mapping was built", first=True)
    def build(
        self,
        template: Template,
        topology: Topology,
        wanted: Wanted,
        scratch_run: ScratchRun | None = None,
        sparing: bool = False,
    ) -> Built:
        """Build the step under a mapping onto `topology`.

        scratch_run: tries the step on scratch variables; None = no trial. sparing: the scratch variables become the
        replicas that the step trains, and no others are kept.

        Raises PlacerError if a device is missing or devices were joined again meanwhile, and what a scratch run raises.
        """
        if (absent := self.absent(topology, wanted.op_devices)) is not None:
            raise PlacerError(absent)
        begin, generation, captured = self.clock(), self.session.generation, template.captured
        tf_names = self.session.present.tf_names
        names = [tf_names[topology.names[d]] for d in wanted.op_devices]
        device_of = {op.name: n for op, n in zip(captured.graph.ops, names, strict=True)}
        mine, at = captured.whole.variables, places_of(captured, device_of)
        spare: dict[tuple[int, Place], Held] = {}
        if scratch_run is None:  # nothing runs on these variables: `settle` gives the step others
            unbound = {part: mine[node] for node, parts in captured.divided.items() for part in parts.nodes}
            step = PlacedStep(template, names, variables={**mine, **unbound}, order=wanted.order)
        else:
            if sparing:
                scratch_run.forget_variables()
            step = PlacedStep(template, names, variables=scratch_run.variables(captured, device_of), order=wanted.order)
            scratch_run.run(step)
            if sparing:
                spare = _held(captured, step, at)
                scratch_run.forget_variables()
        blank = self.session.replicas.missing(list(mine.values()), at, spare)
        if generation != self.session.generation:
            raise PlacerError("devices were joined anew while this was built.")
        devices, order = tuple(wanted.op_devices), tuple(wanted.order)
        switch_s = self.clock() - begin
        return Built(devices, order, wanted.name, step, generation, switch_s, blank, plan=wanted.plan)

    def absent(self, topology: Topology, devices: Iterable[int]) -> str | None:
        """A message that names which of `devices` are missing now; None if all are present."""
        there = self.session.devices.tf_names if self.session.devices is not None else {}
        names = [topology.names[d] for d in sorted(set(devices)) if topology.names[d] not in there]
        return f"{listed(names)} {'is' if len(names) == 1 else 'are'} missing." if names else None

    def is_current(self, step: MappedStep) -> bool:
        """Whether a step may still be called: no device was joined or left since it was built, and it did not fail."""
        return step.generation == self.session.generation and step not in self._rejected

    def reject(self, placed: Placed) -> None:
        """Never call a step again, because it failed."""
        self._rejected.add(placed)

    def settle(self, built: Built) -> Placed | Failed:
        """Let a step that was built train the live variables. Returns Failed if devices were joined again since, or
        cannot hold a replica that another step freed meanwhile.
        """
        if not self.is_current(built):
            return Failed("device", "devices were joined anew since this was built.")
        settled: Placed | Failed = attempted(lambda: self._settled(built))
        return settled

    def rebuilt(self, variant: Variant, topology: Topology, placed: Placed) -> Placed | Untouched:
        """Build the same mapping again, without a scratch run. If one of its devices is missing, build the undivided
        step on the first device that is present; UNTOUCHED if that device lacks the memory. For the training thread,
        under the session's lock.
        """
        there = [topology.index[name] for name in self.session.present.topology.names]
        wanted = Wanted(placed.op_devices, placed.order, placed.name, placed.plan)
        if not set(placed.op_devices) <= set(there):
            graph = self.template(variant).captured.graph
            wanted = Wanted((there[0],) * len(graph), (), placed.name)
            if lack_in_order(graph, topology, wanted.op_devices) is not None:
                return UNTOUCHED
        return self._settled(self.build(self.template(variant, wanted.plan), topology, wanted))

    def scratch_run(self, variant: Variant, captured: Captured, recorder: Recorder) -> ScratchRun:
        """A scratch run of one signature on its recorded steps. Raises BadInputError if none were recorded."""
        recording, unpack = recorder.recording(captured, self.name), partial(lent, variant.feeding)
        return ScratchRun(
            captured, recording, exact=self.session.present.same_bits and captured.is_ordered, unpack=unpack
        )

    def follow(self, variant: Variant, main: Placed, topology: Topology, recorder: Recorder) -> str | None:
        """Place another signature by the mapping of the main one, and try it. Returns why that failed; None if the
        signature is placed, or if a device was lost meanwhile and the session goes on without it.
        """
        try:
            scratch_run = self.scratch_run(variant, self.template(variant).captured, recorder)
            try:
                placed = self._carried_over(variant, main, topology, scratch_run)
            finally:
                scratch_run.close()
        except (PlacerError, LossDiffersError, tf.errors.OpError) as error:
            if self.session.recovery.is_loss(error):
                self.session.recovery.recover()
                return None
            return what_failed(error)
        except Exception as error:  # whatever is wrong with placing it, the training goes on
            return f"placing it failed: {type(error).__name__}: {one_line(str(error))}"
        variant.following = main, placed
        return None

    def _carried_over(self, variant: Variant, main: Placed, topology: Topology, scratch_run: ScratchRun) -> Placed:
        names = {
            op.name: topology.names[d] for op, d in zip(main.step.captured.graph.ops, main.op_devices, strict=True)
        }
        plan, order = main.plan, main.order
        try:
            template = self.template(variant, plan)
        except PlanError:  # too few elements, or other ops: the step stays whole, each op where its first part is
            plan, order, template = WHOLE, (), self.template(variant)
            names = {op.part_of or op.name: names[op.name] for op in reversed(main.step.captured.graph.ops)}
        graph = template.captured.graph
        carried = carried_over(self.name, names, graph, topology)
        devices = [topology.index[carried[op.name]] for op in graph.ops]
        # This graph's own order: under another one, workers may wait for each other.
        order = tuple(graph.ordered_like(order)) if order else ()
        return self._settled(self.build(template, topology, Wanted(devices, order, main.name, plan), scratch_run))

    @property
    def uses(self) -> list[Use]:
        """The replicas needed by settled steps that may still be called and were neither forgotten nor freed."""
        return [placed.use for placed in self._placed if self.is_current(placed)]

    def forget_all_but(self, keep: Iterable[Placed]) -> None:
        """Forget that steps other than those in `keep` need replicas."""
        self._placed = WeakSet(keep)

    def _settled(self, built: Built) -> Placed:
        captured = built.step.captured
        variables = captured.whole.variables
        written = {i for i, node in enumerate(variables) if captured.written.intersection(nodes_of(captured, node))}
        at = places_of(captured, built.step.device_of)
        with waiting("a mapping was built", first=True):  # replicas that another step freed are made again
            use = self.session.replicas.use(list(variables.values()), at, written, built.blank)
        built.blank.clear()  # a reference to `built` must keep no replica alive
        built.step.draws = captured.drawn
        built.step.rebind(by_node(captured, dict(zip(variables, use.replicas, strict=True))))
        common = built.op_devices, built.order, built.name, built.step, built.generation, built.switch_s
        placed = Placed(*common, use, plan=built.plan)
        self._placed.add(placed)
        return placed


def _held(captured: Captured, step: PlacedStep, at: Sequence[Place]) -> dict[tuple[int, Place], Held]:
    """(variable's id, place) -> scratch variable of a step that was tried, to become a replica that the step trains."""
    mine, held = captured.whole.variables, by_whole_node(captured, step.variables)
    return {(id(mine[node]), place): held[node] for node, place in zip(mine, at, strict=True)}
