"""Functions of TensorFlow's runtime: made of graphs, optimised, called, and removed again."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.core.protobuf import device_properties_pb2, meta_graph_pb2
from tensorflow.python.eager import context as eager_context
from tensorflow.python.eager import execute as eager_execute
from tensorflow.python.framework import function_def_to_graph
from tensorflow.python.grappler import cluster as grappler_cluster
from tensorflow.python.grappler import tf_optimizer

GraphDef = Any
FunctionDef = Any
MARK = "_placer"  # TensorFlow keeps attributes with an underscore, and ignores those that it does not know
_collecting = threading.Lock()


def optimize_graph(graph_def: GraphDef, keep: Sequence[str]) -> GraphDef:
    """Run Grappler's passes over `graph_def`. The tensors and ops named in `keep` stay; ops that they do not need are
    removed.

    Nested function calls are inlined, constants folded, identical ops merged. While and If stay one op each. Grappler
    is always given a CPU-only machine, for two reasons: otherwise it would assume that unplaced ops run on the GPU, and
    could choose tensor layouts that no CPU kernel takes; and to detect devices it would open a session of its own,
    which does not know about logical GPUs.
    """
    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(graph_def)
    meta.collection_def["train_op"].node_list.value.extend(keep)
    config = tf.compat.v1.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.min_graph_nodes = -1
    rewrite.memory_optimization = rewrite.NO_MEM_OPT  # its temporary variables tie ops on several devices together
    rewrite.remapping = rewrite.OFF  # if it fuses Relu with a batch normalization, TensorFlow may refuse the graph
    with grappler_cluster.Provision(devices=[_any_cpu()]) as machine:
        return tf_optimizer.OptimizeGraph(config, meta, cluster=machine)


def _any_cpu() -> Any:
    cpu = device_properties_pb2.NamedDevice(name="/job:localhost/replica:0/task:0/device:CPU:0")
    cpu.properties.type, cpu.properties.num_cores, cpu.properties.frequency = "CPU", 1, 1000
    return cpu


def add_function(function_def: FunctionDef) -> None:
    """Register a function in this process (its first call sends it to the devices that take part)."""
    eager_context.context().add_function_def(function_def)


def new_function(name: str) -> FunctionDef:
    """An empty, stateful FunctionDef."""
    function = function_pb2.FunctionDef()
    function.signature.name = name
    function.signature.is_stateful = True
    return function


@cache
def plain_config() -> bytes:
    """A serialized ConfigProto for functions that run as they are, without optimising again."""
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    return bytes(config.SerializeToString())


def has_function(name: str) -> bool:
    return bool(eager_context.context().has_function(name))


def remove_function(name: str) -> None:
    """Remove a function here and on the workers; lost workers are ignored."""
    context = eager_context.context()
    if context.has_function(name):
        with suppress(tf.errors.OpError):  # on a device that is lost
            context.remove_function(name)


def call_function(name: str, inputs: Sequence[Any], outputs: int, config: bytes) -> list[Any]:
    """Run a registered function as one multi-device op; resource handles stay on the devices that hold them."""
    return eager_execute.execute(  # type: ignore[no-any-return]
        name, outputs, inputs, attrs=("executor_type", "", "config_proto", config), ctx=eager_context.context()
    )


def function_graph(function_def: FunctionDef) -> tuple[GraphDef, dict[str, str]]:
    """(body of a FunctionDef as a GraphDef, arguments as Placeholders; tensor name in the function -> in the graph)."""
    graph_def, names = function_def_to_graph.function_def_to_graph_def(function_def)
    return graph_def, names


def mark_nodes(function_def: FunctionDef, mark: int) -> None:
    """Mark every node of a function, to recognise it in the graphs that TensorFlow makes of the function."""
    for node in function_def.node_def:
        node.attr[MARK].i = mark


@contextmanager
def collected_nodes(mark: int | None = None) -> Iterator[list[Any]]:
    """Within the block, TensorFlow records the graph that each device is given; when the block ends, the list receives
    the NodeDefs of these graphs. mark: only nodes with this mark; None = the nodes of all functions.

    TensorFlow records a function's graphs at its first run. It records all threads into one list, and may even mix the
    graphs of functions that first run at the same time, so nodes are told apart one by one. A lock lets one thread
    collect at a time.
    """
    context = eager_context.context()
    nodes: list[Any] = []
    with _collecting:
        context.enable_graph_collection()
        try:
            yield nodes
            metadata = context.export_run_metadata()
            for function in metadata.function_graphs:
                for graph in function.partition_graphs:
                    nodes.extend(n for n in graph.node if mark is None or (MARK in n.attr and n.attr[MARK].i == mark))
        finally:
            context.disable_graph_collection()
