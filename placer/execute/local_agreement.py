"""Checks placed steps in which parts of a batch normalize by statistics of their own, unlike in the untouched step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from placer.execute.agreement import Agreement, Outcome, PlacedOutcome, is_float
from placer.execute.outputs import values
from placer.execute.rewrite import PlacedStep, Template
from placer.execute.untouched_outcome import perturbed
from placer.trace.capture import Captured
from placer.trace.variable_parts import in_parts

DIFFERENT = (
    "each part of a batch normalises by statistics of its own. That changes the mathematics, so that no mapping can be "
    "compared with the untouched step. "
)
CHECKED = (
    "Checked instead: divided alike with the whole batch's statistics the step does what the untouched step does, and "
    "under each mapping it does what it does on one device."
)


class LocalAgreement:
    """Checks two things in place of one. With the statistics of the whole batch, the step divided by the same plan must
    do what the untouched step does. And under each mapping the step must do what it does in this process on one device.
    """

    def __init__(
        self,
        captured: Captured,
        untouched: Agreement,
        start: Callable[[], Mapping[str, Any]],
        batches: Sequence[Sequence[Any]],
        device: str,
    ) -> None:
        """untouched: the check of mappings that do what the untouched step does. start: returns the values of the whole
        step's variables, by node. batches: flat inputs of each step. device: TensorFlow's name of a device of this
        process.
        """
        self.captured, self.untouched, self.batches, self.device = captured, untouched, batches, device
        self._start = start
        self._alone: Agreement | None = None
        self._checked = "Nothing was compared." if untouched.random else "No mapping was compared."

    @property
    def in_words(self) -> str:
        """A description of what is different, and of what was checked."""
        return DIFFERENT + self._checked

    def check(self, placed: PlacedOutcome) -> None:
        """Raise LossDiffersError if either check fails."""
        if self.untouched.random:
            return
        if self._alone is None:
            self._alone = self._made()
        self._alone.check(placed)

    def forget_references(self) -> None:
        """As `Agreement.forget_references`."""
        if self._alone is not None:
            self._alone.forget_references()

    def _made(self) -> Agreement:
        assert self.captured.with_whole_statistics is not None
        start = self._start()
        exact = self._outcome(self.captured.with_whole_statistics(), start)
        self.untouched.compare(exact)
        alone = self._outcome(self.captured, start)
        self._checked = CHECKED + _apart_in_words(exact, alone)
        self.untouched.free()  # after all that may fail, because without references nothing is compared
        return Agreement(
            [alone],
            exact=self.untouched.exact,
            tolerance=self.untouched.tolerance,
            shaken=lambda: (self._outcome(self.captured, start), self._outcome(self.captured, perturbed(start))),
        )

    def _outcome(self, captured: Captured, start: Mapping[str, Any]) -> Outcome:
        """The outcome of a step in this process on one device."""
        with tf.device(self.device):
            held = {name: tf.Variable(value) for name, value in in_parts(start, captured.divided).items()}
        step = PlacedStep(Template(captured, self.device), [self.device] * len(captured.graph), variables=held)
        try:
            returned = [values(step.run_flat(batch)) for batch in self.batches]
        finally:
            step.close()
        return Outcome(returned, start, captured.joined({name: variable.numpy() for name, variable in held.items()}))


def _apart_in_words(exact: Outcome, local: Outcome) -> str:
    """The first number that each returned in its last step, in words; empty if either returned none."""
    whole, own = (next((v for v in one.returned[-1] if is_float(v) and v.size == 1), None) for one in (exact, local))
    if whole is None or own is None:
        return ""
    return f" Step {len(exact.returned)} returned {float(own):.6g}, and {float(whole):.6g} with the whole batch's."


def agreement(
    captured: Captured,
    untouched: Agreement,
    start: Callable[[], Mapping[str, Any]],
    batches: Sequence[Sequence[Any]],
    device: str,
) -> Agreement | LocalAgreement:
    """The check of a step's mappings: `untouched`, or a LocalAgreement if parts normalize by their own statistics."""
    if captured.with_whole_statistics is None:
        return untouched
    return LocalAgreement(captured, untouched, start, batches, device)
