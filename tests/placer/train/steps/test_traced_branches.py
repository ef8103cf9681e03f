"""What a plain step does in branches that depend on tensors is done as it is written, or the step is left alone."""

from __future__ import annotations

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.placer.train.steps.test_plain_step import alone, alone_with, batches, close, weights, wrapped, wrapped_with

pytestmark = pytest.mark.filterwarnings("ignore:Gradients do not exist")  # Keras's, where one is None


KEPT = []  # a tf.function that takes a variable knows it by its id, which another one gets once it is gone


def square(x):
    return tf.reduce_mean(tf.square(x))


def begun():
    return keras.initializers.GlorotUniform(seed=3)


def decaying(variables):
    """An optimizer that moves variables whose gradients are zeros."""
    optimizer = keras.optimizers.AdamW(0.05, weight_decay=0.1)
    optimizer.build(variables)
    return optimizer


def descending(loss_of, held=None, **tape_options):
    """Makes (step, variables, what the program does before a call): the step trains on what `loss_of` makes of it."""

    def make():
        variables = weights() if held is None else held()
        KEPT.extend(variables)
        optimizer = decaying(variables)

        def step(x):
            with tf.GradientTape(**tape_options) as tape:
                loss = loss_of(variables, x)
            optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        return step, variables, lambda i: None

    return make


# Gradients that are None where a branch is not taken.


def switched_off(held, x):
    loss = square(x @ held[0])
    if loss > 0.5:
        loss = loss + square(x @ held[1])
    return loss


def switched_off_by_cond(held, x):
    loss, squared = square(x @ held[0]), tf.square(held[1])
    return tf.cond(loss > 0.5, lambda: loss + square(x @ squared), lambda: loss)


def switched_off_by_case(held, x):
    loss = square(x @ held[0])
    others = [lambda: loss, lambda: loss + square(held[1]), lambda: 2.0 * loss]
    return tf.switch_case(tf.cast(loss > 0.5, tf.int32), others)


def switched_off_within(held, x):
    loss = square(x @ held[0])
    if loss > 0.1:
        loss = loss + square(x @ held[1]) if loss > 0.5 else 1.5 * loss
    return loss


def no_runs(held, x):
    loss = square(x @ held[0])
    for _ in tf.range(tf.cast(4.0 * loss, tf.int32)):
        loss = loss + 0.1 * square(x @ held[1])
    return loss


def stopped(held, x):
    return switched_off(held, x) + square(tf.stop_gradient(held[1]))


@tf.function
def compiled(x, weight):
    return square(x @ weight) if tf.reduce_sum(x) > -1e9 else tf.constant(0.0)


@tf.custom_gradient
def reversed_gradient(x):
    return x * 1.0, lambda upstream: -0.1 * upstream


def switched_off_in_a_call(held, x):
    loss = compiled(x, held[0])
    if loss > 0.5:
        loss = loss + compiled(x, held[1])
    return loss


def switched_off_behind_a_gradient_of_its_own(held, x):
    loss = square(reversed_gradient(x @ held[0]))
    if loss > 0.5:
        loss = loss + square(reversed_gradient(x @ held[1]))
    return reversed_gradient(loss)


NONE = [
    switched_off, switched_off_by_cond, switched_off_by_case, switched_off_within, no_runs, stopped,
    switched_off_in_a_call, switched_off_behind_a_gradient_of_its_own,
]  # fmt: skip


@pytest.mark.some(3)
@pytest.mark.parametrize("loss_of", NONE)
def test_a_gradient_that_is_none_in_some_steps_leaves_the_step_alone(two_cpus, live_hand, loss_of):
    found, hand = wrapped(live_hand, descending(loss_of))
    assert close(found, alone(descending(loss_of)))
    assert "is None where a branch is not taken" in hand.live.left_alone


def penalised(loss_of):
    """With the norm of a gradient, for which one tape lies within another."""

    def loss(held, x):
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = loss_of(held, x)
        return loss + square(inner.gradient(loss, x))

    return loss


