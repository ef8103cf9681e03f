"""Comparing plans of splits with the whole step, by the best mapping that a search on predictions finds for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from math import inf
from statistics import mean

from placer.errors import BadInputError
from placer.graph.coarsen import coarsen
from placer.graph.op_graph import OpGraph
from placer.splits.local_statistics import with_local_statistics
from placer.splits.plan import PlanError, SplitPlan
from placer.splits.step import SplitStep, split_step
from placer.splits.step_graph import StepGraph
from placer.trace.capture import Captured
from placer.trace.tracing import gist
from search.defaults import DEFAULT_SEARCHER
from search.problem.searcher import Stop, never
from search.session.prediction import Prediction
from search.session.session import SearchSession
from search.splits.candidates import ranked
from search.splits.estimate import estimated, unfused
from search.splits.pipeline import pipelines
from search.splits.propagate import Rates

# How many of the policies' plans are searched for mappings, the cheapest first. The best plan was the first for three
# of five networks, the second for a wide MLP, and the third for ResNet-50.
JUDGED = 3
ASKED = 48  # mappings per plan, the best predicted by groups; the best of these predicted by ops counts
WORTH = 0.95  # a plan is tried if its predicted time is at most this share of the whole step's best


@dataclass(frozen=True)
class Judged:
    """A step divided by a policy. predicted_s: the time of its best mapping, found without measuring."""

    policy: str
    step: SplitStep
    predicted_s: float


def failed_in_words(error: Exception) -> str:
    """A sentence on an error in a plan that the user did not ask for, so that the search goes on with whole ops."""
    return f"ops stay whole, because dividing them failed ({type(error).__name__}: {gist(error)})."


@dataclass(frozen=True)
class Judge:
    """Predicts what plans of splits for one profiled step are worth. profiled: the step's ops with costs. local:
    whether each part of a batch is normalised by its own statistics. stop: whether no further plan is judged.
    """

    captured: Captured
    profiled: Prediction
    groups: int
    seed: int
    local: bool = False
    stop: Stop = never

    def best(self, parts: int, note: Callable[[str], None] = lambda policy: None) -> Judged | str:
        """Return the best plan that divides ops into `parts`, or why none is worth a try. note: as in `candidates`."""
        whole_s, found = self.whole_s(), self.candidates(parts, note)
        if not found:
            return "no op of this step can be divided by a plan."
        best = found[0]
        if best.predicted_s == inf:
            return "no plan of splits is predicted to fit into the devices' memory."
        if best.predicted_s > WORTH * whole_s:
            promised = f"{best.policy} {1e3 * best.predicted_s:.1f} ms, whole ops {1e3 * whole_s:.1f} ms"
            return f"no plan of splits promised a faster step than whole ops do (as profiled: {promised})."
        return best

    @cached_property
    def fine(self) -> OpGraph:
        """Return the whole step's ops, with costs from which the costs of parts can be estimated."""
        return unfused(self.profiled.groups.fine)

    def whole_s(self) -> float:
        """Predicted seconds of the whole step's best mapping."""
        return self._best_s(self.profiled)

    def candidates(self, parts: int, note: Callable[[str], None] = lambda policy: None) -> list[Judged]:
        """Return plans that divide ops into `parts`, or into micro-batches for `parts` devices, the best first.

        note: called with the name of each policy before its plan is judged.
        """
        graph = StepGraph(self.captured.graph_def, self.captured.input_names)
        fine = self.fine
        phases = {op.name: op.phase for op in fine.ops}
        by_policy = ranked(graph, phases, self._rates(fine), parts)
        most = len(by_policy) if self.local else JUDGED  # the ranking ignores what local statistics save
        found = [
            *islice(self._judged(graph, by_policy, note), most),
            *self._judged(graph, pipelines(graph, parts), note),
        ]
        return sorted(found, key=lambda judged: judged.predicted_s)

    def _judged(
        self, graph: StepGraph, plans: Iterable[tuple[str, SplitPlan]], note: Callable[[str], None]
    ) -> Iterator[Judged]:
        for policy, plan in plans:
            if self.stop():
                return
            note(policy)
            plan = with_local_statistics(graph, plan)[0] if self.local else plan
            with suppress(PlanError):  # this step has no rules for the policy, or a pipeline would not overlap
                yield Judged(policy, *self.fitting(plan, graph, limited=True))

    def fitting(self, plan: SplitPlan, graph: StepGraph, *, limited: bool = False) -> tuple[SplitStep, float]:
        """Return (the step divided by a plan, predicted seconds of its best mapping).

        If no mapping found can hold the activations of the micro-batches under way, their number is halved, again and
        again. It is not lowered by one, because each number takes a search. The seconds are infinite if not even one
        micro-batch fits. limited: as in `split_step`. Raises PlanError.
        """
        while True:
            step = split_step(self.captured, plan, graph, stored=False, limited=limited)
            predicted_s = self.predicted_s(step)
            if predicted_s < inf or plan.in_flight in (None, 1) or not step.is_limited:
                return step, predicted_s
            plan = replace(plan, in_flight=max(1, min(plan.in_flight or 1, plan.micro_batches or 1) // 2))

    def predicted_s(self, step: SplitStep) -> float:
        """Predicted seconds of a divided step's best mapping, by estimated costs of its parts."""
        graph = estimated(self.fine, step.captured.graph, step.plan)
        topology = self.profiled.topology
        groups = coarsen(graph, self.groups, topology)
        profiled = Prediction.profiled(groups, topology, self.profiled.headroom, self.profiled.schedule)
        return self._best_s(profiled)

    def _best_s(self, prediction: Prediction) -> float:
        """Predicted seconds of the best mapping; infinity if no asked mapping and no single device fits into memory."""
        problem = prediction.problem
        try:
            asked = SearchSession(DEFAULT_SEARCHER, problem, seed=self.seed).ask(ASKED)
        except BadInputError:  # not even the variables fit
            return inf
        asked += [problem.mapping(placement) for placement in problem.singles()]
        for mapping in sorted(asked, key=prediction.step_s):
            if prediction.lack(mapping) is None:
                return prediction.step_s(mapping)
        return inf

    def _rates(self, fine: OpGraph) -> Rates:
        link = self.profiled.topology.mean_link
        op_s = {op.name: mean(op.cost_s.values()) if op.cost_s else 0.0 for op in fine.ops}
        per_byte_s = 1 / link.bandwidth_bytes_per_s + link.send_s_per_byte + link.receive_s_per_byte
        return Rates(op_s, per_byte_s, link.latency_s + link.send_s + link.receive_s)
