"""A step in plain Python trains, wrapped, to the same weights as the same program unwrapped."""

from __future__ import annotations

import functools
import itertools
import operator
import random
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.config import disable_op_determinism, enable_op_determinism

from placer.train.steps.variants import MOST_VARIANTS, PLAIN_CALLS

STEPS = 16
FLAG = {"tanh": False}
SCALE = 1.0


def batches(count=STEPS):
    rng = np.random.default_rng(5)
    return [tf.constant(rng.normal(size=(4, 3)), tf.float32) for _ in range(count)]


def weights():
    return [tf.Variable(tf.random.stateless_normal([3, 3], [i, 7])) for i in range(2)]


def descend(variables, x, rate, through=lambda x: x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(through(x @ variables[0]) @ variables[1]))
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(rate * gradient)
    return loss


# Each makes (step, variables, what the program does before call i).


def list_rate():
    held, rates = weights(), [0.1]

    def change(i):
        rates[0] = 0.0 if i >= 8 else 0.1

    return lambda x: descend(held, x, rates[0]), held, change


def changed_before_the_second_call():
    held, rates = weights(), [0.1]

    def change(i):
        rates[0] = 0.1 if i == 0 else 0.02

    return lambda x: descend(held, x, rates[0]), held, change


def back_and_forth():
    held, rates = weights(), {"now": 0.1}

    def change(i):
        rates["now"] = 0.1 / (1 + i % 3)

    return lambda x: descend(held, x, rates["now"]), held, change


def global_flag():
    held = weights()

    def step(x):
        return descend(held, x, 0.1, tf.tanh if FLAG["tanh"] else tf.nn.relu)

    def change(i):
        FLAG["tanh"] = i % 10 >= 5

    return step, held, change


def helper(x):
    return x * SCALE


def replaced_helper():
    held = weights()

    def change(i):
        globals()["SCALE"] = 1.0 if i < 6 else 0.5
        globals()["helper"] = (lambda x: x * SCALE) if i < 11 else (lambda x: x * SCALE * 2)

    return lambda x: descend(held, helper(x), 0.1), held, change


class Trainer:
    momentum = 0.0

    def __init__(self):
        self.held, self.rate, self.epoch = weights(), 0.1, 0

    def step(self, x):
        return descend(self.held, x, self.rate)

    def __call__(self, x):
        return self.step(x)


def method():
    trainer = Trainer()

    def change(i):
        trainer.rate, trainer.epoch = (0.1 if i < 8 else 0.01), i

    return trainer.step, trainer.held, change


def callable_object():
    _, held, change = method()
    trainer = change.__closure__[0].cell_contents
    return trainer, held, change


def partial():
    _, held, change = method()
    trainer = change.__closure__[0].cell_contents
    return functools.partial(Trainer.step, trainer), held, change


def default_argument():
    held = weights()

    def step(x, *, rates=[0.1]):  # noqa: B006
        return descend(held, x, rates[0])

    def change(i):
        step.__kwdefaults__["rates"][0] = 0.1 if i < 8 else 0.01

    return step, held, change


def trainable_flag():
    begun = {"kernel_initializer": keras.initializers.GlorotUniform(seed=3)}
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, **begun), keras.layers.Dense(2, **begun)])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True)))
        trained = model.trainable_variables
        for variable, gradient in zip(trained, tape.gradient(loss, trained), strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    def change(i):
        model.layers[0].trainable = i < 8

    return step, model.variables, change


def rate_on_a_variable():
    held = weights()
    for variable in held:
        variable.rate = 0.1

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ held[0]) @ held[1]))
        for variable, gradient in zip(held, tape.gradient(loss, held), strict=True):
            variable.assign_sub(variable.rate * gradient)
        return loss

    def change(i):
        held[1].rate = 0.1 if i < 8 else 0.01
        if i == 13:
            held[0].rate = tf.constant(0.0)

    return step, held, change


def rate_that_a_variable_may_have():
    held = weights()

    def step(x):
        return descend(held, x, getattr(held[0], "rate", 0.1))

    def change(i):
        if i == 8:
            held[0].rate = 0.01

    return step, held, change


def frozen_variable():
    held = weights()

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ held[0]) @ held[1]))
        trained = [variable for variable in held if variable.trainable]
        for variable, gradient in zip(trained, tape.gradient(loss, trained), strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    def change(i):
        held[0]._trainable = i < 8

    return step, held, change


def regularizer_of_a_variable():
    begun = {"kernel_initializer": keras.initializers.GlorotUniform(seed=3)}
    layer = keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.0), **begun)
    model = keras.Sequential([keras.Input((3,)), layer])
    held = layer.kernel.regularizer

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x))) + tf.add_n([*model.losses, 0.0])
        for variable, gradient in zip(
            model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True
        ):
            variable.assign_sub(0.1 * gradient)
        return loss

    def change(i):
        layer.kernel.regularizer = held if i < 8 else keras.regularizers.L2(0.5)

    return step, model.variables, change


def lazily_built():
    layers = {}

    def step(x):
        if not layers:
            layers.update(dense=keras.layers.Dense(2, kernel_initializer="ones"))
        loss = tf.reduce_sum(layers["dense"](x))
        layers["dense"].kernel.assign_sub(0.01 * tf.ones([3, 2]))
        return loss

    return step, lambda: layers["dense"].variables, lambda i: None


class Subclassed(keras.Model):
    """Builds its layers when it is first called."""

    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(3, kernel_initializer="ones")
        self.norm = keras.layers.BatchNormalization()
        self.last = keras.layers.Dense(2, kernel_initializer="ones")

    def call(self, x):
        return self.last(self.norm(self.first(x)))


def built_in_the_first_call():
    model, optimizer = Subclassed(), keras.optimizers.Adam(0.01)

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x)))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step, lambda: model.variables, lambda i: None


