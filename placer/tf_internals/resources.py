"""Datasets, tables, queues and writers: what they keep, and whether TensorFlow finds them by a name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import (
    batch_op,
    cache_op,
    padded_batch_op,
    ragged_batch_op,
    random_op,
    shuffle_op,
    structured_function,
)
from tensorflow.python.ops import data_flow_ops, lookup_ops, summary_ops_v2
from tensorflow.python.trackable import resource as trackable_resource

from placer.instances import instances_of
from placer.tf_internals.variables import is_eager


def element_spec(spec: tf.data.IteratorSpec) -> Any:
    """The TypeSpec of the elements that an iterator with this spec gives."""
    return spec._element_spec


def is_found_by_name(resource: Any) -> bool:
    """Whether TensorFlow finds a table, writer or queue by its name, because it is open and not anonymous."""
    return not getattr(resource, "_is_anonymous", False) and not getattr(resource, "_closed", False)


def kept_by_dataset(dataset: Any) -> str | None:
    """What a dataset of tf.data keeps under a name: "cache": its elements, in memory; "order": the state of a shuffle,
    without which the order would be a different one; "draws": the state of random numbers that go on from epoch to
    epoch. None if it keeps nothing, or is a node of a graph.
    """
    if not is_eager(getattr(dataset, "_variant_tensor", None)):  # missing while it is made, and if that failed
        return None
    if isinstance(dataset, cache_op.CacheDataset):
        return "cache" if dataset._filename.numpy() == b"" else None
    if isinstance(dataset, random_op._RandomDataset):  # sample_from_datasets uses one to mix others
        return "draws" if dataset._rerandomize and _is_seeded(dataset) else None
    if isinstance(dataset, shuffle_op._ShuffleDataset):
        # A fixed order from a seed is the same again, and an unseeded order that changes each epoch may be any.
        return "order" if _is_seeded(dataset) == (dataset._reshuffle_each_iteration is not False) else None
    return None


def _is_seeded(dataset: Any) -> bool:
    return bool(dataset._seed.numpy()) or bool(dataset._seed2.numpy())


def makes_batches(dataset: Any) -> bool:
    """Whether a dataset of tf.data combines elements into batches."""
    kinds = batch_op._BatchDataset, batch_op._ParallelBatchDataset, ragged_batch_op._DenseToRaggedDataset
    return isinstance(dataset, (*kinds, padded_batch_op._PaddedBatchDataset))


def traces_dataset() -> bool:
    """Whether a function of a tf.data pipeline is being traced now, in this thread."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == structured_function.__name__:
            return True
        frame = frame.f_back
    return False


def dataset_captures() -> Iterator[Any]:
    """The handles that functions of this process's tf.data pipelines hold. TensorFlow may read them at any time."""
    for wrapper in instances_of([structured_function.StructuredFunctionWrapper]):
        function = getattr(wrapper, "_function", None)  # missing while it is traced, and if that failed
        if function is not None:
            yield from (outer for outer, _ in function.graph.captures if outer.dtype == tf.resource)


def named_resource_kinds() -> dict[str, tuple[type, ...]]:
    """The classes whose objects hold a resource that TensorFlow finds by its name: kind -> classes."""
    return {
        "table": (lookup_ops.InitializableLookupTableBase, lookup_ops.MutableHashTable, lookup_ops.DenseHashTable),
        "loaded": (trackable_resource.RestoredResource,),
        "writer": (summary_ops_v2._ResourceSummaryWriter,),
        "queue": (data_flow_ops.QueueBase,),
    }
