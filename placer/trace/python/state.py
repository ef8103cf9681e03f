"""Python's state as a part of a step's signature: a plain step is traced once for each state that it is called in.

A step that is a tf.function does not come here, because TensorFlow freezes its Python state when it is traced.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from placer.errors import one_line
from placer.trace.python.arguments import Subjects
from placer.trace.python.attribute_names import Sought
from placer.trace.python.bindings import bound
from placer.trace.python.code.source_text import misread
from placer.trace.python.entered_functions import Entered
from placer.trace.python.impure import impurity
from placer.trace.python.kinds import is_function_of_tensorflow
from placer.trace.python.survey.survey import Survey
from placer.trace.python.survey.walk import UnguardableError

MOST_STATES = 8  # states in which a step is called with the same objects among its arguments
MOST_SUBJECTS = 16  # combinations of such objects whose states are remembered
MOST_ROUNDS = 12  # surveys, until no new names are found
WHAT_TO_DO = "pass it as an argument, or keep it in a tf.Variable"


def is_plain_step(step: Any) -> bool:
    """Whether a step is Python code that TensorFlow has not traced: no tf.function."""
    return not is_function_of_tensorflow(type(step))


def why_not(step: Any, subjects: Subjects = (), arguments: Mapping[str, Any] = MappingProxyType({})) -> str | None:
    """Why a plain step cannot be traced faithfully, in words for its author; None if no reason was found.

    Looks through the step's code and the user's own functions that it calls. subjects: the objects among the arguments
    of a call. arguments: all arguments of the call, by name.
    """
    try:
        survey = _surveyed(step, Sought(), subjects)
    except UnguardableError as error:
        return str(error)
    return _impurity([one._replace(arguments=arguments) if one.is_step else one for one in survey.entered])


class PythonState:
    """The states of Python in which a plain step was called. Not for use from several threads."""

    def __init__(self, step: Any) -> None:
        self.why: str | None = None  # why the step must be left alone
        self.compares = self.asks = False  # as in `Survey`, in any of the states
        self._step = step
        self._sought = Sought()
        self._keys: list[list[Hashable]] = []  # of the states, by number
        # Ids of the objects among the arguments -> number of a state -> the state, which holds these objects.
        self._by_subjects: dict[tuple[int, ...], dict[int, Survey]] = {}
        self._subjects: Subjects = ()  # of the latest call
        self._known: dict[int, Survey] = {}  # the states with these subjects
        self._now = 0
        self._drawn: Hashable = None

    def number(self, subjects: Subjects = ()) -> int:
        """The number of Python's current state among the states seen, from 0. Sets `why` if there are too many states,
        or if the state cannot be compared. subjects: objects among the arguments of a call.
        """
        self._subjects, self._known = subjects, self._states_with(subjects)
        for number in (self._now, *self._known):
            if number in self._known and self._known[number].guard.holds():
                self._now = number
                return number
        found = self._survey()
        if found is not None:
            self._now = self._place_of(found)
        return self._now

    def is_in(self, number: int) -> bool:
        """Whether Python is in the state of this number, with the objects that the state's call had as arguments."""
        for known in list(self._by_subjects.values()):
            if number in known and self.number(known[number].subjects) == number:
                return True
        return False

    def holds(self, value: Any) -> bool:
        """Whether Python's current state, as the step reads it, has this very object."""
        known = self._known.get(self._now)
        return known is not None and known.is_known(value)

    def _states_with(self, subjects: Subjects) -> dict[int, Survey]:
        ids = tuple(id(thing) for _, thing in subjects)
        if ids not in self._by_subjects:
            if len(self._by_subjects) >= MOST_SUBJECTS:
                del self._by_subjects[next(iter(self._by_subjects))]
            self._by_subjects[ids] = {}
        return self._by_subjects[ids]

    def before(self) -> None:
        """Prepare for an eager call whose effects `effect` is to judge."""
        self._drawn = _random_state()

    def effect(self) -> str | None:
        """In words, what the call since `before` changed that a traced step would not change; None if there is nothing.
        If the state cannot be compared now, returns `why`.
        """
        if self._drawn != _random_state():
            return (  # all threads of the process share the streams, which do not tell which thread drew
                "Python's or NumPy's own random numbers are drawn while it runs, which a traced step would do only "
                "once; where another thread draws them, give that one a np.random.Generator"
            )
        known = self._known.get(self._now)
        if known is None or known.guard.holds():
            return None
        found = self._survey()
        place = None if found is None else difference(known, found)
        if place is None:
            self._refresh(found)
            return self.why
        return f"it changes {place}, which a traced step would do only once; {WHAT_TO_DO}"

    def built(self) -> None:
        """Count what a first call changed, which may have built layers, as a part of the state in which it began."""
        if self._now in self._known and not self._known[self._now].guard.holds():
            self._refresh(self._survey())

    def _refresh(self, found: Survey | None) -> None:
        if found is not None:
            self._known[self._now], self._keys[self._now] = found, found.key

    def _place_of(self, found: Survey) -> int:
        for number, key in enumerate(self._keys):
            if key == found.key:
                self._known[number] = found
                return number
        if len(self._known) >= MOST_STATES or len(self._keys) >= MOST_STATES * MOST_SUBJECTS:
            known = self._known.get(self._now)
            place = (known and difference(known, found)) or "Python's state"
            self.why = self.why or (
                f"{place} changes so often that the step would be traced more than {MOST_STATES} times; {WHAT_TO_DO}"
            )
            return self._now
        if self._keys:  # what its code shows in the first state was judged before
            self.why = self.why or _impurity(found.entered)
        self._keys.append(found.key)
        self._known[len(self._keys) - 1] = found
        return len(self._keys) - 1

    def _survey(self) -> Survey | None:
        try:
            found = _surveyed(self._step, self._sought, self._subjects)
        except UnguardableError as error:
            self.why = self.why or str(error)
            return None
        self._sought = found.sought
        self.compares |= found.compares
        self.asks |= found.asks
        return found


