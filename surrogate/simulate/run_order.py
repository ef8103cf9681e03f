"""The order in which a placed step should run its ops, read off the simulated step."""

from __future__ import annotations

from placer.graph.held_memory import is_tight
from surrogate.simulate.priority import freeing
from surrogate.simulate.timeline import Timeline

# The share of the work that is put in order. Ordering the short rest as well makes steps up to 9 % longer, because an
# op that waits for a late tensor holds up all ops that follow it (docs/decisions/006-run-order.md). If memory is tight,
# more of the work is ordered, because a short op that runs early may make a large tensor.
COVERED, COVERED_TIGHT = 0.8, 0.95


def run_order(timeline: Timeline) -> list[str]:
    """Return op names by simulated start: the longest ops, which make up COVERED of all work, and ops whose tensors
    cross. If memory is tight, COVERED_TIGHT of all work and also the ops that free memory, so that a step holds as many
    bytes as simulated.

    Each device runs the listed ops in this order and all other ops as they become ready. Empty if one device runs
    everything, because then no device waits for another.
    """
    if len(set(timeline.devices)) == 1:
        return []
    graph = timeline.graph
    tight = is_tight(graph, timeline.topology)
    chosen = _heavy(timeline, COVERED_TIGHT if tight else COVERED) | {transfer.op for transfer in timeline.transfers}
    if tight:
        chosen |= {v for v, first in enumerate(freeing(graph).tolist()) if first and graph.in_edges[v]}
    return [graph.ops[s.op].name for s in timeline.spans if s.work == "op" and s.op in chosen]


def _heavy(timeline: Timeline, covered: float) -> set[int]:
    """Return the longest ops that together make up the share `covered` of the work."""
    longest = sorted(((s.end_s - s.start_s, s.op) for s in timeline.spans if s.work == "op"), reverse=True)
    left_s = covered * sum(length_s for length_s, _ in longest)
    heavy = set()
    for length_s, op in longest:
        if left_s <= 0:
            break
        heavy.add(op)
        left_s -= length_s
    return heavy
