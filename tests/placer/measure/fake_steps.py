"""Steps that take as long as they are told, on a clock that only they move (`tests.clock`)."""

from __future__ import annotations

from itertools import count

import numpy as np


class Value:
    """A returned tensor, as far as a runner looks at it."""

    def numpy(self):
        return np.float32(1.0)


class FakeStep:
    """A step that takes as long as it is told, on a clock that only it moves."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, iter(seconds)
        self.closed = False

    def run_flat(self, inputs):
        self.clock.now_s += next(self.seconds)
        return [Value()]

    def close(self):
        self.closed = True


def forever(seconds):
    return (seconds for _ in count())
