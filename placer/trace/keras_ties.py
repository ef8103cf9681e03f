"""What is tied to a tensor as attributes. By Keras, and losses and metrics read it: a mask, and the logits behind
probabilities. By the program: anything.

A graph knows nothing of them. A plain step that returns what Keras tied is traced as one that returns that, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from placer import tf_internals

IN_WORDS = {"mask": "a Keras mask", "logits": "the logits of a Keras activation"}

TENSOR_VALUES = (tf.Tensor, tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)


class Tied(NamedTuple):
    """What a step returned, with what is tied to it: by kind, and by the number of the leaf as text."""

    outputs: Any
    ties: dict[str, dict[str, Any]]

    def tie(self) -> Any:
        """The outputs, with the ties as attributes again."""
        leaves = tf.nest.flatten(self.outputs)
        for kind, by_leaf in self.ties.items():
            for number, tensor in by_leaf.items():
                tf_internals.keras_parts.tie_by_keras(leaves[int(number)], kind, tensor)
        return self.outputs


def with_ties(outputs: Any) -> Any:
    """What a step returned, as `Tied` where Keras tied something to a tensor of it."""
    if isinstance(outputs, Tied):
        return outputs
    ties: dict[str, dict[str, Any]] = {}
    for number, leaf in enumerate(_leaves(outputs)):
        for kind, tensor in _ties(leaf).items():
            ties.setdefault(kind, {})[f"{number:06}"] = tensor  # TensorFlow sorts the keys of dicts
    return Tied(outputs, ties) if ties else outputs


def ties_of(outputs: Any) -> frozenset[tuple[str, int]]:
    """What is tied to what a step returned, or its trace returns (`Tied`): kinds, with the numbers of leaves."""
    found = with_ties(outputs)
    ties = found.ties if isinstance(found, Tied) else {}
    return frozenset((kind, int(number)) for kind, by_leaf in ties.items() for number in by_leaf)


def lost_tie(before: frozenset[tuple[str, int]], outputs: Any) -> str | None:
    """In words, what was tied to outputs of a step and is not in its trace, or the other way round; None where all is.
    A branch or a loop of a trace makes other tensors of what it gives.
    """
    differ = before ^ ties_of(outputs)
    return IN_WORDS[min(differ)[0]] if differ else None


def tie_in(values: Any) -> str | None:
    """In words, what is tied to a tensor of a nested structure, by Keras or by the program; None where nothing is."""
    leaves = _leaves(values)
    return next((IN_WORDS[kind] for leaf in leaves for kind in _ties(leaf)), None) or _attribute_in(leaves)


def attribute_in(values: Any) -> str | None:
    """In words, the attribute that the program put on a tensor of a nested structure; None where there is none."""
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
