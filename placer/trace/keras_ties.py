"""Finds the values that are tied to a tensor as attributes.

Keras ties a mask, and the logits behind probabilities, which losses and metrics read. The program may tie anything. A
graph does not hold such attributes, so a plain step whose outputs have Keras's is traced as one that returns them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from placer import tf_internals

IN_WORDS = {"mask": "a Keras mask", "logits": "the logits of a Keras activation"}

TENSOR_VALUES = (tf.Tensor, tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)


class Tied(NamedTuple):
    """The outputs of a step, and what Keras tied to them: kind -> number of the leaf, as text -> tensor."""

    outputs: Any
    ties: dict[str, dict[str, Any]]

    def tie(self) -> Any:
        """Return the outputs, with the ties set as attributes again."""
        leaves = tf.nest.flatten(self.outputs)
        for kind, by_leaf in self.ties.items():
            for number, tensor in by_leaf.items():
                tf_internals.keras_parts.tie_by_keras(leaves[int(number)], kind, tensor)
        return self.outputs


def with_ties(outputs: Any) -> Any:
    """Return the outputs of a step, as `Tied` if Keras tied something to a tensor among them."""
    if isinstance(outputs, Tied):
        return outputs
    ties: dict[str, dict[str, Any]] = {}
    for number, leaf in enumerate(_leaves(outputs)):
        for kind, tensor in _ties(leaf).items():
            ties.setdefault(kind, {})[f"{number:06}"] = tensor  # TensorFlow sorts the keys of dicts
    return Tied(outputs, ties) if ties else outputs


def ties_of(outputs: Any) -> frozenset[tuple[str, int]]:
    """(kind, number of the leaf) of each tie of the outputs of a step, or of its trace (`Tied`)."""
    found = with_ties(outputs)
    ties = found.ties if isinstance(found, Tied) else {}
    return frozenset((kind, int(number)) for kind, by_leaf in ties.items() for number in by_leaf)


def lost_tie(before: frozenset[tuple[str, int]], outputs: Any) -> str | None:
    """A tie, in words, that the outputs of a step had (`before`) and those of its trace (`outputs`) lack, or the other
    way round; None if both have the same. Ties get lost because a branch or a loop of a trace returns new tensors.
    """
    differ = before ^ ties_of(outputs)
    return IN_WORDS[min(differ)[0]] if differ else None


def tie_in(values: Any) -> str | None:
    """In words, what Keras or the program tied to a tensor of a nested structure; None if nothing is tied."""
    leaves = _leaves(values)
    return next((IN_WORDS[kind] for leaf in leaves for kind in _ties(leaf)), None) or _attribute_in(leaves)


def attribute_in(values: Any) -> str | None:
    """In words, the attribute that the program put on a tensor of a nested structure; None if there is none."""
    return _attribute_in(_leaves(values))


def _attribute_in(leaves: Sequence[Any]) -> str | None:
    tensors = (leaf for leaf in leaves if isinstance(leaf, TENSOR_VALUES))
    name = next(filter(None, map(tf_internals.keras_parts.tied_by_program, tensors)), None)
    return name and f"an attribute of the program's (`{name}`)"


def _ties(leaf: Any) -> dict[str, Any]:
    return tf_internals.keras_parts.tied_by_keras(leaf) if isinstance(leaf, tf.Tensor) else {}


def _leaves(values: Any) -> list[Any]:
    if isinstance(values, tf.Tensor):  # the usual case; this runs at each call of a plain step
        return [values]
    try:
        found: list[Any] = tf.nest.flatten(values)
    except (TypeError, ValueError):  # a dict whose keys have no order, say, which is refused or returned as it is
        return []
    return found
