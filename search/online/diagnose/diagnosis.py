"""Says what slowed, whether looking for another mapping makes sense, and when to try again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from placer.errors import plain

LEAST = 1.15  # a probe within this factor of before has not changed

K = TypeVar("K")
Pair = tuple[str, str]
Kind = Literal["uneven", "alike", "nothing"]


@dataclass(frozen=True)
class Diagnosis:
    """Why step times changed. Factors above 1 mean slower now, below 1 faster."""

    # "uneven": the devices and links named changed, so another mapping may be better. "alike": all devices changed by
    # the same factor, so moving gains nothing. "nothing": no probe changed.
    kind: Kind
    step_ratio: float  # step time now divided by that before
    devices: dict[str, float]
    links: dict[Pair, float]
    why: str  # one sentence for the journal

    @property
    def may_gain(self) -> bool:
        """Whether looking for another mapping makes sense."""
        return self.kind == "uneven"

    @property
    def has_eased(self) -> bool:
        """Whether a device or a link became faster."""
        return min([*self.devices.values(), *self.links.values()], default=1.0) < 1


def diagnose(
    slowdown_devices: Mapping[str, float],
    slowdown_links: Mapping[Pair, float],
    step_ratio: float,
    least: float = LEAST,
) -> Diagnosis:
    """Return what changed by `least` or more, given how many times slower each device and link is than before.

    A busy device makes its links slow, so a link counts only for what its ends do not explain. Factors that are not
    positive numbers (a failed probe) are left out; if that leaves out a device, the diagnosis is never "alike".
    """
    devices = _valid(slowdown_devices)
    links = _changed(_unexplained(_valid(slowdown_links), devices), least)
    if not links and len(devices) == len(slowdown_devices) and _alike(devices, least):
        factor = math.exp(sum(map(math.log, devices.values())) / len(devices))
        all_of_them = f"all {len(devices)} devices {_trend(factor)} alike, and no link"
        why = all_of_them if len(devices) > 1 else f"{_named(devices, {})}, the only device"
        return Diagnosis("alike", step_ratio, dict(devices), {}, why)
    changed = _changed(devices, least)
    if changed or links:
        return Diagnosis("uneven", step_ratio, changed, links, _named(changed, links))
    why = f"steps take {step_ratio:.2f}x as long, yet no device or link changed by {least:g}x"
    return Diagnosis("nothing", step_ratio, {}, {}, why)


def diagnose_by_steps(slowdown_devices: Mapping[str, float], step_ratio: float) -> Diagnosis:
    """Return what changed, by steps on single devices; NaN for a device without such steps. If the known devices did
    not change, the unknown devices are assumed to have changed by `step_ratio`.
    """
    found = diagnose(slowdown_devices, {}, step_ratio)
    if found.kind == "nothing" and (known := _valid(slowdown_devices)):
        return diagnose({name: known.get(name, step_ratio) for name in slowdown_devices}, {}, step_ratio)
    return found


@dataclass(frozen=True)
class BackoffSettings:
    """How long to wait after attempts that brought nothing."""

    first: int = 25  # steps to wait after the first
    most: int = 3200  # steps to wait at most


@dataclass(frozen=True)
class Backoff:
    """When to act on alarms: later, the more often acting brought nothing. Each method returns the next state.

        alarm      missed, waits 25   due     missed, waits 50               due   moved, paid for   alarm: due at once
        |----------|..................|-------|..............................|-----|-----------------|----
                        alarms meanwhile are kept, and due at the end

    A move that has not paid for itself when the next alarm comes also counts as bringing nothing, because a load that
    comes and goes looks like that. A move that has paid resets the waits, and so do `most` quiet steps.
    """

    settings: BackoffSettings = field(default_factory=BackoffSettings)
    misses: int = 0
    ready_step: int = 0
    paid_step: int | None = None
    pending: bool = False
    put_off: int = 0  # how often in a row an alarm was not worth acting on
    put_off_step: int = 0  # step until which the alarm is put off

    def alarmed(self, step: int) -> Backoff:
        """Note an alarm: the load seems to have changed."""
        if self.paid_step is None:
            long_quiet = step >= self.ready_step + self.settings.most
            judged = Backoff(self.settings) if long_quiet else self
        else:
            judged = self.missed(step) if step < self.paid_step else Backoff(self.settings)
        return replace(judged, pending=True, put_off=0, put_off_step=0)

    def at_once(self, step: int) -> Backoff:
        """Note an alarm that is due now, whatever acting brought: what was acted on goes on in the same direction."""
        return replace(self, pending=True, ready_step=step, put_off=0, put_off_step=0)

    def postponed(self, step: int, *, pending: bool) -> Backoff:
        """Put off an alarm that was not worth acting on. The next alarm is due at once; this alarm, if it is still
        `pending`, after a wait that doubles each time.
        """
        return replace(self, pending=pending, put_off=self.put_off + 1, put_off_step=step + self._wait(self.put_off))

    @property
    def is_urgent(self) -> bool:
        """Whether there is an alarm to act on that was not put off."""
        return self.pending and not self.put_off

    def due(self, step: int) -> bool:
        """Whether there is an alarm to act on, and the wait is over."""
        return self.pending and step >= max(self.ready_step, self.put_off_step)

    def _wait(self, times: int) -> int:
        wait: int = min(self.settings.most, self.settings.first * 2 ** min(times, 60))
        return wait

    def missed(self, step: int) -> Backoff:
        """Note that acting brought nothing: no move, or a move that did not help. Doubles the next wait."""
        return Backoff(self.settings, self.misses + 1, step + self._wait(self.misses))

    def moved(self, step: int, pays_back_steps: int) -> Backoff:
        """Note that acting led to a move that pays back after `pays_back_steps`."""
        return replace(self, paid_step=step + pays_back_steps, pending=False)


def _valid(factors: Mapping[K, float]) -> dict[K, float]:
    return {key: factor for key, factor in factors.items() if 0 < factor < math.inf}


def _changed(factors: Mapping[K, float], least: float) -> dict[K, float]:
    """Return the factors of changes by `least` or more, up or down, the largest change first."""
    beyond = {key: factor for key, factor in factors.items() if max(factor, 1 / factor) >= least}
    return dict(sorted(beyond.items(), key=lambda item: -abs(math.log(item[1]))))


def _unexplained(links: Mapping[Pair, float], devices: Mapping[str, float]) -> dict[Pair, float]:
    """Return how much each link changed beyond that end which changed most in the same direction."""
    left = {}
    for (a, b), factor in links.items():
        ends = (1.0, devices.get(a, 1.0), devices.get(b, 1.0))
        left[a, b] = max(1.0, factor / max(ends)) if factor > 1 else min(1.0, factor / min(ends))
    return left


def _alike(devices: Mapping[str, float], least: float) -> bool:
    """Whether all devices changed in the same direction, and by nearly the same factor."""
    if not devices:
        return False
    slowest, fastest = max(devices.values()), min(devices.values())
    return slowest / fastest < least and (fastest >= least or slowest <= 1 / least)


def _named(devices: Mapping[str, float], links: Mapping[Pair, float]) -> str:
    loads = [
        f"load on {plain(name)} {'up' if factor > 1 else 'down'} {_times(factor)}" for name, factor in devices.items()
    ]
    return ", ".join(loads + [f"link {plain(a)} <-> {plain(b)} {_trend(factor)}" for (a, b), factor in links.items()])


def _trend(factor: float) -> str:
    return f"{_times(factor)} {'slower' if factor > 1 else 'faster'}"


def _times(factor: float) -> str:
    return f"{max(factor, 1 / factor):.{1 if max(factor, 1 / factor) >= 1.95 else 2}f}x"
