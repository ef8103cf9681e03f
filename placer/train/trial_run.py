"""Trial runs of placed steps beside the training: on scratch variables, on batches that the training has seen."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from placer import tf_internals
from placer.devices.variables import blank_variable, wait_for
from placer.execute.output_check import Agreement, LossDiffersError, Returned, rounds_coarsely, values
from placer.execute.rewrite import PlacedStep
from placer.execute.variable_copies import Pair, Transfers
from placer.trace.capture import Captured

# Relative. The second loss comes after an update by gradients that were summed in another order: on ResNet-50, with its
# batch normalisation, it is 0.9 % off. Lost updates are found by comparing variables, not by this.
TOLERANCE = 2e-2
TF32_TOLERANCE = 5e-2


@dataclass(frozen=True)
class Recording:
    """Some untouched steps of the training, one after another."""

    start: MappingABC[str, Any]  # node name of each variable -> its value before, in this process
    batches: Sequence[Sequence[Any]]  # flat inputs of each step
    returned: Returned
    end: MappingABC[str, Any]  # node name of each variable -> its value after


class TrialRun:
    """Runs placed steps from a recording's start, and compares what they do with what the untouched step did.

    Another thread than the training one may use it, because no variable of the training is touched.
    """

    def __init__(self, captured: Captured, recording: Recording, *, exact: bool) -> None:
        """exact: all mappings must return the same bits, because the devices are alike."""
        self.captured, self.recording = captured, recording
        self.agreement = Agreement(
            [recording.returned],
            exact=exact,
            random=captured.is_random,
            tolerance=TF32_TOLERANCE if rounds_coarsely() else TOLERANCE,
        )
        self._transfers = Transfers()
        self._start = {name: tf.Variable(value) for name, value in recording.start.items()}
        self._scratch: dict[tuple[str, str], tf.Variable] = {}
        self._updates_checked = False

    def variables(self, device_of: MappingABC[str, str]) -> dict[str, tf.Variable]:
        """A scratch variable for each of the step's, on its device; values are arbitrary."""
        made = []
        for name, variable in self._start.items():
            key = name, device_of[name]
            if key not in self._scratch:
                self._scratch[key] = blank_variable(device_of[name], variable)
                made.append(self._scratch[key])
        wait_for(made)
        return {name: self._scratch[name, device_of[name]] for name in self._start}

    def run(self, step: PlacedStep) -> None:
        """Run the recorded batches. `step` trains the scratch variables of its devices.

        Raises LossDiffersError where it does not do what the untouched step did, and what TensorFlow raises.
        """
        self._transfers([Pair(self._start[name], step.variables[name]) for name in self._start])
        self.agreement.check([values(step.run_flat(batch)) for batch in self.recording.batches])
        if not self._updates_checked and not self.captured.is_random:
            self._check_updates(step)
            self._updates_checked = True

    def forget(self) -> None:
        """Drop the scratch variables and functions, whose devices may be gone."""
        self._scratch.clear()
        self._transfers.forget()

    def _check_updates(self, step: PlacedStep) -> None:
        """Every variable that the untouched steps changed must have been changed here, too."""
        fetched = {
            name: blank_variable(tf_internals.handle_of(variable).device, variable)
            for name, variable in self._start.items()
        }
        self._transfers([Pair(step.variables[name], fetched[name]) for name in fetched])
        for name, variable in fetched.items():
            start, end = (np.asarray(state[name]) for state in (self.recording.start, self.recording.end))
            if not np.array_equal(start, end) and np.array_equal(start, variable.numpy()):
                raise LossDiffersError(f"variable {name!r} was updated untouched, and was not when placed")