def known_shapes():
    held = weights()

    def step(x):
        rows, kept = int(tf.shape(x)[0]), tf.boolean_mask(x, x[:, 0] > -1.0)
        rows = tf.cast(rows, tf.float32)
        rank = kept.shape.rank + len(kept.shape) + kept.ndim
        return descend(held, kept * kept.shape[-1] / (rows * rank), 0.1)

    return step, held, lambda i: None


def settings_of_keras():
    held = weights()

    def step(x):
        target = tf.one_hot([0, 1, 2, 0], 3)
        return descend(held, x, 0.1, lambda y: keras.losses.categorical_crossentropy(target, tf.abs(y))[:, None] * y)

    def change(i):
        keras.config.set_epsilon(0.2 if 8 <= i < STEPS - 1 else 1e-7)  # between which probabilities are clipped

    return step, held, change


def gradient_of_its_own():
    """TensorFlow keeps the function in an object of its own."""
    held, factor = weights(), [1.0]

    @tf.custom_gradient
    def scaled(x):
        return tf.identity(x), lambda upstream: factor[0] * upstream

    def change(i):
        factor[0] = 1.0 if i < 8 else -0.5

    return lambda x: descend(held, x, 0.1, scaled), held, change


def model_of_a_checkpoint():
    layer = keras.layers.Dense(3, kernel_initializer=keras.initializers.GlorotUniform(seed=3))
    layer.build((None, 3))
    held, checkpoint = weights(), tf.train.Checkpoint(net=layer)

    def step(x):
        return descend(held, checkpoint.net(x), 0.1 if checkpoint.net.trainable else 0.01)

    def change(i):
        layer.trainable = i < 8

    return step, held, change


def updates_objects_in_containers():
    """Other than containers, which the step may not change."""

    class Metric:
        def update(self, loss):
            return loss

    held, metrics, none = weights(), {"loss": [(Metric(), "mean")]}, []

    def step(x):
        loss = descend(held, x, 0.1)
        for metric in none:
            metric.update(loss)
        return metrics["loss"][0][0].update(loss)

    return step, held, lambda i: None


def moved_within_a_dict():
    held = weights()
    groups = {"frozen": {}, "trained": dict(enumerate(held))}

    def step(x):
        return descend([*groups["trained"].values(), *groups["frozen"].values()], x, 0.1 / len(groups["trained"]))

    def change(i):
        if i == STEPS // 2:
            groups["frozen"][0] = groups["trained"].pop(0)

    return step, held, change


SAFE = [
    list_rate, changed_before_the_second_call, back_and_forth, global_flag, replaced_helper, method, callable_object,
    partial, default_argument, trainable_flag, built_in_the_first_call,
    known_shapes, settings_of_keras, rate_on_a_variable, rate_that_a_variable_may_have, frozen_variable,
    regularizer_of_a_variable, gradient_of_its_own, model_of_a_checkpoint,
    updates_objects_in_containers, moved_within_a_dict,
]  # fmt: skip


def counter():
    held, calls = weights(), 0

    def step(x):
        nonlocal calls
        calls += 1
        return descend(held, x, 0.1 / calls)

    return step, held, lambda i: None


def hidden_counter():
    held, calls = weights(), [0]

    def step(x):
        calls.__setitem__(0, calls[0] + 1)
        return descend(held, x, 0.1 / calls[0])

    return step, held, lambda i: None


def draws():
    held, rng = weights(), np.random
    rng.seed(5)
    return lambda x: descend(held, x, 0.1 * rng.rand()), held, lambda i: None


def draws_elsewhere():
    held, table = weights(), {"draw": random.random}
    random.seed(5)
    return lambda x: descend(held, x, 0.1 * table["draw"]()), held, lambda i: None


def prints():
    held = weights()

    def step(x):
        print("a step")
        return descend(held, x, 0.1)

    return step, held, lambda i: None


def seeded():
    tf.random.set_seed(3)
    held = weights()
    return lambda x: descend(held, x + tf.random.normal([4, 3]), 0.1), held, lambda i: None


def seeded_op():
    tf.random.set_seed(3)
    held = weights()
    return lambda x: descend(held, x + tf.random.normal([4, 3], seed=3), 0.1), held, lambda i: None


def changes_at_every_call():
    held, rates = weights(), [0.1]

    def change(i):
        rates[0] = 0.1 / (i + 1)

    return lambda x: descend(held, x, rates[0]), held, change


def kept_rows(read):
    """Makes a step whose guard reads the number of rows that are left."""

    def make():
        held, count = weights(), tf.Variable(0.0)

        def step(x):
            kept = tf.boolean_mask(x, x[:, 0] > 1.0)
            if read(kept) == 0:
                return tf.constant(0.0)
            count.assign_add(1.0)
            return descend(held, kept, 0.1)

        return step, [*held, count], lambda i: None

    return make


def skips_what_is_bad():
    held, good = weights(), tf.Variable(0.0)

    def step(x):
        try:
            tf.debugging.check_numerics(tf.math.log(x[0, 0] + 1.0), "bad")
        except tf.errors.InvalidArgumentError:
            return tf.constant(0.0)
        good.assign_add(1.0)
        return descend(held, x, 0.1)

    return step, [*held, good], lambda i: None


def checks():
    held = weights()

    def step(x):
        tf.debugging.assert_less(tf.reduce_max(x), 1e9)
        return descend(held, x, 0.1)

    return step, held, lambda i: None


def takes_a_float():
    held = weights()
    return lambda x: descend(held, x, 0.1 / (1.0 + abs(float(x[0, 0])))), held, lambda i: None


def takes_the_float_of_a_variable():
    held, optimizer = weights(), keras.optimizers.SGD(0.1)
    return lambda x: descend(held, x, float(optimizer.learning_rate)), held, lambda i: None


