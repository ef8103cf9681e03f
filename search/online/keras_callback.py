"""Keras: a callback that places the steps of `fit` while it runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from placer import tf_internals
from placer.errors import PlacerError, warn
from placer.files import write_whole
from placer.splits.plan_files import BATCH_NORM, SPLIT_OFF
from placer.trace.iterator_inputs import ended
from placer.trace.random_streams import repeating_draws
from placer.trace.untouchable import untouchable_now
from placer.train.steps.untouched import within_a_step
from search.defaults import DEFAULT_SEARCHER
from search.online.auto_step import AutoStep
from search.online.autoplace import autoplace, place
from search.online.settings import BUDGET

UNCALLED = "its fit does not call train_function, in whose place AutoPlace is; wrap the step with placer.autoplace"


class AutoPlace(keras.callbacks.Callback):  # type: ignore[misc]
    """`model.fit(..., callbacks=[AutoPlace()])`: trains as before, on a mapping that is found while it trains.

    Validation, checkpoints, early stopping and learning rate schedules see up-to-date weights. The arguments are those
    of `placer.autoplace`; mapping: a mapping file to apply without a search, as `placer.place` does. The progress bar
    shows `speedup`, the fastest single device's step time divided by the current one, once both were measured; put
    AutoPlace first so that other callbacks see it, too. log_dir gets placer.jsonl, and TensorBoard scalars if
    tensorboard is installed. A model compiled for XLA, for a distribution strategy or to run eagerly is left alone,
    with one warning.

    Devices are given back when `fit` ends. If it is interrupted between two steps (Ctrl-C within a callback), Keras
    does not call its callbacks; then the next `fit` of the model gives the devices back, or `close()`.
    """

    async_safe = True  # Keras need not wait for each step's metrics before calling this

    def __init__(
        self,
        *,
        devices: str | None = None,
        budget: int = BUDGET,
        seed: int = 0,
        searcher: str = DEFAULT_SEARCHER,
        store: str | Path | None = None,
        include_local: bool = False,
        max_memory: Mapping[str, str | int] | None = None,
        beat_untouched: bool = True,
        sync_every: int | None = None,
        dry_run: bool = False,
        log_dir: str | Path | None = "placer-logs",
        mapping: str | Path | None = None,
        split: str | Path = SPLIT_OFF,
        split_batchnorm: str = BATCH_NORM[0],
    ) -> None:
        super().__init__()
        self.step: AutoStep | None = None
        self._common: dict[str, Any] = {
            "devices": devices, "include_local": include_local, "max_memory": max_memory, "sync_every": sync_every,
            "log_dir": log_dir,
        }  # fmt: skip
        self._search: dict[str, Any] = {
            "budget": budget, "seed": seed, "searcher": searcher, "store": store, "beat_untouched": beat_untouched,
            "dry_run": dry_run, "split": split, "split_batchnorm": split_batchnorm,
        }  # fmt: skip
        self._mapping = mapping
        self._function: TrainFunction | None = None
        self._runs = False  # whether `fit` runs, and its batches are placed
        self._report: str | None = None
        self._page: Callable[[], str] | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Take the place of the function that `fit` calls for each batch."""
        self.close()  # of a `fit` that was interrupted
        if isinstance(self.model.train_function, TrainFunction):  # of another callback, whose `fit` was interrupted
            self.model.train_function.close()
        reason = _untouchable(self.model)
        if reason is not None:
            self._untouched(reason)
            return
        self._function = self.model.train_function = TrainFunction(self.model, self._wrapped, self._end)
        self._runs = True

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Mark the batches of this `fit`, to distinguish them from those of a later one."""
        if self._runs and (self._function is None or self.model.train_function is not self._function):
            self._replaced()
        if self._function is not None:
            self._function.expected = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Show the speedup in the progress bar; the history keeps only the model's own metrics."""
        if self._runs and self.model.train_function is not self._function:
            self._replaced()  # by another callback, after this batch had begun
        if self._function is not None and self._function.expected:
            self._untouched(UNCALLED)
        step = self.step  # which the training thread may end meanwhile
        ratio = step.speedup if step is not None else None
        if logs is not None and ratio is not None:
            logs["speedup"] = ratio

    def on_train_end(self, logs: Any = None) -> None:
        """Leave the weights up to date and the model as it was."""
        self.close()

    def _untouched(self, reason: str) -> None:
        """Leave the model alone, and warn."""
        self.close()
        self._report, self._page = f"{self.model.name}: left alone: {reason}", None
        warn(f"{self.model.name} trains untouched: {reason}.")

    def _replaced(self) -> None:
        """Say that something within `fit` has ended the placement: another `fit`, or a new train_function."""
        self._runs = False
        why = "the model got another train_function while fit runs (make_train_function, or another fit)"
        if self.step is not None:
            self.step.journal.entry(self.step.steps, "error", f"the search ended, training goes on untouched: {why}")
        self.close()
        warn(f"{self.model.name} trains untouched from now on: {why}.")

    def _wrapped(self, step: Callable[..., Any]) -> AutoStep:
        """Wrap the step of this `fit`, which Placer runs from now on."""
        if self._mapping is not None:
            self.step = place(step, self._mapping, **self._common)
        else:
            self.step = autoplace(step, **self._common, **self._search)
        return self.step

    def close(self) -> None:
        """End the search and give the devices back, as `fit` does at its end. Harmless when called twice."""
        self._runs = False
        self._end()

    def _end(self) -> None:
        step, function = self.step, self._function
        try:
            if step is not None:
                self._report = step.report()
                self._page = step.later_report_html()
                step.close()
            self.step = None  # not if Ctrl-C interrupted this, so that it can be repeated
        except Exception:
            self.step = None
            raise
        finally:
            self._function = None
            if function is not None:
                function.leave()

    def report(self) -> str:
        """Return as text what was tried and decided, while `fit` runs and after it."""
        if self.step is not None:
            return self.step.report()
        return self._report or "nothing was placed yet."

    def report_html(self, path: str | Path | None = None) -> str:
        """Return the report as one self-contained HTML page with figures, while `fit` runs and after it. If `path` is
        given, also write the page there.

        Raises PlacerError if nothing was placed (with the reason, if the model was left alone), and if the page cannot
        be written.
        """
        later = self.step.later_report_html() if self.step is not None else self._page
        if later is None:
            if self._report is not None:
                raise PlacerError(f"{self._report}; so there is no page.")
            raise PlacerError("nothing was placed yet, so there is no page; call it while fit runs, or after it.")
        page = later()
        if path is not None:
            write_whole(path, page.encode())
        return page


