"""What tracing put into the user's objects is taken out of them again, and nothing else is."""

from __future__ import annotations

import argparse
import functools
from collections import OrderedDict, UserDict, defaultdict, deque
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.trace.eager.object_contents import Places

LOGS = {"losses": [1.0]}


class Trainer:
    def __init__(self):
        self.latest = None
        self.count = 3


class Scaling(keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(1,))


class Module(tf.Module):
    """One of the user's own."""


def in_globals():
    return LOGS["losses"]


@pytest.fixture
def made():
    """A tensor of a trace."""
    with tf.Graph().as_default():
        return tf.constant(1.0)


def places(thing, in_globals=True):
    return Places([("thing", thing)], in_globals=in_globals)


@pytest.mark.parametrize(
    "kind",
    [list, deque, lambda values: deque(values, maxlen=2), lambda values: deque(values, maxlen=3)],
    ids=["list", "deque", "full", "bounded"],
)
def test_tensors_of_a_trace_leave_rows(kind, made):
    row = kind([1, 2])
    before = places({"row": row})
    row.append(made)
    row.append((made, 3))
    assert before.changed() == "thing"
    before.restore()
    assert list(row) == [1, 2]


def test_a_row_gets_back_what_a_tensor_took_the_place_of(made):
    row, kept = [1, 2], object()
    row.append(kept)
    before = places(row)
    row[2] = made
    before.restore()
    assert row == [1, 2, kept]


def test_dicts_and_attributes_get_back_what_they_held(made):
    trainer, losses = Trainer(), OrderedDict(first=1.0)
    before = places([trainer, losses])
    trainer.latest, trainer.extra = made, [made]
    losses["second"], losses["first"] = {"of": made}, made
    before.restore()
    assert vars(trainer) == {"latest": None, "count": 3} and losses == {"first": 1.0}


class Slotted:
    __slots__ = ("extra", "latest")

    def __init__(self):
        self.latest = None


class Strict(dict):
    def __setitem__(self, key, value):
        raise KeyError(key)

    __delitem__ = items = __setitem__


@pytest.mark.parametrize("kind", [Slotted, SimpleNamespace, argparse.Namespace])
def test_other_attributes_are_restored_too(kind, made):
    thing = kind()
    thing.latest = None
    before = places([thing])
    thing.latest, thing.extra = made, made
    before.restore()
    assert thing.latest is None and not hasattr(thing, "extra")


def test_methods_of_the_users_own_are_not_called(made):
    strict = Strict(kept=1.0)
    before = places([strict])
    dict.update(strict, kept=made, more=made)
    before.restore()
    assert dict(strict) == {"kept": 1.0}


def test_items_of_libraries_dicts_and_of_arrays_of_objects_are_restored(made):
    losses, row = UserDict(kept=1.0), np.array([1.0, None], object)
    before = places([losses, row])
    losses["kept"], losses["more"], row[1] = made, made, made
    before.restore()
    assert dict(losses) == {"kept": 1.0} and row.tolist() == [1.0, None]


def test_what_held_tensors_of_a_trace_is_named_but_for_what_keras_fills_itself(made):
    layer, trainer = Scaling(), Trainer()
    before = places({"layer": layer, "trainer": trainer})
    layer.kept = made
    assert before.restore() is None
    trainer.latest = made
    assert before.restore() == "thing"
    assert before.restore() is None


def test_a_cell_gets_back_what_it_held(made):
    latest = 2.0

    def keep(value):
        nonlocal latest
        latest = value

    before = places(keep)
    keep(made)
    before.restore()
    assert latest == 2.0


def test_containers_of_modules_that_tensorflow_wraps_can_still_be_saved(made, tmp_path):
    module = Module()
    module.losses, module.of, module.weight = [], {}, tf.Variable(1.0)
    before = places(module)
    module.losses.append(made)
    module.of["loss"] = made
    before.restore()
    assert list(module.losses) == [] and dict(module.of) == {}
    tf.train.Checkpoint(module=module).write(str(tmp_path / "saved"))


def test_globals_that_functions_name_are_looked_at_where_that_is_asked(made):
    before, asked = places(in_globals, in_globals=False), places(in_globals)
    LOGS["losses"].append(made)
    assert before.changed() is None and asked.changed() is not None
    asked.restore()
    assert LOGS == {"losses": [1.0]}


class Cautious(list):
    def clear(self):
        raise TypeError

    extend = __iter__ = clear


class Extended(Slotted):
    def __init__(self):
        super().__init__()
        self.more = 1


def test_what_is_no_tensor_stays(made):
    """It may be of another thread, or what Keras has built."""
    trainer, row, names, counts, thing = Trainer(), [3, 1], {"a"}, defaultdict(int, kept=1), Extended()
    layer = Scaling()
    before = places([trainer, row, names, counts, thing, functools.partial(row.append), layer])
    trainer.count += 1
    row.append(2)
    names.add("b")
    counts["spike"] += 1
    layer.build((1, 1))
    row.append(made)
    before.restore()
    assert trainer.count == 4 and row == [3, 1, 2] and names == {"a", "b"} and counts == {"kept": 1, "spike": 1}
    assert layer.built and len(layer.trainable_variables) == 1 and vars(thing) == {"more": 1}


def test_what_cannot_be_restored_keeps_nothing_else_from_it(made):
    cautious, row, frozen = Cautious([1]), [1], np.array([None], object)
    before = places([frozen, cautious, row])
    list.append(cautious, made)
    row.append(made)
    frozen[0] = made
    frozen.flags.writeable = False
    before.restore()
    assert list.__len__(cautious) == 1 and row == [1]
