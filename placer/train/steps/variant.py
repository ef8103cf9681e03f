"""The step for one signature: one combination of shapes, types and Python arguments."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from placer.execute.rewrite import Template
from placer.trace.capture import Captured
from placer.trace.iterator_inputs import Feeding
from placer.trace.signature import Layout
from placer.train.steps.modes import Mode, Placed
from placer.train.steps.recorder import Recorder


@dataclass(eq=False)
class Variant:
    """The state of one signature since its first call."""

    key: Hashable
    args: Sequence[Any]  # of the step's latest call, if that is of this signature and until it is traced
    kwargs: dict[str, Any]
    layout: Layout
    number: int = 0  # unique among the signatures of the step
    calls: int = 0
    last: int = 0  # number of the step's call that was the latest of this signature
    is_current: bool = True  # whether Python was in the state of `key` at the latest call
    is_traced: bool = False  # whether tracing was tried
    ties: frozenset[tuple[str, int]] = frozenset()  # what Keras tied to the latest outputs of a plain step
    traced: tuple[Any, list[int]] | None = None  # of a plain step, in the state of its key; or with numbers as tensors
    own: Any = None  # the concrete function of a tf.function, if `traced` is None
    trains_nothing: bool = False  # whether its trace updates no variable
    feeding: Feeding | None = None  # set if the step takes its batches from iterators
    arrived: frozenset[int] = frozenset()  # which flat inputs lay on a GPU when a step was recorded
    shapes: dict[int, list[Any]] | None = None  # of the batch taken last
    captured_shapes: dict[int, list[Any]] | None = None  # of the batch with which the step was captured
    refused: bool = False  # whether a signature other than the main one cannot be placed
    captured: Captured | None = None
    divided: dict[int, Captured] = field(default_factory=dict)  # number of a plan of splits -> `captured` divided by it
    templates: dict[int, Template] = field(default_factory=dict)  # the same, ready for the current devices
    recorder: Recorder | None = None  # of one untouched call, which the placed step is compared with
    following: tuple[Placed, Placed] | None = None  # the main signature's placed step, and this one's by its mapping

    def forget_arguments(self) -> None:
        """Drop the arguments of a call, because tensors and iterators may have large buffers."""
        self.args, self.kwargs = (), {}

    def placed_by(self, main: Mode) -> Placed | None:
        """The placed step of this signature that follows the mode `main` of the main one; None if there is none."""
        return self.following[1] if self.following is not None and self.following[0] is main else None

    def is_alike(self, given: Sequence[Any]) -> bool:
        """Whether `given`, from `taken`, has the shapes with which the step was captured. An iterator is one signature,
        but may give batches of several shapes.
        """
        return self.feeding is None or self.feeding.shapes(given) == self.captured_shapes

    def taken(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """The inputs of a captured step: a batch in place of each iterator that the user gave.

        Raises NoBatchError if an iterator has no batch. Then the user's own step has to run, because what does not
        depend on the batch happens nevertheless. TensorFlow increases an optimizer's `iterations` before the step
        fails, and a plain step may do something before it asks for a batch.
        """
        if self.feeding is None:
            return tensors
        given = self.feeding.taken(tensors)
        self.shapes = self.feeding.shapes(given)
        return given
