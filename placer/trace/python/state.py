"""Python's state as a part of a step's signature: a plain step is traced once for each state that it is called in.

A step that is a tf.function does not come here, because TensorFlow freezes its Python state when it is traced.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from typing import Any

import numpy as np

from placer.trace.python.impure import impurity
from placer.trace.python.survey import Survey, UnguardableError

MOST_STATES = 8
MOST_ROUNDS = 12  # of looking, until no new names are found
WHAT_TO_DO = "pass it as an argument, or keep it in a tf.Variable"


def is_plain_step(step: Any) -> bool:
    """Whether a step is Python code that TensorFlow has not traced: no tf.function."""
    return not hasattr(step, "get_concrete_function")


def why_not(step: Any) -> str | None:
    """Why a plain step cannot be traced faithfully, in words for its author; None where nothing speaks against it.

    Looks through the step's code and the user's own functions that it calls.
    """
    try:
        survey = _surveyed(step, set(), False)
    except UnguardableError as error:
        return str(error)
    return next(filter(None, map(impurity, survey.entered)), None)


class PythonState:
    """The states of Python in which a plain step was called. Not for use from several threads."""

    def __init__(self, step: Any) -> None:
        self.why: str | None = None  # why the step must be left alone
        self._step = step
        self._names: set[str] = set()
        self._reflects = False
        self._known: list[Survey] = []
        self._now = 0
        self._drawn: Hashable = None

    def number(self) -> int:
        """Which of the states seen Python is in now, counted from 0; `why` is set where there are too many, or where
        the state cannot be compared.
        """
        numbers: list[int] = [self._now, *range(len(self._known))]
        for number in numbers:
            if number < len(self._known) and self._known[number].guard.holds():
                self._now = number
                return number
        found = self._survey()
        if found is not None:
            self._now = self._place_of(found)
        return self._now

    def before(self) -> None:
        """Before an eager call whose effects are to be judged."""
        self._drawn = _random_state()

    def effect(self) -> str | None:
        """What the call since `before` changed that a traced step would not change, in words."""
        if self._drawn != _random_state():
            return (  # the streams are those of the process, and do not tell who drew
                "Python's or NumPy's own random numbers are drawn while it runs, which a traced step would do only "
                "once; where another thread draws them, give that one a np.random.Generator"
            )
        if not self._known or self._known[self._now].guard.holds():
            return None
        found = self._survey()
        place = None if found is None else difference(self._known[self._now], found)
        if place is None:
            self._refresh(found)
            return self.why
        return f"it changes {place}, which a traced step would do only once; {WHAT_TO_DO}"

    def built(self) -> None:
        """After a first call, which may have built layers: what it changed belongs to the state that it began in."""
        if self._known and not self._known[self._now].guard.holds():
            self._refresh(self._survey())

    def _refresh(self, found: Survey | None) -> None:
        if found is not None:
            self._known[self._now] = found

    def _place_of(self, found: Survey) -> int:
        for number, known in enumerate(self._known):
            if known.key == found.key:
                self._known[number] = found
                return number
        if len(self._known) >= MOST_STATES:
            place = difference(self._known[self._now], found) or "Python's state"
            self.why = self.why or (
                f"{place} changes so often that the step would be traced more than {MOST_STATES} times; {WHAT_TO_DO}"
            )
            return self._now
        self._known.append(found)
        return len(self._known) - 1

    def _survey(self) -> Survey | None:
        try:
            found = _surveyed(self._step, self._names, self._reflects)
        except UnguardableError as error:
            self.why = self.why or str(error)
            return None
        if (found.names, found.reflects) != (self._names, self._reflects):
            self._names, self._reflects = found.names, found.reflects
        return found


def difference(before: Survey, now: Survey) -> str | None:
    """The first place that differs, in words; None where the states are equal."""
    for (label, old), (place, new) in zip(before.tokens, now.tokens, strict=False):
        if (label, old) != (place, new):
            return f"`{label if label == place else place}`"
    longer = max(before.tokens, now.tokens, key=len)[min(len(before.tokens), len(now.tokens)) :]
    return f"`{longer[0][0]}`" if longer else None


def _surveyed(step: Any, names: set[str], reflects: bool) -> Survey:
    """A survey with all names that the code found in it uses."""
    for _ in range(MOST_ROUNDS):
        found = Survey(step, names, reflects)
        if found.found_names == names and found.found_reflection == reflects:
            return found
        names, reflects = found.found_names, found.found_reflection
    raise UnguardableError("its code leads on and on to other code")


def _random_state() -> Hashable:
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), kind, np.asarray(keys).tobytes(), *rest
