"""Takes batches out of a step's iterators and passes them to it, so that a step can be repeated on the same batch.

This is possible if the traced graph always takes exactly one element from each iterator that it is given. A step that
uses an iterator in any other manner cannot be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.errors import BadInputError
from placer.trace.graph_def.node_def import parse_input, set_inputs, source_of
from placer.trace.op_counts.flops import CALLS
from placer.trace.signature import Layout

NEXT = "IteratorGetNext"


class NoBatchError(Exception):
    """An iterator has ended, or failed.

    tensors: the call's flat tensors. Each iterator before the one that ended or failed is replaced by its next element,
    and an iterator that failed is replaced by one that has ended. asked: the positions of the iterators whose element
    was taken. failed: what the iterator raised; None if it has ended.
    """

    def __init__(self, tensors: Sequence[Any], asked: Sequence[int], failed: tf.errors.OpError | None = None) -> None:
        super().__init__("an iterator has no batch")
        self.tensors, self.asked, self.failed = tensors, asked, failed


@dataclass(frozen=True)
class Feeding:
    """The iterators among a call's flat tensors: position -> TypeSpec of an element."""

    elements: Mapping[int, Any]

    @classmethod
    def of(cls, layout: Layout) -> Feeding | None:
        """The iterators of a layout; None if it has none."""
        found = dict(_iterators(layout))
        return cls(found) if found else None

    def taken(self, tensors: Sequence[Any]) -> list[Any]:
        """`tensors` with each iterator replaced by its next element. Raises NoBatchError if one has ended or failed."""
        found: list[Any] = []
        asked: list[int] = []
        for i, tensor in enumerate(tensors):
            if i not in self.elements:
                found.append(tensor)
                continue
            try:
                found += self._next(i, tensor)
            except tf.errors.OutOfRangeError:
                raise NoBatchError([*found, *tensors[i:]], asked) from None
            except tf.errors.OpError as error:
                end = ended(self.elements[i])
                if end is None:
                    raise
                resources = tf.nest.flatten(end, expand_composites=True)
                raise NoBatchError([*found, *resources, *tensors[i + 1 :]], asked, error) from None
            asked.append(i)
        return found

    @contextmanager
    def lent(self, tensors: Sequence[Any], asked: Collection[int] | None = None) -> Iterator[list[Any]]:
        """The inverse of `taken`: the tensors of each element are replaced by an iterator over that one element. asked:
        the positions of the iterators whose elements are in `tensors`; None for all.
        """
        asked = self.elements if asked is None else asked
        left, found, held = iter(tensors), [], []
        for i in range(self._width(len(tensors), asked)):
            if i in asked:
                spec = self.elements[i]
                held.append(_over_one([next(left) for _ in tf.nest.flatten(spec)], spec))
                found += tf.nest.flatten(held[-1], expand_composites=True)
            else:
                found.append(next(left))
        yield found

    def shapes(self, tensors: Sequence[Any]) -> dict[int, list[Any]]:
        """Position of each iterator -> the shapes of its element. tensors: as `taken` returns them."""
        left, found = iter(tensors), {}
        for i in range(self._width(len(tensors), self.elements)):
            parts = [next(left) for _ in tf.nest.flatten(self.elements[i])] if i in self.elements else [next(left)]
            if i in self.elements:
                found[i] = [part.shape for part in parts]
        return found

    def _next(self, position: int, iterator: Any) -> list[Any]:
        specs = tf.nest.flatten(self.elements[position])
        types, shapes = [spec.dtype for spec in specs], [spec.shape for spec in specs]
        return list(tf.raw_ops.IteratorGetNext(iterator=iterator, output_types=types, output_shapes=shapes))

    def _width(self, taken: int, asked: Collection[int]) -> int:
        """The number of a call's flat tensors. taken: their number once the iterators at `asked` gave elements."""
        return taken - sum(len(tf.nest.flatten(self.elements[i])) - 1 for i in asked)


def ended(spec: Any) -> Any:
    """An iterator over elements of type `spec` that has ended; None if the elements are not only plain tensors."""
    leaves = tf.nest.flatten(spec)
    if not all(isinstance(leaf, tf.TensorSpec) and leaf.dtype.is_numpy_compatible for leaf in leaves):
        return None

    def element(_: Any) -> tuple[Any, ...]:  # only traced
        return tuple(tf.zeros([size or 0 for size in leaf.shape or ()], leaf.dtype) for leaf in leaves)

    with tf.device("/device:CPU:0"):
        return _typed(tf.data.Dataset.range(0).map(element), spec)


