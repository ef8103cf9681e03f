"""Graphs while they are traced: their branches, loops and inner functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.data.ops import structured_function
from tensorflow.python.framework import func_graph as framework_func_graph
from tensorflow.python.framework import ops as framework_ops
from tensorflow.python.ops import cond_v2, control_flow_util_v2, while_v2

from placer.instances import instances_of
from placer.tf_internals.functions import MARK


def symbolic_tensor() -> type:
    """The class of tensors while a function is traced."""
    return framework_ops.SymbolicTensor  # type: ignore[no-any-return]


BRANCHES = (
    control_flow_util_v2.CondBranchFuncGraph,
    control_flow_util_v2.WhileBodyFuncGraph,
    control_flow_util_v2.WhileCondFuncGraph,
)


@contextmanager
def around_branches(around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Within the block, `around` is called with each function that this thread traces as a branch (of an If or a Case),
    or as the condition or the body of a While; the function that it returns is traced instead. Only one thread may be
    in such a block.
    """
    thread, trace = threading.get_ident(), framework_func_graph.func_graph_from_py_func

    def traced(name: str, python_func: Callable[..., Any], *args: Any, func_graph: Any = None, **kwargs: Any) -> Any:
        if isinstance(func_graph, BRANCHES) and threading.get_ident() == thread:
            python_func = around(python_func)
        return trace(name, python_func, *args, func_graph=func_graph, **kwargs)

    framework_func_graph.func_graph_from_py_func = traced
    try:
        yield
    finally:
        framework_func_graph.func_graph_from_py_func = trace


def branches_of(op: Any) -> list[Any]:
    """The graphs of the branches of a traced If or Case; empty for other ops. They take all inputs except the first."""
    return list(cond_v2.get_func_graphs(op)) if op.type in ("If", "StatelessIf", "Case", "StatelessCase") else []


def loop_of(op: Any) -> tuple[Any, Any] | None:
    """The graphs of (the condition, the body) of a traced While; None for any other op."""
    if op.type not in ("While", "StatelessWhile"):
        return None
    return while_v2._get_graph(op, "cond", "_cond_graph"), while_v2._get_graph(op, "body", "_body_graph")


WRAPPER = "cflow_gradient_wrapper"


def wrapped_graph(op: Any) -> Any:
    """The graph of the function that TensorFlow puts around a branch or a loop under a persistent tape, or under one
    tape within another; None for any other op. The graph takes all inputs of the op.
    """
    name = op.get_attr("f").name if op.type in ("PartitionedCall", "StatefulPartitionedCall") else ""
    return called_graph(op) if WRAPPER in name else None


def called_graph(op: Any) -> Any:
    """The graph of the function that a traced op calls; None for any other op, or if no graph was traced for it."""
    if op.type not in ("PartitionedCall", "StatefulPartitionedCall"):
        return None
    graph = op.graph
    while graph is not None:
        function = graph._get_function(op.get_attr("f").name)
        if function is not None:
            return getattr(function, "graph", None)
        graph = getattr(graph, "outer_graph", None)
    return None


def has_gradient(op: Any) -> bool:
    """Whether a gradient may flow through a traced op."""
    try:
        return framework_ops.get_gradient_function(op) is not None
    except LookupError:
        return False


def is_step_graph(graph: Any) -> bool:
    """Whether a graph is the graph of a trace itself, or of a branch or a loop in it, but not of a function that it
    calls.
    """
    while isinstance(graph, BRANCHES):
        graph = graph.outer_graph
    function_graph = framework_func_graph.FuncGraph
    return isinstance(graph, function_graph) and not isinstance(graph.outer_graph, function_graph)


def called_graphs() -> Iterator[Any]:
    """The graphs of this process's functions, except Placer's own, and except those of tf.data pipelines, which have
    kernels of their own.
    """
    wrappers = instances_of([structured_function.StructuredFunctionWrapper])
    piped = {id(f.graph) for wrapper in wrappers if (f := getattr(wrapper, "_function", None)) is not None}
    for graph in instances_of([framework_func_graph.FuncGraph]):
        within = graph
        while within is not None and id(within) not in piped:
            within = getattr(within, "outer_graph", None)
        if within is None and not getattr(graph, MARK, False):
            yield graph


def mark_graph() -> None:
    """Mark the graph that is being built as Placer's own."""
    setattr(framework_ops.get_default_graph(), MARK, True)
