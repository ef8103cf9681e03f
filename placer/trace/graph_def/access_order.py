"""Keeps the order of ops on one variable, and of checks and what they guard, while control edges are dropped.

write ──^──▶ constant ──▶ read        the constant is ready from the start, so its control edge goes,
  └─────────────^──────────▶          and this one comes in its place
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from placer.trace.graph_def.node_def import called, source_of

READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd"})
RESOURCE = tf.resource.as_datatype_enum
CHECKS = frozenset({"Assert", "CheckNumerics", "CheckNumericsV2"})  # if one raises, no write that waits for it runs
RAISED = ("assertion failed", "Tensor had ")  # parts of the checks' error messages
HARMLESS = READS | {"VariableShape", "VarIsInitializedOp"}  # two of these on one variable may run in any order
# Ops that run functions: attribute -> the input that is the function's first argument.
FIRST_ARGUMENT = {"f": 0, "cond": 0, "body": 0, "then_branch": 1, "else_branch": 1, "branches": 1}
RUN_FUNCTIONS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf",
                           "Case", "StatelessCase"})  # fmt: skip


class AccessOrder:
    """The order, by any path, of the ops of a graph that take the same handle, and of writes and the checks before
    them.
    """

    def __init__(self, graph_def: Any) -> None:
        """graph_def: later changes may drop inputs of its nodes, but no node."""
        self._nodes = _in_order(graph_def.node)
        self._given, self._handles = _handles(self._nodes)
        functions = {function.signature.name: function for function in graph_def.library.function}
        raising = _with_checks(functions)
        self._checks = [node.name for node in self._nodes if _may_raise(node, raising)]
        self._bit = {name: 1 << i for i, name in enumerate(dict.fromkeys((*self._handles, *self._checks)))}
        self._before: dict[str, int] = {}
        for node in self._nodes:
            self._before[node.name] = self._inherited(node, self._before)
        self._writes: list[str] = []
        self._conflicts = dict(self._conflicting(functions))

    def restore(self) -> None:
        """Add the control edges that the order has lost: each op waits again for the ops on its handles that it came
        after, and each write also for the checks that it came after.
        """
        now: dict[str, int] = {}
        for node in self._nodes:
            waits = self._inherited(node, now)
            for other in self._conflicts.get(node.name, ()):
                if self._before[node.name] & self._bit[other] and not waits & self._bit[other]:
                    node.input.append(f"^{other}")
                    waits |= now[other] | self._bit[other]
            now[node.name] = waits

    def first_open(self) -> tuple[str, str] | None:
        """Two ops on one variable that may run in any order, at least one of which may write it; None if there are
        none.
        """
        variables = {node.name for node in self._nodes if node.op == "VarHandleOp"}
        for name, others in self._conflicts.items():
            for other in others:
                both = variables.intersection(self._handles[name], self._handles.get(other, ()))
                if both and not self._before[name] & self._bit[other]:
                    return other, name
        return None

    def has_loose_check(self) -> bool:
        """Whether nothing orders some check and some write, so that what is written may differ if the check raises."""
        return any(
            not self._before[write] & self._bit[check] and not self._before[check] & self._bit[write]
            for write in self._writes
            for check in self._checks
        )

    def _conflicting(self, functions: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
        """Each op that takes a handle, with the ops before it on that handle, the last first, unless both only read it.
        An op that may write it also gets the checks that it comes after, the last first, and is added to `_writes`.
        """
        earlier: defaultdict[str, list[tuple[str, bool]]] = defaultdict(list)
        for node in (node for node in self._nodes if node.name in self._handles):
            found: list[str] = []
            writes = False
            for handle in self._handles[node.name]:
                reads = _only_reads(node, self._inputs_of(node, handle), functions)
                found += [name for name, also in reversed(earlier[handle]) if not (reads and also)]
                earlier[handle].append((node.name, reads))
                writes = writes or not reads
            if writes:
                self._writes.append(node.name)
            checks = [check for check in reversed(self._checks) if self._before[node.name] & self._bit[check]]
            yield node.name, [*found, *checks] if writes else found

    def _inputs_of(self, node: Any, handle: str) -> list[int]:
        """The positions of the inputs of a node that take a handle."""
        texts = enumerate(node.input)
        return [i for i, text in texts if not text.startswith("^") and self._given.get(source_of(text)) == handle]

    def _inherited(self, node: Any, found: dict[str, int]) -> int:
        """The accesses and checks that a node waits for, as bits. found: the same bits of the nodes before it."""
        waits = 0
        for source in map(source_of, node.input):
            waits |= found.get(source, 0) | self._bit.get(source, 0)
        return waits


def _with_checks(functions: Mapping[str, Any]) -> set[str]:
    """The names of the functions that hold a check, or run one that does."""
    found: set[str] = set()
    count = -1
    while count != len(found):
        count = len(found)
        found.update(
            name
            for name, function in functions.items()
            if name not in found and any(_may_raise(node, found) for node in function.node_def)
        )
    return found


def _may_raise(node: Any, raising: Collection[str]) -> bool:
    """Whether an op is a check, or runs one of the functions `raising`."""
    return node.op in CHECKS or (node.op in RUN_FUNCTIONS and any(name in raising for name in called(node)))


def _in_order(nodes: Iterable[Any]) -> list[Any]:
    """The nodes in topological order; nodes of a cycle, or after one, come last, as in loops of TensorFlow 1."""
    by_name = {node.name: node for node in nodes}
    left = {name: len({s for s in map(source_of, node.input) if s in by_name}) for name, node in by_name.items()}
    users: defaultdict[str, list[str]] = defaultdict(list)
    for name, node in by_name.items():
        for source in dict.fromkeys(map(source_of, node.input)):
            users[source].append(name)
    ready = [name for name, count in left.items() if not count]
    for name in ready:  # grows meanwhile
        for user in users[name]:
            left[user] -= 1
            if not left[user]:
                ready.append(user)
    there = set(ready)
    return [by_name[name] for name in (*ready, *(name for name in by_name if name not in there))]


def _handles(nodes: Iterable[Any]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """(Node that gives a handle -> the handle, other op -> the handles that it takes). An Identity gives the handle
    that it takes. nodes: in topological order.
    """
    of: dict[str, str] = {}
    found: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        taken = (of[s] for text in node.input if not text.startswith("^") and (s := source_of(text)) in of)
        if node.op == "VarHandleOp" or (node.op == "Placeholder" and node.attr["dtype"].type == RESOURCE):
            of[node.name] = node.name
        elif handles := tuple(dict.fromkeys(taken)):
            if node.op == "Identity":
                of[node.name] = handles[0]
            else:
                found[node.name] = handles
    return of, found


def _only_reads(node: Any, taken: Collection[int], functions: Mapping[str, Any]) -> bool:
    """Whether an op, and the functions that it runs, only read the variable whose handle it takes as these inputs."""
    if node.op not in RUN_FUNCTIONS:
        return node.op in HARMLESS
    return bool(taken) and all(_reads_argument(node, i, functions, frozenset()) for i in taken)


def _reads_argument(node: Any, position: int, functions: Mapping[str, Any], within: frozenset[str]) -> bool:
    """Whether the functions that an op runs only read the variable that is the op's input at `position`."""
    for attribute, first in FIRST_ARGUMENT.items():
        value = node.attr.get(attribute)
        for run in () if value is None else [value.func] if value.func.name else value.list.func:
            function = functions.get(run.name)
            if function is None or position < first or run.name in within:
                return False
            argument = function.signature.input_arg[position - first].name
            if not _reads(argument, function.node_def, functions, within | {run.name}):
                return False
    return True


def _reads(name: str, nodes: Iterable[Any], functions: Mapping[str, Any], within: frozenset[str]) -> bool:
    """Whether the nodes of a function only read the variable whose handle `name` gives them."""
    for node in nodes:
        for i, text in enumerate(node.input):
            if source_of(text) != name or text.startswith("^"):
                continue
            if node.op == "Identity":
                only_reads = _reads(node.name, nodes, functions, within)
            elif node.op in RUN_FUNCTIONS:
                only_reads = _reads_argument(node, i, functions, within)
            else:
                only_reads = node.op in HARMLESS
            if not only_reads:
                return False
    return True
