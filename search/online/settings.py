"""The settings of an online search: how much it tries, and when it moves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from placer.graph.defaults import GROUPS
from placer.splits.plan import LOCAL
from placer.splits.plan_files import BATCH_NORM, SPLIT_OFF
from search.defaults import BATCH, DEFAULT_SEARCHER
from search.online.replan.proposal import PlanSettings
from search.online.trials.trials import TrialSettings

BUDGET = 16  # mappings measured at most before the search ends
QUICK_GAIN = 0.05  # share of a step worth a move when the load changed; larger, because fewer steps tell less


@dataclass(frozen=True)
class OnlineSettings:
    """How much to try, and when to move."""

    budget: int = BUDGET  # mappings measured at most before the search ends
    seed: int = 0
    searcher: str = DEFAULT_SEARCHER
    groups: int = GROUPS  # groups to which the planner coarsens the graph
    at_once: int = BATCH  # mappings asked for at once
    repeats: int = TrialSettings.repeats  # these three, and `least_gain`: as in TrialSettings
    sample_steps: int = TrialSettings.sample_steps
    hopeless: float = TrialSettings.hopeless
    horizon: int = 1000  # steps within which a trial must pay
    optimism: float = 0.95  # a trial is worth it if it would pay at this share of its predicted step time
    patience: int = 2  # rounds that do not pay before the search ends
    least_gain: float = TrialSettings.least_gain
    replan: int = 3  # mappings asked for when the load changed
    replan_s: float = 1.0  # seconds that finding these mappings may take
    quick_repeats: int = 4  # counted steps of each mode in a race when the load changed
    probe_every: int = 10  # steps between probes of a slow device
    kept: int = 4  # mappings that stay built
    split: str = SPLIT_OFF  # whether ops are divided: SPLIT_OFF, SPLIT_AUTO, or the mapping file whose splits to take
    split_batchnorm: str = BATCH_NORM[0]  # one of BATCH_NORM: whose statistics divided batch normalisation takes
    beat_untouched: bool = True  # whether a mapping must be faster than the untouched step, whatever the devices
    search: bool = True  # whether to search at all
    adapt: bool = True  # whether to adapt when the load changes
    dry_run: bool = False  # only report how it would adapt

    @property
    def is_local(self) -> bool:
        """Whether parts of a batch are to normalise by statistics of their own."""
        return self.split_batchnorm == LOCAL

    def planned(self, plan: int) -> PlanSettings:
        """Return the settings for the planner of the graph that plan of splits number `plan` gives."""
        return PlanSettings(groups=self.groups, seed=self.seed, searcher=self.searcher, plan=plan)

    @property
    def thorough(self) -> TrialSettings:
        """The settings of trials in the search."""
        return TrialSettings(
            repeats=self.repeats, sample_steps=self.sample_steps, hopeless=self.hopeless, least_gain=self.least_gain
        )

    @property
    def final(self) -> TrialSettings:
        """The settings of the last race, against the modes that the result must not be slower than."""
        return replace(self.thorough, repeats=self.repeats + self.repeats // 2, sigmas=1.5)

    @property
    def quick(self) -> TrialSettings:
        """The settings of trials in an adaptation."""
        return replace(self.thorough, repeats=self.quick_repeats, least_gain=QUICK_GAIN, sigmas=2.0)
