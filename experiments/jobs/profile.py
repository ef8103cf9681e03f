"""Profiling networks op by op: fills the operator dataset, fits the operator models, and says how far off they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments import zoo
from placer.errors import BadInputError
from placer.measure.store import Store
from placer.profile.operators.dataset import OperatorRow, check_export, export
from surrogate.operators.models import OperatorModels, fit_models

if TYPE_CHECKING:  # TensorFlow is loaded when profiling starts, not for --help
    from placer.devices.cluster import Devices
    from placer.profile.operators.operator_profile import OperatorProfile

Advance = Callable[[str], None]
PASSES = 3


@dataclass(frozen=True)
class ProfileSettings:
    """What to profile, and where."""

    models: tuple[str, ...]
    devices: str | None = None
    batches: tuple[int | None, ...] = (None,)  # None = each network's own
    passes: int = PASSES  # how often all networks are timed in turn
    seed: int = 0
    scaled: bool = True  # whether the slower ops are timed at other batch sizes and channels, too, one by one


@dataclass(frozen=True)
class Profiled:
    """What a profile brought. rows: of this run; models: fitted on these and what the store had of this machine."""

    rows: tuple[OperatorRow, ...]
    models: OperatorModels
    devices: tuple[str, ...]
    seconds: float


def profile_command(
    settings: ProfileSettings,
    store: Path | None,
    target: Path | None,
    progress: Callable[[int], AbstractContextManager[Advance]],
) -> Profiled:
    """`placer profile`: measure, keep, fit, export. progress: shows that many steps.

    Raises BadInputError for a model, device or file that is none.
    """
    check(settings, target)
    begin_s = time.perf_counter()
    from placer.devices.cluster import open_devices

    with Store(store) if store else nullcontext() as kept, open_devices(settings.devices, links=False) as devices:
        profiles = len(settings.models) * len(settings.batches) * len(devices.topology)
        with progress(profiles * (settings.passes + 1)) as advance:
            rows = measure(settings, devices, range(len(devices.topology)), advance)
        names = devices.topology.names
        if kept is not None:
            kept.add_operators(rows)
        machines = sorted({row.machine for row in rows})
        known = rows if kept is None else [row for name in machines for row in kept.operators(name)]
    if target is not None:
        export(known, target)
    return Profiled(
        tuple(rows), fit_models(known, rows[0].device_kind if rows else None), names, time.perf_counter() - begin_s
    )


def check(settings: ProfileSettings, target: Path | None) -> None:
    """Refuse before the profile what would fail in it. Raises BadInputError."""
    for batch in settings.batches:
        if batch is not None and batch < 1:
            raise BadInputError(f"--batch is {batch}; give a number of examples >= 1.")
    if settings.passes < 1:
        raise BadInputError(f"--passes is {settings.passes}; give at least 1.")
    if target is not None:
        check_export(target)


def measure(
    settings: ProfileSettings, devices: Devices, numbers: Sequence[int], advance: Advance = lambda text: None
) -> list[OperatorRow]:
    """The rows of every network, batch and device number."""
    profiles = [p for model in settings.models for p in profiles_of(model, settings, devices, numbers, advance)]
    run_passes(profiles, settings.passes, advance)
    return [row for profile in profiles for row in profile.rows()]


def profiles_of(
    model: str, settings: ProfileSettings, devices: Devices, numbers: Sequence[int], advance: Advance
) -> Iterator[OperatorProfile]:
    """One profile, still without times, per batch and device number; other sizes go with the first batch."""
    from placer.profile.operators.operator_profile import OperatorProfile
    from placer.trace.capture import capture

    for i, batch in enumerate(settings.batches):
        training = zoo.load(model, batch=batch, seed=settings.seed)
        captured = capture(training.step, training.example_inputs, model)
        inputs = captured.flat_inputs(training.example_inputs)
        examples = batch or next((int(t.shape[0]) for t in inputs if t.shape.rank), None)
        for number in numbers:
            advance(f"tracing {model}")
            scaled = settings.scaled and i == 0
            yield OperatorProfile(captured, inputs, devices, number, batch=examples, scales=scaled)


def run_passes(profiles: Sequence[OperatorProfile], passes: int, advance: Advance) -> None:
    """Each pass goes round all profiles before the next begins, so that repeats are minutes apart."""
    for i in range(passes):
        for profile in profiles:
            advance(f"{profile.captured.name}, pass {i + 1}")
            profile.run_pass()