def takes_an_int():
    held = weights()

    def of(x):
        return int(1e9 * tf.cast(x[0, 0], tf.float64)) * 8  # more than 31 bits

    return lambda x: descend(held, x, 0.1 if of(x) > 0 else 0.01), held, lambda i: None


def outgrows_32_bits(x, seen):
    return int(seen) * 500_000 < 1_000_000_000


def has_many_rows(x, seen):
    return int(tf.shape(x)[0]) * len(tf.boolean_mask(x, x[:, 0] > 0.5)) * 3 > 20


def lowered_where(is_low):
    """Makes a step whose rate is lower where ints of Python's, made of tensors, say so."""

    def make():
        held, seen = weights(), tf.Variable(4290)

        def step(x):
            seen.assign_add(1)
            rate = 0.1
            if is_low(x, seen):
                rate = 0.01
            return descend(held, x, rate)

        return step, held, lambda i: None

    return make


def takes_values_where_there_are_any():
    held = weights()

    def value(x):
        return x.numpy() if hasattr(x, "numpy") else x  # without a gradient, or with one

    return lambda x: descend(held, x, 0.1, lambda y: y * value(tf.tanh(y))), held, lambda i: None


def takes_its_name_from_a_value():
    held, rates = weights(), {"task 0": 0.01}

    def step(x):
        task = tf.cast(0 * tf.reduce_sum(x), tf.int32)
        return descend(held, x, rates.get(f"task {task}", 0.1))

    return step, held, lambda i: None


def prints_in_a_gradient():
    held = weights()

    @tf.custom_gradient
    def shown(x):
        print("forward")
        return tf.identity(x), lambda upstream: upstream

    return lambda x: descend(held, x, 0.1, shown), held, lambda i: None


def notes_now_and_then():
    held, log, count = weights(), {"losses": []}, tf.Variable(0)

    def step(x):
        loss = descend(held, x, 0.1)
        if count.assign_add(1) % 5 == 0:
            log["losses"].append(loss)
        return loss

    return step, lambda: [*held, *map(tf.constant, log["losses"])], lambda i: None


class Logs:
    def __init__(self):
        self.kept = []

    @property
    def logs(self):
        return self.kept


KEPT = Logs()


def notes_unseen(note):
    """Makes a step whose code does not show what it changes now and then."""

    def make():
        held, count = weights(), tf.Variable(0)
        KEPT.kept = []

        def step(x):
            loss = descend(held, x, 0.1)
            if count.assign_add(1) % 5 == 0:
                note(loss)
            return loss

        return step, lambda: [*held, *map(tf.constant, KEPT.kept)], lambda i: None

    return make


def reads_a_file():
    held, path = weights(), Path(tempfile.mkdtemp()) / "rate"

    def change(i):
        path.write_text("0.1" if i < 8 else "0.01")

    return lambda x: descend(held, x, tf.strings.to_number(tf.io.read_file(str(path)))), held, change


def untraceable():
    held = weights()
    return lambda x: descend(held, x, 0.1 if x.numpy()[0, 0] > 0 else 0.01), held, lambda i: None


def decay(variables, gradients):
    """An update that tells a gradient of zeros from none."""
    for variable, gradient in zip(variables, gradients, strict=True):
        if gradient is not None:
            variable.assign(0.9 * variable - 0.1 * gradient)


def into_a_tf_function(number, enough=lambda number: number):
    """Makes a step whose second variable has a gradient where the number of a batch is enough."""

    def make(within=False):
        held = weights()

        @tf.function
        def loss_of(x, number):
            loss = tf.reduce_mean(tf.square(x @ held[0]))
            return loss + tf.reduce_mean(tf.square(held[1])) if enough(number) else loss

        def step(x):
            found = number(x)
            with tf.GradientTape() as tape:
                if within:
                    if tf.reduce_max(x) > -100.0:
                        loss = loss_of(x, found)
                    else:
                        loss = tf.reduce_mean(tf.square(x @ held[0] @ held[1]))
                else:
                    loss = loss_of(x, found)
            decay(held, tape.gradient(loss, held))
            return loss

        return step, held, lambda i: None

    return make


def an_int(x):
    return int(tf.reduce_sum(tf.cast(x > 0.0, tf.int32)))


def one_more(x):
    return an_int(x) + 1


def a_flag(x):
    hard = False
    if tf.reduce_max(x) > 1.5:
        hard = True
    return hard


def a_length(x):
    return len(tf.boolean_mask(x, x[:, 0] > 0.5))


def reads_late_by_a_lambda():
    held = weights()

    def step(x):
        rate = 0.1
        moved = lambda: [v - rate * v for v in held]  # noqa: E731
        if tf.reduce_max(x) > 2.2:  # of some batches
            rate = 0.01
        for variable, new in zip(held, moved(), strict=True):
            variable.assign(new)
        return tf.reduce_mean(tf.square(x @ held[0] @ held[1]))

    return step, held, lambda i: None


def keeps_lambdas_of_a_loop():
    held = weights()

    def step(x):
        terms = []
        for rate in (0.1, 0.5, 1.0):
            terms.append(lambda p: rate * tf.reduce_mean(tf.square(p)))  # noqa: B023, PERF401
        return descend(held, x, 0.1 * tf.add_n([term(x) for term in terms]))

    return step, held, lambda i: None


def gets_a_value_from_keras():
    held, beta = weights(), tf.keras.backend.variable(0.1)

    def change(i):
        beta.assign(0.1 if i < 8 else 0.01)

    return lambda x: descend(held, x, tf.keras.backend.get_value(beta)), held, change


