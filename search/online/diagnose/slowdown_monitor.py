"""Monitors slowdowns: which devices and links are slower now than when all was well."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from placer.devices.load.load_reading import LoadReading, Slowdown
from search.online.diagnose.diagnosis import LEAST, Diagnosis, diagnose
from search.online.diagnose.step_level import CLEAR, SAME, is_clear
from search.online.interfaces import Probes

K = TypeVar("K")
QUIET = 5  # readings that the baseline is the median of
FAINT = 1.06  # a change of pace that counts if steps say that something changed: short probes understate a load
LINK_LEAST = 1.5  # the probes of links are noisy
EASED = 0.4  # share of a slowdown that may be left when the load is said to have gone
NO_LOAD = Slowdown({}, {})


class ActedOn(NamedTuple):
    """The state that later changes are measured against. load: how many times slower than in the baseline devices and
    links were then, as probes or steps showed. is_felt: whether only steps showed it.
    """

    reading: LoadReading
    load: Slowdown = NO_LOAD
    is_felt: bool = False


class _Worst(NamedTuple):
    """The device or link that slowed most. probe: returns the seconds that its probe takes now. factor: how many times
    slower it is than in the baseline. least: the factor from which a change of its probes counts.
    """

    probe: Callable[[], float]
    factor: float
    baseline_s: float
    looked_at_s: float
    least: float


class SlowdownMonitor:
    """Compares current readings with the baseline, and with the readings that were last acted on."""

    def __init__(self, probes: Probes, readings: Sequence[LoadReading]) -> None:
        """readings: of these probes, while all is well."""
        self._probes = probes
        self._quiet = list(readings)
        self._late: LoadReading | None = None  # the latest; an alarm may still show that it was not quiet
        self.baseline = LoadReading.middle(readings)
        self.acted_on = ActedOn(self.baseline)
        self.load = NO_LOAD
        self._looked_at = self.baseline  # the reading at the last look at mappings, in vain or not
        self._is_felt = False  # whether only steps show the devices of `load`, and probes do not

    @property
    def is_sure(self) -> bool:
        """Whether the baseline is the median of QUIET readings."""
        return len(self._quiet) >= QUIET

    @property
    def is_slow(self) -> bool:
        """Whether a device or a link is slower than in the baseline, by the known load."""
        return bool(_slower(self.load.devices) or _slower(self.load.links))

    def take(self) -> LoadReading:
        """Take a reading of all probes."""
        return self._probes.take()

    def calm(self) -> None:
        """Take one more reading while all is well. It counts for the baseline from the next call on."""
        if self._late is not None:
            self._quiet = [*self._quiet[1 - QUIET :], self._late]
            self.baseline = LoadReading.middle(self._quiet)
            self.acted_on = ActedOn(self.baseline)
        self._late = self.take()

    def alarmed(self) -> None:
        """Do not count the latest reading as quiet."""
        self._late = None

    def diagnose(self, readings: Sequence[LoadReading], step_ratio: float) -> Diagnosis:
        """Return what changed since a change was last acted on, by the median of `readings`, as far as it agrees with
        how steps changed. If steps changed clearly and probes hardly, return what changed relative to other devices.
        """
        changed = LoadReading.middle(readings).against(self.acted_on.reading)
        devices = {name: _with(factor, step_ratio) for name, factor in changed.devices.items()}
        links = {pair: _with(factor, step_ratio) for pair, factor in changed.links.items()}
        found = diagnose(devices, _beyond(links, LINK_LEAST), step_ratio)
        if found.kind != "nothing" or not is_clear(step_ratio):
            return found
        usual = (min if step_ratio > 1 else max)(changed.devices.values())
        beside = {name: factor / usual for name, factor in changed.devices.items()}
        return diagnose(beside, {}, step_ratio, FAINT)

    def act_on(self, readings: Sequence[LoadReading], found: Diagnosis | None = None) -> None:
        """Measure later changes against these readings. found: gives the load if steps slowed and the readings show no
        slower or faster device; None = take the load from the readings alone.
        """
        self.load, self._is_felt = self._seen(readings), False
        if found is not None and not self.load.devices and found.step_ratio > CLEAR:
            felt = _beyond(_compounded(self.acted_on.load.devices, found.devices), LEAST)
            self.load, self._is_felt = Slowdown(felt, self.load.links), True
        self._looked_at = LoadReading.middle(readings)
        self.acted_on = ActedOn(self._looked_at, self.load, self._is_felt)

    def passed(self) -> None:
        """Go back to the load that was last acted on, because a later load, looked at in vain, has gone."""
        self.load, self._is_felt = self.acted_on.load, self.acted_on.is_felt

    def take_load_from(self, readings: Sequence[LoadReading]) -> None:
        """Take the load from these readings, even if they show none, unless only steps showed the load."""
        if not self._is_felt:
            self.load, self._looked_at = self._seen(readings), LoadReading.middle(readings)

    def look_again(self, readings: Sequence[LoadReading]) -> None:
        """Take the load from these readings, unless they show none, or only steps showed the load."""
        seen = self._seen(readings)
        if not self._is_felt and (seen.devices or seen.links):
            self.load = seen

    def take_for_usual(self, readings: Sequence[LoadReading]) -> None:
        """Measure later changes against these readings, which show all devices slower or faster alike."""
        self.acted_on = self.acted_on._replace(reading=LoadReading.middle(readings))

    def has_eased(self) -> bool:
        """Whether the device that slowed most, or else the link, is near its old pace: two probes of it must agree.
        False if probes do not see what slowed.
        """
        worst = self._worst()
        return worst is not None and all(worst.probe() < _eased_s(worst.factor, worst.baseline_s) for _ in range(2))

    def has_grown(self) -> bool:
        """Whether the device that slowed most, or else the link, is clearly slower than at the last look at mappings:
        two probes of it must agree.
        """
        worst = self._worst()
        return worst is not None and all(worst.probe() > worst.least * worst.looked_at_s for _ in range(2))

    def _worst(self) -> _Worst | None:
        """Return the device that slowed most, or else the link; None if probes see neither."""
        devices, links = {} if self._is_felt else _slower(self.load.devices), _slower(self.load.links)
        base, then, probes = self.baseline, self._looked_at, self._probes
        if devices:
            name = max(devices, key=devices.__getitem__)
            seconds = base.device_s[name], then.device_s[name]
            return _Worst(lambda: probes.device(name), devices[name], *seconds, LEAST)
        if links:
            pair = max(links, key=links.__getitem__)
            seconds = base.link_s[pair], then.link_s[pair]
            return _Worst(lambda: probes.link(pair), links[pair], *seconds, LINK_LEAST)
        return None

    def _seen(self, readings: Sequence[LoadReading]) -> Slowdown:
        """Return what is slower or faster than in the baseline, by these readings."""
        against = LoadReading.middle(readings).against(self.baseline)
        return Slowdown(_beyond(against.devices, LEAST), _beyond(against.links, LINK_LEAST))


def _slower(factors: Mapping[K, float]) -> dict[K, float]:
    return {key: factor for key, factor in factors.items() if factor > 1}


def _compounded(one: Mapping[K, float], other: Mapping[K, float]) -> dict[K, float]:
    return {key: one.get(key, 1.0) * other.get(key, 1.0) for key in one.keys() | other.keys()}


def _eased_s(factor: float, baseline_s: float) -> float:
    return (1 + EASED * (factor - 1)) * baseline_s


def _beyond(factors: Mapping[K, float], least: float) -> dict[K, float]:
    return {key: factor for key, factor in factors.items() if max(factor, 1 / factor) >= least}


def _with(factor: float, step_ratio: float) -> float:
    """Return `factor`, but 1.0 if it contradicts how steps changed."""
    against = (factor > 1 and step_ratio < 1 / SAME) or (factor < 1 and step_ratio > SAME)
    return 1.0 if against else factor