@pytest.mark.some(2)
@pytest.mark.parametrize("loss_of", [switched_off, switched_off_within, no_runs])
@pytest.mark.parametrize("make", [lambda of: descending(of, persistent=True), lambda of: descending(penalised(of))],
                         ids=["persistent", "within another"])  # fmt: skip
def test_such_a_gradient_is_seen_in_the_calls_that_tensorflow_makes_of_branches(two_cpus, live_hand, loss_of, make):
    found, hand = wrapped(live_hand, make(loss_of))
    assert close(found, alone(make(loss_of)))
    assert "is None where a branch is not taken" in hand.live.left_alone


def recurrent():
    layer = keras.layers.LSTM(3, kernel_initializer=begun(), recurrent_initializer=begun())
    layer.build((None, 4, 3))
    return [*weights(), *layer.trainable_variables], layer


def in_each_branch(held, x):
    loss = square(x @ held[0]) + square(x @ held[1])
    if loss > 0.5:
        loss = 0.9 * loss + 0.01 * square(held[1])
    return tf.cond(loss > 0.2, lambda: loss * tf.norm(held[0]), lambda: loss * tf.norm(held[0] + held[1]))


def in_loops(held, x):
    state = tf.zeros([1, 3])
    for i in tf.range(tf.shape(x)[0]):
        state = tf.tanh(x[i][None] @ held[0] + state @ held[1])
    for row in x:
        state = state + 0.1 * row[None] @ held[1]
    return square(state) + square(tf.map_fn(lambda row: tf.linalg.matvec(held[0], row), x))


def without_any_gradient(held, x):
    loss = square(x @ held[0])
    return loss + 0.1 * loss * square(held[1]) if loss > -1.0 else loss * (1.0 + square(held[1]))


def in_calls(held, x):
    loss = compiled(x, held[0]) + square(reversed_gradient(x @ held[1]))
    if loss > 0.5:
        loss = loss + compiled(x, held[1])
    return loss


@pytest.mark.some(2)
@pytest.mark.parametrize("loss_of", [in_each_branch, in_loops, in_calls, without_any_gradient])
def test_a_gradient_that_is_none_in_no_step_may_be_placed(two_cpus, live_hand, loss_of):
    found, hand = wrapped(live_hand, descending(loss_of))
    assert close(found, alone(descending(loss_of)))
    assert hand.live.left_alone is None and hand.moves > 3


@pytest.mark.slow
def test_layers_that_loop_over_time_may_be_placed(two_cpus, live_hand):
    def make():
        variables, layer = recurrent()
        return descending(lambda held, x: square(layer(x[None] @ held[0] @ held[1])), lambda: variables)()

    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone is None and hand.moves > 3


@pytest.mark.slow
def test_branches_and_loops_under_a_persistent_tape_may_be_placed(two_cpus, live_hand):
    def make():
        variables, layer = recurrent()

        def loss(held, x):
            return in_each_branch(held, x) + in_loops(held, x) + square(layer(x[None] @ held[0] @ held[1]))

        return descending(loss, lambda: variables, persistent=True)()

    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone is None and hand.moves > 3


def test_zeros_that_are_asked_for_may_be_placed(two_cpus, live_hand):
    def make():
        held = weights()
        optimizer = decaying(held)

        def step(x):
            with tf.GradientTape() as tape:
                loss = switched_off(held, x)
            optimizer.apply(tape.gradient(loss, held, unconnected_gradients=tf.UnconnectedGradients.ZERO), held)
            return loss

        return step, held, lambda i: None

    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone is None and hand.moves > 3


# Containers and counters of the step's own.


def appended(held, x):
    loss = square(x @ held[0] @ held[1])
    terms, penalty = [loss], 0.5 * square(held[0])
    if loss > 0.5:
        terms.append(penalty)
    return tf.add_n(terms)


def extended(held, x):
    loss = square(x @ held[0] @ held[1])
    terms, penalty = [loss], 0.5 * square(held[0])
    if loss > 0.5:
        terms += [penalty]
    return tf.add_n(terms)


def put(found, name, value):
    found[name] = value


def put_by_a_helper(held, x):
    loss = square(x @ held[0] @ held[1])
    terms, penalty = {"loss": loss}, 0.5 * square(held[0])
    if loss > 0.5:
        put(terms, "penalty", penalty)
    return tf.add_n(list(terms.values()))


