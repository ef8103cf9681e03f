"""What a plain step reads by ways that no plain name shows trains, wrapped, to the same weights as unwrapped."""

from __future__ import annotations

import enum
import functools
import operator
import sys
import types

import google.protobuf.struct_pb2
import keras
import numpy as np
import pytest
import tensorflow as tf
import wrapt

from tests.placer.train.steps.test_plain_step import (
    STEPS,
    alone,
    alone_with,
    batches,
    close,
    descend,
    weights,
    wrapped,
    wrapped_with,
)

HALF = STEPS // 2
GAMMA = [1.0]
LOSS = keras.losses.mean_squared_error
STATS = {"skipped": 0}
FLOOR = [0.0]


def rated(read, change, *names):
    """Makes (step, variables, what the program does before call i): the learning rate is what `read` returns, and
    `change` changes it once, in the middle.
    """
    held = weights()

    def before(i):
        if i == HALF:
            change()

    return lambda x: descend(held, x, read()), held, before


# Functions of libraries, and objects of Keras that differ by them alone.


def function_of_a_library():
    held, table = weights(), {"f": tf.nn.relu}

    def change(i):
        table["f"] = tf.nn.relu if i < HALF else tf.tanh

    return lambda x: descend(held, x, 0.1, table["f"]), held, change


def loss_of_a_library():
    held = weights()
    globals()["LOSS"] = keras.losses.mean_squared_error

    def change(i):
        globals()["LOSS"] = keras.losses.mean_squared_error if i < HALF else keras.losses.mean_absolute_error

    return lambda x: descend(held, x, 0.01, lambda y: tf.tanh(y) * LOSS(tf.ones_like(y), y)[:, None]), held, change


def activation_of_a_layer():
    held, layer = weights(), keras.layers.Dense(3, activation="relu", kernel_initializer="ones")
    layer.build((4, 3))

    def change(i):
        layer.activation = keras.activations.relu if i < HALF else keras.activations.tanh

    return lambda x: descend(held, x, 0.01, layer), held, change


def objects_that_differ_by_a_function(make):
    def made():
        held, table = weights(), {}

        def change(i):
            table["layer"] = made_of[i >= HALF]

        made_of = make()
        change(0)
        return lambda x: descend(held, x, 0.01, lambda y: table["layer"](y)), held, change

    return made


def losses(one, other):
    def through(loss):
        return lambda y: y * loss(tf.ones_like(y), y)

    return lambda: [through(one), through(other)]


def replaced_code():
    held = weights()

    def rate():
        return 0.1

    def change(i):
        if i == HALF:
            rate.__code__ = (lambda: 0.01).__code__

    return lambda x: descend(held, x, rate()), held, change


def replaced_default():
    held = weights()

    def rate(value=0.1):
        return value

    def change(i):
        rate.__defaults__ = (0.1 if i < HALF else 0.01,)

    return lambda x: descend(held, x, rate()), held, change


def keywords_of_a_partial():
    held, rate = weights(), functools.partial(lambda value: value, value=0.1)

    def change(i):
        rate.keywords["value"] = 0.1 if i < HALF else 0.01

    return lambda x: descend(held, x, rate()), held, change


# By reflection.


class Trainer:
    def __init__(self):
        self.held, self.kind = weights(), "square"

    def step(self, x):
        return descend(self.held, x, 0.1, getattr(self, "through_" + self.kind))

    def through_square(self, x):
        return x * GAMMA[0]

    def through_other(self, x):
        return x * 0.5

    def fit(self):
        print("nothing that a step does")  # the name does not begin as those that it may read


class Formatted(Trainer):
    def step(self, x):
        return descend(self.held, x, 0.1, getattr(self, f"through_{self.kind}"))


class Printing(Trainer):
    def through_square(self, x):
        print("a step")
        return x


def method_by_a_name_made_at_run_time(kind):
    def make():
        trainer = kind()
        GAMMA[0] = 1.0

        def change(i):
            GAMMA[0] = 1.0 if i < HALF else 0.5

        return trainer.step, trainer.held, change

    return make


def method_by_another_name():
    trainer = Trainer()

    def change(i):
        trainer.kind = "square" if i < HALF else "other"

    return trainer.step, trainer.held, change


