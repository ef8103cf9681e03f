"""Op types: the devices that have a kernel for an op, and what its definition says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry


def kernel_kinds(node: Any) -> frozenset[str]:
    """The device kinds ("cpu", "gpu") with a kernel for a NodeDef's op and types; empty if TensorFlow lists none.

    Some ops (function calls, arguments) have no kernel of their own. A build for CPUs lists none for GPUs.
    """
    attr = node.attr
    types = ((name, _types(attr[name])) for name in _constrained(node.op) if name in attr)
    return _kernel_kinds(node.op, tuple(types))


@cache
def _kernel_kinds(op_type: str, types: tuple[tuple[str, frozenset[int]], ...]) -> frozenset[str]:
    listed = registered_kernels(op_type)
    kinds = kinds_of([kernel for kernel in listed if takes(kernel, dict(types))])
    return (kinds & here()) or (frozenset({"cpu"}) if listed else frozenset())


@cache
def _constrained(op_type: str) -> tuple[str, ...]:
    """The attributes whose types decide which kernel of an op type fits."""
    constraints = (constraint for kernel in registered_kernels(op_type) for constraint in kernel.constraint)
    return tuple(sorted({constraint.name for constraint in constraints}))


def _types(value: Any) -> frozenset[int]:
    """The types in a NodeDef's attribute, as DataType numbers."""
    return frozenset({value.type, *value.list.type} - {0})


@cache
def registered_kernels(op_type: str) -> tuple[Any, ...]:
    """The KernelDefs of an op type that TensorFlow chooses by itself; labelled ones must be requested by name."""
    return tuple(kernel for kernel in kernels.get_registered_kernels_for_op(op_type).kernel if not kernel.label)


def kinds_of(listed: Sequence[Any]) -> frozenset[str]:
    """The device kinds of KernelDefs. DEFAULT stands for every kind without a fitting kernel of its own."""
    types = {kernel.device_type for kernel in listed}
    return frozenset(kind for kind in ("cpu", "gpu") if types & {kind.upper(), "DEFAULT"})


def takes(kernel: Any, types: Mapping[str, frozenset[int]]) -> bool:
    """Whether a KernelDef accepts these types. types: attribute -> DataType numbers of a NodeDef."""
    for constraint in kernel.constraint:
        allowed, given = constraint.allowed_values.list.type, types.get(constraint.name)
        if given is not None and allowed and not given <= set(allowed):
            return False
    return True


@cache
def here() -> frozenset[str]:
    """The device kinds that this build of TensorFlow supports."""
    return frozenset({"cpu", "gpu"} if tf.test.is_built_with_gpu_support() else {"cpu"})


def input_type(node: Any, position: int) -> int:
    """DataType enum of a NodeDef's data input number `position`, from its op's definition."""
    op_def = op_def_registry.get(node.op)
    at = 0
    for arg in op_def.input_arg:
        if arg.number_attr:
            count = node.attr[arg.number_attr].i
        elif arg.type_list_attr:
            count = len(node.attr[arg.type_list_attr].list.type)
        else:
            count = 1
        if position < at + count:
            if arg.type_list_attr:
                return int(node.attr[arg.type_list_attr].list.type[position - at])
            return int(node.attr[arg.type_attr].type if arg.type_attr else arg.type)
        at += count
    raise IndexError(f"{node.name} has no input {position}")


@cache
def enumerated_attributes(op_type: str) -> frozenset[str]:
    """The text attributes that decide what an op computes: those with a few allowed values, and Einsum's equation."""
    op_def = op_def_registry.get(op_type)
    listed = () if op_def is None else op_def.attr
    return frozenset({"equation", *(attr.name for attr in listed if attr.allowed_values.list.s)})


def is_stateful(op_type: str) -> bool:
    """Whether an op has an effect or a state of its own. A function has none; only the ops in it have."""
    op_def = op_def_registry.get(op_type)
    return op_def is not None and op_def.is_stateful