def added_in_a_cond(held, x):
    loss, seen = square(x @ held[0] @ held[1]), set()
    loss = tf.cond(loss > 0.5, lambda: (seen.add(1), loss)[1], lambda: loss * 1.0)
    return loss * (1.0 + len(seen))


def counted(held, x):
    count = 0

    def more():
        nonlocal count
        count += 1
        return tf.constant(0.1)

    loss, extra = square(x @ held[0] @ held[1]), tf.constant(0.0)
    if loss > 0.5:
        extra = more()
    return loss * (1.0 + count) + extra


def written_in_an_array(held, x):
    loss, table, extra = square(x @ held[0] @ held[1]), np.ones(3, np.float32), tf.constant(0.0)

    def write():
        table[:] = 2.0
        return tf.constant(0.1)

    if loss > 0.5:
        extra = write()
    return loss * tf.reduce_sum(table.copy()) + extra


class Notes:
    def __init__(self):
        self.count = 0

    def more(self):
        vars(self)["count"] = self.count + 1
        return tf.constant(0.1)


def noted(held, x):
    notes, extra = Notes(), tf.constant(0.0)
    loss = square(x @ held[0] @ held[1])
    if loss > 0.5:
        extra = notes.more()
    return loss * (1.0 + notes.count) + extra


def appended_in_a_loop(held, x):
    loss = square(x @ held[0] @ held[1])
    terms, penalty = [loss], 0.01 * square(held[0])
    for _ in tf.range(3):
        terms.append(penalty)  # noqa: PERF401
    return tf.add_n(terms)


CHANGED = [
    (appended, "`terms`"), (extended, "`terms`"), (put_by_a_helper, "`terms`"), (added_in_a_cond, "`seen`"),
    (counted, "`count`"), (noted, ""), (written_in_an_array, "`table`"), (appended_in_a_loop, "`terms`"),
]  # fmt: skip


@pytest.mark.some(3)
@pytest.mark.parametrize(("loss_of", "what"), CHANGED)
def test_what_a_branch_changes_of_the_steps_own_leaves_it_alone(two_cpus, live_hand, loss_of, what):
    found, hand = wrapped(live_hand, descending(loss_of))
    assert close(found, alone(descending(loss_of)))
    assert f"changes {what}" in hand.live.left_alone


def usual_branches():
    """Lists outside of branches and within one, arrays of TensorFlow's, clipping, a lowered rate."""
    held, taken = weights(), tf.Variable(0)

    def step(x):
        rate, terms, array, table = 0.1, [], tf.TensorArray(tf.float32, 3), np.ones(3, np.float32)
        taken.assign_add(1)
        if taken > 6:
            rate = 0.05
        with tf.GradientTape() as tape:
            for weight in held:
                terms.append(square(x @ weight))  # noqa: PERF401
            total = tf.constant(0.0)
            for i in tf.range(3):
                of_now = [tf.cast(i, tf.float32)]
                of_now.append(total)
                array, total = array.write(i, of_now[0]), total + of_now[1]
            loss = tf.add_n(terms) + 0.01 * square(array.stack() * table)
        gradients = tape.gradient(loss, held)
        norm = tf.linalg.global_norm(gradients)
        if norm > 0.5:
            gradients = [gradient * 0.5 / norm for gradient in gradients]
        gradients = [tf.cond(norm > 1.0, lambda g=g: 0.9 * g, lambda g=g: g) for g in gradients]
        for weight, gradient in zip(held, gradients, strict=True):
            weight.assign_sub(rate * gradient)
        return loss

    return step, held, lambda i: None


def returns_early():
    held = weights()

    def step(x):
        terms = {"loss": square(x @ held[0])}
        if terms["loss"] > 1.0:
            return 2.0 * terms["loss"]
        with tf.GradientTape() as tape:
            again = square(x @ held[0])
        held[0].assign_sub(0.1 * tape.gradient(again, held[0]))
        return terms["loss"]

    return step, held, lambda i: None


