"""Makes variables on a device, and waits until they hold their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def variable_on(device: str, value: Any) -> tf.Variable:
    """A variable on a TensorFlow device; it holds its value when this returns."""
    variable = new_variable(device, value)
    wait_for([variable])
    return variable


def new_variable(device: str, value: Any, *, trainable: bool = True) -> tf.Variable:
    """A variable on a TensorFlow device; call `wait_for` before a function uses it."""
    with tf.device(device):
        here = tf.identity(value)  # copying first takes half the time of copying in the initialiser
        return _marked(tf.Variable(here, trainable=trainable), device)


def blank_variable(device: str, shape: Any, dtype: tf.DType) -> tf.Variable:
    """A variable of zeros; call `wait_for` before it is used."""
    with tf.device(device):
        return _marked(tf.Variable(tf.zeros(shape, dtype), trainable=False), device)


def is_elsewhere(variable: Any) -> bool:
    """Whether a variable was made on a worker. Once that worker is lost, its handle must not be touched."""
    return bool(getattr(variable, "_placer_elsewhere", False))


def _marked(variable: tf.Variable, device: str) -> tf.Variable:
    variable._placer_elsewhere = "/job:worker" in device
    return variable


def wait_for(variables: Iterable[tf.Variable]) -> None:
    """Wait until variables just made or assigned hold their values.

    Remote devices are written through a separate stream, and a function called right away may find a variable still
    empty (seen on about 1 first call in 100). The stream keeps its order, so reading the last variable of each device
    waits for them all.
    """
    last = {variable.device: variable for variable in variables}
    for variable in last.values():
        with tf.device(variable.device):
            tf.size(variable.read_value()).numpy()
