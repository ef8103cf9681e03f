"""A placed step run beside the training: on scratch variables, and on batches that the training has seen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from placer import tf_internals
from placer.devices.variables import blank_variable, wait_for
from placer.errors import PlacerError
from placer.execute.agreement import (
    Agreement,
    Array,
    LossDiffersError,
    Outcome,
    PlacedOutcome,
    Returned,
    rounds_coarsely,
)
from placer.execute.fingerprints import Fingerprints
from placer.execute.local_agreement import LocalAgreement, agreement
from placer.execute.outputs import values
from placer.execute.rewrite import PlacedStep
from placer.execute.untouched_outcome import Unpack, perturbed, unpacked, untouched_outcome
from placer.execute.variable_copies import Held, Pair, Transfers, by_whole_node
from placer.trace.capture import Captured
from placer.trace.random_streams import Draws

# Relative. The second loss comes after an update by gradients that were summed in another order: on ResNet-50, with its
# batch normalisation, it is 0.9 % off.
TOLERANCE = 2e-2
TF32_TOLERANCE = 5e-2
TABLES = (
    "it looks into a lookup table, which the program may have changed between the untouched step and the placed one"
)


@dataclass(frozen=True)
class Recording:
    """Some consecutive untouched steps of the training."""

    start: MappingABC[str, Any]  # node name of each variable -> its value before, in this process
    batches: Sequence[Sequence[Any]]  # flat inputs of each step
    returned: Returned
    end: MappingABC[str, Any]  # node name of each variable -> its value after

    @property
    def outcome(self) -> Outcome:
        """The outcome of the recorded steps."""
        return Outcome(self.returned, _arrays(self.start), _arrays(self.end))


class ScratchRun:
    """Runs placed steps from a recording's start, and compares what they do with what the untouched step did.

    Threads other than the training thread may use it, because it touches no variable of the training. It holds one copy
    of the variables in this process; the rest of the recording is freed once no mapping needs it any more.
    """

    def __init__(self, captured: Captured, recording: Recording, *, exact: bool, unpack: Unpack = unpacked) -> None:
        """exact: all mappings must do the same to the last bit, because the devices are alike. unpack: as in
        `untouched_outcome`.
        """
        self.captured, self.batches, self.exact, self.unpack = captured, recording.batches, exact, unpack
        self._recording: Recording | None = recording  # if `exact`, only until the first mapping agreed
        # By the graph's fingerprint, because parts round differently.
        self._agreements: dict[str, Agreement | LocalAgreement] = {}
        self._is_closed = False
        self._transfers, self._fingerprints = Transfers(), Fingerprints()
        with tf.device("CPU:0"):  # a GPU may have no room for them beside the program's own
            self.start = {name: tf.Variable(value, trainable=False) for name, value in recording.start.items()}
        self._scratch: dict[tuple[str, str, tuple[int | None, ...]], tf.Variable] = {}

    def variables(self, captured: Captured, device_of: MappingABC[str, str]) -> dict[str, tf.Variable]:
        """Node name -> scratch variable on its device, for each variable of a step; values are arbitrary. captured: the
        step, whole or divided.
        """
        found, made = {}, []
        for name, variable in captured.variables.items():
            key = name, device_of[name], tuple(variable.shape)
            if key not in self._scratch:
                self._scratch[key] = blank_variable(device_of[name], variable.shape, variable.dtype)
                made.append(self._scratch[key])
            found[name] = self._scratch[key]
        wait_for(made)
        return found

    def run(self, step: PlacedStep) -> None:
        """Run the recorded batches. `step` trains the scratch variables of its devices.

        Raises LossDiffersError if it does not do what the untouched step did, and what TensorFlow raises.
        """
        try:
            self._compared(step)
        except LossDiffersError:
            if not step.captured.has_tables:
                raise
            # The program may have written to the tables since, so the untouched step runs again on what they hold now.
            self._recording = None
            self._agreements.clear()
            try:
                self._compared(step)
            except LossDiffersError as error:
                raise LossDiffersError(f"{error}; {TABLES}") from error

    def _compared(self, step: PlacedStep) -> None:
        held = by_whole_node(step.captured, step.variables)
        self._transfers([Pair(self.start[name], held[name]) for name in self.start])
        step.draws = Draws()
        returned = [values(step.run_flat(batch)) for batch in self.batches]
        agreement = self._agreed(step.captured)

        def fetched(names: Collection[str]) -> Outcome:
            before = _arrays({name: self.start[name] for name in names})
            return Outcome(returned, before, self._after({name: held[name] for name in names}))

        agreement.check(PlacedOutcome(returned, lambda: self._fingerprints(held), fetched))
        if self.exact:
            agreement.forget_references()
            self._recording = None

    def forget_variables(self) -> None:
        """Drop the scratch variables, because nothing needs them any more, or a placed step trains them from now on."""
        self._scratch.clear()

    def forget(self) -> None:
        """Drop the scratch variables and functions: their devices may be gone, or nothing is tried for now."""
        self.forget_variables()
        self._transfers.forget()
        self._fingerprints.forget()

    def close(self) -> None:
        """Drop everything; nothing can be tried any more."""
        self.forget()
        self.start.clear()
        self._agreements.clear()
        self._recording, self._is_closed = None, True

    def _agreed(self, captured: Captured) -> Agreement | LocalAgreement:
        """The check for steps of this graph: against the untouched step and, if devices are alike, each other."""
        if self._is_closed:
            raise PlacerError("this scratch run was closed.")
        if captured.graph.fingerprint not in self._agreements:
            kept = None if self.captured.traced.seeded is not None else self._recording
            untouched = Agreement(
                [self._reference(self.start) if kept is None else kept.outcome],
                exact=self.exact,
                random=self.captured.is_random,
                tolerance=TF32_TOLERANCE if rounds_coarsely() else TOLERANCE,
                shaken=lambda: (self._reference(self.start), self._reference(perturbed(_arrays(self.start)))),
            )
            self._agreements[captured.graph.fingerprint] = agreement(
                captured, untouched, lambda: _arrays(self.start), self.batches, self._device
            )
        return self._agreements[captured.graph.fingerprint]

    @property
    def _device(self) -> str:
        """TensorFlow's name of this process's CPU."""
        return str(next(iter(_devices_of(self.start).values())))

    def _reference(self, start: MappingABC[str, Any]) -> Outcome:
        return untouched_outcome(self.captured, start, self.batches, self.unpack)

    def _after(self, held: MappingABC[str, Held]) -> dict[str, Array]:
        """The values of a step's variables; divided ones are joined."""
        mine = {name: self.start[name] for name in held}
        here = _devices_of(mine)
        fetched = {name: blank_variable(here[name], v.shape, v.dtype) for name, v in mine.items()}
        self._transfers([Pair(held[name], variable) for name, variable in fetched.items()])
        return _arrays(fetched)


def _devices_of(variables: MappingABC[str, tf.Variable]) -> dict[str, str]:
    return {name: tf_internals.variables.handle_of(variable).device for name, variable in variables.items()}


def _arrays(values_of: MappingABC[str, Any]) -> dict[str, Array]:
    return {name: np.asarray(value.numpy()) for name, value in values_of.items()}
