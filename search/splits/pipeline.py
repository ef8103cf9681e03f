"""Plans that take the examples of a step in micro-batches: a pipeline if layers are placed on devices one after
another, gradient accumulation if they share a device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import tensorflow as tf

from placer.splits.pieces import names_of, text_of
from placer.splits.plan import Division, PlanError, SplitPlan
from placer.splits.rules.way import Cut, Way
from placer.splits.step_graph import StepGraph

PER_DEVICE = (2, 4)  # the numbers of micro-batches per device that are tried


def pipelines(graph: StepGraph, devices: int) -> Iterator[tuple[str, SplitPlan]]:
    """Yield (name, plan) with several micro-batches per device; nothing if the step has too few examples."""
    for micro_batches in (devices * factor for factor in PER_DEVICE):
        with suppress(PlanError):
            yield f"{micro_batches} micro-batches", pipeline(graph, micro_batches, devices)


def pipeline(graph: StepGraph, micro_batches: int, devices: int) -> SplitPlan:
    """Return the plan that divides every op that can work on micro-batches as they come, and no weight.

    2 x devices - 1 micro-batches may be under way: as many as the first stage of a pipeline has begun and not finished
    if each crossing takes as long as a stage. On a single device this is one.

    Raises PlanError if `micro_batches` is below 2 or above the number of examples, or if no op can be divided by
    examples.
    """
    examples = _examples(graph)
    if not 2 <= micro_batches <= examples:
        can = f"ask for 2 to {examples}" if examples > 1 else "nothing can be divided"
        raise PlanError(f"a step of {examples} examples has no {micro_batches} micro-batches; {can}.")
    cuts = {op.name: Cut(0) for op in graph.order if _leading(graph, op) == examples}
    divisions = {}
    for op in graph.order:
        texts = names_of(text for text in graph.nodes[op.name].input if not text.startswith("^"))
        taken = {i: cuts[text] for i, text in enumerate(texts) if text in cuts}
        chosen = _way(graph.ways(op.name), taken, _whole_handles(op, taken), micro_batches) if taken else None
        if chosen is not None:
            divisions[op.name] = Division(chosen, micro_batches)
            kinds = enumerate(graph.ways(op.name)[chosen].outputs)
            cuts |= {text_of(op.name, i): kind for i, kind in kinds if isinstance(kind, Cut)}
    for op in reversed(graph.order):
        wanted = _wanted(graph, op, divisions, micro_batches)
        if wanted is not None:
            divisions[op.name] = Division(wanted, micro_batches)
    if not divisions:
        raise PlanError("no op of the step has a rule to be divided by examples, so there are no micro-batches.")
    return SplitPlan(divisions, in_flight=2 * devices - 1)


def _whole_handles(op: Any, taken: Mapping[int, Cut]) -> list[int]:
    """Return the indices of an op's inputs that are variables and not divided."""
    return [i for i, tensor in enumerate(op.inputs) if tensor.dtype == tf.resource and i not in taken]


def _way(ways: Mapping[str, Way], taken: Mapping[int, Cut], handles: Sequence[int], parts: int) -> str | None:
    """Return the first way that takes the inputs `taken` as they are cut; None if there is none. All other inputs are
    whole, and each part can have what it needs of them. Only a whole variable must stay whole. handles: the inputs
    that are such variables.
    """
    for name, way in ways.items():
        kinds = {i: way.inputs[i] for i in taken}
        as_cut = all(isinstance(kind, Cut) and kind.axis == taken[i].axis for i, kind in kinds.items())
        if any(isinstance(way.inputs[i], Cut) for i in handles):
            continue
        if as_cut and way.extent >= parts * way.least:
            return name
    return None


def _wanted(graph: StepGraph, op: Any, divisions: Mapping[str, Division], parts: int) -> str | None:
    """Return a way to divide a whole op whose output is only taken in parts; None if there is none. An example is the
    gradient of a mean over the examples, which repeats a few numbers for all of them.
    """
    users = op.outputs[0].consumers() if len(op.outputs) == 1 and op.name not in divisions else []
    if not users or any(user.name not in divisions for user in users):
        return None
    taken = ((graph.ways(user.name)[divisions[user.name].way], user) for user in users)
    cuts = {cut for way, user in taken for cut, t in zip(way.inputs, user.inputs, strict=True) if t is op.outputs[0]}
    ways = {name: way for name, way in graph.ways(op.name).items() if cuts == {way.outputs[0]} and None not in cuts}
    return _way(ways, {}, _whole_handles(op, {}), parts)


def _examples(graph: StepGraph) -> int:
    """Return the first dimension that most inputs of the step have; 0 if no input has one."""
    found = Counter(n for op in graph.order if (n := _leading(graph, op)))
    return max(found, key=found.__getitem__, default=0)


def _leading(graph: StepGraph, op: Any) -> int:
    """Return the first dimension of a step's input; 0 for other ops, and if it is unknown."""
    if op.name not in graph.inputs or not op.outputs[0].shape.rank:
        return 0
    return op.outputs[0].shape[0] or 0