def loops_by_a_float():
    held = weights()

    def step(x):
        with tf.GradientTape() as tape:
            z = tf.while_loop(lambda t, z: t < 1.0, lambda t, z: (t + 0.1, z + 0.1 * x @ held[0]), (0.0, x))[1]
            loss = tf.reduce_mean(tf.square(z @ held[1]))
        for variable, gradient in zip(held, tape.gradient(loss, held), strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    return step, held, lambda i: None


def halved_where_it_is_large(z):
    if tf.reduce_max(z) > 1.0:
        z = z / 2.0
    return z


def loops_by_tensorflow():
    """With a body that AutoGraph converts, and a sum that begins with a float of Python's."""
    held = weights()

    def step(x):
        with tf.GradientTape() as tape:
            _, z, total = tf.while_loop(
                lambda i, z, total: i < 3,
                lambda i, z, total: (i + 1, halved_where_it_is_large(z @ held[0]), total + tf.reduce_sum(z)),
                (0, x, 0.0),
            )
            loss = tf.reduce_mean(tf.square(z @ held[1])) + 0.01 * total
        for variable, gradient in zip(held, tape.gradient(loss, held), strict=True):
            variable.assign_sub(0.01 * gradient)
        return loss

    return step, held, lambda i: None


def flags_under_a_persistent_tape():
    held = weights()

    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            loss, is_large = tf.reduce_mean(tf.square(x @ held[0] @ held[1])), False
            if loss > 0.5:
                is_large = True
            if is_large:
                loss = loss / 2.0
        for variable in held:
            variable.assign_sub(0.1 * tape.gradient(loss, variable))
        return loss

    return step, held, lambda i: None


@pytest.mark.parametrize("make", [loops_by_tensorflow, flags_under_a_persistent_tape, lowered_where(has_many_rows)])
def test_loops_and_flags_that_are_the_same_either_way_are_placed(two_cpus, live_hand, make):
    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone is None and hand.moves > 3


UNSAFE = [
    (reads_late_by_a_lambda, "a lambda that reads `rate`"), (keeps_lambdas_of_a_loop, "a lambda that reads `rate`"),
    (gets_a_value_from_keras, "get_value"), (loops_by_a_float, "counts with a float of Python's in tf.while_loop"),
    (into_a_tf_function(a_flag), "takes it into a tf.function"),
    (into_a_tf_function(a_length, lambda count: count > 1), "takes it into a tf.function"),
    (kept_rows(lambda kept: np.shape(kept)[0]), "shape"),
    (kept_rows(lambda kept: tf.keras.backend.int_shape(kept)[0]), "shape"),
    (counter, "`calls` (a nonlocal)"), (hidden_counter, "changes"), (draws, "rng.rand"), (draws_elsewhere, "Random"),
    (prints, "print"), (seeded, "seed"), (seeded_op, "seed"), (changes_at_every_call, "pass it as an argument"),
    (skips_what_is_bad, "catches exceptions"), (untraceable, "trace"), (lazily_built, "layers"),
    (checks, "raises where a value is bad"), (takes_a_float, "a float of a tensor in "),
    (takes_the_float_of_a_variable, "a float of a tensor in "),
    (takes_an_int, "an int of a tensor in of"),
    (notes_unseen(lambda loss: KEPT.logs.append(loss)), "it changes what `KEPT` holds"),
    (notes_unseen(lambda loss: operator.iadd(KEPT.kept, [loss])), "it changes what `KEPT` holds"),
    (lowered_where(outgrows_32_bits), "(Mul) keeps it to 32 bits"),
    (takes_values_where_there_are_any, "(Tanh) for its value"),
    (into_a_tf_function(one_more, lambda count: count > 7), "takes it into a tf.function"),
    (functools.partial(into_a_tf_function(an_int, lambda count: count > 6),
                       within=True), "takes it into a tf.function"),
    (takes_its_name_from_a_value, "it makes text of a tensor (Cast) in "),
    (prints_in_a_gradient, "print"), (notes_now_and_then, "changes `log[].append`"), (reads_a_file, "looks into files"),
    (kept_rows(lambda kept: kept.shape[0]), "shape"),
    (kept_rows(lambda kept: kept.get_shape().as_list()[0]), "shape"),
    (kept_rows(lambda kept: kept.shape.num_elements()), "shape"),
    (kept_rows(lambda kept: 0 if kept.shape == (0, 3) else 1), "shape"),
    (kept_rows(lambda kept: tf.get_static_value(tf.shape(kept))[0]), "get_static_value"),
]  # fmt: skip


def alone(make, count=STEPS):
    """(losses, variables afterwards) of the program without Placer."""
    step, held, change = make()
    losses = []
    for i, x in enumerate(batches(count)):
        change(i)
        losses.append(float(step(x)))
    return losses, [v.numpy() for v in (held() if callable(held) else held)]


def wrapped(live_hand, make, count=STEPS):
    """The same by a live step, placed as soon as it may be and then moved about; and that step."""
    step, held, change = make()
    hand, losses = live_hand(step), []
    for i, x in enumerate(batches(count)):
        change(i)
        losses.append(float(hand(x)))
        if hand.live.left_alone is None and hand.live.is_ready and i >= 2:  # two calls are recorded to be tried again
            hand.move() if hand.live.is_joined else hand.place()
    hand.close()
    return (losses, [v.numpy() for v in (held() if callable(held) else held)]), hand


def close(one, other):
    np.testing.assert_allclose(one[0], other[0], rtol=1e-4)
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    return True


RETURNED = [
    (0.1, "a Python float"), ("sgd", "a Python str"), (True, "a Python bool"), (np.float32(1.0), "a float32"),
    (tf.Variable(1.0), "a tf.Variable"),
]  # fmt: skip


@pytest.mark.parametrize("draws", [False, True], ids=["repeatable", "random"])
@pytest.mark.parametrize(("value", "kind"), RETURNED)
def test_a_step_that_returns_what_is_no_tensor_is_left_alone(two_cpus, live_hand, value, kind, draws):
    held = weights()

    def step(x):
        x = x + tf.random.normal([4, 3]) if draws else x
        return {"loss": descend(held, x, 0.1), "more": value, "nothing": None}

    hand = live_hand(step)
    for x in batches(6):
        assert type(hand(x)["more"]) is type(value)
    hand.close()
    assert hand.live.left_alone.startswith(f"it returns {kind}, which")


def test_a_step_that_returns_a_number_that_it_was_given_is_left_alone(two_cpus, live_hand):
    held = weights()
    hand = live_hand(lambda x, rate: (descend(held, x, rate), rate))
    for i, x in enumerate(batches(12)):
        assert hand(x, schedule(i))[1] == schedule(i)
    hand.close()
    assert "returns a Python float" in hand.live.left_alone


@pytest.mark.some(8)
@pytest.mark.parametrize("make", SAFE)
def test_a_changed_state_of_python_trains_as_unwrapped(two_cpus, live_hand, make):
    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone is None
    assert hand.moves > 3


@pytest.mark.some(12)
@pytest.mark.parametrize(("make", "reason"), UNSAFE)
def test_a_step_that_no_trace_repeats_is_left_alone_and_has_a_reason(two_cpus, live_hand, make, reason):
    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert reason in hand.live.left_alone


@pytest.mark.some(3)
@pytest.mark.parametrize("wrap", [lambda step: step, tf.function], ids=["plain", "tf.function"])
@pytest.mark.parametrize(
    ("switch", "reason"),
    [
        (tf.config.run_functions_eagerly, "run_functions_eagerly"),
        (lambda on: enable_op_determinism() if on else disable_op_determinism(), "enable_op_determinism"),
        (lambda on: tf.config.optimizer.set_experimental_options({"auto_mixed_precision": on}), "auto_mixed_precision"),
    ],
)
def test_what_a_program_sets_in_the_middle_leaves_its_step_alone(two_cpus, live_hand, wrap, switch, reason):
    seen = []

    def make():
        held = weights()

        def step(x):
            return descend(held, x, 0.1)

        def change(i):
            switch(i >= 11)

        return wrap(step), held, change

    try:
        found, hand = wrapped(live_hand, make)
        seen.append(hand.moves)
        assert close(found, alone(make))
    finally:
        switch(False)
    assert seen[0] > 3
    assert reason in hand.live.left_alone


def reseeded(seed, draw):
    """Makes (step, variables): what it draws is without a seed until `seed` sets one."""

    def make():
        held, drawn = weights(), tf.Variable(tf.zeros([3]))

        def step(x):
            drawn.assign(draw())
            return descend(held, x, 0.1)

        def change(i):
            if i in (11, 13):
                seed()

        return step, [drawn], change

    return make


def without_seeds():
    """As in a program that has set no seed."""
    tf.random.set_seed(None)
    keras.utils.clear_session(free_memory=False)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "make",
    [
        reseeded(lambda: tf.random.set_seed(3), lambda: tf.random.normal([3])),
        reseeded(lambda: keras.utils.set_random_seed(3), lambda: keras.random.normal([3])),
        reseeded(
            lambda: tf.random.set_global_generator(tf.random.Generator.from_seed(3)),
            lambda: tf.random.get_global_generator().normal([3]),
        ),
    ],
    ids=["tf", "keras", "generator"],
)
def test_a_stream_of_the_program_that_is_replaced_is_drawn_from_as_unwrapped(two_cpus, live_hand, make):
    without_seeds()
    found, hand = wrapped(live_hand, make)
    assert hand.moves > 3
    assert "in whose place" in hand.live.left_alone or "set_seed since" in hand.live.left_alone
    without_seeds()
    np.testing.assert_array_equal(found[1][0], alone(make)[1][0])
    without_seeds()


