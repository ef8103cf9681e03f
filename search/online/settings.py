"""How much an online search tries, and when it moves."""

from __future__ import annotations

from dataclasses import dataclass

from search.online.trials.trials import ContestSettings

QUICK_GAIN = 0.05  # share of a step worth a move when the load changed: fewer steps tell less


@dataclass(frozen=True)
class OnlineSettings:
    """How much to try, and when to move.

    budget: mappings measured at most before the search ends; batch of them are asked for at once. repeats: steps that
    count of each in a race, looks: at a mapping that is new. hopeless: a step so many times the incumbent's ends a
    look. horizon: steps within which what is tried must pay, even if it takes only `optimism` times what is predicted;
    after `patience` rounds that did not, the search ends. least_gain: share of a step worth a move. replan: mappings
    asked for when the load changed, within `replan_s` seconds; quick_repeats: steps that count then. probe_every: steps
    between looks at a device that is slow. kept: mappings that stay built. search, adapt: whether to do either at all.
    dry_run: only say how one would adapt.
    """

    budget: int = 16
    seed: int = 0
    groups: int = 192
    batch: int = 4
    repeats: int = 8
    looks: int = 3
    hopeless: float = 2.0
    horizon: int = 1000
    optimism: float = 0.95
    patience: int = 2
    least_gain: float = 0.01
    replan: int = 3
    replan_s: float = 1.0
    quick_repeats: int = 4
    probe_every: int = 10
    kept: int = 4
    search: bool = True
    adapt: bool = True
    dry_run: bool = False

    @property
    def thorough(self) -> ContestSettings:
        """Of the search."""
        return ContestSettings(self.repeats, self.looks, self.hopeless, self.least_gain)

    @property
    def final(self) -> ContestSettings:
        """Of the last race, against what the result must not be slower than."""
        return ContestSettings(self.repeats + self.repeats // 2, self.looks, self.hopeless, self.least_gain, 1.5)

    @property
    def quick(self) -> ContestSettings:
        """Of an adaptation."""
        return ContestSettings(self.quick_repeats, self.looks, self.hopeless, QUICK_GAIN, 2.0)
