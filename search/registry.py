"""Every searcher by name. To add one, write it in a room of its own and name it here."""

from __future__ import annotations

from placer.errors import BadInputError
from search.base import Searcher, Stop, never
from search.baselines import Expert, Random, Single
from search.bayesian import BayesEt, BayesGp, BayesRf
from search.cpop import Cpop
from search.donf import Donf
from search.exact import Exact
from search.genetic import Genetic
from search.heft import Heft
from search.hybrid import Hybrid
from search.learned import HtfMpr
from search.local import Local
from search.peft import Peft
from search.problem import Problem

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
    )
}


def make_searcher(name: str, problem: Problem, *, seed: int = 0, stop: Stop = never) -> Searcher:
    """The searcher called `name`. Raises BadInputError for an unknown name."""
    if name not in SEARCHERS:
        raise BadInputError(f"there is no searcher {name!r}; choose one of {', '.join(sorted(SEARCHERS))}.")
    return SEARCHERS[name](problem, seed=seed, stop=stop)