def difference(before: Survey, now: Survey) -> str | None:
    """The first place that differs, in words; None if the states are equal."""
    for (label, old), (place, new) in zip(before.tokens, now.tokens, strict=False):
        if (label, old) != (place, new):
            return f"`{label if label == place else place}`"
    longer = max(before.tokens, now.tokens, key=len)[min(len(before.tokens), len(now.tokens)) :]
    return f"`{longer[0][0]}`" if longer else None


def _surveyed(step: Any, sought: Sought, subjects: Subjects) -> Survey:
    """A survey of everything that the step's code reads. Raises UnguardableError if that cannot be compared."""
    for may_fail in (True, False):
        try:
            return _all_sought(step, sought, subjects)
        except UnguardableError:
            raise
        except Exception as error:  # another thread changed what was looked at, or an object of the user's raises it
            if not may_fail:
                raise UnguardableError(_out_of_sight(error)) from error
    raise AssertionError


def _impurity(entered: Sequence[Entered]) -> str | None:
    try:
        judged = [one for one in entered if one.is_judged]
        why = next(filter(None, map(impurity, (*judged, *bound(judged)))), None)
        return why or next((f"{_called(one)} {read}" for one in judged if (read := misread(one.function))), None)
    except Exception as error:  # an object of the user's raises it
        return _out_of_sight(error)


def _called(entered: Entered) -> str:
    return "it" if entered.is_step else f"its function {entered.function.__qualname__}"


def _out_of_sight(error: Exception) -> str:
    kind = f"{type(error).__name__}: {one_line(str(error))}"
    return f"what it reads of Python's state cannot be looked through ({kind})"


def _all_sought(step: Any, sought: Sought, subjects: Subjects) -> Survey:
    for _ in range(MOST_ROUNDS):
        survey = Survey(step, sought, subjects)
        if (found := survey.found) == sought:
            return survey
        sought = found
    raise UnguardableError("its code leads on and on to other code")


def _random_state() -> Hashable:
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), kind, np.asarray(keys).tobytes(), *rest
