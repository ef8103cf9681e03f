"""A look at other mappings under the current load: first at one that is proposed quickly and those built before, then
at those predicted to be better still. A look tries less than a search, because the load may go meanwhile.
"""

from __future__ import annotations

import math

from placer.devices.load.load_reading import Slowdown
from placer.number_format import ms
from placer.result import Measured
from placer.train.steps.modes import UNTOUCHED, Mode, Placed
from search.online.interfaces import Answer, Steps
from search.online.phases.built_before import BuiltBefore
from search.online.planners import Planners
from search.online.replan.proposal import LEAST_PREDICTED, Proposal, below
from search.online.settings import OnlineSettings
from search.online.trials.trials import Trials

ROUNDS = 3  # rounds of proposals at most, after the first proposals
REST = 12  # undisturbed steps before more than the first proposals are tried
HASTE = 0.4  # share of `replan_s` within which the first proposal must arrive
CLEAR_GAIN = 0.15  # share of a step; a larger gain needs no second comparison


class Look:
    """Tries what the planner proposes under a load. Its methods raise PlacerError if the planner has ended."""

    def __init__(self, trials: Trials, planner: Planners, settings: OnlineSettings) -> None:
        self.trials, self.planner, self.settings = trials, planner, settings
        self._built_before = BuiltBefore(trials, planner)

    def run(self, load: Slowdown, *, returns: bool) -> Steps[None]:
        """Try other mappings, and go on with the best. returns: whether the favourite is tried first."""
        trials, before, quick = self.trials, self.trials.mode, self.settings.quick
        trials.only_incumbent()
        asked = self._ask(load)
        if returns and trials.favourite is not None:
            yield from trials.try_out(trials.favourite, quick)
        if asked:
            proposals = yield from trials.meanwhile(asked.pop(0))
            if not isinstance(before, Placed):  # it does not show how far predictions are off now
                proposals = below(trials.known_s(before) / self.settings.optimism, proposals)
            yield from trials.enter(proposals, quick)
        yield from self._try_built_before()
        if asked:
            yield from self._try_more(asked.pop(0))
        yield from trials.race_near(trials.built, quick)
        yield from self._compare(before)

    def hopes(self, load: Slowdown) -> Steps[list[str]]:
        """Return in words what would be tried."""
        asked = self._ask(load)
        best, best_s = yield from self._built_before.best()
        found = [f"{self.trials.describe(best)}, built before, {ms(best_s, 1)} a step predicted"] if best else []
        for future in asked[-1:]:
            proposals = yield from self.trials.meanwhile(future)
            found += [f"one of {p.searcher}, {ms(p.predicted_s, 1)} a step predicted" for p in proposals[:1]]
        return found

    def _ask(self, load: Slowdown) -> list[Answer[list[Proposal]]]:
        """Tell the planner the load, and the incumbent's step time under it, which says more than probes. Ask for one
        mapping quickly and then for more; ask for none if there is no load and the incumbent is a mapping.
        """
        mode, settings = self.trials.mode, self.settings
        now_s = self.trials.known_s(mode)
        self.planner.slowed(load.devices, load.links)
        if not load.devices and not load.links and isinstance(mode, Placed):
            self._built_before.ask()
            return []
        if isinstance(mode, Placed) and now_s < math.inf:
            self.planner.tell(mode.plan, [(mode.op_devices, Measured(now_s))])
        first = self.planner.propose(1, HASTE * settings.replan_s)
        self._built_before.ask()
        return [first, self.planner.propose(settings.replan, settings.replan_s)]

    def _try_built_before(self) -> Steps[None]:
        """Try the best mapping built before, if it is predicted to be better than the incumbent."""
        best, best_s = yield from self._built_before.best()
        if best is not None and best_s < (1 - LEAST_PREDICTED) * self.trials.known_s(self.trials.mode):
            yield from self.trials.try_out(best, self.settings.quick)

    def _try_more(self, asked: Answer[list[Proposal]]) -> Steps[None]:
        """Try what was proposed before the first proposal was measured, then new proposals as long as they help."""
        trials, settings = self.trials, self.settings
        mode = trials.mode
        bar_s = trials.known_s(mode)
        if isinstance(mode, Placed):  # predicted at the same time, so both err alike
            bar_s = (1 - LEAST_PREDICTED) * min(bar_s, trials.predicted_s(mode))
        # Each build and trial slows several steps; let the training profit first.
        yield from trials.run_undisturbed(REST)
        yield from trials.enter(below(bar_s, (yield from trials.meanwhile(asked))), settings.quick)
        for _ in range(ROUNDS):
            mode, known_s = trials.mode, trials.known_s(trials.mode)
            proposals = yield from trials.meanwhile(self.planner.propose(settings.replan, settings.replan_s))
            yield from trials.enter(below(known_s / settings.optimism, proposals)[:1], settings.quick)
            if trials.mode is mode:
                break

    def _compare(self, before: Mode) -> Steps[None]:
        """Compare the new incumbent with the mode `before`, unless the gain is clear. Try the single device predicted
        fastest, and the untouched step, if they may be faster and were not measured yet.
        """
        trials, quick = self.trials, self.settings.quick
        if trials.mode is not before and trials.known_s(trials.mode) > (1 - CLEAR_GAIN) * trials.known_s(before):
            yield from trials.race([before, trials.mode], quick)
        single, single_s = self._built_before.best_single()
        bar_s = math.inf if isinstance(trials.mode, Placed) else trials.known_s(trials.mode)
        if single is not None and single not in trials.step_s and single_s <= bar_s:
            yield from trials.try_out(single, quick)
        if trials.untouched_competes and UNTOUCHED not in trials.step_s:
            yield from trials.try_out(UNTOUCHED, quick)