def module(name, code):
    made = types.ModuleType(name)
    exec(code, vars(made))
    return made


def function_of_a_module_by_name():
    held, chosen = weights(), ["scaled"]
    functions = module("users_functions", "GAMMA = 1.0\ndef scaled(x): return x * GAMMA")

    def change(i):
        functions.GAMMA = 1.0 if i < HALF else 0.5

    return lambda x: descend(held, x, 0.1, getattr(functions, chosen[0])), held, change


def attribute_of_a_class_by_name():
    class Config:
        rate = 0.1

    key = ["rate"]
    return rated(lambda: getattr(Config, key[0]), lambda: setattr(Config, "rate", 0.01))


def entry_of_a_class_by_name():
    class Config:
        rate = 0.1

    key = ["rate"]
    return rated(lambda: vars(Config)[key[0]], lambda: setattr(Config, "rate", 0.01))


def absent_in(holder):
    def make():
        config = holder()
        return rated(lambda: getattr(config, "rate", 0.1), lambda: setattr(config, "rate", 0.01))

    return make


def absent_in_the_class():
    class Config:
        pass

    config = Config()
    return rated(lambda: getattr(config, "rate", 0.1), lambda: setattr(Config, "rate", 0.01))


def absent_slot():
    class Config:
        __slots__ = ("rate",)

    config = Config()
    return rated(lambda: getattr(config, "rate", 0.1), lambda: setattr(config, "rate", 0.01))


def hidden_by_a_subclass():
    class Config:
        rate = 0.1

    class Mine(Config):
        pass

    config = Mine()
    return rated(lambda: config.rate, lambda: setattr(Mine, "rate", 0.01))


def packaged(statement):
    """Makes a program whose step imports `config` of its own package by a statement."""

    def make():
        package = module("users_package", "")
        package.__path__ = []
        package.config = sys.modules["users_package.config"] = module("users_package.config", "RATE = 0.1")
        sys.modules["users_package"] = package
        code = f"def rate():\n    {statement}\n    return config.RATE"
        train = module("users_package.train", f"__package__ = 'users_package'\n{code}")
        return rated(train.rate, lambda: setattr(package.config, "RATE", 0.01))

    return make


# Where no attribute shows what is read.


def attribute_of_a_function():
    def rate():
        return rate.value

    rate.value = 0.1
    return rated(rate, lambda: setattr(rate, "value", 0.01))


def attribute_of_a_tf_function():
    noise = tf.function(lambda x: x + 0.0)
    noise.rate = 0.1
    held = weights()

    def before(i):
        if i == HALF:
            noise.rate = 0.01

    return lambda x: descend(held, noise(x), noise.rate), held, before


def absent_attribute_of_a_tf_function():
    noise = tf.function(lambda x: x + 0.0)
    return rated(lambda: getattr(noise, "rate", 0.1), lambda: setattr(noise, "rate", 0.01))


def a_tf_function_in_place_of_another():
    rates = types.SimpleNamespace(of=tf.function(lambda x: 0.1 * x))
    held = weights()

    def before(i):
        if i == HALF:
            rates.of = tf.function(lambda x: 0.01 * x)

    return lambda x: descend(held, x, rates.of(tf.constant(1.0))), held, before


def array_in_an_object_of_numpy():
    curve = np.polynomial.Polynomial([0.1, 1.0])
    return rated(lambda: curve(0.0), lambda: curve.coef.__setitem__(0, 0.01))


def tensor_of_an_object_of_tensorflow():
    kept = tf.train.Checkpoint()
    kept.rate = tf.constant(0.1)
    return rated(lambda: kept.rate, lambda: setattr(kept, "rate", tf.constant(0.01)))


def record_of_an_array():
    settings = np.rec.array([(0.1,)], dtype=[("rate", "f4")])[0]
    return rated(lambda: float(settings.rate), lambda: setattr(settings, "rate", 0.01))


def absent_attribute_of_a_function():
    def rate():
        return getattr(rate, "value", 0.1)

    return rated(rate, lambda: setattr(rate, "value", 0.01))


def message():
    config = google.protobuf.struct_pb2.Struct()
    config["rate"] = 0.1
    return rated(lambda: config["rate"], lambda: config.update({"rate": 0.01}))


