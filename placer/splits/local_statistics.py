"""Local statistics: turning a plan with whole-batch statistics into one where each part normalises by its own examples.

A rule divides TensorFlow's fused ops in this way. Batch normalization as Keras writes it is found by its moments: a
mean over the examples of squared differences from their mean. After the moments, each part works with its own numbers
in all ops that lead back to its examples, and in ops that combine several such numbers. Reductions over examples on the
way (the sums of the gradient) are done for each part's own share, too. So each part computes what a worker of
data-parallel training computes. All other users of such a number, for example a variable's update, take the mean of all
parts, weighted by their shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from placer.splits.plan import LOCAL, Division, SplitPlan
from placer.splits.rules.copies import COPIES
from placer.splits.rules.local import FUSED, REDUCED, VECTORS
from placer.splits.rules.way import BATCH, Cut, Joined, axis_name, may_be_averaged
from placer.splits.step_graph import StepGraph

NONE_LOCAL = "No batch normalisation is divided by examples here, so that local statistics change nothing."
PASSED = frozenset({"Identity", "StopGradient", "PreventGradient", "Reshape", "Squeeze", "ExpandDims"})


def with_local_statistics(graph: StepGraph, plan: SplitPlan) -> tuple[SplitPlan, int, int]:
    """Return (the plan with local statistics, how many batch normalizations have them, how many keep the statistics of
    the whole batch).

    A batch normalization keeps the whole statistics, although the batch is divided, if their use could not be followed,
    or if a part would have a single value.
    """
    divisions = dict(plan.divisions)
    fused = [name for name in plan.divisions if _is_fused(graph, plan, name)]
    divisions |= {name: Division(LOCAL, divisions[name].parts) for name in fused}
    found = _Finder(graph, SplitPlan({n: d for n, d in divisions.items() if d.way != COPIES}, plan.in_flight))
    regions = [found.region(variance, mean) for variance, mean in found.moments()]
    for region in regions:
        divisions |= region
    normalized = sum(graph.op(name).type == "FusedBatchNormV3" for name in fused) + sum(map(bool, regions))
    return SplitPlan(divisions, plan.in_flight), normalized, sum(not region for region in regions)


def made_local(graph: StepGraph, plan: SplitPlan) -> tuple[SplitPlan, str | None]:
    """Return (the plan with local statistics, a sentence on what has none; None if all have them)."""
    plan, made, kept = with_local_statistics(graph, plan)
    if kept:
        return plan, (
            f"{kept} of {made + kept} batch normalisations keep the statistics of the whole batch, because what the "
            "step does with them could not be followed, or a part would have a single value of each channel."
        )
    return plan, none_local(plan)


def none_local(plan: SplitPlan) -> str | None:
    """Return a sentence on a plan that has no local statistics although they were asked for; None if it has some."""
    return None if plan.is_local else NONE_LOCAL


def with_whole_statistics(graph: StepGraph, plan: SplitPlan) -> SplitPlan:
    """Return the plan with the statistics of the whole batch: the inverse of `with_local_statistics`, except that ops
    which were copies before they became local stay whole.
    """
    divisions = {}
    for name, division in plan.divisions.items():
        kind = graph.op(name).type
        if division.way != LOCAL:
            divisions[name] = division
        elif kind in FUSED | REDUCED:
            divisions[name] = Division(BATCH if kind in FUSED else axis_name(0), division.parts)
    return SplitPlan(divisions, plan.in_flight)


def _is_fused(graph: StepGraph, plan: SplitPlan, name: str) -> bool:
    """Whether an op is a fused batch normalization or its gradient, in training and divided by examples."""
    op = graph.op(name)
    if op.type not in FUSED or plan.divisions[name].way != BATCH or not op.get_attr("is_training"):
        return False
    return graph.way(name, LOCAL) is not None


@dataclass
class _Finder:
    """A finder of the ops that become local together with the moments of a batch normalization."""

    graph: StepGraph
    plan: SplitPlan

    def moments(self) -> Iterator[tuple[Any, Any]]:
        """Yield (op of the variance, op of the mean) of each batch normalization over the examples."""
        for op in self.graph.order:
            squares = op.inputs[0].op if op.type == "Mean" and self.is_reduced(op) else None
            if squares is None or squares.type != "SquaredDifference" or squares.name not in self.plan:
                continue
            x, mean = squares.inputs
            for one, other in ((x, mean), (mean, x)):
                source = _behind(other).op
                if source.type == "Mean" and self.is_reduced(source) and source.inputs[0] is one:
                    yield op, source

    def is_reduced(self, op: Any) -> bool:
        """Whether an op is a mean or sum over the examples, to which each part adds its share."""
        division = self.plan.divisions.get(op.name)
        if division is None or op.type not in REDUCED or op.inputs[0].name not in self.examples:
            return False
        way = self.graph.way(op.name, division.way)
        return way is not None and way.inputs[0] == Cut(0) and isinstance(way.outputs[0], Joined) and self._fits(op)

    def _fits(self, op: Any) -> bool:
        return self.graph.way(op.name, LOCAL) is not None and op.outputs[0].shape.num_elements() != 1

    @cached_property
    def examples(self) -> frozenset[str]:
        """Return the tensors of which each part has its own examples: their axis 0 comes from an input of the step."""
        found: set[str] = set()
        for op in self.graph.order:
            if op.name in self.graph.inputs:
                found.update(tensor.name for tensor in op.outputs)
            division = self.plan.divisions.get(op.name)
            way = self.graph.way(op.name, division.way) if division is not None else None
            if way is None:
                continue
            if any(_is_first(cut) and t.name in found for cut, t in zip(way.inputs, op.inputs, strict=True)):
                found |= {t.name for t, kind in zip(op.outputs, way.outputs, strict=True) if _is_first(kind)}
        return frozenset(found)

    def region(self, variance: Any, mean: Any) -> dict[str, Division]:
        """Return the ops that become local, each with its division. Empty if some use of them cannot be followed, or if
        a part would have a single value.
        """
        parts = self.plan.divisions[variance.name].parts
        reduced, inner = {variance, mean}, set[Any]()
        before = -1
        while before != len(reduced) + len(inner):
            before = len(reduced) + len(inner)
            after = self._after(reduced)
            for op in reversed(after):
                if any(
                    user in inner or self._is_by_examples(user, op.outputs[0]) for user in op.outputs[0].consumers()
                ):
                    inner.add(op)
            for op in after:
                if len({id(t) for t in op.inputs if t.op in reduced or t.op in inner}) > 1:
                    inner.add(op)
            reduced |= {source for op in inner for source in self._sources(op)}
        local = reduced | inner
        if any(self.plan.divisions[op.name].parts != parts or self._lacks_values(op, parts) for op in reduced):
            return {}
        if not all(self._is_sound(op, user, local, parts) for op in local for user in op.outputs[0].consumers()):
            return {}
        return {op.name: Division(LOCAL, parts) for op in local}

    def _lacks_values(self, op: Any, parts: int) -> bool:
        """Whether one of `parts` parts would have a single value to reduce over."""
        way = self.graph.way(op.name, LOCAL)
        return way is None or way.extent < parts * way.least

    def _after(self, reduced: set[Any]) -> list[Any]:
        """All that may be done by each part after reductions, producers first."""
        found, stack = set[Any](), list(reduced)
        while stack:
            users = {user for tensor in stack.pop().outputs for user in tensor.consumers()} - found
            new = [user for user in users if self._is_vector(user)]
            found.update(new)
            stack += new
        return sorted(found, key=self._place.__getitem__)

    @cached_property
    def _place(self) -> dict[Any, int]:
        """Op -> its position in the graph's order."""
        return {op: i for i, op in enumerate(self.graph.order)}

    def _is_vector(self, op: Any) -> bool:
        return op.type in VECTORS and op.name not in self.plan and self.graph.way(op.name, LOCAL) is not None

    def _sources(self, op: Any) -> set[Any]:
        """Return the reductions over examples that lead to `op` through ops that each part may do itself."""
        found, stack, seen = set(), [op], {op}
        while stack:
            for source in {tensor.op for tensor in stack.pop().inputs} - seen:
                seen.add(source)
                if self.is_reduced(source):
                    found.add(source)
                elif self._is_vector(source):
                    stack.append(source)
        return found

    def _is_by_examples(self, user: Any, tensor: Any) -> bool:
        """Whether each part of a divided op takes a tensor whole beside its own examples, or spreads it over them."""
        division = self.plan.divisions.get(user.name)
        way = self.graph.way(user.name, division.way) if division is not None else None
        if way is None or not _is_first(way.outputs[0]):
            return False
        taken = list(zip(way.inputs, user.inputs, strict=True))
        cuts = [(cut, t) for cut, t in taken if cut is not None]
        if any(t is tensor for _, t in cuts):
            return False
        return all(_is_first(cut) and t.name in self.examples for cut, t in cuts)

    def _is_sound(self, op: Any, user: Any, local: set[Any], parts: int) -> bool:
        """Whether a user of a local op works on it correctly: it is local too, or takes it beside its own examples, or
        leads neither to a divided op nor to an output of the step, and the parts' values have a mean to take. Such an
        output may be a loss, whose gradient may be a constant.
        """
        if user in local:
            return True
        if user.name in self.plan:
            return self._is_by_examples(user, op.outputs[0]) and self.plan.divisions[user.name].parts == parts
        return may_be_averaged(op.outputs[0].dtype) and user not in self._leading_on

    @cached_property
    def _leading_on(self) -> set[Any]:
        """The ops from which a path leads to a divided op, or to an output that nothing takes: the step's results."""
        found = set[Any]()
        for op in reversed(self.graph.order):
            users = {user for tensor in op.outputs for user in tensor.consumers()}
            if (op.outputs and not users) or any(user in found or user.name in self.plan for user in users):
                found.add(op)
        return found


def _is_first(kind: Any) -> bool:
    return isinstance(kind, Cut) and kind.axis == 0


def _behind(tensor: Any) -> Any:
    """Return the tensor behind all ops that only pass it on."""
    while tensor.op.type in PASSED:
        tensor = tensor.op.inputs[0]
    return tensor