@pytest.mark.parametrize("make", [usual_branches, returns_early])
def test_branches_that_leave_pythons_objects_alone_are_placed(two_cpus, live_hand, make):
    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone is None and hand.moves > 3


# Numbers of Python's that a branch sets.


def averaged(of):
    """Makes a step with an average whose decay is set by `of`."""

    def make():
        held, taken = [*weights(), tf.Variable(tf.zeros([3, 3]))], tf.Variable(0)

        def step(x):
            taken.assign_add(1)
            decay = of(taken)
            held[2].assign(decay * held[2] + (1 - decay) * held[0])
            with tf.GradientTape() as tape:
                loss = square(x @ held[0])
            held[0].assign_sub(0.1 * tape.gradient(loss, held[0]))
            return loss

        return step, held, lambda i: None

    return make


def set_in_an_if(taken):
    decay = 0.99
    if taken > 3:
        decay = 0.9999999
    return decay


def set_within_another(taken):
    decay = 0.99
    if taken > 1:  # noqa: SIM102
        if taken > 3:
            decay = 0.9999999
    return decay


def set_in_a_loop(taken):
    decay = 0.99
    while taken < -3:
        decay = 0.9999999
    return decay


@pytest.mark.parametrize("of", [set_in_an_if, set_within_another, set_in_a_loop])
def test_a_number_of_a_branch_that_a_tensor_holds_less_exactly_leaves_the_step_alone(two_cpus, live_hand, of):
    found, hand = wrapped(live_hand, averaged(of))
    assert close(found, alone(averaged(of)))
    assert "a number of Python's depends on a tensor" in hand.live.left_alone


def counted_in_a_loop(taken):
    decay, i = 0.0, tf.constant(0)
    while i < tf.minimum(taken, 7):
        decay = 1 - (1 - decay) * 0.1
        i += 1
    return decay


def counted_over_a_range(taken):
    decay = 1.0
    for _ in tf.range(tf.minimum(taken, 7)):
        if taken > 0:
            decay = decay * 0.9
    return decay


def counted_in_a_loop_within_another(taken):
    decay, total = 1.0, tf.constant(0.0)
    for _ in tf.range(tf.minimum(taken, 3)):
        for _ in tf.range(2):
            total = total + decay
            decay = decay * 0.9
    return decay


@pytest.mark.parametrize("of", [counted_in_a_loop, counted_over_a_range, counted_in_a_loop_within_another])
def test_a_number_that_a_loop_counts_with_leaves_the_step_alone(two_cpus, live_hand, of):
    """1 - decay of float32 would be 19 % off after seven rounds of the first."""
    found, hand = wrapped(live_hand, averaged(of))
    assert close(found, alone(averaged(of)))
    assert "it counts with `decay`" in hand.live.left_alone or "a number of Python's depends" in hand.live.left_alone


def summed_in_a_loop(held, x):
    loss, seen = 0.0, 0
    for row in x:
        loss += square(tf.expand_dims(row, 0) @ held[0] @ held[1])
        seen += 1
    return loss / tf.cast(seen, tf.float32)


def summed_where_it_is_large(held, x):
    made = x @ held[0] @ held[1]
    loss = 0.0
    for i in tf.range(4):
        if made[i, 0] > -100.0:
            loss = loss + square(made[i])
    return loss


def largest(held, x):
    best = 0.0
    for one in tf.reshape(tf.square(x @ held[0] @ held[1]), [-1]):
        if one > best:
            best = one
    return best


@pytest.mark.some(1)
@pytest.mark.parametrize("loss_of", [summed_in_a_loop, summed_where_it_is_large, largest])
def test_a_number_to_which_a_loop_adds_tensors_is_placed(two_cpus, live_hand, loss_of):
    make = descending(lambda held, x: loss_of(held, x) + square(x @ held[0] @ held[1]))
    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone is None and hand.moves > 3


# Gradients of rows.


