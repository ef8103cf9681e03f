"""The ways in which a loop is run: alone, moved by hand among mappings, or under a search."""

from __future__ import annotations

import logging
import random
import tempfile
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import placer
from experiments.loops.catalogue import SEED, SETTLED
from experiments.loops.fit_callbacks import Moves, Notes, Until
from experiments.loops.moved import Moved, MovedStep
from experiments.loops.outcome import Array, Outcome
from placer.errors import PlacerError
from placer.keras import AutoPlace

STEPS, EPOCHS = 42, 7  # of a loop that is moved by hand
AFTER = 20  # steps after all searches have ended
MOST_STEPS = 100_000  # by far more than searches take, even on a busy machine
PAUSE_S = 0.01  # between steps of a search, so that a small step is not taken thousands of times


class Run(ABC):
    """One run of a loop. The loop wraps its steps, asks for the next step, and notes what it sees."""

    epochs = EPOCHS  # for `fit`
    patience = 1  # epochs without a gain, after which a callback of `fit` may end it
    replayed: Sequence[dict[str, Array]] | None = None  # notes of an earlier run, with its random draws

    def __init__(self) -> None:
        self.outcome = Outcome()
        self._temporary = tempfile.TemporaryDirectory(prefix="placer-loop-")
        self.folder = Path(self._temporary.name)
        self._kept: dict[str, Any] = {}

    # What a loop calls.

    @abstractmethod
    def wrap(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step as this run calls it."""

    @abstractmethod
    def going(self) -> Iterator[int]:
        """The number of each step, for as long as the loop is to go on."""

    @abstractmethod
    def callbacks(self, example: Any) -> list[Any]:
        """Callbacks for `fit`. example: one element of its data set."""

    def steps(self, epoch: int = 1) -> Iterator[int]:
        """The number of each step; ends after a whole epoch of `epoch` steps."""
        for i in self.going():
            yield from range(i * epoch, (i + 1) * epoch)
            self.outcome.steps += epoch

    def note(self, **values: Any) -> None:
        """Note metrics of a step, or other values in which two runs must agree."""
        self.outcome.metrics.append({name: np.array(value) for name, value in values.items()})

    def did(self, effect: Any) -> None:
        """Note an effect of the step outside of variables."""
        self.outcome.effects.append(str(effect))

    def keep(self, **variables: Iterable[Any] | Any) -> None:
        """Keep variables to compare at the end: by name, lists of them, or objects that have `variables`."""
        for name, held in variables.items():
            held = getattr(held, "variables", held)
            for i, variable in enumerate(held if isinstance(held, list | tuple) else [held]):
                self._kept[f"{name}/{i}/{getattr(variable, 'path', variable.name)}"] = variable

    # What runs it.

    def of(self, program: Callable[[Run], None]) -> Outcome:
        """Run a loop from the same seeds as every other run, and return its outcome."""
        keras.backend.clear_session()
        keras.utils.set_random_seed(SEED)
        tf.random.set_global_generator(tf.random.Generator.from_seed(SEED))
        handler = _Loud(self.outcome.said)
        logging.getLogger("placer").addHandler(handler)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                program(self)
                self.outcome.variables = {name: np.array(v) for name, v in self._kept.items()}
                self.end()
                self._compare_after_end()
                self.outcome.draws = next_draws()
            self.outcome.said += [str(one.message) for one in caught if "placer" in str(one.message)]
        finally:
            logging.getLogger("placer").removeHandler(handler)
            self.end()
            self._temporary.cleanup()
        return self.outcome

    def end(self) -> None:  # noqa: B027  nothing is wrapped where the loop runs alone
        """Unwrap what was wrapped. Harmless when called twice."""

    def _compare_after_end(self) -> None:
        """Note each variable whose value after unwrapping is not the one that was read while it was placed."""
        for name, variable in self._kept.items():
            if np.array(variable).tobytes() != self.outcome.variables[name].tobytes():
                self.outcome.variables[f"{name} once closed"] = np.array(variable)

    def _journal(self, step: Any) -> None:
        """Keep what a wrapped step decided."""
        self.outcome.journal += [(entry.kind, entry.sentence) for entry in step.journal.entries]
        if step.left_alone not in (None, "closed"):
            self.outcome.alone.append(step.left_alone)


class Alone(Run):
    """The loop as if there were no Placer, for as many steps and epochs as another run took."""

    def __init__(self, other: Run, *, replay: bool = False) -> None:
        """replay: whether the loop uses the random numbers that the other run noted."""
        super().__init__()
        self._steps, self.epochs, self.patience = other.outcome.steps, other.epochs, other.patience
        self.replayed = other.outcome.metrics if replay else None

    def wrap(self, step: Callable[..., Any]) -> Callable[..., Any]:
        return step

    def going(self) -> Iterator[int]:
        i = 0
        while self.outcome.steps < self._steps:
            yield i
            i += 1

    def callbacks(self, example: Any) -> list[Any]:
        return [Notes(self, lambda: None)]


class ByHand(Run):
    """The steps are untouched, then placed by one random mapping after another, and untouched again."""

    def __init__(self, *, divided: bool = False) -> None:
        """divided: whether mappings divide ops and variables, too."""
        super().__init__()
        self._moved = Moved(("cpu:0", "cpu:1"), None, self.folder, divided)
        self._wrapped: list[MovedStep] = []

    def wrap(self, step: Callable[..., Any]) -> Callable[..., Any]:
        wrapped = MovedStep(step, self._moved, seed=len(self._wrapped), journal=self._journal)
        self._wrapped.append(wrapped)
        return wrapped

    def going(self) -> Iterator[int]:
        i = 0
        while self.outcome.steps < STEPS:
            yield i
            i += 1
        self._count()

    def callbacks(self, example: Any) -> list[Any]:
        moves = Moves(self._moved, example, self._journal)
        return [moves, Notes(self, lambda: moves.step)]

    def end(self) -> None:
        for wrapped in self._wrapped:
            wrapped.close()

    def _count(self) -> None:
        self.outcome.placed = sum(wrapped.placed for wrapped in self._wrapped)
        self.outcome.mappings = len(self._moved.made)


class Searched(Run):
    """Each step is wrapped by `autoplace`, and the loop goes on until the searches have ended, and a little longer."""

    epochs = 20_000
    patience = 100_000  # the search needs more epochs than a loop that ends early has

    def __init__(self, **options: Any) -> None:
        """options: as for `autoplace`."""
        super().__init__()
        self._options = options
        self._wrapped: list[placer.AutoStep] = []
        self._placing: AutoPlace | None = None
        self._seen: set[tuple[int, ...]] = set()

    def wrap(self, step: Callable[..., Any]) -> Callable[..., Any]:
        wrapped = placer.autoplace(step, **self._options)
        self._wrapped.append(wrapped)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.count(wrapped)
            return wrapped(*args, **kwargs)

        return call

    def count(self, step: placer.AutoStep | None) -> None:
        """Note before a call whether it is placed."""
        mapping = step.mapping if step is not None else None
        if mapping is not None:
            self.outcome.placed += 1
            self._seen.add(mapping.devices)
            self.outcome.mappings = len(self._seen)

    def going(self) -> Iterator[int]:
        i, left = 0, AFTER
        while left > 0:
            yield i
            i += 1
            if self.is_settled:
                left -= 1
            else:
                self.rest()
            if i > MOST_STEPS:
                raise PlacerError(f"the search did not end within {MOST_STEPS} steps: {self._phases}")

    @property
    def is_settled(self) -> bool:
        """Whether all searches have ended."""
        return bool(self._phases) and all(phase in SETTLED for phase in self._phases)

    @property
    def _phases(self) -> list[str]:
        own = [self._placing.step] if self._placing is not None and self._placing.step is not None else []
        return [step.phase for step in (*self._wrapped, *own)]

    def callbacks(self, example: Any) -> list[Any]:
        self._placing = placing = AutoPlace(log_dir=None, **self._options)
        return [placing, Notes(self, lambda: placing.step), Until(self, placing, self._journal)]

    def rest(self) -> None:
        """Wait a little for the search."""
        time.sleep(PAUSE_S)

    def end(self) -> None:
        for step in self._wrapped:
            self._journal(step)
            step.close()
        self._wrapped.clear()


class _Loud(logging.Handler):
    """Keeps the warnings that users see on stderr."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(record.getMessage())


def next_draws() -> dict[str, Array]:
    """The next numbers of all streams that a program shares."""
    return {
        "random": np.array(random.random()),
        "numpy": np.array(np.random.random(2)),
        "tf.random": np.array(tf.random.normal([2])),
        "tf.random.Generator": np.array(tf.random.get_global_generator().normal([2])),
        "keras.random": np.array(keras.random.normal([2])),
    }
