"""Adds what a mapping needs to the captured function: copies of constants and batches, transfers, run order of ops.

TensorFlow starts its own transfers whenever its executor gets to them, and its executor takes ready ops in an order
that changes during training. Both are fixed here instead (docs/decisions/003-transfers.md, 006-run-order.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingABC
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.trace.graph_def.node_def import source_of

Nodes = Any
"""The repeated NodeDef field of a GraphDef or FunctionDef."""

HANDLES = frozenset({tf.resource.as_datatype_enum, tf.variant.as_datatype_enum})
# oneDNN fuses these with the BiasAdd that follows, but only if neither has a control input.
FUSED_WITH_BIAS = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul"})


def spread(nodes: Nodes, by_name: MappingABC[str, Any], constant: str, users: Iterable[str]) -> None:
    """Add to `nodes` one copy of a constant per device that uses it, which saves a transfer."""
    original = by_name[constant]
    copies = {"": original}
    for user in users:
        device = by_name[user].device
        if not original.device:
            original.device = device
            copies[device] = original
        if device not in copies:
            copy = nodes.add()
            copy.CopyFrom(original)
            copy.name, copy.device = f"{constant}/copy_{len(copies)}", device
            copies[device] = copy
        if copies[device] is not original:
            _rename_input(by_name[user], constant, copies[device].name)


def stage(nodes: Nodes, arguments: MappingABC[str, int], host: str, kind: str = "GPU") -> None:
    """Copy arguments to pinned memory at `host`, once for all devices of a kind in its process that use them.

    arguments: name -> type. host: a full device name.
    """
    near = f"{host.partition('/device:')[0]}/device:{kind}:"
    staged: set[str] = set()
    for node in nodes:
        if not node.device.startswith(near):
            continue
        for i, text in enumerate(node.input):
            if text in arguments:
                node.input[i] = f"{text}/staged:y:0"
                staged.add(text)
    for argument in sorted(staged):
        copy = nodes.add(name=f"{argument}/staged", op="DeepCopy", device=host, input=[argument])
        copy.attr["T"].type = arguments[argument]


def bring(function_def: Any, host: str) -> None:
    """Send the tensors that a placed function returns to `host` before it ends, because fetching each one afterwards
    would cost a round trip. Handles stay where they are.
    """
    device = {node.name: node.device for node in function_def.node_def}
    for argument in function_def.signature.output_arg:
        text = function_def.ret[argument.name]
        if argument.type in HANDLES or device.get(source_of(text), host) == host:
            continue
        node = function_def.node_def.add(name=f"{argument.name}/returned", op="Identity", device=host, input=[text])
        node.attr["T"].type = argument.type
        function_def.ret[argument.name] = f"{node.name}:output:0"


def connect(nodes: Nodes) -> dict[str, list[str]]:
    """Send every cut tensor once to each device that needs it. Returns node -> the nodes that send its tensors.

    Between CPUs of two processes this adds our own _Send and _Recv. Elsewhere TensorFlow adds them, because it knows
    which tensors are in host memory; there each cut tensor gets an Identity ("relay") at the end of the function.
    """
    device = {node.name: node.device for node in nodes}
    incarnations = tf_internals.devices.incarnations()
    there: dict[tuple[str, str], str] = {}
    added: list[Any] = []
    sends: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        for i, text in enumerate(node.input):
            source = source_of(text)
            at = device.get(source, "")
            if not at or at == (node.device or at) or text.startswith("^"):
                continue
            if (text, node.device) not in there:
                crossing = _Crossing(text, tf_internals.op_types.input_type(node, i), at, node.device, len(there))
                if _are_cpus_apart(at, node.device):
                    added += crossing.pair(incarnations[at])
                    sends[source].append(crossing.send_name)
                    there[text, node.device] = f"{crossing.receive_name}:tensor:0"
                else:
                    added.append(crossing.relay())
                    there[text, node.device] = f"{crossing.relay_name}:output:0"
            node.input[i] = there[text, node.device]
    nodes.extend(added)
    return sends


def chain(nodes: Nodes, order: Sequence[str], sends: MappingABC[str, Sequence[str]]) -> None:
    """Make each node of `order` wait until the node before it on its device has run, and its tensors are sent.

    `order` must be topological.
    """
    by_name = {node.name: node for node in nodes}
    heads = _heads(nodes, by_name, set(order))
    last: dict[str, str] = {}
    for name in order:
        node = by_name[name]
        before = last.get(node.device)
        if before is not None:
            first, waits = heads.get(name, node), sends.get(before) or [before]
            if waits != [before] or before not in map(source_of, first.input):  # else it waits for `before` anyway
                _gate(nodes, first, waits)
        last[node.device] = name


class _Crossing:
    """One tensor on its way from one device to another."""

    def __init__(self, text: str, dtype: int, src: str, dst: str, number: int) -> None:
        self.text, self.dtype, self.src, self.dst = text, dtype, src, dst
        self.tensor_name = f"edge_{number}_{source_of(text)}"  # as TensorFlow names its own, which traces show
        stem = f"{source_of(text)}/cut_{number}"
        self.send_name, self.receive_name, self.relay_name = f"{stem}_send", f"{stem}_recv", f"{stem}_relay"

    def pair(self, incarnation: int) -> tuple[Any, Any]:
        """The _Send and _Recv that TensorFlow's partitioner would add, but with names that other nodes can wait for."""
        send = tf.compat.v1.NodeDef(name=self.send_name, op="_Send", device=self.src, input=[self.text])
        send.attr["T"].type = self.dtype
        receive = tf.compat.v1.NodeDef(name=self.receive_name, op="_Recv", device=self.dst)
        receive.attr["tensor_type"].type = self.dtype
        for node in (send, receive):
            node.attr["tensor_name"].s = self.tensor_name.encode()
            node.attr["send_device"].s = self.src.encode()
            node.attr["send_device_incarnation"].i = incarnation
            node.attr["recv_device"].s = self.dst.encode()
            node.attr["client_terminated"].b = False
        return send, receive

    def relay(self) -> Any:
        """The tensor's consumer on the receiving device; because it is the last node, its send starts first."""
        relay = tf.compat.v1.NodeDef(name=self.relay_name, op="Identity", device=self.dst, input=[self.text])
        relay.attr["T"].type = self.dtype
        return relay