def clipped(loss_of, **tape_options):
    """Makes a step that clips by the norm of all gradients, and always clips."""

    def make():
        variables = weights()

        def step(x):
            with tf.GradientTape(**tape_options) as tape:
                loss = loss_of(variables, x)
            gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 0.01)
            for variable, gradient in zip(variables, gradients, strict=True):
                if isinstance(gradient, tf.IndexedSlices):
                    variable.scatter_sub(gradient)
                else:
                    variable.assign_sub(gradient)
            return loss

        return step, variables, lambda i: None

    return make


def gathered_in_a_loop(held, x):
    state = tf.zeros([4, 3])
    for i in tf.range(3):
        state = tf.tanh(state + x @ held[1] + tf.nn.embedding_lookup(held[0], tf.zeros([4], tf.int32) + i % 2))
    return square(state)


def gathered_in_a_branch(held, x):
    loss = square(x @ held[1])
    if loss > 0.0:
        loss += square(x + tf.gather(held[0], [0, 1, 1, 1]))
    return loss


def gathered_outside(held, x):
    rows, state = tf.gather(held[0], [0, 1, 1, 1]), tf.zeros([4, 3])
    for _ in tf.range(3):
        state = tf.tanh(state + x @ held[1] + rows)
    return square(state)


def read_and_gathered(held, x):
    """As Keras's Embedding does."""
    loss = square(x @ held[1])
    for i in tf.range(3):
        loss += square(x + tf.gather(tf.convert_to_tensor(held[0]), [0, 1, 1, i]))
    return loss


@pytest.mark.some(2)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("loss_of", [gathered_in_a_loop, gathered_in_a_branch, read_and_gathered])
def test_rows_that_are_gathered_where_a_trace_makes_a_dense_gradient_leave_the_step_alone(
    two_cpus, live_hand, loss_of, persistent
):
    """Rows that are gathered twice count twice in the norm of what is sparse."""
    found, hand = wrapped(live_hand, clipped(loss_of, persistent=persistent))
    assert close(found, alone(clipped(loss_of, persistent=persistent)))
    assert hand.moves == 0 and hand.live.left_alone is not None


def test_rows_that_are_gathered_outside_of_a_loop_are_placed(two_cpus, live_hand):
    found, hand = wrapped(live_hand, clipped(gathered_outside))
    assert close(found, alone(clipped(gathered_outside)))
    assert hand.live.left_alone is None and hand.moves > 3


def test_gradients_that_are_weighted_are_placed(two_cpus, live_hand):
    """`output_gradients` is a tensor among what the watch is given."""

    def make():
        variables = weights()

        def step(x):
            with tf.GradientTape() as tape:
                made = tf.tanh(x @ variables[0] @ variables[1])
            for variable, gradient in zip(
                variables, tape.gradient(made, variables, output_gradients=0.1 * made), strict=True
            ):
                variable.assign_sub(gradient)
            return tf.reduce_mean(made)

        return step, variables, lambda i: None

    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone is None and hand.moves > 3


# Numbers among the arguments, which are tensors once a step is traced.


def by_number(of, wrap=lambda step: step):
    """Makes a step whose loss is what `of` makes of its variables, the batch and a number."""

    def make():
        held = weights()
        optimizer = decaying(held)

        def step(x, number):
            with tf.GradientTape() as tape:
                loss = of(held, x, number)
            optimizer.apply(tape.gradient(loss, held), held)
            return loss

        return wrap(step), held, lambda step, i, x: step(x, i)

    return make


def grown_by_number(held, x, number):
    terms = [square(x @ held[0] @ held[1])]
    penalty = square(held[0])
    if number < 8:
        terms.append(penalty)
    return tf.add_n(terms)


def switched_off_by_number(held, x, number):
    loss = square(x @ held[0])
    if number < 8:
        loss = loss + square(x @ held[1])
    return loss


def by_a_fraction(held, x, number):
    return square(x @ held[0]) * (2.0 if 0.1 * number >= 0.3 else 1.0)  # 0.30000000000000004


def by_percent(held, x, number):
    return square(x @ held[0]) * tf.cast(int((0.29 + number) * 100.0), tf.float32)


