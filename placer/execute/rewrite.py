"""Mapping -> placed step: the captured function with a device on every node, and its variables on their devices.

The function is not traced or imported again: each captured step has one FunctionDef, and a mapping only writes device
names into a copy of it (docs/decisions/001-function-defs.md).
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Collection, Sequence
from collections.abc import Mapping as MappingABC
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.devices.links.staging import NEVER_COPIED
from placer.devices.variables import new_variable, wait_for
from placer.devices.workers import leftovers
from placer.devices.workers.deadline import waiting
from placer.errors import PlacerError
from placer.execute.ordered_sums import order_sums
from placer.execute.send_recv import bring, chain, connect, spread, stage
from placer.execute.variable_copies import AT_ONCE_BYTES, held_bytes
from placer.trace.capture import Captured
from placer.trace.graph_def.as_function import as_function
from placer.trace.graph_def.node_def import source_of
from placer.trace.random_streams import Draws

XLA_FLAGS, AUTO_JIT = "TF_XLA_FLAGS", "tf_xla_auto_jit"  # the flag is stronger than the options of a call or a session

_serial = itertools.count()


class PlacementError(PlacerError):
    """TensorFlow did not run an op on the device that the mapping says, or did not report where it ran."""


class Template:
    """The FunctionDef of a captured step without devices, from which placed functions are made.

    Arguments in order: those of `Captured.arguments`. host: the device of the step's host ops; "" leaves them to
    TensorFlow. stages_from: as in `Devices`. arrived: positions of the inputs that lie on a GPU already when the step
    is called.
    """

    def __init__(
        self, captured: Captured, host: str = "", stages_from: int | None = None, arrived: Collection[int] = ()
    ) -> None:
        self.captured = captured
        self.host = host
        self.host_ops = dict.fromkeys(captured.host_ops, host)
        self.function_def = _function_def(captured)
        for function in captured.graph_def.library.function:
            if not tf_internals.functions.has_function(function.signature.name):
                tf_internals.functions.add_function(function)
        self.constants = _constant_uses(self.function_def)
        self.staged = {} if stages_from is None or not host else self._at_least(stages_from, arrived)

    def placed(self, name: str, devices: MappingABC[str, str], order: Sequence[str] = (), home: str = "") -> Any:
        """The FunctionDef `name` with node n on devices[n]; constants are copied to where they are used.

        order: nodes that share a device run one after another in this order; variables, which are arguments, may be in
        it. home: the device to which the returned tensors are sent; "" leaves them where they are made.
        """
        placed = type(self.function_def)()
        placed.CopyFrom(self.function_def)
        placed.signature.name = name
        nodes = {node.name: node for node in placed.node_def}
        for node in placed.node_def:
            node.device = devices.get(node.name) or self.host_ops.get(node.name, "")
        for constant, users in self.constants.items():
            spread(placed.node_def, nodes, constant, users)
        if home:
            bring(placed, home)
        stage(placed.node_def, self.staged, self.host)
        order_sums(placed)
        sends = connect(placed.node_def)
        chain(placed.node_def, [name for name in order if name not in self.captured.variables], sends)
        return placed

    def _at_least(self, size_bytes: int, arrived: Collection[int]) -> dict[str, int]:
        """Name -> type of each batch tensor of at least `size_bytes` that lies in the host's memory."""
        found = {}
        arguments = self.function_def.signature.input_arg
        for i, (name, argument) in enumerate(zip(self.captured.input_names, arguments, strict=False)):
            shape = tf.TensorShape(self.captured.nodes[name].attr["shape"].shape)
            dtype = tf.as_dtype(argument.type)
            is_sent = dtype not in NEVER_COPIED and i not in arrived
            if is_sent and (shape.num_elements() or 0) * dtype.size >= size_bytes:
                found[argument.name] = argument.type
        return found


