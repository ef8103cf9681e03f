"""A clock that tests move by hand."""

from __future__ import annotations


class Clock:
    """Seconds, which pass where `now_s` is moved, and `tick_s` more whenever they are asked for."""

    def __init__(self, now_s: float = 0.0, tick_s: float = 0.0) -> None:
        self.now_s, self.tick_s = now_s, tick_s

    def __call__(self) -> float:
        self.now_s += self.tick_s
        return self.now_s
