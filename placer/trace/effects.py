"""The effects of a step: only those on variables can be tried, and some of these round differently in each run."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.errors import short
from placer.trace.graph_def.node_def import nodes_within
from placer.trace.random_streams import OTHER_DRAWS, STATELESS

REPEATABLE = frozenset(
    {"VarHandleOp", "ReadVariableOp", "VariableShape", "VarIsInitializedOp", "Assert"}
    | {"RngReadAndSkip", "RngSkip", "StatefulUniform", "StatefulUniformInt", "StatefulUniformFullInt"}
    | {"StatefulStandardNormal", "StatefulStandardNormalV2", "StatefulTruncatedNormal", "NonDeterministicInts"}
    | {"PartitionedCall", "StatefulPartitionedCall", "If", "While", "Case", "IteratorGetNext"}
    | {"LookupTableFindV2", "LookupTableSizeV2", "LookupTableExportV2", "HashTableV2", "AnonymousHashTable"}
    | {"CheckNumerics", "CheckNumericsV2", "Empty", "GuaranteeConst", "ResourceStridedSliceAssign"}
)
REPEATABLE_FAMILIES = (
    "Assign", "ResourceGather", "ResourceScatter", "ResourceApply", "ResourceSparseApply", "TensorArray", "Stack",
    "CudnnRNN", "Stateless",
)  # fmt: skip
UNORDERED = ("ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterMul", "ResourceScatterDiv",
             "ResourceScatterNdAdd", "ResourceScatterNdSub", "ScatterAdd", "ScatterSub")  # fmt: skip
IN_WORDS = (
    (("PyFunc", "EagerPyFunc", "PyFuncStateless"), "it calls a Python function"),
    (("Print", "PrintV2", "StringFormat"), "it prints"),
    (("ImportEvent",), "it writes a summary"),
    (("WriteFile", "SaveV2", "Save", "SaveSlices", "MergeV2Checkpoints"), "it writes a file"),
    (("ResourceCountUpTo", "CountUpTo"), "it counts by `count_up_to`, which cannot be placed"),
    (OTHER_DRAWS, "it draws random numbers by an op whose stream cannot be moved"),
    (("LookupTableInsertV2", "LookupTableRemoveV2", "LookupTableImportV2"), "it changes a lookup table"),
)  # fmt: skip
BY_PART = (
    ("Summary", "it writes a summary"), ("Queue", "it uses a queue"), ("Barrier", "it uses a queue"),
    ("Dataset", "it goes through a dataset, where a step takes one batch as its argument"),
    ("Iterator", "it goes through a dataset, where a step takes one batch as its argument"),
)  # fmt: skip


def unrepeatable_effect(graph_def: Any) -> str | None:
    """An effect of the step, in words, that a scratch run would have, too; None if there is none.

    The stateful ops that may be repeated are listed here. Any other stateful op may have any effect.
    """
    for node in nodes_within(graph_def):
        if not _may_be_repeated(node.op):
            what = next((words for kinds, words in IN_WORDS if node.op in kinds), "")
            what = what or next((words for part, words in BY_PART if part in node.op), "")
            return f"{what or 'it has an effect that is not on a variable'} (op {short(node.name)}, {node.op})"
    return None


def is_unordered(node: Any) -> bool:
    """Whether a node adds or multiplies floats in an order that differs from run to run."""
    if node.op not in UNORDERED:
        return False
    kind = next((node.attr[key].type for key in ("dtype", "T") if key in node.attr), tf.float32.as_datatype_enum)
    return bool(tf.as_dtype(kind).is_floating)


def _may_be_repeated(kind: str) -> bool:
    if kind in REPEATABLE or kind in STATELESS or kind.startswith(REPEATABLE_FAMILIES):
        return True
    return not tf_internals.op_types.is_stateful(kind)
