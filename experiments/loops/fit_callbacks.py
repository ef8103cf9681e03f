"""Callbacks of `fit`: noting what it sees, moving its step among mappings, and ending it once a search is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

import placer
from experiments.loops.moved import Moved
from placer.keras import AutoPlace

if TYPE_CHECKING:
    from experiments.loops.run import Run, Searched

MOVES = (1, 3, 6)  # epochs at which the step is placed by another mapping
UNWRAP = 5  # the epoch of `fit` at which the step is untouched again
AFTER = 2  # epochs after the search


class Notes(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes the logs of each step and of each epoch."""

    def __init__(self, run: Run, step: Callable[[], placer.AutoStep | None]) -> None:
        super().__init__()
        self._run, self._step = run, step
        self._seen: set[Any] = set()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Count the calls that are placed."""
        step = self._step()
        if step is not None and step.mapping is not None:
            self._run.outcome.placed += 1
            self._seen.add(step.mapping.devices)
            self._run.outcome.mappings = len(self._seen)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note the metrics so far."""
        self._run.outcome.steps += 1
        self._run.note(**{name: value for name, value in (logs or {}).items() if name != "speedup"})

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Note the metrics of the epoch, with those of the validation."""
        self._run.note(**{f"epoch {name}": value for name, value in (logs or {}).items() if name != "speedup"})


class Moves(keras.callbacks.Callback):  # type: ignore[misc]
    """Places the model's step by one random mapping after another."""

    def __init__(self, moved: Moved, example: Any, journal: Callable[[placer.AutoStep], None]) -> None:
        super().__init__()
        self._moved, self._example, self._journal = moved, example, journal
        self._placing: AutoPlace | None = None

    @property
    def step(self) -> placer.AutoStep | None:
        """The current wrapped step; None if the step is untouched."""
        return self._placing.step if self._placing is not None else None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """At MOVES, place the step by a new mapping; at UNWRAP, leave it untouched again."""
        if epoch in (*MOVES, UNWRAP):
            self._close()
        if epoch in MOVES:
            train_step = tf.function(lambda data: self.model.train_step(data))
            path = self._moved.mapping(train_step, (self._example,), {}, epoch)
            self._placing = AutoPlace(mapping=path, devices=self._moved.devices, log_dir=None)
            self._placing.set_model(self.model)
            self._placing.on_train_begin()
        elif epoch == UNWRAP:
            self.model.make_train_function()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """As in AutoPlace."""
        if self._placing is not None:
            self._placing.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """As in AutoPlace."""
        if self._placing is not None:
            self._placing.on_train_batch_end(batch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        """As in AutoPlace."""
        self._close()

    def _close(self) -> None:
        if self._placing is not None:
            if self._placing.step is not None:
                self._journal(self._placing.step)
            self._placing.on_train_end()
            self._placing = None


class Until(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends `fit` some epochs after the search has ended."""

    def __init__(self, run: Searched, placing: AutoPlace, journal: Callable[[placer.AutoStep], None]) -> None:
        super().__init__()
        self._run, self._placing, self._journal = run, placing, journal
        self._step: placer.AutoStep | None = None
        self._after = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin to count epochs."""
        self._step, self._run.epochs = None, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Wait a little for the search. Its step exists from the first batch on."""
        self._step = self._placing.step or self._step
        if not self._run.is_settled:
            self._run.rest()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End `fit` when it is time. A model that is left alone from the start has no search to wait for."""
        self._run.epochs = epoch + 1
        self._after += self._run.is_settled or self._step is None
        self.model.stop_training = self.model.stop_training or self._after >= AFTER

    def on_train_end(self, logs: Any = None) -> None:
        """Keep what the wrapped step decided."""
        if self._step is not None:
            self._journal(self._step)
