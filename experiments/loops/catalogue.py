"""The loops by name, and what is expected of each when it is wrapped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from placer.errors import BadInputError
from placer.phase_names import LEFT_ALONE, STEADY

if TYPE_CHECKING:
    from experiments.loops.run import Run

SEED = 7  # of every loop, wrapped and alone
SETTLED = (STEADY, LEFT_ALONE)  # phases of a wrapped step that no longer searches


@dataclass(frozen=True)
class Loop:
    """A training loop, and whether its step is within the contract (docs/contract.md)."""

    name: str
    module: str
    steps: int = 1  # that it wraps
    alone: str = ""  # words in the reason for which it is left alone; empty if it is placed
    bound: float = 0.0  # relative, of what may differ by rounding; 0 = to the last bit
    divided: float = 0.0
    """The same bound if ops are divided, because parts are added in another order. 0 = the loop is not run with divided
    ops: its optimizer divides by values made from small gradients, which are little more than rounding.
    """
    random: bool = False  # whether no seed can repeat it; then it is replayed on the noise that it noted

    @property
    def program(self) -> Callable[[Run], None]:
        """The loop itself, which loads TensorFlow."""
        found: Callable[[Run], None] = getattr(import_module(f"experiments.loops.{self.module}"), self.name)
        return found


LOOPS = {
    loop.name: loop
    for loop in (
        Loop("scratch", "by_hand"),
        Loop("plain", "by_hand", divided=1e-5),
        Loop("accumulation", "by_hand"),
        Loop("mixed_precision", "by_hand"),
        Loop("stateful_rnn", "by_hand"),
        Loop("averages_by_hand", "by_hand", divided=1e-5),
        Loop("distillation", "by_hand"),
        Loop("partial_batch", "by_hand"),
        Loop("first_batch", "by_hand", divided=1e-5),
        Loop("schedule", "by_hand"),
        Loop("evaluating_thread", "by_hand"),
        Loop("sharpness_aware", "papers", divided=1e-5),
        Loop("lookahead", "papers"),
        Loop("gradient_penalty", "papers", steps=2),
        Loop("target_network", "papers"),
        Loop("gan", "gan", steps=2, random=True),
        Loop("generator_gan", "gan", steps=2),
        Loop("seeded_gan", "gan", steps=2, alone="seed"),
        Loop("vae", "fits", bound=1e-5),
        Loop("two_outputs", "fits"),
        Loop("steps_per_execution", "fits"),
        Loop("averages", "fits"),
        Loop("summary", "effects", alone="writes a summary"),
        Loop("python_function", "effects", alone="calls a Python function"),
        Loop("python_state", "effects", alone="writes `calls`"),
        Loop("hard_examples", "effects", alone="reads its variables"),
    )
}


def find(name: str) -> Loop:
    """The loop of that name. Raises BadInputError."""
    if name not in LOOPS:
        raise BadInputError(f"there is no loop {name!r}; choose one of {', '.join(LOOPS)}.")
    return LOOPS[name]