def message_of_tensorflow():
    config = tf.train.FloatList(value=[0.1])
    return rated(lambda: config.value[0], lambda: config.value.__setitem__(0, 0.01))


class Float(float):
    def of(self, x):
        return x * self


class Name(str):
    pass


def subclass(kind, first, then, read):
    def make():
        table = {"rate": kind(first)}
        return rated(lambda: read(table["rate"]), lambda: table.update(rate=kind(then)))

    return make


class Kind(enum.Enum):
    SLOW = "slow"

    def rate(self):
        return 0.1 * GAMMA[0]


def method_of_an_enum():
    GAMMA[0], kind = 1.0, Kind.SLOW
    return rated(lambda: kind.rate(), lambda: GAMMA.__setitem__(0, 0.1))


# Noise of Keras's that is none.


def lora():
    held, layer = weights(), keras.layers.Dense(3, kernel_initializer="ones")
    layer.build((4, 3))
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(tf.ones_like(layer.lora_kernel_b))
    layer.lora_kernel_a.assign(tf.ones_like(layer.lora_kernel_a))

    def change(i):
        layer.lora_alpha = 2 if i < HALF else 4

    return lambda x: descend(held, x, 0.0001, layer), held, change


def noise_that_is_read():
    model = keras.Sequential([keras.Input((3,))])
    model.stop_training = False
    return rated(lambda: 0.01 if model.stop_training else 0.1, lambda: setattr(model, "stop_training", True))


def callback_of_keras():
    early = keras.callbacks.EarlyStopping()
    early.wait = 0
    return rated(lambda: 0.1 / (1 + early.wait), lambda: setattr(early, "wait", 5))


def attribute_of_a_tensor():
    scale = tf.constant(1.0)
    return rated(lambda: 0.1 * getattr(scale, "rate", 1.0), lambda: setattr(scale, "rate", 0.5))


# Objects that answer any name.


class AttrDict(dict):
    def __getattr__(self, name):
        return self[name]


class AnyDict(dict):
    def __getattr__(self, name):
        return self.get(name)


class Wrapped:
    def __init__(self, found):
        self._found = found

    def __getattr__(self, name):
        return self.__dict__["_found"][name]


class Any:
    def __init__(self, found):
        self.__dict__["found"] = found

    def __getattr__(self, name):
        return self.__dict__["found"].get(name)


class Proxy:
    def __init__(self, found):
        self._found = types.SimpleNamespace(**found)

    def __getattr__(self, name):
        return getattr(self._found, name)


def answering(kind):
    def make():
        values = {"rate": 0.1}
        config = kind(values)
        stored = config if isinstance(config, dict) else values

        def change():
            stored["rate"] = 0.01
            if isinstance(config, Proxy):
                config._found.rate = 0.01

        return rated(lambda: config.rate, change)

    return make


# What no code of the step names.


class Meta(type):
    @property
    def rate(cls):
        return cls.now


def property_of_a_metaclass():
    config = Meta("Config", (), {"now": 0.1})
    return rated(lambda: config.rate, lambda: setattr(config, "now", 0.01))


def getattr_of_a_module():
    config = module("users_config", "VALUES = {'RATE': 0.1}\ndef __getattr__(name):\n    return VALUES[name]")
    return rated(lambda: config.RATE, lambda: config.VALUES.update(RATE=0.01))


def partial_read(config):
    read = functools.partial(getattr, config, "rate")
    return lambda _: read()


def getter_made_elsewhere(make):
    def made():
        config = types.SimpleNamespace(rate=0.1)
        read = make(config)
        return rated(lambda: read(config), lambda: setattr(config, "rate", 0.01))

    return made


def result_kept_by_a_cache():
    config = functools.cache(lambda: types.SimpleNamespace(rate=0.1))
    config()
    return rated(lambda: config().rate, lambda: setattr(config(), "rate", 0.01))


def decorated_by_wrapt():
    held, scale = weights(), [1.0]

    @wrapt.decorator
    def scaled(wrapped, instance, args, kwargs):
        return scale[0] * wrapped(*args, **kwargs)

    @scaled
    def activate(y):
        return tf.tanh(y)

    def change(i):
        scale[0] = 1.0 if i < HALF else 0.1

    return lambda x: descend(held, x, 0.1, activate), held, change


