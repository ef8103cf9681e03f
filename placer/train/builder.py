"""From a signature of a step to one that runs under a mapping: capture it, build it, try it, let it train."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from weakref import WeakSet

from placer.devices.workers.deadline import waiting
from placer.errors import BadInputError, PlacerError, short
from placer.execute.outputs import attempted
from placer.execute.rewrite import PlacedStep, Template
from placer.graph.mapping_files import carried_over
from placer.graph.topology import Topology
from placer.result import Failed
from placer.splits.plan import SplitPlan
from placer.splits.step import split_step
from placer.trace.capture import Captured, capture
from placer.trace.effects import unrepeatable_effect
from placer.train.session import DeviceSession
from placer.train.steps.modes import Built, MappedStep, Placed
from placer.train.steps.recorder import Recorder
from placer.train.steps.trial_run import TrialRun
from placer.train.steps.untouched import UntouchedFunction, lent
from placer.train.steps.variant import Variant
from placer.train.variables.replicas import Use


class Builder:
    """Builds the steps of one function for the devices that are joined now.

    Any thread may capture and build, because neither touches a variable of the training. `settle` and `follow` are
    for the training thread. Nothing that was built may be called after devices were joined anew: see `is_current`.
    """

    def __init__(
        self,
        untouched: UntouchedFunction,
        session: DeviceSession,
        name: str,
        clock: Callable[[], float] = time.perf_counter,
        plan: SplitPlan | None = None,
    ) -> None:
        """name: the step's, for messages. clock: seconds. plan: by which ops of every signature are divided."""
        self.untouched, self.session, self.name, self.clock, self.plan = untouched, session, name, clock, plan
        self._placed: WeakSet[Placed] = WeakSet()
        self._rejected: WeakSet[MappedStep] = WeakSet()

    def capture(self, variant: Variant) -> Captured:
        """The step of one signature. Raises BadInputError where it cannot be placed."""
        how: dict[str, Any] = {"kwargs": variant.kwargs, "needs_loss": False, "elements": variant.shapes}
        how |= {"layout": variant.layout, "traced": variant.traced}
        captured = capture(self.untouched.step, variant.args, self.name, **how)
        if self.session.replicas.aside:
            raise BadInputError(f"{self.name}: {self.session.replicas.aside} reads its variables while steps run.")
        if captured.has_tables and self.session.connection.joins_workers:
            raise BadInputError(f"{self.name} uses a lookup table, and joining workers drops every table of a process.")
        alone = captured.repeats or unrepeatable_effect(captured.graph_def)
        if alone is None and captured.is_random:
            alone = "it draws random numbers in a loop or branch, or by an op whose stream cannot be moved"
        if alone is not None:
            raise BadInputError(f"{self.name}: {alone}.")
        return captured if self.plan is None else self._divided(captured, self.plan)

    def _divided(self, captured: Captured, plan: SplitPlan) -> Captured:
        """The step with ops divided. Raises BadInputError where the plan is for another step, or divides variables: the
        training's own stay whole.
        """
        divided = split_step(captured, plan).captured
        if divided.divided:
            raise BadInputError(
                f"{self.name}: the mapping divides the variable {short(next(iter(divided.divided)))}, which only "
                "`placer search` can do yet; give one that divides no variables."
            )
        return divided

    def template(self, variant: Variant) -> Template:
        """The signature's step made ready for the devices of now; captured first where it was not."""
        if variant.captured is None:
            variant.captured = self.capture(variant)
            self.session.adopt(variant.captured.variables.values())
        if variant.template is None:
            host = self.session.devices.host if self.session.devices is not None else ""
            variant.template = Template(variant.captured, host)
        return variant.template

    @waiting("a mapping was built", first=True)
    def build(
        self,
        template: Template,
        topology: Topology,
        devices: Sequence[int],
        order: Sequence[str],
        name: str,
        trial_run: TrialRun | None = None,
    ) -> Built:
        """The step on these devices, one per op, indices into `topology`. trial_run: run it once on scratch variables.

        Raises PlacerError where devices were joined anew meanwhile, and what a trial run raises.
        """
        begin, generation = self.clock(), self.session.generation
        tf_names = self.session.present.tf_names
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

    def is_current(self, step: MappedStep) -> bool:
        """Whether a step may still be called: devices were not joined anew since it was built, and it did not fail."""
        return step.generation == self.session.generation and step not in self._rejected

    def reject(self, placed: Placed) -> None:
        """Never call a step again, because it failed."""
        self._rejected.add(placed)

    def settle(self, built: Built) -> Placed | Failed:
        """Let a step that was built train the live variables. Failed where devices were joined anew since."""
        if not self.is_current(built):
            return Failed("device", "devices were joined anew since this was built.")
        return self._settled(built)

    def build_settled(
        self, template: Template, topology: Topology, devices: Sequence[int], order: Sequence[str], name: str
    ) -> Placed:
        """`build` and `settle` at once, untried; for the training thread, under the session's lock."""
        return self._settled(self.build(template, topology, devices, order, name))

    def rebuilt(self, template: Template, topology: Topology, placed: Placed) -> Placed:
        """The same mapping on the devices that are there, or everything on the first of them where some are not."""
        there = [topology.index[name] for name in self.session.present.topology.names]
        same = set(placed.devices) <= set(there)
        devices = placed.devices if same else (there[0],) * len(placed.devices)
        return self.build_settled(template, topology, devices, placed.order if same else (), placed.name)

    def trial_run(self, variant: Variant, captured: Captured, recorder: Recorder) -> TrialRun:
        """Trials of one signature against what was recorded. Raises BadInputError where nothing was."""
        recording, unpack = recorder.recording(captured, self.name), partial(lent, variant.feeding)
        return TrialRun(
            captured, recording, exact=self.session.present.same_bits and captured.is_ordered, unpack=unpack
        )

    def follow(self, variant: Variant, main: Placed, topology: Topology, recorder: Recorder) -> str | None:
        """Place another signature by the mapping of the main one, and try it; why that cannot be, None where it can."""
        try:
            trial_run = self.trial_run(variant, self.template(variant).captured, recorder)
            placed = attempted(lambda: self._carried_over(variant, main, topology, trial_run))
            trial_run.close()
        except PlacerError as error:
            return str(error)
        if isinstance(placed, Failed):
            return placed.detail
        variant.following = main, placed
        return None

    def _carried_over(self, variant: Variant, main: Placed, topology: Topology, trial_run: TrialRun) -> Placed:
        template = self.template(variant)
        names = {op.name: topology.names[d] for op, d in zip(main.step.captured.graph.ops, main.devices, strict=True)}
        graph = template.captured.graph
        carried = carried_over(self.name, names, graph, topology)
        devices = [topology.index[carried[op.name]] for op in graph.ops]
        order = graph.ordered_like(main.order) if main.order else ()  # its own, or workers may wait for each other
        order = [name for name in order if name not in template.captured.variables]  # these are its arguments
        return self._settled(self.build(template, topology, devices, order, main.name, trial_run))

    @property
    def uses(self) -> list[Use]:
        """The replicas that the steps need which were settled, and neither forgotten nor dropped since."""
        return [placed.use for placed in self._placed if self.is_current(placed)]

    def forget_all_but(self, keep: Iterable[Placed]) -> None:
        """Need the replicas of other steps no longer."""
        self._placed = WeakSet(keep)

    def _settled(self, built: Built) -> Placed:
        captured = built.step.captured
        variables = captured.variables
        places = [built.step.device_of[node] for node in variables]
        written = {i for i, node in enumerate(variables) if node in captured.written}
        use = self.session.replicas.use(list(variables.values()), places, written, built.blank)
        built.blank.clear()  # whoever still holds what was built keeps no replica alive
        built.step.draws = captured.drawn
        built.step.rebind(dict(zip(variables, use.replicas, strict=True)))
        placed = Placed(built.devices, built.order, built.name, built.step, built.generation, built.switch_s, use)
        self._placed.add(placed)
        return placed