class PlacedStep:
    """A training step under one mapping: call it like the step it was made from.

    variables: node name -> the variable that this step trains, on its device. Other placed steps of the same
    captured step train variables of their own unless they were made from these. draws: counts the steps that drew
    random numbers; set it to continue the stream of other steps.
    """

    def __init__(
        self,
        template: Template,
        devices: Sequence[str],
        sources: MappingABC[str, tf.Variable] | None = None,
        *,
        variables: MappingABC[str, tf.Variable] | None = None,
        order: Sequence[str] = (),
        proven: bool = False,
    ) -> None:
        """devices: TensorFlow's device name per op of the captured graph. sources: the variables that values are copied
        from (default: the user's own); a source that is already on its device is used itself. variables: variables on
        their devices, used as they are. order: as in `Template.placed`. proven: skip the check of the
        first call, because this mapping's placement was verified before.
        """
        captured = template.captured
        self.captured = captured
        self.device_of = {op.name: device for op, device in zip(captured.graph.ops, devices, strict=True)}
        self._mark = next(_serial)
        self.function_name = f"__placer_{captured.graph.fingerprint}_{self._mark}"
        self.draws = Draws()
        self.rebind(variables or self._moved(captured.variables if sources is None else sources, sources is not None))
        placed = template.placed(self.function_name, self.device_of, order, template.host)
        tf_internals.functions.mark_nodes(placed, self._mark)
        tf_internals.functions.add_function(placed)
        sent = len(placed.node_def) if any("/job:worker" in device for device in set(devices)) else 0
        self._finalizer = weakref.finalize(self, _remove, self.function_name, sent, leftovers.times_freed())
        self._finalizer.atexit = False  # the devices may be gone by then
        self._verified = proven

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one real training step, with the arguments of the user's step. The first call verifies where ops ran.

        Raises PlacementError if TensorFlow moved an op.
        """
        return self.captured.pack(self.run_flat(self.captured.flat_inputs(args, kwargs)))

    def run_flat(self, inputs: Sequence[Any]) -> list[Any]:
        """Run one step on flat input tensors, and return its flat outputs."""
        if self._verified:
            return self._call(inputs)
        with tf_internals.functions.collected_nodes(self._mark) as nodes:
            outputs = self._call(inputs)
        self._verify(nodes)
        self._verified = True
        return outputs

    def rebind(self, variables: MappingABC[str, tf.Variable]) -> None:
        """Train these variables from now on; each must be on the device that the mapping says."""
        self.variables = {name: variables[name] for name in self.captured.variables}
        self._tail = [
            *self.captured.feeds.values(),
            *(tf_internals.variables.handle_of(v) for v in self.variables.values()),
        ]

    def close(self) -> None:
        """Remove the function here and on the devices, and let go of the variables; harmless when called twice."""
        with waiting("a mapping was taken down"):
            self.variables, self._tail = {}, []  # a reference to this step must hold no memory on devices
            self._finalizer()

    def _call(self, inputs: Sequence[Any]) -> list[Any]:
        drawn = [self.draws.next()] if self.captured.draws else []
        return tf_internals.functions.call_function(
            self.function_name,
            [*inputs, *drawn, *self._tail],
            len(self.captured.output_names),
            tf_internals.functions.plain_config(),
        )

    def _moved(self, sources: MappingABC[str, tf.Variable], keep: bool) -> dict[str, tf.Variable]:
        # One by one: `Transfers` is faster, but too much data at once has ended workers with little memory to spare.
        moved, under_way, bytes_under_way = {}, list[tf.Variable](), 0
        for name, source in sources.items():
            device = self.device_of[name]
            if keep and source.device == device:
                moved[name] = source
                continue
            moved[name] = new_variable(device, source.value(), trainable=source.trainable)
            under_way.append(moved[name])
            bytes_under_way += held_bytes(source)
            if bytes_under_way > AT_ONCE_BYTES:
                wait_for(under_way)
                under_way, bytes_under_way = [], 0
        wait_for(under_way)
        return moved

    def _verify(self, nodes: Sequence[Any]) -> None:
        """Compare the nodes that the devices were given with the mapping. Raises PlacementError."""
        seen = {node.name: node.device for node in nodes}
        wrong = [n for n, device in self.device_of.items() if seen.get(n, device) != device]
        if not any(name in seen for name in self.device_of):
            raise PlacementError("TensorFlow did not report where it ran the step's ops; the mapping is not proven.")
        if wrong:
            first = wrong[0]
            raise PlacementError(
                f"{len(wrong)} ops did not run where they were mapped, first {first!r}: "
                f"{self.device_of[first]} was asked for, {seen[first]} ran it."
            )


def _remove(function_name: str, ops: int, made_at: int) -> None:
    """Remove a placed step's function. ops: how many were sent to workers. made_at: as in `leftovers.add`."""
    tf_internals.functions.remove_function(function_name)
    leftovers.add(ops, made_at)


def _function_def(captured: Captured) -> Any:
    """The captured GraphDef as one FunctionDef whose variable updates are control outputs."""
    arguments = {name: _argument_type(captured, name) for name in captured.arguments}
    function = as_function(captured.graph_def, arguments, captured.output_names, captured.writes)
    function_def = function.function_def
    function_def.signature.is_stateful = True
    clusters = AUTO_JIT in os.environ.get(XLA_FLAGS, "")
    for node in function_def.node_def:
        node.attr.pop("_output_shapes", None)
        if clusters:  # XLA would make one op of many, which hides where these ran, and how long each took
            node.attr["_XlaCompile"].b = False
    return function_def


def _argument_type(captured: Captured, name: str) -> tf.DType:
    if name in captured.variables:
        return tf.resource
    return tf.as_dtype(captured.nodes[name].attr["dtype"].type)


def _constant_uses(function_def: Any) -> dict[str, list[str]]:
    """Constant -> the nodes that use it, in order."""
    uses: dict[str, list[str]] = {node.name: [] for node in function_def.node_def if node.op == "Const"}
    for node in function_def.node_def:
        for source in {source_of(i) for i in node.input}:
            if source in uses:
                uses[source].append(node.name)
    return uses
