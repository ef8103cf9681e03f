"""Stand-ins for `autoplace`, `split` and the Keras callback if TensorFlow is a release that Placer cannot run with:
trainings run untouched, and one line says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from placer.errors import BadInputError, PlacerError
from placer.phase_names import LEFT_ALONE
from placer.wrapped import Wrapped, hidden_by, unwrapped

LOGGER = logging.getLogger("placer")


class SilentJournal:
    """The journal of a step that always runs untouched: it has no decisions."""

    entries = ()

    def __init__(self, why: str) -> None:
        self.why = why

    def lines(self) -> str:
        """The reason, in one line."""
        return f"left alone: {self.why}"


class LeftAlone(Wrapped):
    """A training step that always runs untouched, with the attributes and methods that programs use on `AutoStep`."""

    own_names = frozenset({"step", "left_alone", "steps", "journal", "name"})
    step: Callable[..., Any]
    left_alone: str
    steps: int  # calls so far
    journal: SilentJournal
    name: str
    mapping = splits = step_s = speedup = best_single_s = untouched_s = None
    device_names: tuple[str, ...] = ()
    tried: tuple[Any, ...] = ()
    phase = LEFT_ALONE
    is_over = True

    def __init__(self, step: Callable[..., Any], why: str) -> None:
        """why: the reason, in one line."""
        super().__init__(step)
        name = getattr(step, "__name__", None) or type(step).__name__
        vars(self).update(step=step, left_alone=why, steps=0, journal=SilentJournal(why), name=name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the step, and return what it returns. Raises what the step raises."""
        outputs = self.step(*args, **kwargs)
        vars(self)["steps"] += 1
        return outputs

    def pass_over(self, calls: int) -> bool:
        """Whether the caller may take `calls` steps itself, which then count here: always."""
        vars(self)["steps"] += calls
        return True

    def leave_alone(self, why: str) -> None:
        """Does nothing: the step is left alone already."""

    def sync(self) -> None:
        """Does nothing: the variables are always current."""

    def save(self, path: str | Path) -> None:
        """Raises PlacerError: there is no mapping."""
        raise PlacerError(f"{self.name} runs untouched, so that there is no mapping to save: {self.left_alone}")

    def report(self) -> str:
        """The report, as text."""
        return f"{self.name}: left alone after {self.steps} steps: {self.left_alone}"

    def report_html(self, path: str | Path | None = None) -> str:
        """Raises PlacerError: there is no page."""
        raise PlacerError(f"{self.name} runs untouched, so that there is no page to write: {self.left_alone}")

    def later_report_html(self) -> Callable[[], str]:
        """A function that raises PlacerError when it is called: there is no page."""
        return self.report_html

    def close(self) -> None:
        """Does nothing."""

    def __enter__(self) -> LeftAlone:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stand_in(name: str, error: BadInputError) -> Any:
    """The stand-in for `placer.NAME`. Raises `error` for names that need TensorFlow's private names."""
    why = str(error)
    if name == "autoplace":
        return lambda step, **_: _told(step, why)
    if name == "split":
        return lambda spec=None: _tell(why)
    if name == "AutoPlace":
        return _callback(why)
    raise error


def _told(step: Any, why: str) -> LeftAlone:
    if not callable(step):
        raise BadInputError(f"a {type(step).__name__} is no training step; pass a function.")
    if (said := hidden_by(LeftAlone, unwrapped(step))) is not None:
        raise BadInputError(said)
    _tell(why)
    return LeftAlone(unwrapped(step), why)


@cache
def _tell(why: str) -> None:
    """Log once, as the journal does, that and why the training runs untouched."""
    LOGGER.warning("the training runs untouched: %s", why)


@cache
def _callback(why: str) -> Any:
    """The class of a Keras callback that does nothing."""
    import keras

    class AutoPlace(keras.callbacks.Callback):  # type: ignore[misc]
        """The stand-in for the callback of search/online/keras_callback.py; `fit` runs untouched."""

        def __init__(self, **_: Any) -> None:
            super().__init__()
            self.step: LeftAlone | None = None
            _tell(why)

        def close(self) -> None:
            """Does nothing."""

        def report(self) -> str:
            """The report, as text."""
            return f"left alone: {why}"

        def report_html(self, path: str | Path | None = None) -> str:
            """Raises PlacerError: there is no page."""
            raise PlacerError(f"fit ran untouched, so that there is no page to write: {why}")

    return AutoPlace
