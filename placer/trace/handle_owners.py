"""Finds the variables whose handles a function holds.

TensorFlow notes a variable in `graph.variables` when it is read, but not if a function reaches it by its handle alone:
`assign(..., read_value=False)`, ops on `variable.handle`, `tf.gather_nd` of a variable that is not trained.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.errors import BadInputError
from placer.instances import instances_of


def owners(concrete: Any) -> dict[int, tf.Variable]:
    """id of each captured tensor that is a variable's handle -> the variable.

    Raises BadInputError if the program has dropped a variable and only its handle is left, because Placer could not
    tell then when it is read or written.
    """
    outers = [outer for outer, _ in concrete.graph.captures if outer.dtype == tf.resource]
    handles = {
        id(outer): tf_internals.variables.current_handle(outer) for outer in outers
    }  # workers may have been joined since
    found = {id(tf_internals.variables.handle_of(variable)): variable for variable in _noted(concrete.graph)}
    missing = {id(handle) for handle in handles.values() if id(handle) not in found and _is_of_variable(handle)}
    if missing:
        there = instances_of([tf_internals.variables.RESOURCE_VARIABLE])
        there.sort(
            key=lambda variable: type(variable) is not tf_internals.variables.UNREAD_VARIABLE
        )  # the last one is taken
        found |= {id(tf_internals.variables.handle_of(variable)): variable for variable in there}
    if missing - found.keys():
        raise BadInputError("it uses a variable of which the program keeps nothing but the handle; keep the variable.")
    return {key: found[id(handle)] for key, handle in handles.items() if id(handle) in found}


def _noted(graph: Any) -> list[tf.Variable]:
    with suppress(AssertionError):  # a variable was dropped, and the function works without it
        return list(graph.variables)
    return []


def _is_of_variable(handle: Any) -> bool:
    """Whether a handle is that of a variable with a value, and not that of a table or an iterator."""
    return tf_internals.variables.is_eager(handle) and tf_internals.variables.is_initialized(handle)
