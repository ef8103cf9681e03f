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
from placer.errors import PlacerError
from placer.execute.agreement import Agreement, Array, Outcome, Returned, rounds_coarsely
from placer.execute.outputs import values
from placer.execute.reference import Unpack, perturbed, reference, unpacked
from placer.execute.rewrite import PlacedStep
from placer.execute.variable_copies import Pair, Transfers
from placer.trace.capture import Captured
from placer.trace.random_streams import Draws

# Relative. The second loss comes after an update by gradients that were summed in another order: on ResNet-50, with its
# batch normalisation, it is 0.9 % off.
TOLERANCE = 2e-2
TF32_TOLERANCE = 5e-2


@dataclass(frozen=True)
class Recording:
    """Some untouched steps of the training, one after another."""

    start: MappingABC[str, Any]  # node name of each variable -> its value before, in this process
    batches: Sequence[Sequence[Any]]  # flat inputs of each step
    returned: Returned
    end: MappingABC[str, Any]  # node name of each variable -> its value after

    @property
    def outcome(self) -> Outcome:
        """What the steps did."""
        return Outcome(self.returned, _arrays(self.start), _arrays(self.end))


class TrialRun:
    """Runs placed steps from a recording's start, and compares what they do with what the untouched step did.

    Another thread than the training one may use it, because no variable of the training is touched. It holds one copy
    of the variables in this process; what the recording held beside that is freed once no mapping needs it any more.
    """

    def __init__(self, captured: Captured, recording: Recording, *, exact: bool, unpack: Unpack = unpacked) -> None:
        """exact: all mappings must do the same to the last bit, because the devices are alike. unpack: as in
        `reference`.
        """
        self.captured, self.batches, self.exact, self.unpack = captured, recording.batches, exact, unpack
        self._recording: Recording | None = recording  # until the first mapping agreed, where all must be alike
        self._agreement: Agreement | None = None
        self._transfers = Transfers()
        self.start = {name: tf.Variable(value, trainable=False) for name, value in recording.start.items()}
        self._scratch: dict[tuple[str, str], tf.Variable] = {}

    def variables(self, device_of: MappingABC[str, str]) -> dict[str, tf.Variable]:
        """A scratch variable for each of the step's, on its device; values are arbitrary."""
        made = []
        for name, variable in self.start.items():
            key = name, device_of[name]
            if key not in self._scratch:
                self._scratch[key] = blank_variable(device_of[name], variable)
                made.append(self._scratch[key])
        wait_for(made)
        return {name: self._scratch[name, device_of[name]] for name in self.start}

    def run(self, step: PlacedStep) -> None:
        """Run the recorded batches. `step` trains the scratch variables of its devices.

        Raises LossDiffersError where it does not do what the untouched step did, and what TensorFlow raises.
        """
        self._transfers([Pair(self.start[name], step.variables[name]) for name in self.start])
        step.draws = Draws()
        returned = [values(step.run_flat(batch)) for batch in self.batches]
        agreement = self._agreed()
        agreement.check(Outcome(returned, _arrays(self.start), self._after(step)))
        if self.exact:
            agreement.forget_references()
            self._recording = None

    def forget(self) -> None:
        """Drop the scratch variables and functions: their devices may be gone, or nothing is tried for now."""
        self._scratch.clear()
        self._transfers.forget()

    def close(self) -> None:
        """Drop everything; nothing can be tried any more."""
        self.forget()
        self.start.clear()
        self._recording = self._agreement = None

    def _agreed(self) -> Agreement:
        if self._agreement is None:
            if self._recording is None:
                raise PlacerError("this trial run was closed.")
            drawing = self.captured.traced.seeded is not None
            self._agreement = Agreement(
                [self._reference(self.start) if drawing else self._recording.outcome],
                exact=self.exact,
                random=self.captured.is_random,
                tolerance=TF32_TOLERANCE if rounds_coarsely() else TOLERANCE,
                shaken=lambda: (self._reference(self.start), self._reference(perturbed(_arrays(self.start)))),
            )
        return self._agreement

    def _reference(self, start: MappingABC[str, Any]) -> Outcome:
        return reference(self.captured, start, self.batches, self.unpack)

    def _after(self, step: PlacedStep) -> dict[str, Array]:
        """The values of the step's variables."""
        here = {name: tf_internals.handle_of(variable).device for name, variable in self.start.items()}
        fetched = {name: blank_variable(here[name], variable) for name, variable in self.start.items()}
        self._transfers([Pair(step.variables[name], variable) for name, variable in fetched.items()])
        return _arrays(fetched)


def _arrays(values_of: MappingABC[str, Any]) -> dict[str, Array]:
    return {name: np.asarray(value.numpy()) for name, value in values_of.items()}
