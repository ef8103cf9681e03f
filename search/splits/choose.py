"""Compares plans of splits with the whole step by what a search on predicted costs finds for each."""

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
from search.defaults import DEFAULT_SEARCHER
from search.session.prediction import Prediction
from search.session.session import SearchSession
from search.splits.candidates import ranked
from search.splits.estimate import estimated, unfused
from search.splits.pipeline import pipelines
from search.splits.propagate import Rates

# Policies' plans for which mappings are sought, the cheapest first. Of five networks the best plan was the first for
# three, the second for a wide MLP, the third for ResNet-50.
JUDGED = 3
ASKED = 48  # mappings of each plan, the best by groups, of which the best op by op counts
WORTH = 0.95  # a plan is tried where it promises at most this many times the whole step's best


@dataclass(frozen=True)
class Judged:
    """A step divided by a policy. predicted_s: of its best mapping that was found without measuring any."""

    policy: str
    step: SplitStep
    predicted_s: float


@dataclass(frozen=True)
class Judge:
    """Predicts what plans of splits for one profiled step are worth. profiled: the step's ops with costs. local:
    whether each part of a batch is normalised by its own statistics.
    """

    captured: Captured
    profiled: Prediction
    groups: int
    seed: int
    local: bool = False

    def best(self, parts: int, note: Callable[[str], None] = lambda policy: None) -> Judged | str:
        """The most promising way to divide ops into `parts`, or why none is worth a try. note: as in `candidates`."""
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
        """The whole step's ops, with costs from which those of parts can be told."""
        return unfused(self.profiled.groups.fine)

    def whole_s(self) -> float:
        """Predicted seconds of the whole step's best mapping."""
        return self._best_s(self.profiled)

    def candidates(self, parts: int, note: Callable[[str], None] = lambda policy: None) -> list[Judged]:
        """Plans that divide ops into `parts`, or into micro-batches for so many devices, the most promising first.

        note: told which policy comes next.
        """
        graph = StepGraph(self.captured.graph_def, self.captured.input_names)
        fine = self.fine
        phases = {op.name: op.phase for op in fine.ops}
        by_policy = ranked(graph, phases, self._rates(fine), parts)
        most = len(by_policy) if self.local else JUDGED  # what statistics of their own save is not in the ranking
        found = [
            *islice(self._judged(graph, by_policy, note), most),
            *self._judged(graph, pipelines(graph, parts), note),
        ]
        return sorted(found, key=lambda judged: judged.predicted_s)

    def _judged(
        self, graph: StepGraph, plans: Iterable[tuple[str, SplitPlan]], note: Callable[[str], None]
    ) -> Iterator[Judged]:
        for policy, plan in plans:
            note(policy)
            plan = with_local_statistics(graph, plan)[0] if self.local else plan
            with suppress(PlanError):  # a policy that this step has no rules for, or a pipeline without overlap
                yield Judged(policy, *self.fitting(plan, graph, limited=True))

    def fitting(self, plan: SplitPlan, graph: StepGraph, *, limited: bool = False) -> tuple[SplitStep, float]:
        """(the step divided by a plan, predicted seconds of its best mapping). Where devices cannot hold the
        activations of so many micro-batches under any mapping that was found, half as many are under way at once, and
        so on, because each number takes a search; infinity where they cannot hold one. limited: as in `split_step`.
        Raises PlanError.
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
        """Infinity where no mapping that is asked fits into the devices' memory, nor a single device."""
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