def test_what_a_step_does_before_it_asks_for_its_batch_it_does_at_the_end_of_data_too(two_cpus, live_hand):
    def trained(wrap):
        held, asked = weights(), tf.Variable(0.0)

        def step(iterator):
            asked.assign_add(1.0)
            return descend(held, next(iterator), 0.1 / asked)

        called, losses = wrap(step), []
        for epoch in range(4):
            iterator = iter(tf.data.Dataset.from_tensor_slices(batches(5)))
            with pytest.raises(StopIteration):
                for _ in range(9):
                    losses.append(float(called(iterator)))
                    if wrap is live_hand and epoch > 0 and called.live.is_ready:
                        called.move() if called.live.is_joined else called.place()
        if wrap is live_hand:
            assert called.is_placed
            called.close()
        assert asked.numpy() == 24.0
        return losses, [v.numpy() for v in held]

    assert close(trained(live_hand), trained(lambda step: step))


def test_a_step_that_asks_several_iterators_is_left_alone_and_ends_as_unwrapped(two_cpus, live_hand):
    """It asks the second one first, whose last batch is gone when the first one ends."""

    def left(wrap):
        held = weights()
        called = wrap(lambda first, second: descend(held, next(second) + next(first), 0.1))
        one, other = (iter(tf.data.Dataset.from_tensor_slices(batches(count))) for count in (6, 9))
        with pytest.raises(StopIteration):
            for _ in range(9):
                called(one, other)
        if wrap is live_hand:
            assert "several iterators" in called.live.left_alone
            called.close()
        return len(list(other)), held[0].numpy()

    (count, found), (expected, alone_) = left(live_hand), left(lambda step: step)
    assert count == expected == 2
    np.testing.assert_allclose(found, alone_, rtol=1e-4, atol=1e-6)


def test_a_placed_step_that_fails_half_way_is_said_to_and_the_step_is_left_alone(two_cpus, live_hand):
    held = weights()
    hand = live_hand(lambda x, i: descend(held, tf.gather(x, i), 0.1))
    for x in batches(6):
        hand(x, tf.constant([0, 1]))
    hand.place()
    for x in batches(3):
        hand(x, tf.constant([0, 1]))
    assert hand.is_placed
    with pytest.raises(tf.errors.InvalidArgumentError):
        hand(batches(1)[0], tf.constant([0, 9]))
    assert "its placed step failed (InvalidArgumentError)" in hand.live.left_alone
    hand(batches(1)[0], tf.constant([0, 1]))
    hand.close()


