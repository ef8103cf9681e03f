"""Objects are found by their classes, and other threads notice nothing."""

from __future__ import annotations

import subprocess
import sys
from threading import Thread

import pytest

from placer.instances import instances_of


class Kind:
    pass


class Slotted(Kind):
    __slots__ = ("x",)


class Derived(Slotted):
    pass


def test_objects_of_a_class_and_its_subclasses_are_found_and_no_other():
    held = [Kind(), Slotted(), Derived()]
    assert sorted(map(id, instances_of([Kind]))) == sorted(map(id, held))
    assert [type(thing) for thing in instances_of([Derived])] == [Derived]
    del held
    assert instances_of([Kind]) == []


FROZEN = """
import gc
from placer.instances import instances_of

class Kind:
    pass

held = [Kind()]
gc.freeze()
assert gc.get_freeze_count() > 0
assert instances_of([Kind]) == held
"""


def test_what_the_program_has_frozen_is_found():
    subprocess.run([sys.executable, "-c", FROZEN], check=True)


@pytest.mark.slow
def test_threads_that_build_tuples_meanwhile_build_them():
    errors, done = [], []

    def build():
        while not done:
            try:
                assert len(tuple(i for i in range(300))) == 300
            except BaseException as error:
                errors.append(error)
                return

    threads = [Thread(target=build) for _ in range(2)]
    kept = [[] for _ in range(100_000)]  # so that looking takes long
    for thread in threads:
        thread.start()
    for _ in range(40):
        instances_of([Kind])
    done.append(True)
    for thread in threads:
        thread.join()
    assert not errors
    assert len(kept) == 100_000


TENSORS = """
import gc

import pytest
import tensorflow as tf
from placer.instances import instances_of

class Kind: ...

gc.set_threshold(100_000)
tensors = [tf.constant(1.0) for _ in range(2000)]
for tensor in tensors:
    tensor.note = 1  # its dictionary is made when the tensor is visited first
gc.set_threshold(gc.get_count()[0] + 300)  # so that a collection begins on the way
assert instances_of([Kind]) == [] and gc.isenabled()
"""


@pytest.mark.nightly
def test_a_collection_that_visited_tensors_set_off_does_not_crash():
    done = subprocess.run([sys.executable, "-c", TENSORS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
