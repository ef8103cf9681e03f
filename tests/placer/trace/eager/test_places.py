"""What tracing put into the user's objects is taken out of them again, and nothing else is."""

from __future__ import annotations

from collections import OrderedDict, deque

import pytest
import tensorflow as tf

from placer.trace.eager.places import Places

LOGS = {"losses": [1.0]}


class Trainer:
    def __init__(self):
        self.latest = None
        self.count = 3


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
    "kind", [list, deque, lambda values: deque(values, maxlen=2)], ids=["list", "deque", "bounded"]
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


def test_what_is_no_tensor_may_be_of_another_thread():
    trainer, row = Trainer(), [1]
    before = places([trainer, row])
    trainer.count += 1
    row.append(2)
    before.restore()
    assert trainer.count == 4 and row == [1, 2]
    before.restore(numbers=True)
    assert trainer.count == 3 and row == [1]
