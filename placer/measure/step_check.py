"""Checks that a placed step does what the untouched step does, by its first steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Mapping as MappingABC
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.devices.cluster import Devices
from placer.execute.agreement import Agreement, Outcome, PlacedOutcome, Returned, tolerance
from placer.execute.fingerprints import Fingerprints
from placer.execute.local_agreement import agreement
from placer.execute.outputs import values
from placer.execute.rewrite import PlacedStep
from placer.execute.untouched_outcome import perturbed, untouched_outcome
from placer.execute.variable_copies import Pair, Transfers, by_whole_node
from placer.trace.capture import Captured

CHECKED_STEPS = 2  # the second loss depends on the first update


class StepCheck:
    """Compares placed steps of one captured step with the untouched step: what they return and leave in variables.

    references: outcomes of the untouched step from the same variables, in CHECKED_STEPS steps on `inputs`.
    """

    def __init__(
        self, captured: Captured, devices: Devices, inputs: Sequence[Any], references: Sequence[Outcome]
    ) -> None:
        self.captured, self.inputs, self._host = captured, inputs, devices.host
        self._before = {name: variable.numpy() for name, variable in captured.whole.variables.items()}
        untouched = Agreement(
            references,
            exact=devices.same_bits and captured.is_ordered,
            random=captured.is_random,
            tolerance=tolerance(references),
            shaken=lambda: (self._reference(self._before), self._reference(perturbed(self._before))),
        )
        self.agreement = agreement(captured, untouched, lambda: self._before, self._batches, devices.host)
        self._transfers, self._fingerprints = Transfers(), Fingerprints()
        self._fetched: dict[str, tf.Variable] = {}

    def __call__(self, step: PlacedStep, first: Sequence[Any]) -> None:
        """Run the other checked steps of a placed step whose first step returned the arrays `first`. Raises
        LossDiffersError if they do something else than they have to, and what running them raises.
        """
        returned = [list(first), *(values(step.run_flat(self.inputs)) for _ in range(CHECKED_STEPS - 1))]
        self.agreement.check(self._outcome(step, returned))

    def state(self, step: PlacedStep, names: Collection[str]) -> dict[str, Any]:
        """The values of these variables of the whole step as a placed step left them, fetched all at once."""
        held, mine = by_whole_node(self.captured, step.variables), self.captured.whole.variables
        with tf.device(self._host):  # else a GPU would hold them, which may have no room
            for name in names:
                if name not in self._fetched:
                    self._fetched[name] = tf.Variable(mine[name].read_value(), trainable=False)
        self._transfers([Pair(held[name], self._fetched[name]) for name in names])
        return {name: tf_internals.variables.array_of(self._fetched[name]) for name in names}

    def forget(self) -> None:
        """Drop functions and variables, because nothing made before workers are joined again may be used afterwards."""
        self._transfers.forget()
        self._fingerprints.forget()
        self._fetched.clear()

    @property
    def _batches(self) -> list[Sequence[Any]]:
        return [self.inputs] * CHECKED_STEPS

    def _reference(self, start: MappingABC[str, Any]) -> Outcome:
        return untouched_outcome(self.captured.whole, start, self._batches)

    def _outcome(self, step: PlacedStep, returned: Returned) -> PlacedOutcome:
        def fetched(names: Collection[str]) -> Outcome:
            return Outcome(returned, {name: self._before[name] for name in names}, self.state(step, names))

        held = by_whole_node(self.captured, step.variables)
        return PlacedOutcome(returned, lambda: self._fingerprints(held), fetched)