def dtype_policy():
    held = weights()
    keras.config.set_dtype_policy("float32")

    def change(i):
        keras.config.set_dtype_policy("float32" if i < HALF or i == STEPS - 1 else "mixed_bfloat16")

    def cast(y):
        return tf.cast(tf.cast(y, keras.config.dtype_policy().compute_dtype), tf.float32)

    return lambda x: descend(held, x, 0.1, cast), held, change


SAFE = [
    function_of_a_library, loss_of_a_library, activation_of_a_layer,
    objects_that_differ_by_a_function(lambda: [keras.layers.Activation("relu"), keras.layers.Activation("tanh")]),
    objects_that_differ_by_a_function(losses(keras.losses.MeanSquaredError(), keras.losses.MeanAbsoluteError())),
    replaced_code, replaced_default, keywords_of_a_partial,
    method_by_a_name_made_at_run_time(Trainer), method_by_a_name_made_at_run_time(Formatted), method_by_another_name,
    function_of_a_module_by_name, attribute_of_a_class_by_name, entry_of_a_class_by_name,
    absent_in(lambda: types.ModuleType("users_config")), absent_in(lambda: type("Config", (), {})),
    absent_in(types.SimpleNamespace), absent_in_the_class, absent_slot, hidden_by_a_subclass,
    packaged("from . import config"), packaged("from .config import RATE; from . import config"),
    packaged("import users_package.config as config"),
    packaged("import users_package.config; config = users_package.config"),
    attribute_of_a_function, absent_attribute_of_a_function, message, message_of_tensorflow,
    attribute_of_a_tf_function, absent_attribute_of_a_tf_function, a_tf_function_in_place_of_another,
    array_in_an_object_of_numpy, tensor_of_an_object_of_tensorflow,
    subclass(Float, 0.1, 0.01, lambda rate: rate.of(1.0)),
    subclass(Name, "a", "b", lambda name: 0.1 if name == "a" else 0.01),
    method_of_an_enum, lora, noise_that_is_read, callback_of_keras,
    attribute_of_a_tensor,
    answering(AttrDict), answering(AnyDict), answering(Wrapped), answering(Any), answering(Proxy),
    property_of_a_metaclass, getattr_of_a_module, getter_made_elsewhere(lambda config: operator.attrgetter("rate")),
    getter_made_elsewhere(partial_read), result_kept_by_a_cache, decorated_by_wrapt, dtype_policy,
]  # fmt: skip


@pytest.mark.some(12)
@pytest.mark.parametrize("make", SAFE)
def test_what_is_read_by_another_way_trains_as_unwrapped(two_cpus, live_hand, make):
    found, hand = wrapped(live_hand, make)
    assert np.isfinite(found[0]).all() and close(found, alone(make))
    assert hand.live.left_alone is None
    assert hand.moves > 3


def above(y_true, y_pred):
    return tf.cast(y_pred > FLOOR[0], tf.float32)


def of_metrics(given):
    """A model of two outputs, compiled with these metrics, which read a global."""

    def make():
        x, begun = keras.Input((3,)), keras.initializers.GlorotUniform(seed=3)
        model = keras.Model(x, [keras.layers.Dense(3, kernel_initializer=begun, name=name)(x) for name in "ab"])
        model.compile(keras.optimizers.SGD(0.1), "mse", **given(), jit_compile=False)

        def change(i):
            FLOOR[0] = 0.0 if i < HALF else -9.0

        def held():
            return [*model.variables, *model.metrics_variables]

        return lambda x: model.train_step((x, [x, x]))["loss"], held, change

    return make


class Scaled(keras.Operation):
    def call(self, x):
        return x * (1.0 + FLOOR[0])

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)


def operation_of_a_model():
    x, held = keras.Input((3,)), weights()
    model = keras.Model(x, Scaled()(x))

    def change(i):
        FLOOR[0] = 0.0 if i < HALF else -0.5

    return lambda x: descend(held, x, 0.1, model), held, change


