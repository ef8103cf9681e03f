"""Keras: a callback that places the steps of `fit` while it runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from search.online.autoplace import AutoStep, autoplace, place


class AutoPlace(keras.callbacks.Callback):  # type: ignore[misc]
    """`model.fit(..., callbacks=[AutoPlace()])`: trains as before, on a mapping that is found while it trains.

    Validation, checkpoints, early stopping and learning rate schedules see true weights. The arguments are those of
    `placer.autoplace`; mapping: a placer.mapping/1 file to apply without a search, as `placer.place` does. The bar has
    `speedup`, the step against the fastest single device's, once both were measured. log_dir gets placer.jsonl, and
    TensorBoard scalars where tensorboard is installed. A model compiled for XLA, for a distribution strategy or to run
    eagerly is left alone, with one warning.
    """

    def __init__(
        self,
        *,
        devices: str | None = None,
        budget: int = 16,
        seed: int = 0,
        store: str | Path | None = None,
        include_local: bool = False,
        sync_every: int | None = None,
        dry_run: bool = False,
        log_dir: str | Path | None = "placer-logs",
        mapping: str | Path | None = None,
    ) -> None:
        super().__init__()
        self.step: AutoStep | None = None
        self._common: dict[str, Any] = {
            "devices": devices, "include_local": include_local, "sync_every": sync_every, "log_dir": log_dir,
        }  # fmt: skip
        self._search: dict[str, Any] = {"budget": budget, "seed": seed, "store": store, "dry_run": dry_run}
        self._mapping = mapping
        self._report: str | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Take the place of the function that `fit` calls for each batch."""
        reason = _untouchable(self.model)
        if reason is not None:
            warnings.warn(f"placer: {self.model.name} trains untouched: {reason}.", stacklevel=2)
            return

        def train_step(data: Any) -> Any:
            return self.model.train_step(data)

        if self._mapping is not None:
            self.step = place(train_step, self._mapping, **self._common)
        else:
            self.step = autoplace(train_step, **self._common, **self._search)
        self.model.train_function = _train_function(self.model, self.step)

    def on_train_end(self, logs: Any = None) -> None:
        """Leave the weights true and the model as it was."""
        if self.step is not None:
            self._report = self.step.report()
            self.step.close()
            self.step = None
            self.model.train_function = None  # made anew by the next fit

    def report(self) -> str:
        """What was tried and decided, while `fit` runs and after it."""
        if self.step is not None:
            return self.step.report()
        return self._report or "nothing was placed yet."


def _train_function(model: Any, step: AutoStep) -> Callable[[Any], Any]:
    """What Keras calls with its iterator: `steps_per_execution` steps, or as many as there are batches left."""

    def train_function(iterator: Any) -> Any:
        logs = step(_without_optionals(iterator.get_next()))
        for _ in range(model.steps_per_execution - 1):
            try:
                data = iterator.get_next()
            except (StopIteration, tf.errors.OutOfRangeError):
                break
            logs = step(_without_optionals(data))
        return {**logs, **_speedup(step)} if isinstance(logs, dict) else logs

    return train_function


def _speedup(step: AutoStep) -> dict[str, float]:
    ratio = step.speedup
    return {} if ratio is None else {"speedup": ratio}


def _without_optionals(data: Any) -> Any:
    """Keras hands None over as an Optional."""
    return keras.tree.map_structure(lambda leaf: None if isinstance(leaf, tf.experimental.Optional) else leaf, data)


def _untouchable(model: Any) -> str | None:
    """Why a model is left alone; None where it is not."""
    if model.run_eagerly:
        return "it was compiled with run_eagerly=True"
    if model.jit_compile:
        return "it was compiled for XLA, which ignores devices; pass jit_compile=False to compile()"
    if getattr(model, "_distribute_strategy", None) is not None or tf.distribute.has_strategy():
        return "it runs under a distribution strategy"
    return None