class TrainFunction:
    """The function that Keras calls with its iterator: runs `steps_per_execution` steps, fewer if batches run out.

    Its step refers to the model only weakly, so that the step ends and gives the devices back when the model is dropped
    or compiled again.
    """

    def __init__(self, model: Any, wrapped: Callable[[Any], AutoStep], close: Callable[[], None]) -> None:
        """wrapped: places a step. The step is made at the first batch, because before that the batches are unknown."""
        self.expected = False  # whether Keras announced the next batch to the callback
        self.close = close
        self._own: Callable[[Any], Any] = model.train_function  # Keras's function, which this one replaces
        self._traced: Callable[[Any], Any] = self._own  # Keras's loop over the trace of the first batch
        self._model = weakref.ref(model)
        self._wrapped = wrapped
        self._spec: Any = None  # of the batches
        self._count = 1  # steps per call
        self._step: AutoStep | None = None
        self._repeats: str | None = None  # why random numbers would repeat if the step was built again, if so

    def __call__(self, iterator: Any) -> Any:
        """Return the last step's logs. Raises what the step raises; if no batch is left, what `_own` raises."""
        if not isinstance(iterator, tf.data.Iterator):  # `fit` itself always passes one
            return self._between(iterator)
        is_ours = self.expected and (self._spec is None or iterator.element_spec == self._spec)
        self.expected = False
        if not is_ours:
            return self._anew(iterator)
        try:
            return self._steps(iterator)
        except (StopIteration, tf.errors.OutOfRangeError):
            raise
        except BaseException:  # Ctrl-C, too: `fit` ends here and calls no callback
            self.close()
            raise

    def leave(self) -> None:
        """Give the model its own function back, which keeps the traces of earlier trainings."""
        model = self._model()
        if model is not None and model.train_function is self:
            model.train_function = self._own

    def _steps(self, iterator: Any) -> Any:
        if self._step is None:
            model = self._model()
            assert model is not None  # `fit` holds it
            self._spec = iterator.element_spec
            self._count = model.steps_per_execution  # `fit` counts by it until the model is compiled again
            step = _step_of(model, self._spec)
            self._step = self._wrapped(step)
            self._traced = model._make_function(lambda data: step(*_tensors(data)))
            with within_a_step():
                self._repeats = repeating_draws(step.get_concrete_function().graph.as_graph_def())
            if self._repeats is not None:
                self._step.leave_alone(self._repeats)
        if self._repeats is not None:
            return self._own(iterator)  # its seeded streams go on from fit to fit; a new function's would start again
        if self._step.is_over or (self._count > 1 and self._step.pass_over(self._count)):
            return self._traced(iterator)  # as without AutoPlace: one TensorFlow call runs all steps
        logs = None
        for k in range(self._count):
            try:
                data = next(iterator)
            except StopIteration:
                # Keras's loop increments `iterations` before it finds that no batch is left.
                return logs if k else self._traced(iterator)
            except tf.errors.OpError:
                if self._count == 1:  # with several steps per call, Keras fetches each batch before its step begins
                    self._meet_the_end()
                raise
            logs = self._step(*_tensors(data))
        return logs

    def _meet_the_end(self) -> None:
        """Do what Keras's loop does when no batch is left, if an iterator that has ended can be made."""
        end = ended(self._spec)
        if end is not None:
            with suppress(StopIteration, tf.errors.OutOfRangeError):
                self._traced(end)

    def _between(self, batches: Any) -> Any:
        """Train on a batch of `train_on_batch`, during `fit` or after an interrupted `fit`: a step like any other."""
        data = next(batches)
        if self._step is None or self._repeats is not None or not _has_spec(data, self._spec):
            return self._own(iter([data]))
        return self._step(*map(_as_tensor, _tensors(data)))

    def _anew(self, iterator: Any) -> Any:
        """Train on a batch of a training without AutoPlace, within a `fit` or after an interrupted `fit`."""
        self.close()
        return self._own(iterator)


