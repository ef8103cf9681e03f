"""A call's signature (calls with equal keys share one captured step) and its flat tensors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from placer.errors import BadInputError, one_line
from placer.trace.arrays import bits, converted, spec_of, unread
from placer.trace.declared import Declared

VALUES = 3  # different values of a number, until it counts as a tensor
KINDS = 64  # kinds of calls whose numbers are remembered
MOST_INT, MOST_FLOAT = 2**30, 1e38


class Signatures:
    """A reader of a step's calls: calls have equal keys if one captured step serves both.

    A Python number (not a bool) is a constant until its argument has had VALUES different values in calls that differ
    only in their numbers. From then on it counts as a scalar tensor, and one captured step serves all its values.
    """

    def __init__(self, *, plain: bool = False, declared: Declared | None = None) -> None:
        """plain: whether the step is not a tf.function, and so is given NumPy arrays as they are. Keys then tell arrays
        from tensors, and other objects that could be read as arrays are refused. declared: the input signature of a
        tf.function; None if it has none.
        """
        self._is_plain, self._declared = plain, declared
        self.varied = False  # whether the latest call has numbers that count as tensors
        self.by_value: int | None = None  # hash of the latest call, with numbers by value; None if it has none
        self._seen: dict[Hashable, dict[int, set[Hashable]]] = {}

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> tuple[Hashable, list[Any]]:
        """Return the key and the flat tensors of a call; among the tensors, arrays are as `unread` returns them. Keys
        tell apart structures, types and shapes of tensors, and constants.

        Hashable constants (numbers, strings, ...) are compared by value, other objects by identity. This runs on every
        step, so calls with only tensors have a fast path. Raises BadInputError for arguments that TensorFlow cannot
        flatten.
        """
        args, kwargs = self._declared.given(args, kwargs) if self._declared else (args, kwargs)
        if not kwargs:
            tensors = _plain(args)
            if tensors is not None:
                self.varied, self.by_value = False, None
                key: Hashable = tuple(map(_leaf_key, tensors))
                return (key, tuple(map(type, args))) if self._is_plain else key, tensors
        args, kwargs = self._given(args, kwargs)
        leaves = _leaves(args, kwargs, unread)
        self.varied, self.by_value = False, None
        structure = _structure((tuple(args), dict(kwargs or {})))
        numbers = [i for i, leaf in enumerate(leaves) if type(leaf) in (int, float)]
        if numbers:
            # By their text, because Python's hashes of -1 and -2 are equal.
            self.by_value = hash((structure, tuple(repr(x) if type(x) is int else _leaf_key(x) for x in leaves)))
            for i in self._varying(structure, leaves, numbers):
                leaves[i], self.varied = _number(leaves[i]), True
        key = structure, tuple(_leaf_key(leaf) for leaf in leaves)
        return (key, self._arrays(args, kwargs)) if self._is_plain else key, _flat(leaves)

    def forget(self) -> None:
        """Forget earlier calls, because what is remembered of them may hold the user's objects."""
        self._seen.clear()

    def _given(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> tuple[Sequence[Any], Mapping[str, Any] | None]:
        """A call's arguments. For a plain step, np.float64 values become Python floats: as tensors of float64 they
        would not multiply with tensors of float32, as np.float64 values do when the step is not traced.
        """
        if not self._is_plain:
            return args, kwargs
        return tuple(map(_as_float, args)), {name: _as_float(value) for name, value in (kwargs or {}).items()}

    def _arrays(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> tuple[bool, ...]:
        """Whether each leaf is NumPy's. Raises BadInputError for another library's array, which would be a tensor."""
        leaves = tf.nest.flatten((tuple(args), dict(kwargs or {})))
        for leaf in leaves:
            if _is_array(leaf) and not _is_numpy(leaf):
                raise BadInputError(
                    f"the step takes a {type(leaf).__name__}, which a traced step would get as a tensor; pass tensors "
                    "or NumPy arrays."
                )
        return tuple(_is_numpy(leaf) for leaf in leaves)

    def layout(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Layout:
        """The layout of a call whose key `of` gave. Raises BadInputError for plain Python iterators."""
        args, kwargs = self._declared.given(args, kwargs) if self._declared else (args, kwargs)
        args, kwargs = self._given(args, kwargs)
        leaves = _leaves(args, kwargs)
        numbers = [i for i, leaf in enumerate(leaves) if type(leaf) in (int, float)]
        varying = self._varying(_structure((tuple(args), dict(kwargs or {}))), leaves, numbers) if numbers else ()
        return Layout.of(args, kwargs, varying)

    def _varying(self, structure: Hashable, leaves: Sequence[Any], numbers: Sequence[int]) -> list[int]:
        """Record the values of a call's numbers; return the positions of the numbers that count as tensors."""
        kind = structure, tuple(type(x) if i in numbers else _leaf_key(x) for i, x in enumerate(leaves))
        if kind not in self._seen and len(self._seen) >= KINDS:
            self._seen.pop(next(iter(self._seen)))
        seen = self._seen.setdefault(kind, {})
        for i in numbers:
            values = seen.setdefault(i, set())
            if len(values) < VALUES:
                values.add(constant_key(leaves[i]))
        return [i for i in numbers if len(seen[i]) >= VALUES and _fits(leaves[i])]


def flat_tensors(args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
    """The tensors of a call, composite ones flattened, in the order in which a step is captured.

    Raises BadInputError for arguments that TensorFlow cannot flatten.
    """
    return _flat(_leaves(args, kwargs))


def objects_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[int | str, Any]]:
    """(position or name of the argument, leaf) for each leaf of a call's arguments that is no tensor and no array."""
    found: list[tuple[int | str, Any]] = []
    given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for place, value in given:
        if isinstance(value, tf.Tensor):  # the usual argument; asked first, because this runs before each call
            continue
        found += [(place, leaf) for leaf in tf.nest.flatten(value) if not (_is_tensor(leaf) or _is_array(leaf))]
    return found


def parts_of(value: Any) -> Hashable:
    """A key of the current contents of a nested structure: its containers, and the objects in them by identity."""
    return _structure(value), tuple(map(Same, tf.nest.flatten(value)))


@dataclass(frozen=True)
class Layout:
    """How to rebuild a call's arguments from its flat tensors."""

    structure: Any  # (args, kwargs) with the TypeSpec of each tensor in its place
    leaves: tuple[Any, ...]  # the same, flat
    are_tensors: tuple[bool, ...]
    numbers: tuple[int, ...] = ()  # indices of leaves that are Python numbers, and tensors to a captured step
    arrays: tuple[int, ...] = ()  # indices of leaves that are NumPy arrays or scalars, and tensors to a captured step

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, numbers: Sequence[int] = ()) -> Layout:
        """The layout of a call. numbers: indices of Python numbers that count as tensors.

        Raises BadInputError for Python iterators, and for containers that TensorFlow cannot build again.
        """
        given = _leaves(args, kwargs)
        for i in numbers:
            given[i] = _number(given[i])
        for leaf in given:
            if hasattr(type(leaf), "__next__") and not _is_composite(leaf):
                kind = type(leaf).__name__
                raise BadInputError(
                    f"the step takes a {kind}, which a traced step would read only once; pass iter(tf.data.Dataset)."
                )
        leaves = tuple(_spec(leaf) if _is_tensor(leaf) else leaf for leaf in given)
        call = tuple(args), dict(kwargs or {})
        arrays = tuple(i for i, leaf in enumerate(tf.nest.flatten(call)) if _is_numpy(leaf))
        try:
            structure = tf.nest.pack_sequence_as(call, leaves)
        except Exception as error:  # a container of the user's whose constructor takes something else
            said = one_line(str(error))
            raise BadInputError(f"TensorFlow cannot put the step's arguments together again: {said}") from error
        return cls(structure, leaves, tuple(_is_tensor(leaf) for leaf in given), tuple(numbers), arrays)

    def numbers_of(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[float]:
        """The Python numbers of a call with this layout that a captured step takes as tensors."""
        given = tf.nest.flatten((tuple(args), dict(kwargs or {}))) if self.numbers else []
        return [given[i] for i in self.numbers]

    def numbers_in(self, tensors: Sequence[Any]) -> list[float]:
        """The numbers of `numbers_of`, read from the flat tensors of the call, with the precision of the tensors."""
        if not self.numbers:
            return []
        args, kwargs = self.filled(tensors)
        return [tensor.numpy().item() for tensor in self.numbers_of(args, kwargs)]  # type: ignore[attr-defined]

    @property
    def has_doubles(self) -> bool:
        """Whether an array among the arguments is of float64."""
        return any(getattr(self.leaves[i], "dtype", None) == tf.float64 for i in self.arrays)

    @property
    def number_tensors(self) -> list[int]:
        """The positions of numbers among the flat tensors."""
        return self._places(self.numbers)

    def _places(self, leaves: Sequence[int]) -> list[int]:
        """The positions of these leaves among the flat tensors; each of these leaves is one tensor."""
        found, at = [], 0
        for i, (leaf, is_tensor) in enumerate(zip(self.leaves, self.are_tensors, strict=True)):
            found += [at] if i in leaves else []
            at += len(tf.nest.flatten(leaf, expand_composites=True)) if is_tensor else 0
        return found

    def changed_array(self, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Any]) -> bool:
        """Whether an array of a call with this layout has changed since the call's flat `tensors` were made."""
        given = tf.nest.flatten((tuple(args), dict(kwargs))) if self.arrays else []
        pairs = zip(self.arrays, self._places(self.arrays), strict=True)
        return any(bits(converted(given[i])) != bits(tensors[place]) for i, place in pairs)

    @cached_property
    def specs(self) -> tuple[Any, ...]:
        """A tf.TensorSpec per flat tensor; sizes that may change inside composite tensors are unknown."""
        tensors = [leaf for leaf, is_tensor in zip(self.leaves, self.are_tensors, strict=True) if is_tensor]
        return tuple(tf.nest.flatten(tensors, expand_composites=True))

    def filled(
        self, tensors: Sequence[Any], numbers: Sequence[float] | None = None, *, arrays: bool = False
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) with the flat `tensors` in their places. numbers: Python numbers to put in the places of
        `self.numbers` instead. arrays: whether to put NumPy copies of the tensors in the places of `self.arrays`.
        """
        left, own = iter(tensors), iter(numbers or ())
        leaves = []
        for i, (leaf, is_tensor) in enumerate(zip(self.leaves, self.are_tensors, strict=True)):
            if is_tensor:
                parts = [next(left) for _ in tf.nest.flatten(leaf, expand_composites=True)]
                leaf = tf.nest.pack_sequence_as(leaf, parts, expand_composites=True)
            if numbers is not None and i in self.numbers:
                leaf = next(own)
            elif arrays and i in self.arrays:
                leaf = leaf.numpy().copy()  # else a step that changes its array would change the tensor
            leaves.append(leaf)
        args, kwargs = tf.nest.pack_sequence_as(self.structure, leaves)
        return args, kwargs


@dataclass(frozen=True)
class Same:
    """An object that equals only itself; held, so that its id is not reused."""

    held: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


def _fits(number: float) -> bool:
    """Whether a scalar tensor holds a Python number: a float to seven digits, an int exactly, with room to count on."""
    return abs(number) < (MOST_INT if isinstance(number, int) else MOST_FLOAT)


def _number(number: float) -> Any:
    return tf.constant(number, tf.int32 if isinstance(number, int) else tf.float32)


def _plain(args: Sequence[Any]) -> list[Any] | None:
    """Positional arguments, arrays as `unread` returns them; None if one is neither a tensor nor a NumPy array."""
    tensors = []
    for arg in args:
        if isinstance(arg, tf.Tensor):
            tensors.append(arg)
        elif type(arg) is np.ndarray:
            tensors.append(unread(arg))
        else:
            return None
    return tensors


def _leaves(args: Sequence[Any], kwargs: Mapping[str, Any] | None, read: Callable[[Any], Any] = converted) -> list[Any]:
    """The leaves of the arguments; for arrays, what `read` returns. Raises BadInputError if TensorFlow cannot flatten
    the arguments.
    """
    try:
        found = tf.nest.flatten((tuple(args), dict(kwargs or {})))
    except Exception as error:  # whatever a container of the user's raises
        raise BadInputError(f"TensorFlow cannot take the step's arguments apart: {one_line(str(error))}") from error
    return [read(leaf) if _is_array(leaf) else leaf for leaf in found]


def _flat(leaves: Sequence[Any]) -> list[Any]:
    tensors: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, (tf.Tensor, np.ndarray)):
            tensors.append(leaf)
        elif _is_composite(leaf):
            tensors += tf.nest.flatten(leaf, expand_composites=True)
    return tensors


def _as_float(value: Any) -> Any:
    return float(value) if type(value) is np.float64 else value


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, tf.Tensor) or _is_composite(leaf)


def _is_composite(leaf: Any) -> bool:
    """Whether a leaf wraps tensors: a ragged or sparse tensor, an iterator, a dataset. Variables count as objects."""
    return isinstance(leaf, tf.__internal__.CompositeTensor) and not isinstance(leaf, tf.Variable)


def _is_array(leaf: Any) -> bool:
    """Whether NumPy can read the leaf as an array; objects with `assign` are variables of some library, not arrays."""
    if isinstance(leaf, (tf.Tensor, tf.Variable, type)):
        return False
    return hasattr(type(leaf), "__array__") and not hasattr(type(leaf), "assign")


def _is_numpy(leaf: Any) -> bool:
    """Whether a leaf is an array or a scalar of NumPy itself, which can be recovered from a tensor of it."""
    return type(leaf) is np.ndarray or isinstance(leaf, np.generic)


def _spec(leaf: Any) -> Any:
    if _is_composite(leaf):
        return tf.type_spec_from_value(leaf)
    return tf.TensorSpec(leaf.shape, leaf.dtype)


def _leaf_key(leaf: Any) -> Hashable:
    if isinstance(leaf, tf.Tensor):
        return (leaf.dtype, leaf.shape)
    if type(leaf) is np.ndarray:
        return spec_of(leaf)
    if _is_composite(leaf):
        return tf.type_spec_from_value(leaf)  # type: ignore[no-any-return]
    return constant_key(leaf)


def constant_key(value: Any) -> Hashable:
    """A key by type and value: 1, 1.0 and True differ, NaN equals itself."""
    if isinstance(value, float):
        return (float, value.hex())
    try:
        hash(value)
    except TypeError:
        return Same(value)
    return (type(value), value)


def _structure(value: Any) -> Hashable:
    """The containers of a nested structure without their leaves; None for a leaf."""
    if not tf.nest.is_nested(value):
        return None
    if isinstance(value, Mapping):
        return (type(value), tuple((key, _structure(value[key])) for key in value))
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(_structure(item) for item in value))
    if hasattr(value, "__tf_flatten__"):
        metadata, parts = value.__tf_flatten__()
        return (type(value), constant_key(metadata), tuple(_structure(part) for part in parts))
    if hasattr(value, "__attrs_attrs__"):
        fields = [field.name for field in value.__attrs_attrs__]
        return (type(value), tuple((field, _structure(getattr(value, field))) for field in fields))
    return (type(value), len(tf.nest.flatten(value)))