@pytest.mark.some(1)
@pytest.mark.parametrize("wrap", [lambda step: step, tf.function], ids=["plain", "tf.function"])
@pytest.mark.parametrize("of", [grown_by_number, switched_off_by_number])
@pytest.mark.filterwarnings("ignore:.*untouched")
def test_a_branch_by_a_number_does_what_python_does(two_cpus, live_hand, of, wrap):
    make = by_number(of, wrap)
    found, hand = wrapped_by_number(live_hand, make)
    assert close(found, alone_with(make))
    assert hand.moves == 0


def wrapped_by_number(live_hand, make):
    """As `wrapped_with`; a mapping is tried as soon as there is one to try."""
    step, held, call = make()
    hand, losses = live_hand(step), []
    for i, x in enumerate(batches()):
        losses.append(float(call(hand, i, x)))
        main = hand.live.variants.main
        if hand.live.left_alone is None and main.layout.numbers and hand.live.is_ready and not main.refused and i >= 8:
            hand.move() if hand.live.is_joined else hand.place()
    hand.close()
    return (losses, [v.numpy() for v in held]), hand


@pytest.mark.parametrize("of", [by_a_fraction, by_percent])
@pytest.mark.filterwarnings("ignore:.*untouched")
def test_a_float_is_compared_and_cut_as_python_does(two_cpus, live_hand, of):
    make = by_number(lambda held, x, number: of(held, x, number))

    def as_float():
        step, held, _ = make()
        return step, held, lambda step, i, x: step(x, float(i % 5))

    found, hand = wrapped_with(live_hand, as_float)
    assert close(found, alone_with(as_float))
    assert hand.moves == 0


# What else a trace of a branch would do.


def test_a_program_is_not_ended_by_a_trace(two_cpus, live_hand):
    def ends(held, x):
        loss = square(x @ held[0] @ held[1])
        if loss > 1e9:
            sys.exit("it diverged")
        return loss

    def raises(held, x):
        loss = square(x @ held[0] @ held[1])
        if loss > 1e9:
            raise SystemExit
        return loss

    for loss_of in (ends, raises):
        found, hand = wrapped(live_hand, descending(loss_of))
        assert close(found, alone(descending(loss_of)))
        assert "xit" in hand.live.left_alone


class Skips:
    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        return kind is not None and issubclass(kind, tf.errors.InvalidArgumentError)


def test_what_an_exit_catches_is_caught(two_cpus, live_hand):
    def make():
        held = weights()

        def step(x, rows):
            with Skips():
                x = tf.gather(x, rows)
            with tf.GradientTape() as tape:
                loss = square(x @ held[0])
            held[0].assign_sub(0.1 * tape.gradient(loss, held[0]))
            return loss

        return step, held, lambda step, i, x: step(x, tf.constant([0, 9 if i == 10 else 1]))

    found, hand = wrapped_with(live_hand, make)
    assert close(found, alone_with(make))
    assert "it may catch exceptions in Skips.__exit__" in hand.live.left_alone


def test_a_layer_that_only_a_branch_uses_is_not_built_by_a_trace(two_cpus, live_hand):
    def make():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, kernel_initializer=begun())])
        model.extra = keras.layers.Dense(3)
        optimizer = keras.optimizers.Adam(0.01)

        def step(x):
            with tf.GradientTape() as tape:
                y = model(x)
                if tf.reduce_mean(y) > 100.0:
                    y = model.extra(y)
                loss = square(y)
            trained = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, trained), trained, strict=True))
            return loss

        return step, lambda: model.variables, lambda i: None

    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone.startswith("it makes a variable ('kernel')")


@pytest.mark.parametrize("kind", [keras.optimizers.Adam, keras.optimizers.SGD], ids=["adam", "sgd"])
def test_an_optimizer_that_only_a_branch_uses_is_not_built_by_a_trace(two_cpus, live_hand, kind):
    """Gradients are added up, and applied at each eighth call; the trace comes before the first of these."""

    def make():
        held, added, count = weights(), [tf.Variable(tf.zeros([3, 3])) for _ in range(2)], tf.Variable(0)
        optimizer = kind(0.05)

        def step(x):
            with tf.GradientTape() as tape:
                loss = square(x @ held[0] @ held[1])
            for one, gradient in zip(added, tape.gradient(loss, held), strict=True):
                one.assign_add(gradient)
            if tf.equal(count.assign_add(1) % 8, 0):
                optimizer.apply([one / 8.0 for one in added], held)
                for one in added:
                    one.assign(tf.zeros_like(one))
            return loss

        return step, lambda: [*held, *added, count, *optimizer.variables], lambda i: None

    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone.startswith("it builds its optimizer")


