"""Finds tf.data datasets that lose what they keep when workers are joined, because several pipelines are made of them.

`cache()`, `shuffle()` and `random()` keep the elements, or the state of their seeds, under a name. The first iterator
over a dataset object looks this state up, and the object holds it from then on. After workers were joined or left,
TensorFlow finds nothing and silently makes a new state each time: the cache is empty in each epoch, and `take` and
`skip` of one shuffled dataset are parts of two different orders. A pipeline that is iterated as a whole is not
affected. A dataset counts as such a pipeline if it is being iterated, or if it consists of whole batches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.instances import instances_of

OWN_REFERENCES = 3  # by the list of datasets, the loop's variable, and the argument of `getrefcount`


def kept_by_shared_dataset() -> str | None:
    """What a dataset keeps ("cache", "order" or "draws") of which this program makes, or may make, several pipelines;
    None if there is no such dataset.
    """
    datasets = instances_of([tf.data.Dataset])
    references = [sys.getrefcount(dataset) - OWN_REFERENCES for dataset in datasets]
    kept = [tf_internals.resources.kept_by_dataset(dataset) for dataset in datasets]
    if not any(kept):
        return None
    number = {id(dataset): i for i, dataset in enumerate(datasets)}
    made_of_it: list[list[int]] = [[] for _ in datasets]  # a dataset that holds another one twice counts twice
    for i, dataset in enumerate(datasets):
        for source in _datasets_in(list(vars(dataset).values())):
            if id(source) in number:  # else another thread has just made both
                made_of_it[number[id(source)]].append(i)
    is_whole = _whole(datasets, made_of_it)
    shared = [  # several datasets are made of it, or the program holds it and so may make more of it
        len(set(made)) > 1 or (count > len(made) and not (whole and not made))
        for made, count, whole in zip(made_of_it, references, is_whole, strict=True)
    ]
    for i, what in enumerate(kept):
        if what is not None and any(shared[j] for j in _followers(i, made_of_it)):
            return what
    return None


def _whole(datasets: list[Any], made_of_it: list[list[int]]) -> list[bool]:
    """Whether each dataset is being iterated, or makes batches, directly or through its sources."""
    iterated = {
        id(found) for one in instances_of([tf.data.Iterator]) for found in _datasets_in(list(vars(one).values()))
    }
    batched = {i for i, dataset in enumerate(datasets) if tf_internals.resources.makes_batches(dataset)}
    batched = batched.union(*(_followers(i, made_of_it) for i in batched))
    return [i in batched or id(dataset) in iterated for i, dataset in enumerate(datasets)]


def _datasets_in(value: Any) -> Iterator[Any]:
    if isinstance(value, tf.data.Dataset):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _datasets_in(part)
    elif isinstance(value, dict):
        yield from _datasets_in(list(value.values()))


def _followers(first: int, made_of_it: list[list[int]]) -> set[int]:
    """The dataset `first` and all datasets made of it, directly or indirectly."""
    found, left = {first}, [first]
    while left:
        new = set(made_of_it[left.pop()]) - found
        found |= new
        left += new
    return found
