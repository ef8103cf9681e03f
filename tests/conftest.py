"""What all tests share. TensorFlow sees two logical CPUs, so that placing is real without worker processes.

Joining workers would change this process for every later test (docs/decisions/002-untouched-first.md); tests of
workers run commands in processes of their own.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf

from placer import instances

# On a busy machine an example takes longer than the 0.2 s that Hypothesis would give it, and so does making one.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# How a terminal, or a service that runs tests, likes its output; tests read output as it is without these.
OUTPUT = "COLUMNS LINES FORCE_COLOR NO_COLOR PY_COLORS GITHUB_ACTIONS TTY_COMPATIBLE TTY_INTERACTIVE PYTHONIOENCODING"
for variable in OUTPUT.split():
    os.environ.pop(variable, None)

# A collection of all that TensorFlow holds takes more than a second after some hundred tests.
gc.set_threshold(700, 10, 100)

# See `out_of_sight`; tests/placer/test_instances.py shows what this does in a program.
instances._unfreeze = lambda: None

# Under nohup, SIGHUP is ignored here, and would be in every process that a test starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs nightly is slow, too, so that `-m "not slow"` leaves it out. Of a test marked `some(3)`, three of the
    quick parameters and three of the slow ones stay what they are, taken from the whole range; the others are nightly.
    """
    of_tests: dict[tuple[Any, ...], list[pytest.Function]] = defaultdict(list)
    for item in items:
        is_some = isinstance(item, pytest.Function) and item.get_closest_marker("some") is not None
        if is_some and not item.get_closest_marker("nightly"):
            of_tests[item.path, item.cls, item.originalname, "slow" in item.keywords].append(item)
    for of_test in of_tests.values() if "PLACER_TEST_ALL" not in os.environ else ():
        _keep_some(of_test, *of_test[0].get_closest_marker("some").args)
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker("slow")


def _keep_some(of_test: list[pytest.Function], count: int) -> None:
    if len(of_test) < 2 and not hasattr(of_test[0], "callspec"):
        raise pytest.UsageError(f"{of_test[0].nodeid} has no parameters of which it could keep some")
    kept = {i * len(of_test) // count for i in range(count)}
    for i, item in enumerate(of_test):
        if i not in kept:
            item.add_marker("nightly")


@pytest.fixture(scope="module", autouse=True)
def out_of_sight() -> None:
    """What tests of other files left alive is out of sight, of collections as well as of Placer: each look at all that
    there is would take seconds after some thousand tests, and Keras, TensorFlow and Placer take many.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def two_cpus() -> Any:
    """Two in-process devices, cpu:0 and cpu:1."""
    from placer.devices.opening import open_devices

    with open_devices(None, links=False) as devices:
        yield devices


@pytest.fixture(scope="session")
def make_step() -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    """A small real step: two dense towers that meet in a softmax; SGD with momentum."""
    return small_step


def small_step() -> tuple[Any, tuple[Any, ...]]:
    """(step, example_inputs), with fresh variables; the same values every time."""
    import keras

    keras.utils.set_random_seed(7)
    inputs = keras.Input((16,))
    towers = [keras.layers.Dense(8, activation="relu", name=f"tower{i}")(inputs) for i in range(2)]
    model = keras.Model(inputs, keras.layers.Dense(4, name="logits")(keras.layers.Concatenate()(towers)))
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step, (tf.random.stateless_normal([6, 16], [1, 2]), tf.constant([0, 1, 2, 3, 0, 1]))


def loop_step() -> Any:
    """A step that calls a function of its own, trains, and returns what a while loop makes of the loss."""
    weight = tf.Variable(2.0)

    @tf.function
    def inner(x: Any) -> Any:
        return x * weight

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = inner(x)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return tf.while_loop(lambda v: v < 100.0, lambda v: (v * 2.0,), (loss,))[0]

    return step


@pytest.fixture(scope="session")
def make_loop_step() -> Callable[[], Any]:
    """Makes the step of `loop_step`, with a variable of its own."""
    return loop_step


@pytest.fixture
def ctrl_c_interrupts() -> Iterator[None]:
    """Python's own handler of Ctrl-C, whatever was inherited: a shell starts background jobs with SIGINT ignored."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)