def accumulating_itself(held):
    optimizer = keras.optimizers.AdamW(0.05, weight_decay=0.1, gradient_accumulation_steps=8)
    optimizer.build(held)
    return optimizer, optimizer.apply


def accumulating_in_the_step(held):
    optimizer, sums = decaying(held), [tf.Variable(tf.zeros([3, 3])) for _ in held]
    count = tf.Variable(0)

    def apply(gradients, variables):
        for one, gradient in zip(sums, gradients, strict=True):
            one.assign_add(gradient)
        if tf.equal(count.assign_add(1) % 8, 0):
            optimizer.apply([one / 8.0 for one in sums], variables)

    return optimizer, apply


@pytest.mark.parametrize("of", [accumulating_itself, accumulating_in_the_step])
def test_an_optimizer_that_is_built_and_only_a_branch_uses_may_be_placed(two_cpus, live_hand, of):
    """An optimizer with weight decay remembers from the first update on which variables decay."""

    def make():
        held = weights()
        optimizer, apply = of(held)

        def step(x):
            with tf.GradientTape() as tape:
                loss = square(x @ held[0] @ held[1])
            apply(tape.gradient(loss, held), held)
            return loss

        return step, lambda: [*held, *optimizer.variables], lambda i: None

    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make))
    assert hand.live.left_alone is None and hand.live.is_joined


def in_a_branch(logs, loss):
    if loss > 1e6:
        for log in logs.values():
            log.append(loss)


def at_each_call(logs, loss):
    for log in logs.values():
        log.append(loss)


@pytest.mark.parametrize("keep", [in_a_branch, at_each_call])
def test_what_a_trace_put_into_containers_is_taken_out_again(two_cpus, live_hand, keep):
    kept = []

    def make():
        held, logs = weights(), {"losses": []}
        kept.append(logs["losses"])

        def step(x):
            with tf.GradientTape() as tape:
                loss = square(x @ held[0])
            held[0].assign_sub(0.1 * tape.gradient(loss, held[0]))
            keep(logs, loss)
            return loss

        return step, held, lambda i: None

    found, hand = wrapped(live_hand, make)
    assert close(found, alone(make)) and hand.live.left_alone is not None
    in_wrapped, in_alone = kept
    assert len(in_wrapped) == len(in_alone) and not any(map(tf.is_symbolic_tensor, in_wrapped))


def test_losses_that_layers_keep_are_those_of_the_latest_step(two_cpus, live_hand):
    def make():
        dense = keras.layers.Dense(3, kernel_initializer=begun(), activity_regularizer="l2")
        model = keras.Sequential([keras.Input((3,)), dense])

        def step(x):
            with tf.GradientTape() as tape:
                loss = square(model(x)) + tf.add_n(model.losses)
            for variable, gradient in zip(model.variables, tape.gradient(loss, model.variables), strict=True):
                variable.assign_sub(0.1 * gradient)
            return loss

        return step, model.variables, lambda step, i, x: step(x) + tf.add_n(model.losses)

    found, hand = wrapped_with(live_hand, make)
    assert close(found, alone_with(make))
    assert "keeps a loss" in hand.live.left_alone


def test_a_variable_of_keras_is_returned_as_it_is(two_cpus, live_hand):
    held, taken = weights(), keras.Variable(0)

    def step(x):
        with tf.GradientTape() as tape:
            loss = square(x @ held[0])
        held[0].assign_sub(0.1 * tape.gradient(loss, held[0]))
        taken.assign_add(1)
        return {"loss": loss, "taken": taken}

    hand = live_hand(step)
    for x in batches(6):
        assert hand(x)["taken"] is taken
    hand.close()
    assert hand.live.left_alone.startswith("it returns a Keras variable, which")
    assert int(np.asarray(taken)) == 6
