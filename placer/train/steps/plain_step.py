"""A step in plain Python: what its state is before each call, and whether its calls may stand behind a trace."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any

from placer.trace.python.state import PythonState, is_plain_step, why_not


class PlainStep:
    """Judges the calls of a plain step that run as the user wrote it. Only the training thread may use it."""

    def __init__(self, step: Callable[..., Any], ran: bool = False) -> None:
        """ran: whether it was called before."""
        self._step = step
        self._state = PythonState(step)
        self._ran = ran  # a first call may build layers, so there is no state before it
        self._watches = True
        self._effect: str | None = None

    @classmethod
    def of(cls, step: Callable[..., Any]) -> PlainStep | None:
        """None for a tf.function, whose Python state is frozen wrapped or not."""
        return cls(step) if is_plain_step(step) else None

    @property
    def why(self) -> str | None:
        """Why it must be left alone, as far as its calls and states have shown; None where it need not."""
        return self._effect or self._state.why

    @cached_property
    def why_by_code(self) -> str | None:
        """Why it must be left alone, as far as its code shows."""
        return why_not(self._step)

    def keyed(self, key: Hashable) -> tuple[int, Hashable]:
        """A call's key, with the number of the state that Python is in now."""
        return self._state.number() if self._ran else 0, key

    def is_in(self, key: Any) -> bool:
        """Whether Python is in the state of a key from `keyed`."""
        return bool(self.keyed(None)[0] == key[0])

    def end(self) -> None:
        """The step is left alone: judge no more calls, and hold nothing of the user's."""
        self._effect, self._watches = self.why, False
        self._state = PythonState(self._step)

    def before(self) -> None:
        """Before an untouched call."""
        if self._watches:
            self._state.before()

    def after(self, calls: int) -> None:
        """After an untouched call. calls: of its signature, with this one; the first may still build something."""
        if not self._watches:
            return
        if not self._ran:
            self._ran = True
            self._state.number()
        elif calls <= 1:
            self._state.built()
        else:
            self._effect = self._effect or self._state.effect()

    def after_trace(self) -> str | None:
        """What tracing the step has changed, in words; None where it changed nothing."""
        self._effect = self._effect or self._state.effect()
        return self._effect
