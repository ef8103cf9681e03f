"""Where replicas of a variable are, and how a new one is made."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import pairwise

import tensorflow as tf

from placer import tf_internals
from placer.devices.variables import blank_variable
from placer.execute.variable_copies import DividedVariable, Held, Place, Places

HOME = ""  # the place of the user's own variable


def place_of(variable: tf.Variable, place: Place) -> Place:
    """The place of a variable's replica on a device: HOME if the user's own variable is there."""
    return HOME if tf_internals.variables.handle_of(variable).device == place else place


def nearest(true: AbstractSet[Place], place: Place) -> Place:
    """The place of the up-to-date replica to copy from: one in the same parts, because nothing has to be joined then;
    else the user's own.
    """
    cut = place[1:] if isinstance(place, Places) else None
    return min(true, key=lambda p: ((p[1:] if isinstance(p, Places) else None) != cut, p != HOME, str(p)))


def blank(variable: tf.Variable, place: Place) -> Held:
    """A new replica; call `wait_for` before it is used."""
    if isinstance(place, str):
        return blank_variable(place, variable.shape, variable.dtype)
    parts = []
    for device, (a, b) in zip(place.devices, pairwise(place.bounds), strict=True):
        shape = variable.shape.as_list()
        shape[place.axis] = b - a
        parts.append(blank_variable(device, shape, variable.dtype))
    return DividedVariable(tuple(parts), place.axis, place.bounds)