def unrepeatable(layout: Layout, concrete: Any) -> str | None:
    """Why a step cannot be repeated with the same arguments, in words; None if it can."""
    leaves = list(_placed_leaves(layout))
    if any(isinstance(leaf, tf.data.DatasetSpec) for _, leaf in leaves):
        return "it takes a whole dataset; pass batches, or iter(dataset) and take one batch a step"
    specs = [spec for _, spec in _iterators(layout)]
    if any(not isinstance(part, tf.TensorSpec) for spec in specs for part in tf.nest.flatten(spec)):
        return "its iterator yields ragged or sparse tensors; pass the batch instead"
    graph_def = concrete.graph.as_graph_def()
    functions = {function.signature.name: function for function in graph_def.library.function}
    captured = {inner.op.name for _, inner in concrete.graph.captures}
    given = {t.op.name for t in concrete.inputs if t.dtype == tf.resource} - captured
    if len(given) > len(specs):
        return "it takes a tf.Variable, or another resource, as an argument; have it use that from outside"
    if any(_takes(graph_def.node, name, functions) != [NEXT] for name in given):
        return "it does not take exactly one batch from its iterator each time; pass the batch instead"
    if any(_is_iterator(outer) for outer, _ in concrete.graph.captures):
        return "it takes batches from an iterator that it was not given; pass the iterator, or the batch"
    return None


def several(layout: Layout) -> str | None:
    """Why batches must not be taken for a plain step with these arguments, in words; None if they may. With several
    iterators, the order in which the step asks them decides which of them have moved when one ends.
    """
    if len(list(_iterators(layout))) < 2:
        return None
    return (
        "it takes batches from several iterators, in an order that decides which have moved when one ends; pass the "
        "batches"
    )


def fed(graph_def: Any, iterator: str, shapes: Sequence[Any]) -> tuple[Any, list[str], str]:
    """Replace the input `iterator` by Placeholders of these shapes for its element.

    Returns (the new graph, the names of the Placeholders, the node that took the element). Raises BadInputError if the
    step does not take exactly one element.
    """
    users = [node for node in graph_def.node if iterator in map(source_of, node.input)]
    if [node.op for node in users] != [NEXT]:
        raise BadInputError(f"the step does not take exactly one batch from its iterator {iterator!r}; pass the batch.")
    taker = users[0]
    types = list(taker.attr["output_types"].list.type)
    names = [f"{taker.name}/element_{i}" for i in range(len(types))]
    renamed = type(graph_def)()
    renamed.CopyFrom(graph_def)
    del renamed.node[:]
    renamed.node.extend(node for node in graph_def.node if node.name not in (taker.name, iterator))
    for node in renamed.node:
        kept = [text for text in node.input if text != f"^{taker.name}"]
        set_inputs(node, [redirect_element(text, taker.name, names) for text in kept])
    for name, dtype, shape in zip(names, types, shapes, strict=True):
        node = renamed.node.add(name=name, op="Placeholder")
        node.attr["dtype"].type = dtype
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    return renamed, names, taker.name


def redirect_element(text: str, taker: str, names: Sequence[str]) -> str:
    """An input or output text, "taker:1", redirected from the taker to the element's Placeholder."""
    source, output = parse_input(text)
    return text if source != taker or output < 0 else f"{names[output]}:0"


def _placed_leaves(layout: Layout) -> Iterator[tuple[int, Any]]:
    """(position of its first flat tensor, TypeSpec) of each tensor leaf."""
    at = 0
    for leaf, is_tensor in zip(layout.leaves, layout.are_tensors, strict=True):
        if is_tensor:
            yield at, leaf
            at += len(tf.nest.flatten(leaf, expand_composites=True))


def _iterators(layout: Layout) -> Iterator[tuple[int, Any]]:
    """(position among the flat tensors, TypeSpec of an element) of each iterator."""
    for i, leaf in _placed_leaves(layout):
        if isinstance(leaf, tf.data.IteratorSpec):
            yield i, tf_internals.resources.element_spec(leaf)


def _is_iterator(captured: Any) -> bool:
    return captured.dtype == tf.resource and "IteratorResource" in repr(captured)


def _over_one(parts: Sequence[Any], spec: Any) -> Any:
    """An iterator over one element made of `parts`, with element type `spec`."""
    with tf.device("/device:CPU:0"):
        return _typed(tf.data.Dataset.from_tensors(tuple(parts)), spec)


def _typed(dataset: tf.data.Dataset, spec: Any) -> Any:
    """An iterator over a dataset of flat elements as elements of type `spec`."""
    return iter(tf.data.experimental.from_variant(tf.data.experimental.to_variant(dataset), spec))


def _takes(nodes: Any, name: str, functions: Mapping[str, Any]) -> list[str]:
    """The types of the ops that take the resource `name`, also inside called functions."""
    found = []
    for node in nodes:
        for i, text in enumerate(node.input):
            if source_of(text) != name:
                continue
            if node.op == "Identity":
                found += _takes(nodes, node.name, functions)
            elif node.op in CALLS:
                body = functions[node.attr["f"].func.name]
                found += _takes(body.node_def, body.signature.input_arg[i].name, functions)
            else:
                found.append(node.op)
    return found