def test_every_call_that_is_untouched_runs_as_it_is_written(two_cpus, live_hand, capsys):
    hand, eager = live_hand(lambda x: eager_seen.append(tf.executing_eagerly()) or x), []
    eager_seen = eager
    for x in batches(PLAIN_CALLS):
        hand(x)
    hand.close()
    assert eager == [True] * PLAIN_CALLS


def test_a_state_seen_before_is_known_again(two_cpus, live_hand):
    found, hand = wrapped(live_hand, back_and_forth, count=40)
    assert len(hand.live.variants) == 3
    assert close(found, alone(back_and_forth, count=40))


# Other things as arguments.


class Config:
    rate = 0.1


def config_as_argument():
    held, config = weights(), Config()

    def call(step, i, x):
        config.rate = 0.1 if i < 8 else 0.0
        return step(config, x)

    return lambda cfg, x: descend(held, x, cfg.rate), held, call


def configs_in_turn():
    held, configs = weights(), [Config(), Config()]

    def call(step, i, x):
        configs[1].rate = 0.02 if i < 12 else 0.0
        return step(configs[i % 2], x)

    return lambda cfg, x: descend(held, x, cfg.rate), held, call


def config_in_a_dict_by_name():
    held, config = weights(), Config()

    def call(step, i, x):
        config.rate = 0.1 if i < 8 else 0.0
        return step(x, options={"optimizer": config, "clip": True})

    def step(x, options):
        return descend(held, x, options["optimizer"].rate)

    return step, held, call


def model_and_optimizer_as_arguments():
    begun = {"kernel_initializer": keras.initializers.GlorotUniform(seed=3)}
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, **begun), keras.layers.Dense(2, **begun)])
    optimizer = keras.optimizers.SGD(0.1)

    def step(model, optimizer, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True)))
        trained = model.trainable_variables
        gradients = tape.gradient(loss, trained)
        for variable, gradient in zip(trained, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        optimizer.apply(gradients[-2:], trained[-2:])
        return loss

    def call(step, i, x):
        model.layers[0].trainable = i < 8
        return step(model, optimizer, x)

    return step, model.variables, call


def lists_that_are_read():
    held = weights()

    def step(parts, options):
        return descend(held, parts[0] + parts[1]["x"], options["rate"])

    return step, held, lambda step, i, x: step([x, {"x": x}], {"rate": 0.1, "name": "sgd"})


def logs_of_the_step():
    held, logs = weights(), {}

    def step(x, logs):
        loss = descend(held, x, 0.1)
        logs.update(loss=loss)
        return loss

    return step, held, lambda step, i, x: (step(x, logs), logs["loss"])[1]


def remember(found, name, loss):
    found[name] = loss


def logs_of_a_helper():
    held, logs = weights(), {"loss": tf.constant(0.0)}

    def step(x, logs):
        loss = descend(held, x, 0.1)
        remember(logs, "loss", loss)
        return loss

    return step, held, lambda step, i, x: (step(x, logs), logs["loss"])[1]


def losses_in_a_list():
    held = weights()

    def step(x, found):
        loss = descend(held, x, 0.1)
        found["losses"].append(loss)
        return loss

    def call(step, i, x):
        losses = [x]
        step(x, {"losses": losses})
        return losses[1]

    return step, held, call


def prints_later():
    held = weights()

    def noisy(x):
        print("changes `nothing`")
        return x

    return (
        lambda through, x: descend(held, x, 0.1, through),
        held,
        lambda step, i, x: step(tf.nn.relu if i < 8 else noisy, x),
    )


def losses_in_an_object():
    held, state = weights(), Config()
    state.losses = []

    def keep(found, loss):
        found.losses.append(loss)

    def step(x, found):
        loss = descend(held, x, 0.1)
        keep(found, loss)
        return loss

    return step, held, lambda step, i, x: (step(x, state), state.losses[i])[1]


class Options(dict):
    rate = 0.0


def attribute_of_a_dict():
    held, options = weights(), Options(name="sgd")

    def call(step, i, x):
        options.rate = 0.1 if i < 8 else 0.01
        return step(options, x)

    return lambda options, x: descend(held, x, options.rate), held, call


def alone_with(make, count=STEPS):
    """As `alone`, where the program calls the step itself."""
    step, held, call = make()
    losses = [float(call(step, i, x)) for i, x in enumerate(batches(count))]
    return losses, [v.numpy() for v in held]


def wrapped_with(live_hand, make, count=STEPS):
    """As `wrapped`, where the program calls the step itself."""
    step, held, call = make()
    hand, losses = live_hand(step), []
    for i, x in enumerate(batches(count)):
        losses.append(float(call(hand, i, x)))
        if hand.live.left_alone is None and hand.live.is_ready and i >= 2:  # two calls are recorded to be tried again
            hand.move() if hand.live.is_joined else hand.place()
    hand.close()
    return (losses, [v.numpy() for v in held]), hand


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "make",
    [
        config_as_argument, configs_in_turn, config_in_a_dict_by_name, model_and_optimizer_as_arguments,
        lists_that_are_read,
    ],
)  # fmt: skip
def test_what_a_step_reads_of_its_arguments_trains_as_unwrapped(two_cpus, live_hand, make):
    found, hand = wrapped_with(live_hand, make)
    assert close(found, alone_with(make))
    assert hand.live.left_alone is None
    assert hand.moves > 3


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (logs_of_the_step, "changes `logs.update`"), (logs_of_a_helper, "`found[]` in remember"),
        (losses_in_a_list, "changes `found[].append`"), (losses_in_an_object, "changes `found.losses.append` in "),
        (prints_later, "print"), (attribute_of_a_dict, "whose attribute `rate`"),
    ],
)  # fmt: skip
def test_a_step_whose_arguments_a_trace_would_not_change_or_see_is_left_alone(two_cpus, live_hand, make, reason):
    found, hand = wrapped_with(live_hand, make)
    assert close(found, alone_with(make))
    assert reason in hand.live.left_alone


