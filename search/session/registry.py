"""Every searcher by name. To add one, write it in the sub-package that fits and name it here."""

from __future__ import annotations

from placer.errors import BadInputError, short
from search.exact.exact import Exact
from search.initial.baselines import Expert, Random, Single
from search.learned.bayesian import BayesEt, BayesGp, BayesRf
from search.learned.genetic import Genetic
from search.learned.htf_mpr import HtfMpr, HtfMprPlain
from search.learned.hybrid import Hybrid
from search.list_scheduling.cpop import Cpop
from search.list_scheduling.donf import Donf
from search.list_scheduling.heft import Heft
from search.list_scheduling.peft import Peft
from search.local.local_search import Local
from search.problem.problem import Problem
from search.problem.searcher import Searcher, Stop, never

SEARCHERS: dict[str, type[Searcher]] = {
    cls.name: cls
    for cls in (
        Single,
        Random,
        Expert,
        Heft,
        Donf,
        Exact,
        Peft,
        Cpop,
        Local,
        Hybrid,
        BayesEt,
        BayesGp,
        BayesRf,
        Genetic,
        HtfMpr,
        HtfMprPlain,
    )
}


def searcher_type(name: str) -> type[Searcher]:
    """The class of the searcher called `name`. Raises BadInputError for an unknown name."""
    if name not in SEARCHERS:
        raise BadInputError(f"there is no searcher {short(str(name))}; choose one of {', '.join(sorted(SEARCHERS))}.")
    return SEARCHERS[name]


def make_searcher(name: str, problem: Problem, *, seed: int = 0, stop: Stop = never) -> Searcher:
    """Make the searcher called `name` for `problem`. Raises BadInputError for an unknown name."""
    return searcher_type(name)(problem, seed=seed, stop=stop)
