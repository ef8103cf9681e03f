"""The search with divided ops within a training: chooses a plan of splits, so that mappings of the divided step are
tried, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from placer import phase_names
from placer.errors import PlacerError
from placer.splits.plan_files import SPLIT_AUTO, SPLIT_OFF
from placer.train.steps.modes import WHOLE
from search.online.interfaces import LiveStepLike, Steps
from search.online.narrator import Narrator
from search.online.phases.first_search import FirstSearch
from search.online.settings import OnlineSettings
from search.online.trials.trials import Trials

if TYPE_CHECKING:
    from placer.graph.topology import Topology


class SplitSearch:
    """The choice of a plan of splits, and the search of the divided step. Its state lasts until that search has ended,
    even if devices are lost meanwhile.
    """

    def __init__(self, trials: Trials, settings: OnlineSettings, narrator: Narrator) -> None:
        self.trials, self.settings, self._narrator = trials, settings, narrator
        self._is_judged = settings.split == SPLIT_OFF
        self.search: FirstSearch | None = None  # of the divided step, once a plan is chosen

    def choose(self, topology: Topology) -> Steps[None]:
        """Choose a plan in the background, once. If the plan does not fit the step, the journal says so."""
        if self._is_judged:
            return
        self._narrator.now(phase_names.JUDGING_SPLITS)
        live = self.trials.live
        try:
            work = live.background(lambda: chosen(live, self.settings, topology))
            plan = yield from self.trials.meanwhile(work)
        except PlacerError as error:
            self._narrator.say("error", f"no ops are divided: {error}")
        else:
            if isinstance(plan, str):
                self._narrator.say("plan", plan)
            else:
                self.search = FirstSearch(self.trials, self.settings, self._narrator, plan.number)
                self._narrator.say("plan", f"{live.divided_in_words(plan.number)}; mappings of that are tried, too.")
                if plan.note is not None:
                    self._narrator.say("plan", plan.note)
        self._is_judged = True


class ChosenPlan(NamedTuple):
    """A plan of splits that was chosen."""

    number: int  # among the step's plans
    note: str | None  # how the plan differs from what was asked for, in words


def chosen(live: LiveStepLike, settings: OnlineSettings, topology: Topology) -> ChosenPlan | str:
    """Return the plan that was given, or the most promising one; if no plan is worth a try, why no ops are divided.

    Raises BadInputError if a plan that was given cannot be carried out.
    """
    import tensorflow as tf

    from placer.graph.coarsen import coarsen
    from placer.splits.local_statistics import made_local, none_local
    from placer.splits.plan_files import read_plan
    from placer.splits.step_graph import StepGraph
    from search.session.prediction import Prediction
    from search.splits.choose import Judge, failed_in_words  # loads TensorFlow

    if settings.split != SPLIT_AUTO:
        plan, note = read_plan(settings.split), None
        if settings.is_local:
            captured = live.captured()
            plan, note = made_local(StepGraph(captured.graph_def, captured.input_names), plan)
        return ChosenPlan(live.divide(plan), note)
    assert live.graph is not None  # profiled
    groups = coarsen(live.graph, settings.groups, topology)
    prediction = Prediction.profiled(groups, topology, settings.planned(WHOLE).headroom)
    judge = Judge(live.captured(), prediction, settings.groups, settings.seed, local=settings.is_local)
    try:
        best = judge.best(len(topology))
        if isinstance(best, str):
            return best
        plan = best.step.plan
        return ChosenPlan(live.divide(plan), none_local(plan) if settings.is_local else None)
    except (PlacerError, tf.errors.OpError):
        raise
    except Exception as error:  # dividing is optional: the user asked for no particular plan
        return failed_in_words(error)