class Share(keras.metrics.Mean):
    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(above(y_true, y_pred))


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "given",
    [
        lambda: {"metrics": {"a": [above, "mae"]}}, lambda: {"metrics": [[Share()], None]},
        lambda: {"weighted_metrics": [None, above]},
        lambda: {"metrics": {"b": keras.metrics.MeanMetricWrapper(above)}},
    ],
)  # fmt: skip
def test_what_metrics_of_a_compiled_model_read_trains_as_unwrapped(two_cpus, live_hand, given):
    trains_as_unwrapped(live_hand, of_metrics(given))


def test_what_an_operation_of_a_model_reads_trains_as_unwrapped(two_cpus, live_hand):
    trains_as_unwrapped(live_hand, operation_of_a_model)


def trains_as_unwrapped(live_hand, make):
    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone is None
    assert hand.moves > 3


def count_up(counts):
    counts["n"] += 1


def counted_in_a_branch():
    held = weights()
    STATS["n"] = 0

    def step(x):
        if tf.reduce_max(x) > 2.2:  # of some batches
            count_up(STATS)
        return descend(held, x + tf.cast(STATS["n"], tf.float32), 0.01)

    return step, held, lambda i: None


def kept_by_c():
    values = google.protobuf.struct_pb2.ListValue(values=[google.protobuf.struct_pb2.Value(number_value=0.1)]).values
    return rated(lambda: values[0].number_value, lambda: setattr(values[0], "number_value", 0.01))


class Raising(dict):
    """As a dict that another thread changes while it is read."""

    def items(self):
        raise RuntimeError("dictionary changed size during iteration")


def changed_meanwhile():
    values = Raising(rate=0.1)
    shown = types.MappingProxyType(values)
    return rated(lambda: shown["rate"], lambda: values.update(rate=0.01))


def cache_filled_in_a_branch():
    held, gains = weights(), functools.lru_cache(lambda count: tf.linspace(0.5, 1.5, count))

    def step(x):
        if tf.reduce_max(x) > 2.2:  # of some batches
            x = x * gains(3)
        return descend(held, x, 0.01)

    return step, held, lambda i: None


UNSAFE = [
    (method_by_a_name_made_at_run_time(Printing), "print"), (counted_in_a_branch, "`counts[]` in count_up"),
    (kept_by_c, "cannot see into a RepeatedCompositeContainer"), (record_of_an_array, "a record of a structured array"),
    (changed_meanwhile, "RuntimeError: dictionary changed"),
    (cache_filled_in_a_branch, "calls `gains`, whose results functools.lru_cache keeps out of sight"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "reason"), UNSAFE)
def test_what_no_trace_repeats_is_found_by_another_way(two_cpus, live_hand, make, reason):
    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert reason in hand.live.left_alone


ANSWERING = [AttrDict, AnyDict, Wrapped, Any]


@pytest.mark.parametrize("kind", ANSWERING)
def test_an_argument_that_answers_any_name_trains_as_unwrapped(two_cpus, live_hand, kind):
    def make():
        held, values = weights(), {"rate": 0.1}
        config = kind(values)

        def call(step, i, x):
            (config if isinstance(config, dict) else values)["rate"] = 0.1 if i < HALF else 0.01
            return step(config, x)

        return lambda config, x: descend(held, x, config.rate), held, call

    found, hand = wrapped_with(live_hand, make)
    assert close(found, alone_with(make))
    assert hand.live.left_alone is None
    assert hand.moves > 3


@pytest.mark.parametrize("kind", ANSWERING)
def test_a_step_that_answers_any_name_trains_as_unwrapped(two_cpus, live_hand, kind):
    class Step(kind):
        held = ()

        def __call__(self, x):
            return descend(self.held, x, 0.1)

    def make():
        Step.held = weights()
        return Step({}), Step.held, lambda i: None

    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone is None or "autograph" in hand.live.left_alone  # which asks for names, too


@pytest.mark.parametrize("kind", ANSWERING)
def test_a_step_that_returns_what_answers_any_name_is_left_alone(two_cpus, live_hand, kind):
    held, config = weights(), kind({"rate": 0.1})
    hand = live_hand(lambda x: (descend(held, x, 0.1), config))
    for x in batches(4):
        hand(x)
    hand.close()
    assert "it returns a " in hand.live.left_alone