def _heads(nodes: Nodes, by_name: MappingABC[str, Any], ordered: set[str]) -> dict[str, Any]:
    """BiasAdd -> the node before it, for those that oneDNN fuses into one kernel."""
    readers = Counter(source_of(text) for node in nodes for text in node.input)
    heads = {}
    for node in nodes:
        before = by_name.get(source_of(node.input[0])) if node.op == "BiasAdd" else None
        if before is None or before.op not in FUSED_WITH_BIAS or before.device != node.device:
            continue
        if readers[before.name] == 1 and before.name not in ordered:
            heads[node.name] = before
    return heads


def _gate(nodes: Nodes, node: Any, waits: Sequence[str]) -> None:
    """Make `node` wait for `waits`, by an Identity before its first tensor, because a control input would keep oneDNN
    from fusing it. A node without tensor inputs gets control inputs itself.
    """
    for i, text in enumerate(node.input):
        dtype = -1 if text.startswith("^") else tf_internals.op_types.input_type(node, i)
        if dtype != -1 and dtype not in HANDLES:
            gate = nodes.add(name=f"{node.name}/gate", op="Identity", device=node.device)
            gate.attr["T"].type = dtype
            gate.input.extend([text, *(f"^{name}" for name in waits)])
            node.input[i] = f"{gate.name}:output:0"
            return
    node.input.extend(text for name in waits if (text := f"^{name}") not in node.input)


def _are_cpus_apart(a: str, b: str) -> bool:
    """Whether two full device names are CPUs of different processes."""
    task_a, _, device_a = a.partition("/device:")
    task_b, _, device_b = b.partition("/device:")
    return task_a != task_b and device_a.startswith("CPU") and device_b.startswith("CPU")


def _rename_input(node: Any, old: str, new: str) -> None:
    for i, text in enumerate(node.input):
        if source_of(text) == old:
            node.input[i] = text.replace(old, new, 1)
