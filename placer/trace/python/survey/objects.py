"""A survey's visits to objects: the attributes that a step's code or a library may read."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from placer.trace.python.kinds import (
    CALLBACKS,
    COMPILED_METRICS,
    EMPTY,
    FUNCTIONAL,
    GIVEN_METRICS,
    KERAS_VARIABLE_SETTINGS,
    LAYERS,
    OPERATIONS,
    PLACER,
    VARIABLE_SETTINGS,
    has_base,
    has_library_base,
    holds_unnamed,
    in_slot,
    is_library,
    is_noise,
    is_plain,
    is_public_tensor,
    is_user_class,
    is_users_own,
    own_dict,
    slots_of,
)
from placer.trace.python.library_names import is_read_by_libraries
from placer.trace.python.survey.classes import class_code
from placer.trace.python.survey.walk import UnguardableError, Walk


def visit_object(walk: Walk, value: Any, label: str) -> None:
    """Visit what an object has in its dict and its slots, and the code of its class."""
    held, kind = own_dict(value), type(value)
    if is_user_class(kind):
        walk.guard.class_of(value)
    if held is not None:
        # Libraries may take attributes away and give them back, and a property may make a dict each time.
        if has_library_base(kind) or own_dict(value) is not held:
            walk.guard.size(held)
        else:
            walk.guard.dict_of(value, held)
            walk.guard.names(held)
        names = _attributes(walk, value, held)
        walk.entries(held, names, f"{label}.")
        if issubclass(kind, tf.Module) and is_user_class(kind):  # it looks for variables under any name
            counts = [name for name in held if name not in names and is_plain(held[name])]
            walk.guard.check(lambda: all(is_plain(held.get(name)) for name in counts))
        if has_base(type(value), FUNCTIONAL):
            _visit_operations(walk, held.get(OPERATIONS) or (), label)
    slots = [(name, vars(kind).get(name)) for kind in type(value).__mro__ for name in slots_of(kind)]
    slots = [(name, slot) for name, slot in slots if walk.is_read(name) and inspect.ismemberdescriptor(slot)]
    present = [(name, slot) for name, slot in slots if in_slot(slot, value) is not EMPTY]
    walk.guard.attributes(value, [name for name, _ in present])
    for name, slot in present:
        walk.child(f"{label}.{name}", in_slot(slot, value))
    absent = [slot for name, slot in slots if (name, slot) not in present]
    if absent:
        walk.guard.check(lambda: all(in_slot(slot, value) is EMPTY for slot in absent))
    class_code(walk, type(value), value)


def visit_rest(walk: Walk, found: Any, plain: type, label: str) -> None:
    """Visit `found` as an object, too, if its class is the user's and inherits from `plain`, a class of Python's."""
    if type(found) is not plain and is_user_class(type(found)):
        visit_object(walk, found, label)


def visit_whole_object(walk: Walk, value: Any, label: str) -> None:
    """Visit all attributes of an object of NumPy's (a polynomial, say), because NumPy's code reads them."""
    held = own_dict(value) or {}
    walk.guard.size(held)
    walk.entries(held, held, f"{label}.")


def visit_named(walk: Walk, value: Any, label: str) -> None:
    """Visit what the user may have put into an object of TensorFlow's.

    First, attributes that the user's code reads by name: plain values, public tensors and arrays, and everything that a
    bare tf.Module holds. Second, values of the user's own under any name, because TensorFlow calls them: the function
    of a tf.custom_gradient, a rate that is a function, a checkpoint's model.
    """
    held = own_dict(value)
    if held is None:
        return
    is_bare = type(value) is tf.Module
    if is_bare:
        walk.guard.size(held)
    named = (
        name for name in held
        if name in walk.names and (is_bare or is_plain(held[name]) or is_public_tensor(name, held[name]))
    )  # fmt: skip
    is_placers = is_library(type(value).__module__) in PLACER
    has_rates = isinstance(value, tf.compat.v1.train.Optimizer)  # rates are plain, in private attributes
    theirs = (
        name for name in held
        if not is_placers and (is_users_own(held[name]) or (has_rates and is_plain(held[name])))
    )  # fmt: skip
    walk.entries(held, sorted({*named, *theirs}), f"{label}.")


def visit_function_of_tensorflow(walk: Walk, function: Any, label: str) -> None:
    """Visit what the user has put on a tf.function, whose own Python state is frozen in any program."""
    held = own_dict(function) or {}
    names = {name for name in walk.names if not name.startswith("_")}
    walk.entries(held, sorted(names & held.keys()), f"{label}.")
    absent = names - held.keys()
    walk.guard.check(lambda: held.keys().isdisjoint(absent))


def visit_variable(walk: Walk, variable: Any, label: str, settings: Iterable[str] = VARIABLE_SETTINGS) -> None:
    """Visit the settings that decide how a variable is trained, and what the user has put on it, or on a tensor. Its
    value is not compared.
    """
    found = own_dict(variable)
    held = {} if found is None else found  # a tensor's own dict, which is empty until something is put on it
    own = (name for name in held if not name.startswith("_") and walk.is_read(name))
    walk.guard.size(held)
    walk.entries(held, [*(name for name in settings if name in held), *own], f"{label}.")


def visit_keras_variable(walk: Walk, variable: Any, label: str) -> None:
    """Visit a variable of Keras's as `visit_variable` does, with Keras's settings."""
    visit_variable(walk, variable, label, KERAS_VARIABLE_SETTINGS)


def visit_weak(walk: Walk, reference: weakref.ReferenceType[Any], label: str) -> None:
    """Note a weak reference, whose object is visited once all other objects are known."""
    walk.weak.append((label, reference))
    visit_rest(walk, reference, weakref.ReferenceType, label)


def visit_referred(walk: Walk, reference: weakref.ReferenceType[Any], label: str) -> None:
    """Visit the object of a weak reference, and have the guard check whether it is still alive. Raises UnguardableError
    if the survey would be the only one to hold the object, because the program would then never see it die.
    """
    held = reference()
    if held is not None and not walk.is_known(held):
        raise UnguardableError(f"it reads `{label}`, a weak reference, whose object Placer would keep alive")
    walk.child(label, held)
    address = id(held)
    walk.guard.check(lambda: id(reference()) == address)


def _visit_operations(walk: Walk, operations: Iterable[Any], label: str) -> None:
    """Visit the operations of the user's own classes in a functional model. Layers are left out, because they are among
    the model's attributes, too.
    """
    for operation in operations:
        if is_user_class(type(operation)) and not has_base(type(operation), LAYERS):
            walk.child(f"{label}.{type(operation).__name__}", operation)


def _may_matter(walk: Walk, kind: type, name: str, value: Any) -> bool:
    """Whether an attribute of an object that inherits from a library's class may change what the step does. A count of
    the program's, or a list of its losses, which only code outside of the step reads, may not. If something that is to
    be trained is added to a list, Keras itself notes this elsewhere.
    """
    if name in walk.names:
        return True
    counts = is_plain(value) or (has_base(kind, LAYERS) and _holds_plain(value))
    return not is_noise(name) and (not counts or walk.reflects or is_read_by_libraries(kind, name))


def _holds_plain(value: Any) -> bool:
    """Whether a value is plain, or a list, a tuple or a dict that holds only such values."""
    if issubclass(type(value), dict):  # a proxy's `__class__` is that of another object
        return all(is_plain(key) and _holds_plain(one) for key, one in dict.items(value))
    return is_plain(value) or (issubclass(type(value), (list, tuple)) and all(map(_holds_plain, value)))


def _attributes(walk: Walk, value: Any, held: Mapping[str, Any]) -> list[str]:
    """The attributes that matter: all attributes that a library may read, or else those that the code names.

    Keras calls a callback of the user's outside of steps. Code reads as `model` what a callback keeps as `_model`.
    """
    if has_base(type(value), CALLBACKS):
        return [name for name in held if walk.is_read(name) or walk.is_read(name.lstrip("_"))]
    if has_base(type(value), COMPILED_METRICS):  # Keras makes the others of these
        return [name for name in GIVEN_METRICS if name in held]
    if holds_unnamed(type(value)) or walk.sought.shows_all(type(value)):
        return list(held)
    if has_library_base(type(value)):
        return [name for name in held if _may_matter(walk, type(value), name, held[name])]
    return [name for name in held if walk.is_read(name)]
