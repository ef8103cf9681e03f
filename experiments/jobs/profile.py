"""Profiles networks op by op: fills the operator dataset, and fits the operator models."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments import zoo
from experiments.jobs.interrupt import heard
from experiments.jobs.kept_profiles import KeptProfiles
from placer.devices.specs import check_spec
from placer.errors import BadInputError
from placer.files import check_outputs
from placer.measure.store import Store
from placer.profile.operators.dataset import YARDSTICKS, OperatorRow, check_export
from surrogate.operators.models import LEAST_S, OperatorModels, fit_models

if TYPE_CHECKING:  # TensorFlow is loaded when profiling starts, not for --help
    from placer.devices.cluster import Devices
    from placer.profile.operators.operator_profile import OperatorProfile

Advance = Callable[[str], None]
PASSES = 3


@dataclass(frozen=True)
class ProfileSettings:
    """The models to profile, the devices to profile them on, and how."""

    models: tuple[str, ...]  # each as experiments.zoo.load takes it
    devices: str | None = None  # as placer.devices.opening.open_devices takes it
    batches: tuple[int | None, ...] = (None,)  # examples per step; None = the network's own
    passes: int = PASSES  # how often all networks are timed in turn
    seed: int = 0  # of the weights and the example inputs
    scaled: bool = True  # whether slower ops are also timed alone at other batch sizes and channels


@dataclass(frozen=True)
class ProfileResult:
    """The result of profiling."""

    rows: tuple[OperatorRow, ...]  # of this run
    models: tuple[OperatorModels, ...]  # for each kind of device, fitted to these and the machines' rows in the store
    devices: tuple[str, ...]
    seconds: float
    lost: tuple[Exception, ...] = ()  # errors of writing the store and the export


def profile_command(
    settings: ProfileSettings,
    store: Path | None,
    target: Path | None,
    progress: Callable[[int], AbstractContextManager[Advance]],
) -> ProfileResult:
    """Measure operators, keep them in `store`, fit models to them, and export them to `target`.

    After each profile of a pass, its rows are stored. progress: called with the number of steps to show. Raises
    BadInputError for a model or device that cannot be used, and PlacerError for a store or target if it is known
    beforehand that it cannot be written. Raises DeviceLostError if a device is lost, and KeyboardInterrupt at a signal,
    after keeping what was measured until then.
    """
    check(settings, target, store)
    if store is not None:
        Store(store).close()
    begin_s = time.perf_counter()
    from placer.devices.opening import open_devices

    profiles: list[OperatorProfile] = []
    with heard() as signals, open_devices(settings.devices, links=False, deadlines=True) as devices:
        kept = KeptProfiles(store, target, signals)
        try:
            _measure(settings, devices, profiles, kept, progress)
        except BaseException:
            kept.keep_despite(profiles)
            raise
        rows, known, lost = kept.finish(profiles)  # before the devices are closed, which may be cut short
    kinds = dict.fromkeys(row.device_kind for row in rows if row.network != YARDSTICKS and row.median_s > LEAST_S)
    models = [fit_models(known, kind) for kind in kinds or (None,)]
    return ProfileResult(tuple(rows), tuple(models), devices.topology.names, time.perf_counter() - begin_s, tuple(lost))


def _measure(
    settings: ProfileSettings,
    devices: Devices,
    profiles: list[OperatorProfile],
    kept: KeptProfiles,
    progress: Callable[[int], AbstractContextManager[Advance]],
) -> None:
    """Add the profiles of the settings' models and of the yardsticks to `profiles`, and run all passes of them."""
    from placer.devices.workers.deadline import at_the_end
    from placer.profile.operators.yardsticks import yardsticks

    numbers = range(len(devices.topology))
    count = len(settings.models) * len(settings.batches) * len(numbers)
    with (
        progress(count + (count + len(numbers)) * settings.passes) as advance,
        at_the_end(lambda _: kept.keep_despite(profiles)),
    ):
        for model in settings.models:
            profiles.extend(profiles_of(model, settings, devices, numbers, advance))
        profiles += yardsticks(devices, numbers)
        run_passes(profiles, settings.passes, advance, kept.keep)


def check(settings: ProfileSettings, target: Path | None, store: Path | None = None) -> None:
    """Raises BadInputError or PlacerError, before profiling, for models, settings or outputs with which it fails."""
    check_spec(settings.devices)
    for model in settings.models:
        zoo.find(model)
    for batch in settings.batches:
        if batch is not None and batch < 1:
            raise BadInputError(f"--batch is {batch}; give a number of examples >= 1.")
    if settings.passes < 1:
        raise BadInputError(f"--passes is {settings.passes}; give at least 1.")
    if target is not None:
        check_export(target)
        check_outputs(target, inputs=[store])


def profiles_of(
    model: str, settings: ProfileSettings, devices: Devices, numbers: Sequence[int], advance: Advance
) -> Iterator[OperatorProfile]:
    """Yield a profile, still without times, for each batch and device number. Only those of the first batch also time
    ops at other sizes.
    """
    from placer.profile.host_values import without_host_ops
    from placer.profile.operators.operator_profile import OperatorProfile
    from placer.trace.capture import capture

    for i, batch in enumerate(settings.batches):
        training = zoo.load(model, batch=batch, seed=settings.seed)
        captured = capture(training.step, training.example_inputs, model)
        inputs = captured.flat_inputs(training.example_inputs)
        captured = without_host_ops(captured, inputs)
        examples = batch or next((int(t.shape[0]) for t in inputs if t.shape.rank), None)
        for number in numbers:
            advance(f"tracing {model}")
            scaled = settings.scaled and i == 0
            yield OperatorProfile(captured, inputs, devices, number, batch=examples, scales=scaled)


def run_passes(
    profiles: Sequence[OperatorProfile],
    passes: int,
    advance: Advance,
    after: Callable[[OperatorProfile], object] = lambda profile: None,
) -> None:
    """Time all profiles in each pass before the next one begins, so that repeats are minutes apart. after: called with
    each profile after its part of a pass.
    """
    for i in range(passes):
        for profile in profiles:
            advance(f"{profile.captured.name}, pass {i + 1}")
            profile.run_pass()
            after(profile)
