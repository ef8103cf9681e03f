"""The stages before a search: the step is traced and timed untouched; then its ops are profiled on open devices, or
their times are predicted.

Each stage returns a value that the next one takes. The first one loads TensorFlow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from experiments import zoo
from experiments.jobs.search.finding import Progress
from experiments.jobs.search.settings import SearchSettings
from placer.errors import PlacerError
from placer.graph.coarsen import coarsen
from placer.graph.op_graph import OpGraph
from placer.graph.pins import check_pins, parse_pin, pinned
from placer.graph.topology import Topology
from placer.result import Measured
from search.problem.memory_fit import refuse_too_large
from search.session.prediction import Prediction

if TYPE_CHECKING:
    from placer.devices.cluster import Devices
    from placer.execute.agreement import Outcome
    from placer.splits.plan import SplitPlan
    from placer.trace.capture import Captured


@dataclass(frozen=True)
class TracedModel:
    """A training step, whole or with ops divided, and how TensorFlow runs it untouched."""

    captured: Captured
    inputs: list[Any]  # the example inputs, flat
    untouched: Measured
    references: tuple[Outcome, ...]  # outcomes that placed steps must have; see measure_untouched
    diverged: str | None = None  # what the loss became, and when, if it is not finite
    plan: SplitPlan | None = None  # by which ops of the captured step are divided
    policy: str | None = None  # that made the plan, if Placer chose it

    @cached_property
    def for_sessions(self) -> Captured:
        """The step as a session on other processes can run it."""
        from placer.profile.host_values import without_host_ops

        return without_host_ops(self.captured, self.inputs)


def trace_model(settings: SearchSettings, progress: Progress, training: zoo.TrainingStep | None = None) -> TracedModel:
    """Trace the settings' model, or `training` instead of it.

    The step is timed before devices are opened, because after that TensorFlow would lose the step's updates
    (docs/decisions/002-untouched-first.md). Raises BadInputError for settings, a model, devices or a plan of splits
    that cannot be used.
    """
    settings.check()
    if training is None:
        zoo.find(settings.model)  # an unknown name is refused before any phase is reported
    from placer.devices.logical import split
    from placer.devices.process_resources import check_kept
    from placer.devices.specs import check_max_memory, check_spec, logical_devices
    from placer.measure.untouched import measure_untouched
    from placer.trace.capture import capture

    check_spec(settings.devices)
    check_max_memory(settings.max_memory, settings.devices, settings.include_local)
    split(settings.devices)  # before the model's variables are made
    progress.phase(f"tracing {settings.model}")
    training = training or zoo.load(settings.model, batch=settings.batch, seed=settings.seed)
    captured = capture(training.step, training.example_inputs, training.name)
    check_pins(captured.graph, [parse_pin(pin) for pin in settings.pins])  # before devices are opened
    if settings.devices is not None and logical_devices(settings.devices) is None:
        check_kept(captured)
    if settings.plan is not None:
        check_plan(captured, settings.plan)
    inputs = captured.flat_inputs(training.example_inputs)
    progress.phase("timing the untouched step")
    found = measure_untouched(captured, inputs)
    return TracedModel(captured, inputs, found.measured, found.references, found.diverged)


def check_plan(captured: Captured, plan: SplitPlan) -> None:
    """Raises BadInputError if ops of a step cannot be divided by a plan. Makes no variables."""
    from placer.splits.divide import divide
    from placer.splits.step_graph import StepGraph

    divide(StepGraph(captured.graph_def), plan, captured.output_names, captured.writes)


def profile_model(traced: TracedModel, devices: Devices, settings: SearchSettings, progress: Progress) -> Prediction:
    """Profile the step's ops on each device, or predict their times if the settings name a store of times, and join the
    ops to the groups that a search moves.

    Raises PlacerError if there is only one device, and BadInputError for a pin that fits no op or no device, for a step
    whose variables no mapping has room for, and for a store without times for such devices.
    """
    topology = devices.topology
    check_several(topology)
    pins = [parse_pin(pin) for pin in settings.pins]
    pinned(traced.captured.graph, pins, topology)  # refuses at once what would be refused after the profile
    refuse_too_large(traced.captured.graph, topology, settings.headroom)
    graph = _costed(traced, devices, settings, progress)
    groups = coarsen(pinned(graph, pins, topology), settings.groups, topology)
    return Prediction.profiled(groups, topology, settings.headroom, settings.schedule)


def check_several(topology: Topology) -> None:
    """Raises PlacerError if there is only one device."""
    if len(topology) < 2:
        from placer.devices.host.cores import usable_cores
        from placer.devices.workers.workers import ONE_CORE

        one_core = len(usable_cores()) == 1
        way_out = ONE_CORE if one_core else "pass --workers 2 to start worker processes."
        raise PlacerError(f"{topology.names[0]} is the only device here, so there is nothing to place; {way_out}")


def _costed(traced: TracedModel, devices: Devices, settings: SearchSettings, progress: Progress) -> OpGraph:
    """The step's ops, each with its cost on each device."""
    store = settings.operator_store
    if store is not None:
        progress.phase(f"predicting times of ops from {store.path}")
        return store.on_devices(traced.captured, devices).graph
    from placer.profile.profiler import profile

    progress.phase("profiling ops on each device")
    return profile(traced.for_sessions, devices, traced.inputs, runs=settings.traced, warm_up=settings.warm_up)
