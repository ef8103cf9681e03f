"""Whether a divided step trains as the whole one does: its gradients at the first step and at the last, and its losses.

Rounding differs if sums are made in another order, and a training amplifies the difference. So the drift of the divided
training from the whole one is compared with the drift of the whole one from itself: with another number of threads,
which may change no sum at all, and after a rounding error in each variable at the start. Gradients are compared, not
weights, because adaptive optimizers make steps of the same size even from gradients that are only rounding errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
THREADS, ROUNDED = "threads", "rounded"  # other runs of the whole step, see above
SLOT = "_momentum"  # a first moment, which begins at 0: after one step it holds the gradient, times a constant

State = Mapping[str, Any]
"""Node of a variable of the whole step -> its value, or by how much it changed."""


@dataclass(frozen=True)
class Training:
    """Steps from the same start. losses: of each. first, last: changes of `gradient_slots` after one step, and all."""

    losses: tuple[float, ...]
    first: State
    last: State


def untouched_training(
    captured: Captured, inputs: Sequence[Any], steps: int = STEPS, *, rounded: bool = False
) -> Training:
    """Train with the untouched step in this process, with all its threads. The user's variables do not change.

    rounded: whether each float begins with one rounding error.
    """
    from placer.execute.untouched_outcome import perturbed
    from placer.measure.untouched import UntouchedStep

    slots = gradient_slots(captured)
    begin = {name: variable.numpy() for name, variable in captured.whole.variables.items()}
    with closing(UntouchedStep(captured, perturbed(begin) if rounded else begin)) as step:
        return trained(
            lambda: step.run_flat(inputs), lambda: {name: step.variables[name].numpy() for name in slots}, steps
        )


def placed_training(job: Job, mapping: Placing, steps: int = STEPS) -> Training:
    """Train with the job's step under a mapping of its groups, on variables of its own."""
    from placer.execute.rewrite import PlacedStep

    fine, slots = job.op_mapping(mapping), gradient_slots(job.captured)
    names = [job.devices.tf_name(d) for d in fine.devices]

    def state() -> State:
        return job.runner.check.state(step, slots)

    with closing(PlacedStep(job.runner.template, names, order=job.prediction.order(fine))) as step:
        return trained(lambda: step.run_flat(job.inputs), state, steps)


def trained(run: Callable[[], Sequence[Any]], state: Callable[[], State], steps: int) -> Training:
    """Call `run` `steps` times. Keeps only what is compared, because networks can be large."""
    before, losses, changes = state(), [], []
    for i in range(steps):
        losses.append(_loss(run()))
        if i in (0, steps - 1):
            changes.append({name: value - before[name] for name, value in state().items()})
    return Training(tuple(losses), changes[0], changes[-1])


def sameness(whole: Training, divided: Training, others: Mapping[str, Training]) -> Facts:
    """How far a divided training, and `others` of the whole step by their names, are from the whole one."""
    facts: Facts = {"losses": [whole.losses[0], whole.losses[-1], divided.losses[-1]], "steps": len(whole.losses)}
    for ending, training in {"": divided, **{f"_{name}": other for name, other in others.items()}}.items():
        facts |= {
            f"gradient_rel_err{ending}": _apart(whole.first, training.first),
            f"loss_rel_err{ending}": _relative(training.losses[0], whole.losses[0]),
            f"drift{ending}": _apart(whole.last, training.last),
        }
    return facts


def gradient_slots(captured: Captured) -> list[str]:
    """The variables that hold the gradients: first moments or, if there are none, all floats, because these move along
    the gradients themselves.
    """
    floats = {name: variable for name, variable in captured.whole.variables.items() if variable.dtype.is_floating}
    moments = [name for name, variable in floats.items() if variable.name.partition(":")[0].endswith(SLOT)]
    return moments or list(floats)


def _apart(one: State, other: State) -> float | None:
    """The norm of the difference divided by the norm of `one`; None if the norm of `one` is 0."""
    norm = sqrt(sum(map(_squares, one.values())))
    return sqrt(sum(_squares(other[name] - change) for name, change in one.items())) / norm if norm else None


def _squares(values: Any) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))


def _relative(a: float, b: float) -> float:
    return abs(a - b) / abs(b) if b else abs(a)


def _loss(outputs: Sequence[Any]) -> float:
    """The first floating-point number that a step returns."""
    return next(float(np.ravel(out.numpy())[0]) for out in outputs if out.dtype.is_floating)
