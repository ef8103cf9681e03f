"""Finds ops that do something else once they are traced than eagerly."""

from __future__ import annotations

from typing import Any

from placer.trace.eager.number_use import branch_number_misused, count_in_a_call
from placer.trace.graph_def.access_order import CHECKS
from placer.trace.graph_def.node_def import nodes_within
from placer.trace.random_streams import draws_within, has_seeds

FILES = frozenset({"ReadFile", "MatchingFiles"})
PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def eager_difference(concrete: Any) -> str | None:
    """Why a plain step would do something else once it is traced, in words; None if it would not.

    Eagerly, each call of a random op with a seed continues one stream of the program; a traced op has a stream of its
    own. Ops without any seed are random either way, and stateless ops draw the same numbers. A check that fails ends an
    eager step before everything that follows; in a traced step nothing orders the check and the writes.
    """
    graph_def = concrete.graph.as_graph_def()
    for node in nodes_within(graph_def):
        if node.op in PYTHON:
            return (
                f"its op {node.name} ({node.op}) calls Python, eagerly in the thread of the training, and traced in "
                "TensorFlow's threads, where what it reads may be old; decorate the step with @tf.function if it may be"
            )
        if node.op in FILES:
            return (
                f"its op {node.name} ({node.op}) looks into files, which a traced step may do only once; decorate the "
                "step with @tf.function if that is meant"
            )
        if node.op in CHECKS:
            return (
                f"its op {node.name} ({node.op}) raises where a value is bad, eagerly before all that follows, and "
                "traced perhaps after variables were written; decorate the step with @tf.function if that is meant"
            )
    why = count_in_a_call(graph_def)
    if why is not None:
        return f"an int or bool of Python's depends on a tensor, and {why}; make it a tensor first (tf.cast)"
    why = branch_number_misused(graph_def)
    if why is not None:
        return f"a number of Python's depends on a tensor, and {why}; make it a tensor (tf.constant)"
    for node in draws_within(graph_def):
        if has_seeds(node):
            return (
                f"its op {node.name} ({node.op}) has a seed, of its own or by tf.random.set_seed, and draws other "
                "numbers when it is traced; use tf.random.Generator or tf.random.stateless_*"
            )
    return None
