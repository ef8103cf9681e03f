"""The budget for probing and for acting in vain: a share of the training's time, however short its steps are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from placer.devices.load.load_reading import LoadReading, Pair
from search.online.interfaces import Probes

T = TypeVar("T")
SHARE = 0.01  # share of the training's time that may be spent
SLOWED_SHARE = 0.3  # share, in addition, of the time lost to a slowdown about which nothing was done yet
CREDIT_S = 1.0  # seconds that may be spent at once, after a quiet time
RENEWED_S = 60.0  # seconds of training after which a clear change may renew the credit again


class MeteredProbes:
    """Probes that pay for themselves: each second of steps allows SHARE seconds of probing, CREDIT_S at most at once.

    A probe takes milliseconds and the training waits for it, so a training with steps of a millisecond would otherwise
    spend most of its time on probes while a device stays slow. The same holds for adaptations that bring nothing. While
    steps are slowed, more is allowed, because there is more to gain: a share of what the slowdown costs.
    """

    def __init__(self, probes: Probes, clock: Callable[[], float] = time.perf_counter) -> None:
        """clock: seconds."""
        self._probes, self._clock = probes, clock
        self._free_s = CREDIT_S
        self._trained_s = 0.0
        self._renewable_s = 0.0  # when the credit may be renewed again, in seconds of training

    def replace(self, probes: Probes) -> None:
        """Use `probes` from now on; what was spent stays spent."""
        self._probes = probes

    def stepped(self, step_s: float, slowed: float = 1.0) -> None:
        """Count `step_s` seconds of training. slowed: how many times as long steps take as before a slowdown that is
        still there.
        """
        share = SHARE + SLOWED_SHARE * max(0.0, 1.0 - 1.0 / slowed)
        self._free_s = min(CREDIT_S, self._free_s + share * step_s)
        self._trained_s += step_s

    @property
    def may_spend(self) -> bool:
        """Whether what was spent is paid for by now."""
        return self._free_s > 0

    def renew(self) -> None:
        """Forget what was spent, once in RENEWED_S of training, because steps have clearly changed, so that there is
        more to gain than SHARE. Otherwise a look in vain, which costs seconds, would hide the next load for minutes.
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
        """Charge `seconds` that the training lost by other means than probes."""
        self._free_s -= seconds

    def _paid(self, call: Callable[[], T]) -> T:
        begin_s = self._clock()
        try:
            return call()
        finally:
            self._free_s -= self._clock() - begin_s