def _step_of(model: Any, spec: Any) -> Any:
    """Return the model's training step as `fit` makes it: a tf.function without AutoGraph, with one trace for all
    batches of this spec, of any size. The step takes the tensors of a batch, and does not keep the model alive.
    """
    held = weakref.ref(model)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def train_step(*data: Any) -> Any:
        model, left = held(), iter(data)
        assert model is not None
        leaves = [None if _is_none(leaf) else next(left) for leaf in tf.nest.flatten(spec)]
        return _stacked(model.train_step(tf.nest.pack_sequence_as(spec, leaves)))

    # TensorFlow takes no None in a signature
    signature = [leaf for leaf in tf.nest.flatten(spec) if not _is_none(leaf)]
    return tf.function(train_step, input_signature=signature)


def _stacked(logs: Any) -> Any:
    """Return logs as Keras hands them on: tf.data turns a list into one tensor."""
    if isinstance(logs, dict) and any(isinstance(value, (dict, list)) for value in logs.values()):
        return {key: _stacked(value) for key, value in logs.items()}
    return tf.convert_to_tensor(logs) if isinstance(logs, list) else logs


def _has_spec(data: Any, spec: Any) -> bool:
    """Whether a batch has this spec, so that the trace can be used for it."""
    leaves, specs = tf.nest.flatten(data), tf.nest.flatten(spec)
    if len(leaves) != len(specs) or type(data) is not type(spec):
        return False
    try:
        tf.nest.assert_same_structure(data, spec)
    except (TypeError, ValueError):
        return False
    return all(
        (a is None) == _is_none(b) and (a is None or b.is_compatible_with(_as_tensor(a)))
        for a, b in zip(leaves, specs, strict=True)
    )


def _tensors(data: Any) -> list[Any]:
    """The tensors of a batch."""
    return [leaf for leaf in tf.nest.flatten(data) if not _is_none(leaf)]


def _as_tensor(leaf: Any) -> Any:
    """Return a tensor of what Keras accepts as one. Ragged and sparse tensors stay as they are."""
    return leaf if tf.is_tensor(leaf) else tf.convert_to_tensor(leaf)


def _is_none(leaf: Any) -> bool:
    """Whether `leaf`, a value or a spec, stands for None: in the user's dataset, or as Keras's Optional."""
    return leaf is None or isinstance(leaf, (tf.NoneTensorSpec, tf.experimental.Optional, tf.OptionalSpec))


def _untouchable(model: Any) -> str | None:
    """Return why the model is left alone; None if it is not."""
    if keras.backend.backend() != "tensorflow":
        return f"Keras computes with {keras.backend.backend()}, not with TensorFlow"
    if model.run_eagerly:
        return "it was compiled with run_eagerly=True"
    now = untouchable_now()
    if now is not None:
        return now
    if model.jit_compile:
        return (
            "it was compiled for XLA, which ignores devices (and which Keras chooses itself where there is a GPU); "
            "pass jit_compile=False to compile()"
        )
    if getattr(model, "_distribute_strategy", None) is not None or tf.distribute.has_strategy():
        return "it runs under a distribution strategy"
    if not tf_internals.keras_parts.has_keras_train_function(model):
        return "its train_function is not what Keras makes of its train_step; the program or a callback replaced it"
    if tf_internals.keras_parts.is_made_otherwise(model.train_function):
        return "its train_function was made to run eagerly or for XLA, and Keras keeps it; compile() the model again"
    return None