# Numbers as arguments.


def schedule(i):
    return 0.1 / (1 + i)


def scheduled(step, count=60):
    return [float(step(x, schedule(i))) for i, x in enumerate(batches(count))]


@pytest.mark.parametrize("wrap", [lambda step: step, tf.function], ids=["plain", "tf.function"])
def test_a_schedule_of_floats_is_placed_and_trains_as_unwrapped(two_cpus, live_hand, wrap):
    held, expected = weights(), weights()
    losses = scheduled(lambda x, rate: descend(expected, x, rate))
    hand, found, rates = live_hand(wrap(lambda x, rate: descend(held, x, rate))), [], []
    for i, x in enumerate(batches(60)):
        found.append(float(hand(x, schedule(i))))
        if i >= 8:
            hand.move() if hand.live.is_joined else hand.place()
        rates.append(len(hand.live.variants))
    hand.close()
    assert hand.is_placed is False and hand.moves > 50
    assert max(rates) <= 3
    assert close((found, [v.numpy() for v in held]), (losses, [v.numpy() for v in expected]))


class Scheduled:
    """A trainer whose step is a tf.function of its class."""

    def __init__(self, variables):
        self.variables = variables

    @tf.function
    def step(self, x, rate):
        return descend(self.variables, x, rate)


def test_a_schedule_of_floats_for_a_method_is_placed_and_trains_as_unwrapped(two_cpus, live_hand):
    trainer, expected = Scheduled(weights()), weights()
    losses = scheduled(lambda x, rate: descend(expected, x, rate), STEPS)
    hand, found = live_hand(trainer.step), []
    for i, x in enumerate(batches()):
        found.append(float(hand(x, schedule(i))))
        if i == 8:
            hand.place()
    assert hand.is_placed and hand.live.main.layout.numbers
    hand.close()
    assert close((found, [v.numpy() for v in trainer.variables]), (losses, [v.numpy() for v in expected]))


def test_an_untouched_step_gets_the_number_that_the_user_passed(two_cpus, live_hand):
    held, kinds = weights(), []

    class Kinds:
        def add(self, kind):
            kinds.append(kind)

    def step(x, rate):
        return descend(held, x, rate)

    hand = live_hand(step)
    hand.live.untouched.step = lambda x, rate: (kinds.append(type(rate)), step(x, rate))[1]
    for i, x in enumerate(batches(3)):
        hand(x, schedule(i))
    hand.close()
    assert kinds == [float] * 3


def test_a_number_that_python_computes_with_more_exactly_runs_untouched(two_cpus, live_hand):
    held, expected = weights(), weights()
    hand = live_hand(lambda x, beta: descend(held, x, 0.1 * (1.0 - beta)))
    with pytest.warns(UserWarning, match="less exact"):
        found = [float(hand(x, 1.0 - 1e-9 * i)) for i, x in enumerate(batches(12))]
    hand.close()
    losses = [float(descend(expected, x, 0.1 * (1.0 - (1.0 - 1e-9 * i)))) for i, x in enumerate(batches(12))]
    assert close((found, [v.numpy() for v in held]), (losses, [v.numpy() for v in expected]))


@pytest.mark.slow
def test_a_tf_function_reads_python_again_for_each_number_as_unwrapped(two_cpus, live_hand):
    """Without any number that varies, its state is frozen at the first call."""

    def trained(wrap):
        held, factor = weights(), [1.0]
        step, losses = wrap(tf.function(lambda x, rate: descend(held, x, rate * factor[0]))), []
        for i, x in enumerate(batches(40)):
            factor[0] = 1.0 if i < 13 else 0.25
            losses.append(float(step(x, schedule(i))))
            if i >= 8 and wrap is live_hand:
                step.move() if step.live.is_joined else step.place()
        if wrap is live_hand:
            step.close()
        return losses, [v.numpy() for v in held]

    assert close(trained(live_hand), trained(lambda step: step))


RATES = (0.1, 0.05, 0.02)


def in_turn(i):
    """A number that changes, and what the step reads of Python beside it."""
    return RATES[i % 3], 1.0 if i < 13 else 0.5


