"""Every way to read a variable between two steps: by Python, by ops, by functions, in threads and in pipelines."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

MOST = 4096.0
Read = Callable[[tf.Variable], Any]
"""Returns the value of both elements of a float32 variable of shape [2]: a whole number between 0 and MOST."""


_total = tf.function(lambda x: tf.reduce_sum(x))


def _in_a_thread(read: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(read()))
    thread.start()
    thread.join()
    return found[0]


def _taped(variable: tf.Variable) -> Any:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * variable)
    return tape.gradient(loss, variable)[0] / 2


def _compared(variable: tf.Variable) -> Any:
    """The value, found by comparing the variable with all values that it may have."""
    candidates = tf.range(MOST)
    return tf.reduce_sum(tf.cast(variable == candidates[:, None], tf.float32) * candidates[:, None]) / 2


def _in_init_scope(variable: tf.Variable) -> Any:
    """The value, read while a function is traced, as by code that sets something up once."""
    found: list[Any] = []

    def traced() -> tf.Tensor:
        with tf.init_scope():
            found.append(tf.reduce_sum(variable) / 2)
        return tf.constant(0)

    tf.function(traced)()
    return found[0]


def _averaged(variable: tf.Variable) -> Any:
    """An average that a function makes when it is traced, from the variable's value at that time."""
    average = tf.train.ExponentialMovingAverage(0.5)

    def apply() -> None:
        average.apply([variable])

    tf.function(apply)()
    return average.average(variable)[0]


READS: dict[str, Read] = {
    "numpy": lambda v: v.numpy()[0],
    "asarray": lambda v: np.asarray(v)[0],
    "value": lambda v: v.value()[0],
    "read_value": lambda v: v.read_value()[0],
    "convert": lambda v: tf.convert_to_tensor(v)[0],
    "identity": lambda v: tf.identity(v)[0],
    "index": lambda v: v[0],
    "iterate": lambda v: next(iter(v)),
    "operator": lambda v: (v + 0.0)[0],
    "reflected": lambda v: (tf.zeros(2) + v)[0],
    "reduce_sum": lambda v: tf.reduce_sum(v) / 2,
    "square": lambda v: tf.sqrt(tf.square(v))[0],
    "l2_loss": lambda v: tf.sqrt(tf.nn.l2_loss(v)),
    "matvec": lambda v: tf.linalg.matvec(tf.eye(2), v)[0],
    "stack": lambda v: tf.stack([v, v])[1, 0],
    "concat": lambda v: tf.concat([v, v], 0)[2],
    "add_n": lambda v: tf.add_n([v, v])[0] / 2,
    "gather": lambda v: tf.gather(v, [0])[0],
    "gather_nd": lambda v: v.gather_nd([[0]])[0],
    "sparse_read": lambda v: v.sparse_read([0])[0],
    "cast": lambda v: tf.cast(v, tf.float64)[0],
    "where": lambda v: tf.where([True, True], v, 0.0)[0],
    "equal": _compared,
    "raw op": lambda v: tf.sqrt(tf.raw_ops.Square(x=v))[0],
    "handle": lambda v: tf.raw_ops.ReadVariableOp(resource=v.handle, dtype=tf.float32)[0],
    "private handle": lambda v: tf.raw_ops.ReadVariableOp(resource=v._handle, dtype=tf.float32)[0],
    "deepcopy": lambda v: copy.deepcopy(v).numpy()[0],
    "map_structure": lambda v: tf.nest.map_structure(tf.identity, [v])[0][0],
    "keras.ops": lambda v: keras.ops.sum(v) / 2,
    "repr": lambda v: float(repr(v).split("array([")[1].split(",")[0]),
    "tape": _taped,
    "init_scope": _in_init_scope,
    "moving average": _averaged,
    "function": lambda v: tf.function(lambda: tf.reduce_sum(v) / 2)(),
    "argument": lambda v: _total(v) / 2,
    "compiled": lambda v: tf.function(lambda: v * 1.0, jit_compile=True)()[0],
    "cond": lambda v: tf.function(lambda c: tf.cond(c, lambda: v[0], lambda: 0.0))(tf.constant(True)),
    "thread": lambda v: _in_a_thread(lambda: tf.reduce_sum(v) / 2),
    "dataset": lambda v: next(iter(tf.data.Dataset.range(1).map(lambda i: v[0]))),
    "generator": lambda v: next(iter(tf.data.Dataset.from_generator(lambda: iter([v[0]]), output_types=tf.float32))),
}  # fmt: skip
