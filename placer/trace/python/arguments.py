"""The arguments of a call as a part of Python's state: what a step may read and change through them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from placer.errors import BadInputError
from placer.trace.declared import BY_POSITION
from placer.trace.keras_ties import TENSOR_VALUES
from placer.trace.python.kinds import is_plain, is_user_class, own_dict
from placer.trace.signature import objects_of, parts_of

TAKEN = (*TENSOR_VALUES, np.ndarray)  # a trace makes a tensor of its own of each
Subjects = tuple[tuple[str, Any], ...]
"""Objects among the arguments, each with its name: what a step reads of them is a part of Python's state."""


class Parameters:
    """The parameters of a step, which name the arguments of its calls."""

    def __init__(self, step: Any) -> None:
        """step: the user's function, or any other callable."""
        try:
            self._signature: inspect.Signature | None = inspect.signature(step)
        except Exception:  # a callable without a signature, or an object that raises when it is asked for anything
            self._signature = None
        found = self._signature.parameters.values() if self._signature is not None else ()
        self._names = [parameter.name for parameter in found if parameter.kind in BY_POSITION]

    def subjects(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Subjects:
        """The objects among the arguments, neither tensors nor plain; containers are taken apart as TensorFlow does."""
        return tuple(
            (self._name(place), thing) for place, thing in objects_of(args, kwargs or {}) if not is_plain(thing)
        )

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        """The arguments by the names of the parameters; empty if they do not fit."""
        if self._signature is None:
            return {}
        try:
            return dict(self._signature.bind(*args, **(kwargs or {})).arguments)
        except TypeError:
            return {}

    def contents(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Name -> contents of each argument that is a container, to be compared later by `changed`."""
        both = {**{self._name(i): value for i, value in enumerate(args)}, **kwargs}
        return {name: _contents(value) for name, value in both.items() if tf.nest.is_nested(value)}

    def attributed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """The first argument that is a dict or a list of the user's own class and has attributes besides its items, in
        words; None if there is none. TensorFlow makes new containers from the items, without such attributes.
        """
        for value in (*args, *kwargs.values()):
            if isinstance(value, (dict, list)) and is_user_class(type(value)):
                held = own_dict(value)
                if held and held is not value:
                    return f"a {type(value).__name__}, whose attribute `{next(iter(held))}` is none of its items"
        return None

    def _name(self, place: int | str) -> str:
        if isinstance(place, str):
            return place
        return self._names[place] if place < len(self._names) else f"argument {place}"


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first argument whose contents have changed, in words; None if there is none."""
    return next((f"`{name}` (an argument)" for name in before if before[name] != now.get(name)), None)


def tensors_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The leaves of the arguments that are tensors or arrays. A trace makes a tensor of its own of each."""
    return [leaf for leaf in tf.nest.flatten((tuple(args), dict(kwargs))) if isinstance(leaf, TAKEN)]


def is_repeated(tensors: Sequence[Any]) -> bool:
    """Whether one object is among `tensors` twice."""
    return len(set(map(id, tensors))) < len(tensors)


def _contents(value: Any) -> Any:
    try:
        return parts_of(value)
    except (BadInputError, TypeError, ValueError, KeyError):  # the step put something there that cannot be taken apart
        return None
