"""What looking at the load and acting in vain may cost: a share of the training's time, however short its steps are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from placer.devices.load.load_reading import LoadReading, Pair
from search.online.interfaces import Probes

T = TypeVar("T")
SHARE = 0.01  # of the training's time
SLOWED_SHARE = 0.3  # of the time that a slowdown costs about which nothing was done yet
CREDIT_S = 1.0  # that may be spent at once, after a quiet time
RENEWED_S = 60.0  # of training, after which a clear change renews the credit once more


class MeteredProbes:
    """Probes that pay for themselves: each second of steps allows SHARE seconds of probing, CREDIT_S at most at once.

    A probe takes milliseconds and the training waits for it, so a training with steps of a millisecond would otherwise
    spend most of its time on probes where a device stays slow. The same holds for adaptations that bring nothing. While
    steps are slowed, more is allowed, because there is more to gain: a share of what the slowdown costs.
    """

    def __init__(self, probes: Probes, clock: Callable[[], float] = time.perf_counter) -> None:
        """clock: seconds."""
        self._probes, self._clock = probes, clock
        self._free_s = CREDIT_S
        self._trained_s = 0.0
        self._renewable_s = 0.0  # when the credit may be renewed again, in seconds of training

    def replace(self, probes: Probes) -> None:
        """Use others from now on; what was spent stays spent."""
        self._probes = probes

    def stepped(self, step_s: float, slowed: float = 1.0) -> None:
        """The training took a step. slowed: how many times as long as before a slowdown that is still there."""
        share = SHARE + SLOWED_SHARE * max(0.0, 1.0 - 1.0 / slowed)
        self._free_s = min(CREDIT_S, self._free_s + share * step_s)
        self._trained_s += step_s

    @property
    def may_spend(self) -> bool:
        """Whether what was spent is paid for by now."""
        return self._free_s > 0

    def renew(self) -> None:
        """Steps have clearly changed, so that there is more to gain than SHARE: forget what was spent, once in
        RENEWED_S of training. A look in vain costs seconds, and would hide the next load for minutes otherwise.
        """
        if not self.may_spend and self._trained_s >= self._renewable_s:
            self._free_s = CREDIT_S
            self._renewable_s = self._trained_s + RENEWED_S

    def take(self) -> LoadReading:
        """As in `Probes`."""
        return self._paid(self._probes.take)

    def device(self, name: str) -> float:
        """As in `Probes`."""
        return self._paid(lambda: self._probes.device(name))

    def link(self, pair: Pair) -> float:
        """As in `Probes`."""
        return self._paid(lambda: self._probes.link(pair))

    def pay(self, seconds: float) -> None:
        """The training lost so much time otherwise."""
        self._free_s -= seconds

    def _paid(self, call: Callable[[], T]) -> T:
        begin_s = self._clock()
        try:
            return call()
        finally:
            self._free_s -= self._clock() - begin_s