def one_after_the_other(i):
    turn = min(i // 3, 2)
    return RATES[turn if i < 9 else i % 3], (1.0, 0.5, 0.25)[turn]


@pytest.mark.parametrize("given", [in_turn, one_after_the_other])
def test_a_tf_function_keeps_for_each_number_what_it_read_at_first_as_unwrapped(two_cpus, live_hand, given):
    """TensorFlow traces it once for each."""

    def trained(wrap):
        held, factor = weights(), [1.0]
        step, losses = wrap(tf.function(lambda x, rate: descend(held, x, rate * factor[0]))), []
        for i, x in enumerate(batches(40)):
            rate, factor[0] = given(i)
            losses.append(float(step(x, rate)))
            if i == 24 and wrap is live_hand:
                step.place()
        if wrap is live_hand:
            assert step.is_placed
            step.close()
        return losses, [v.numpy() for v in held]

    assert close(trained(live_hand), trained(lambda step: step))


def whole_or_part(held, x, rows):
    """Another loss once the rows are all there, which a tensor among the shapes would hide."""
    taken = x[:rows]
    return descend(held, taken, 0.1 if taken.shape[0] == x.shape[0] else 0.01)


def of_a_text(held, x, rows):
    return descend(held, x, 0.1 if f"{rows}" == "4" else 0.01)


class Annealed:
    """Its step calls a function that TensorFlow traces anew for each number, and that reads `weight` then."""

    def __init__(self):
        self.weight, self.inner = 1.0, tf.function(lambda held, x, rate: descend(held, x, rate * self.weight))

    def __call__(self, held, x, rows):
        return self.inner(held, x, 0.1 / rows)


@pytest.mark.some(2)
@pytest.mark.parametrize("wrap", [lambda step: step, tf.function], ids=["plain", "tf.function"])
@pytest.mark.parametrize("of", [whole_or_part, of_a_text])
@pytest.mark.filterwarnings("ignore:.*untouched")
def test_a_number_whose_value_a_trace_for_each_would_see_runs_as_unwrapped(two_cpus, live_hand, of, wrap):
    def trained(live):
        held = weights()
        step, losses = live(wrap(lambda x, rows: of(held, x, rows))), []
        for i, x in enumerate(batches(40)):
            losses.append(float(step(x, 1 + i // 3 % 4)))
            if live is live_hand:
                move_by_number(step, i)
        if live is live_hand:
            step.close()
        return losses, [v.numpy() for v in held]

    assert close(trained(live_hand), trained(lambda step: step))


def move_by_number(hand, i):
    """Place a live step as soon as its numbers are tensors."""
    main = hand.live.variants.main
    if i >= 8 and hand.live.left_alone is None and hand.live.is_ready and not main.refused and main.layout.numbers:
        hand.move() if hand.live.is_joined else hand.place()


@pytest.mark.parametrize("wrap", [lambda step: step, tf.function], ids=["plain", "tf.function"])
def test_a_number_that_goes_into_a_function_of_its_own_traces_runs_untouched(two_cpus, live_hand, wrap):
    held, inner = weights(), tf.function(descend)
    hand = live_hand(wrap(lambda x, rate: inner(held, x, 0.1 * rate)))
    with pytest.warns(UserWarning, match="takes it into a tf.function, which TensorFlow would trace anew"):
        for i, x in enumerate(batches(12)):
            hand(x, 1.0 / (1 + i))
            move_by_number(hand, i)
    hand.close()
    assert hand.moves == 0


@pytest.mark.parametrize("wrap", [lambda step: step, tf.function], ids=["plain", "tf.function"])
@pytest.mark.parametrize(
    ("dtype", "rate_of"),
    [(tf.float64, lambda rate: rate), (tf.float32, lambda epoch: 0.1 / (1.0 + epoch))],
    ids=["float64", "int"],
)
def test_a_number_that_meets_another_type_runs_untouched_and_says_what_to_do(two_cpus, live_hand, wrap, dtype, rate_of):
    held = [tf.Variable(tf.cast(one, dtype)) for one in weights()]
    hand = live_hand(wrap(lambda x, number: descend(held, x, rate_of(number))))
    with pytest.warns(UserWarning, match=r"mixes with no other type; pass a tensor of the type .* with\)\. Calls of"):
        for i, x in enumerate(batches(12)):
            hand(tf.cast(x, dtype), 1.0 / (1 + i) if dtype == tf.float64 else i)
            move_by_number(hand, i)
    hand.close()
    assert hand.moves == 0


@pytest.mark.some(1)
@pytest.mark.parametrize("wrap", [lambda step: step, tf.function], ids=["plain", "tf.function"])
@pytest.mark.parametrize(
    "times", [keras.ops.multiply, lambda h, rate: tf.cast(h, tf.float32) * rate], ids=["ops", "tf"]
)
def test_a_number_that_would_widen_short_floats_runs_untouched(two_cpus, live_hand, wrap, times):
    """Keras makes float32 of float16 and a tensor, and float16 of it and Python's number. What the step itself makes
    float32 stays so.
    """

    def make():
        held = weights()
        step = wrap(
            lambda x, rate: descend(held, x, 0.1, lambda h: tf.cast(times(tf.cast(h, tf.float16), rate), "float32"))
        )
        return step, held, lambda step, i, x: step(x, 1.0 + 1.0 / (3 + i))

    step, held, call = make()
    expected = [float(call(step, i, x)) for i, x in enumerate(batches(20))]
    step, other, call = make()
    hand, found = live_hand(step), []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for i, x in enumerate(batches(20)):
            found.append(float(call(hand, i, x)))
            move_by_number(hand, i)
    hand.close()
    assert close((found, [v.numpy() for v in other]), (expected, [v.numpy() for v in held]))
    assert (hand.moves > 3) == (times is not keras.ops.multiply)
    assert any("it would make float32 of short floats" in str(one.message) for one in said) == (hand.moves == 0)


def test_a_number_that_shapes_the_step_runs_untouched_and_says_so(two_cpus, live_hand):
    held, expected = weights(), weights()

    def make(variables):
        def step(x, rows):
            for _ in itertools.repeat(None, rows):
                x = tf.nn.relu(x)
            return descend(variables, x[:rows], 0.1)

        return step

    hand, counts = live_hand(make(held)), [1, 2, 3, 4]
    with pytest.warns(UserWarning, match="untouched"):
        found = [float(hand(x, counts[i % 4])) for i, x in enumerate(batches())]
    hand.close()
    plain = [float(make(expected)(x, counts[i % 4])) for i, x in enumerate(batches())]
    assert close((found, [v.numpy() for v in held]), (plain, [v.numpy() for v in expected]))


@pytest.mark.slow
def test_signatures_are_bounded(two_cpus, live_hand):
    held = weights()
    hand = live_hand(tf.function(lambda x: descend(held, x, 0.1)))
    x = batches(1)[0]
    for _ in range(PLAIN_CALLS):
        hand(x)
    hand.place()
    for rows in range(1, 3 * MOST_VARIANTS):
        hand(tf.ones([rows, 3]))
    assert len(hand.live.variants) <= MOST_VARIANTS
    assert hand.live.main in hand.live.variants
    assert float(hand(x)) >= 0
    hand.close()
