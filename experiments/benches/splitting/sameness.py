"""Whether a divided step trains as the whole one does: the gradients of one step, the losses, and the state after many.

Rounding differs wherever sums are made in another order, and a training amplifies it. So how far the divided training
strays is set beside how far the whole one strays from itself when it runs with another number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.benches.bench import Facts

if TYPE_CHECKING:  # TensorFlow is loaded when a network is measured
    from experiments.jobs.search.job import Job
    from placer.graph.mapping import Mapping as Placing
    from placer.trace.capture import Captured

STEPS = 50
SLOT = "_momentum"  # a first moment, which begins at 0: after one step it holds the gradient, times a constant

State = Mapping[str, Any]
"""Node of each variable of the whole step -> its value."""


@dataclass(frozen=True)
class Training:
    """Steps from the same start. losses: of each. before, first, last: states at the start, after one, after all."""

    losses: tuple[float, ...]
    before: State
    first: State
    last: State


def untouched_training(captured: Captured, inputs: Sequence[Any], steps: int = STEPS) -> Training:
    """The step as TensorFlow runs it in this process, with all its threads; the user's variables stay as they are."""
    from placer.measure.runner import UntouchedStep

    with closing(UntouchedStep(captured)) as step:
        states = [dict(step.before)]
        losses = []
        for i in range(steps):
            losses.append(_loss(step.run_flat(inputs)))
            if i in (0, steps - 1):
                states.append({name: variable.numpy() for name, variable in captured.variables.items()})
        return Training(tuple(losses), states[0], states[1], states[-1])


def placed_training(job: Job, mapping: Placing, steps: int = STEPS) -> Training:
    """The job's step under a mapping of its groups, on variables of its own."""
    from placer.execute.rewrite import PlacedStep

    fine = job.fine(mapping)
    names = [job.devices.tf_name(d) for d in fine.devices]
    before = {name: variable.numpy() for name, variable in job.captured.whole.variables.items()}
    with closing(PlacedStep(job.runner.template, names, order=job.prediction.order(fine))) as step:
        states, losses = [], []
        for i in range(steps):
            losses.append(_loss(step.run_flat(job.inputs)))
            if i in (0, steps - 1):
                states.append(job.runner.state(step))
        return Training(tuple(losses), before, states[0], states[-1])


def sameness(whole: Training, divided: Training, threads: Training, slots: Sequence[str]) -> Facts:
    """How far a divided training is from the whole one, and how far that is from itself under other threads.

    slots: the variables in which the gradients are after one step.
    """
    return {
        "gradient_rel_err": _apart(whole, divided, "first", slots),
        "gradient_rel_err_threads": _apart(whole, threads, "first", slots),
        "loss_rel_err": _relative(divided.losses[0], whole.losses[0]),
        "loss_rel_err_threads": _relative(threads.losses[0], whole.losses[0]),
        "drift": _apart(whole, divided, "last", list(whole.last)),
        "drift_threads": _apart(whole, threads, "last", list(whole.last)),
        "losses": [whole.losses[0], whole.losses[-1], divided.losses[-1], threads.losses[-1]],
        "steps": len(whole.losses),
    }


def gradient_slots(captured: Captured) -> list[str]:
    """The variables that hold the gradients after one step: first moments, or without any all, because they move along
    the gradient themselves.
    """
    whole = captured.whole.variables
    moments = [name for name, variable in whole.items() if variable.name.partition(":")[0].endswith(SLOT)]
    return moments or list(whole)


def _apart(one: Training, other: Training, when: str, names: Sequence[str]) -> float | None:
    """Norm of the difference of what two trainings changed, by the norm of what the first changed; None of nothing."""
    moved = dict(_changes(one, when, names))
    apart = sqrt(sum(_squares(change - moved[name]) for name, change in _changes(other, when, names)))
    norm = sqrt(sum(map(_squares, moved.values())))
    return apart / norm if norm else None


def _changes(training: Training, when: str, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    after: State = getattr(training, when)
    for name in names:
        before = np.asarray(training.before[name])
        if np.issubdtype(before.dtype, np.floating):
            yield name, np.asarray(after[name], np.float64) - before


def _squares(values: Any) -> float:
    return float(np.sum(np.square(values)))


def _relative(a: float, b: float) -> float:
    return abs(a - b) / abs(b) if b else abs(a)


def _loss(outputs: Sequence[Any]) -> float:
    """The first floating-point number that a step returns."""
    return next(float(np.ravel(out.numpy())[0]) for out in outputs if out.dtype.is_floating)
