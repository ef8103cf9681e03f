"""The first search within a training: mappings are proposed in rounds and tried, until that no longer pays."""

from __future__ import annotations

from statistics import median

from placer import phase_names
from placer.number_format import ms
from placer.train.steps.modes import UNTOUCHED, WHOLE, Mode, Placed
from search.online.interfaces import PlannerLike, Steps
from search.online.narrator import Narrator
from search.online.replan.proposal import Proposal
from search.online.settings import OnlineSettings
from search.online.trials.trials import Trials

SETTLING = 60  # steps after the search until step times are compared with those at its end
DRIFTED = 1.05  # factor of change after which the search's last race is run again


class FirstSearch:
    """The first search. Its state lasts until the search has ended, even if devices are lost meanwhile."""

    def __init__(self, trials: Trials, settings: OnlineSettings, narrator: Narrator, plan: int = WHOLE) -> None:
        """plan: number of the plan of splits by which ops are divided."""
        self.plan, self.budget = plan, settings.budget
        self.trials, self.settings, self._narrator = trials, settings, narrator
        self._asks_all = settings.planned(plan).is_chosen
        self.trial_s = 0.0  # cost of trying one mapping: the seconds that steps took longer
        self._why_ended = ""
        self._rounds = 0
        self._misses = 0  # rounds in a row that did not pay

    def run(self, planner: PlannerLike) -> Steps[None]:
        """Measure the single devices, if ops are whole, then what the planner proposes, until that no longer pays.

        If the user chose a searcher, everything that it asks is measured, until the budget is spent. Meanwhile the
        fastest known mode runs. That may be the untouched step, even if it is no candidate in the end. Raises
        PlacerError if the planner has ended.
        """
        if self.plan == WHOLE:
            self._narrator.now(phase_names.MEASURING_SINGLES)
            singles = yield from self.trials.meanwhile(planner.singles())
            yield from self.trials.enter(singles, self.settings.thorough)
            self.trial_s = self.trials.lost_s / max(1, len(singles))
        self._narrator.now(phase_names.SEARCHING)
        while not self._why_ended:
            self._why_ended = yield from self._round(planner)

    def _round(self, planner: PlannerLike) -> Steps[str]:
        """Try the proposals that may pay, and race the best. Returns why to end the search, "" to go on."""
        proposals = yield from self.trials.meanwhile(planner.propose(min(self.settings.at_once, self._left())))
        if not proposals:
            return (yield from self.trials.meanwhile(planner.ended())) or "nothing else was proposed."
        before_s, spent_s = self.trials.bar_s, self.trials.lost_s
        made: list[Placed] = []
        first = not self._rounds
        self._rounds += 1
        for proposal in proposals:
            if first or self._asks_all or self._may_pay(proposal):
                made += yield from self.trials.enter([proposal], self.settings.thorough)
        if made:
            self.trials.leave_untouched()
        yield from self.trials.race_near(made, self.settings.thorough)
        if self._left() <= 0:
            return "the budget is spent."
        if not made:
            return "" if self._asks_all else "nothing else is predicted to pay."
        spent_s = self.trials.lost_s - spent_s
        self.trial_s = spent_s / len(made)
        paid = (before_s - self.trials.bar_s) * self.settings.horizon > spent_s
        self._misses = 0 if paid or self._asks_all else self._misses + 1
        return "the last mappings did not pay." if self._misses >= self.settings.patience else ""

    def _may_pay(self, proposal: Proposal) -> bool:
        """Whether the proposal may gain more within the horizon than a recent trial cost, as far as predictions err."""
        gain_s = self.trials.bar_s - self.settings.optimism * proposal.predicted_s
        return gain_s * self.settings.horizon > self.trial_s

    def _left(self) -> int:
        return self.budget - self.trials.tried.mappings

    def settle(self) -> Steps[None]:
        """Race the incumbent against the modes that it must not be slower than, which win in doubt. Free the rest."""
        self.trials.leave_untouched()
        bars: list[Mode] = [self.trials.best_single] if self.trials.best_single is not None else []
        if self.trials.untouched_competes:
            bars.append(UNTOUCHED)
        bars.sort(key=self.trials.known_s)
        if self.trials.built:
            others: list[Mode] = [self.trials.mode] if self.trials.mode not in bars else []
            yield from self.trials.race([*bars, *others], self.settings.final, max(1, len(bars)))
        self.trials.forget(self.settings.kept)
        yield from self._look_again()
        stays = isinstance(self.trials.mode, Placed) or self.trials.untouched_competes
        self.trials.favourite = self.trials.mode if stays else None
        self._say_end()

    def _look_again(self) -> Steps[None]:
        """Race the nearest modes again if step times clearly changed after the last build, because then other work of
        the machine may have decided the search. The larger the change, the farther away a mode may be to race: the
        untouched step need not have changed with the mappings.
        """
        if not isinstance(self.trials.mode, Placed) or not self.trials.latest_s:
            return
        self._narrator.now(phase_names.SETTLING)
        compared_s = median(self.trials.latest_s)
        yield from self.trials.run_undisturbed(SETTLING)
        drift = median(self.trials.latest_s) / compared_s
        if not 1 / DRIFTED < drift < DRIFTED:
            others: list[Mode] = [*self.trials.built, *([UNTOUCHED] if self.trials.untouched_competes else [])]
            yield from self.trials.race_near(others, self.settings.thorough, max(drift, 1 / drift))

    def _say_end(self) -> None:
        at_s, measured = self.trials.known_s(self.trials.mode), self.trials.tried.mappings
        alone_s = self.trials.known_s(self.trials.best_single) if self.trials.best_single is not None else None
        gain = f", {alone_s / at_s:.2f}x the fastest single device" if alone_s else ""
        took = f"; {ms(at_s, 1)} a step{gain}" if at_s in self.trials.step_s.values() else ""
        said = f"{measured} mappings measured{took}; on with {self.trials.describe(self.trials.mode)}. {self._why()}"
        here_s = self.trials.known_s(UNTOUCHED)
        if here_s < at_s and not self.trials.untouched_competes:
            said += f" Untouched in this process it took {ms(here_s, 1)}: beat_untouched=True lets that compete."
        self._narrator.say("end", said.strip(), step_s=at_s, measured=measured)

    def _why(self) -> str:
        return f"The search ended because {self._why_ended}" if self._why_ended else ""
