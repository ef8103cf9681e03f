"""A step that is moved from mapping to mapping trains as if it had been left where it was."""

from __future__ import annotations

import contextlib
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.errors import BadInputError
from placer.train.device_session import DeviceSession
from placer.train.steps import untouched, variants
from placer.train.steps.untouched import UntouchedFunction

UNTOUCHED_STEPS, STEPS = 4, 55
# Nothing orders a function's failure for lack of a batch and what it counts: on a busy machine either is first.
TRIES = 4


def batches(count, rows=8, seed=3):
    rng = np.random.default_rng(seed)
    return [
        (tf.constant(rng.normal(size=(rows, 6)), tf.float32), tf.constant(rng.integers(0, 3, rows)))
        for _ in range(count)
    ]


def network(*layers):
    inputs = keras.Input((6,))
    left = keras.layers.Dense(8, activation="relu")(inputs)
    right = keras.layers.Dense(8, activation="tanh")(inputs)
    found = keras.layers.Concatenate()([left, right])
    for layer in layers:
        found = layer(found)
    return keras.Model(inputs, keras.layers.Dense(3, dtype="float32")(found))


LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def trained(model, optimizer):
    optimizer.build(model.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = LOSS(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step, [*model.variables, *optimizer.variables]


def momentum():
    return trained(network(), keras.optimizers.SGD(0.1, momentum=0.9))


def adam():
    return trained(network(), keras.optimizers.Adam(0.01))


def batch_norm():
    return trained(network(keras.layers.BatchNormalization()), keras.optimizers.SGD(0.1, momentum=0.9))


def dropout():
    return trained(network(keras.layers.Dropout(0.3, seed=4)), keras.optimizers.SGD(0.1))


def accumulated():
    return trained(network(), keras.optimizers.Adam(0.01, gradient_accumulation_steps=3))


def mixed():
    policy = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        model = network()
    finally:
        keras.mixed_precision.set_dtype_policy(policy)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    optimizer.build(model.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = LOSS(y, model(x, training=True))
            scaled = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
        return loss

    return step, [*model.variables, *optimizer.variables]


def own_optimizer():
    weights = [tf.Variable(tf.random.stateless_normal([6, 3], [i, 2])) for i in range(2)]
    speeds = [tf.Variable(tf.zeros([6, 3])) for _ in weights]
    count = tf.Variable(0, dtype=tf.int64)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = LOSS(y, x @ weights[0] + tf.tanh(x @ weights[1]))
        count.assign_add(1)
        for weight, speed, gradient in zip(weights, speeds, tape.gradient(loss, weights), strict=True):
            speed.assign(0.9 * speed - gradient / tf.cast(count, tf.float32))
            weight.assign_add(0.1 * speed)
        return loss

    return step, [*weights, *speeds, count]


def with_metric():
    step, variables = momentum()
    mean = keras.metrics.Mean()

    def measured(x, y):
        loss = step(x, y)
        mean.update_state(loss)
        return {"loss": loss, "mean": mean.result(), "nothing": None}

    return measured, [*variables, *mean.variables]


KINDS = [momentum, adam, batch_norm, dropout, accumulated, mixed, own_optimizer, with_metric]


def flat(outputs):
    return [t.numpy() for t in tf.nest.flatten(outputs) if t is not None]


@pytest.fixture
def run(two_cpus, live_hand):
    """(what all steps returned, the variables afterwards) of a step placed after three, then moved where `moves`."""

    def run(make, moves, steps=STEPS, between=lambda i, hand, variables: None, wrap=lambda step: step):
        with by_hand(live_hand, make, wrap) as (hand, variables):
            returned = []
            for i, batch in enumerate(batches(steps)):
                if i == UNTOUCHED_STEPS:
                    hand.place()
                elif i > UNTOUCHED_STEPS and moves:
                    hand.move()
                between(i, hand, variables)
                returned.append(flat(hand(*batch)))
            assert hand.is_placed and (hand.moves > 50) == moves
            return returned, [v.numpy() for v in variables]

    return run


@contextlib.contextmanager
def by_hand(live_hand, make, wrap=lambda step: step, session=None):
    """(a fresh live step, its variables); the same values every time."""
    keras.utils.set_random_seed(11)
    step, variables = make()
    hand = live_hand(wrap(step), session=session)
    try:
        yield hand, [v if isinstance(v, tf.Variable) else v.value for v in variables]
    finally:
        hand.close()


def same(one, other, rounding=0.0):
    """What was returned, and the variables. rounding: relative, where some steps ran untouched in one of the two."""
    for mine, theirs in zip(one, other, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=rounding, atol=rounding)
    return True


QUICK = (adam, batch_norm)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_fifty_moves_change_no_bit(run, kind):
    assert same(run(kind, moves=True), run(kind, moves=False))


def look_and_touch(model_of):
    """What users do in the middle: look, save, evaluate, write."""

    def between(i, hand, variables):
        if i == 10:
            seen.append([v.numpy().sum() for v in variables])
        if i == 15:
            seen.append(float(looked(variables[0])))
        if i == 20:
            variables[0].assign(variables[0] * 0.5)
        if i == 25:
            variables[-1].assign(tf.ones_like(variables[-1]))
            written(variables[1])
        if i in (30, 40):
            checkpoint = tf.train.Checkpoint(variables=variables)
            if i == 30:
                kept.append(checkpoint.save(str(model_of / f"{len(kept)}")))
            else:
                checkpoint.restore(kept[-1]).assert_consumed()

    looked = tf.function(lambda v: tf.reduce_sum(v.read_value()))
    written = tf.function(lambda v: v.assign_add(tf.ones_like(v)))
    seen, kept = [], []
    return between, seen


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", [momentum, batch_norm])
def test_looking_saving_and_writing_in_the_middle_disturb_nothing(run, kind, tmp_path):
    (one, seen), (other, seen_too) = look_and_touch(tmp_path), look_and_touch(tmp_path)
    assert same(run(kind, moves=True, between=one), run(kind, moves=False, between=other))
    assert seen == seen_too and len(seen) == 2


@pytest.mark.slow
def test_keras_evaluates_and_changes_the_learning_rate_in_the_middle(two_cpus, live_hand):
    def trained_with(moves):
        keras.utils.set_random_seed(11)
        model, optimizer = network(keras.layers.BatchNormalization()), keras.optimizers.SGD(0.1, momentum=0.9)
        model.compile(loss=LOSS, jit_compile=False)
        step, _ = trained(model, optimizer)
        hand, returned = live_hand(step), []
        for i, batch in enumerate(batches(30)):
            if i == UNTOUCHED_STEPS or (moves and i > UNTOUCHED_STEPS):
                hand.move() if i > UNTOUCHED_STEPS else hand.place()
            if i % 10 == 9:
                returned.append(model.evaluate(*batch, verbose=0))
                optimizer.learning_rate = 0.1 / i
            returned.append(flat(hand(*batch)))
        hand.close()
        return returned, model.get_weights()

    assert same(trained_with(True), trained_with(False), rounding=1e-5)


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.parametrize("wrap", [tf.function, lambda step: step], ids=["tf.function", "plain"])
def test_batches_of_other_shapes_train_the_same_variables(two_cpus, live_hand, wrap):
    def trained_with(moves):
        with by_hand(live_hand, adam, wrap) as (hand, variables):
            returned = []
            for i, (x, y) in enumerate(batches(24)):
                if i == 2 * UNTOUCHED_STEPS or (moves and i > 2 * UNTOUCHED_STEPS):  # half of them are of one signature
                    hand.move() if i > 2 * UNTOUCHED_STEPS else hand.place()
                rows = 3 if i % 6 == 5 else 8
                returned.append(flat(hand(x[:rows], y=y[:rows]) if i % 2 else hand(x[:rows], y[:rows])))
            return returned, [v.numpy() for v in variables]

    moved, kept = trained_with(True), trained_with(False)
    assert same(moved, kept, rounding=1e-5)
    with by_hand(live_hand, adam, wrap) as (hand, _):
        untouched = [
            flat(hand(x[:rows], y[:rows])) for i, (x, y) in enumerate(batches(24)) for rows in [3 if i % 6 == 5 else 8]
        ]
    np.testing.assert_allclose(np.ravel(untouched), np.ravel(moved[0]), rtol=1e-4)


def test_steps_that_share_variables_take_turns(two_cpus, live_hand):
    def rivals():
        """Two steps on overlapping variables, as of a generator and its critic."""
        maker, critic = (tf.Variable(tf.random.stateless_normal([6, 6], [i, 1])) for i in range(2))
        rate = tf.Variable(0.05)

        def score(x):
            return tf.reduce_mean(tf.square(tf.tanh(x @ maker) @ critic))

        def make(x):
            with tf.GradientTape() as tape:
                loss = score(x)
            maker.assign_sub(rate * tape.gradient(loss, maker))
            return loss

        def judge(x):
            with tf.GradientTape() as tape:
                loss = -score(x)
            critic.assign_sub(rate * tape.gradient(loss, critic))
            rate.assign(rate * 0.99)
            return {"loss": loss, "rate": rate.read_value()}

        return make, judge, [maker, critic, rate]

    def trained_with(moves):
        make, judge, variables = rivals()
        session = DeviceSession(None, False)
        hands, returned = [live_hand(make, session=session), live_hand(judge, session=session)], []
        for i, (x, _) in enumerate(batches(30)):
            for number, hand in enumerate(hands):
                begin = UNTOUCHED_STEPS + 4 * number  # one is placed before the other
                if i == begin:
                    hand.place(first=not number)
                elif i > begin and moves:
                    hand.move()
                returned.append(flat(hand(x)))
        for hand in hands:
            hand.close()
        return returned, [v.numpy() for v in variables]

    assert same(trained_with(True), trained_with(False))


def counted():
    weight = tf.Variable(1.0)
    return weight, lambda gradient: weight.assign_sub(0.1 * gradient)


def placed(hand, *args, **kwargs):
    """The step, placed on two devices."""
    for _ in range(UNTOUCHED_STEPS):
        hand(*args, **kwargs)
    hand.place()
    hand.move()
    return hand


def test_a_step_that_the_default_strategy_runs_is_placed(two_cpus, live_hand):
    strategy, (step, _) = tf.distribute.get_strategy(), own_optimizer()

    @tf.function
    def run(x, y):
        return strategy.run(step, args=(x, y))

    hand = live_hand(run)
    for batch in batches(UNTOUCHED_STEPS):
        hand(*batch)
    hand.place()
    hand(*batches(1)[0])
    assert hand.is_placed
    hand.close()


def test_arguments_and_results_of_any_structure(two_cpus, live_hand):
    weight, train = counted()

    def step(batch, *, factors, by_name):
        loss = tf.reduce_sum(batch["x"][0]) * weight * factors[1] + by_name["a"]
        train(loss)
        return {"none": None, "pair": (loss, [weight.read_value()])}

    given = {"batch": {"x": (tf.ones([2]), np.ones(3))}, "factors": [1, 0.5], "by_name": {"a": tf.constant(2.0)}}
    hand = placed(live_hand(step), **given)
    before = weight.numpy()
    returned = hand(**given)
    assert returned["none"] is None and returned["pair"][0].numpy() == pytest.approx(before + 2.0)
    assert returned["pair"][1][0].numpy() == weight.numpy() == pytest.approx(before - 0.1 * (before + 2.0))
    hand.close()


def test_a_step_may_return_nothing(two_cpus, live_hand):
    weight, train = counted()
    hand = placed(live_hand(lambda x: (train(x), None)[1]), tf.constant(1.0))
    assert hand(tf.constant(1.0)) is None
    assert weight.numpy() == pytest.approx(0.5)
    hand.close()


@pytest.mark.slow
def test_what_a_step_raises_reaches_the_caller_and_training_goes_on(two_cpus, live_hand):
    def checked():
        step, variables = momentum()
        return (lambda x, y: tf.debugging.check_numerics(step(x, y), "loss")), variables

    bad = tf.constant(np.nan, shape=[8, 6])

    def trained_with(moves):
        with by_hand(live_hand, checked, tf.function) as (hand, variables):
            start, returned = None, []
            for i, (x, y) in enumerate(batches(20)):
                if i == UNTOUCHED_STEPS:
                    hand.place()
                elif moves and UNTOUCHED_STEPS < i <= 10:
                    hand.move()
                if i == 10:
                    start = [v.numpy() for v in variables]
                    with pytest.raises(tf.errors.InvalidArgumentError, match="loss : Tensor had NaN"):
                        hand(bad, y)
                    assert "its placed step failed" in hand.live.left_alone  # the update does not wait for the check
                    for variable, value in zip(variables, start, strict=True):
                        variable.assign(value)
                returned.append(flat(hand(x, y)))
            return returned, [v.numpy() for v in variables]

    assert same(trained_with(True), trained_with(False), rounding=1e-6)


def test_what_a_broken_step_wrote_is_seen(two_cpus, live_hand):
    count = tf.Variable(0.0)

    @tf.function
    def step(x):
        count.assign_add(1.0)
        with tf.control_dependencies([count.read_value()]):
            return tf.debugging.check_numerics(x * 2.0, "x")

    hand = placed(live_hand(step), tf.constant(1.0))
    before = count.numpy()
    hand.move(lambda classes: dict.fromkeys(classes, 1))  # nothing ran here yet
    with pytest.raises(tf.errors.InvalidArgumentError):
        hand(tf.constant(np.nan))
    assert count.numpy() == before + 1
    hand.close()


def test_under_a_gradient_tape_steps_run_untouched_and_can_be_differentiated(two_cpus, live_hand):
    weight, train = counted()

    def step(x):
        loss = x * weight
        train(loss)
        return loss

    hand = placed(live_hand(step), tf.constant(1.0))
    hand(tf.constant(1.0))
    x, before = tf.constant(3.0), weight.numpy()
    with tf.GradientTape() as tape, pytest.warns(UserWarning, match="under a tf.GradientTape"):
        tape.watch(x)
        loss = hand(x)
    assert tape.gradient(loss, x).numpy() == before
    after = weight.numpy()
    assert after == pytest.approx(before - 0.3 * before)
    assert hand(tf.constant(1.0)).numpy() == after
    hand.close()


def test_under_a_gradient_tape_a_function_stays_one(two_cpus, live_hand):
    """What only a graph can compute, the numbers that it draws, and what its trace has read of Python."""

    def trained_by(wrap):
        tf.random.set_seed(5)
        weight, scale = tf.Variable(tf.ones([2, 2])), [1.0]

        @tf.function
        def step(x):
            noise = tf.random.normal([2, 2])
            slope = tf.gradients(tf.reduce_sum(tf.tanh(x @ weight) * scale[0]), x)[0]
            weight.assign_sub(0.1 * (slope + noise))
            return tf.reduce_sum(slope)

        called = wrap(step)
        called(tf.ones([2, 2]))
        scale[0] = 7.0
        for i in range(3):
            with tf.GradientTape():
                called(tf.ones([2, 2]) * i)
        return weight.numpy()

    with pytest.warns(UserWarning, match="under a tf.GradientTape") as warned:
        mine = trained_by(live_hand)
    ours = [warning.filename for warning in warned if warning.category is UserWarning]  # Python 3.13 warns of gast, too
    assert ours == [inspect.getsourcefile(live_hand)]
    np.testing.assert_array_equal(mine, trained_by(lambda step: step))


def interrupted_once(monkeypatch, target, name):
    """Ctrl-C the first time that it is called."""
    before, pressed = getattr(target, name), []

    def call(*args, **kwargs):
        if not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        return before(*args, **kwargs)

    monkeypatch.setattr(target, name, call)


@pytest.mark.parametrize("wrap", [tf.function, lambda step: step], ids=["tf.function", "plain"])
def test_ctrl_c_in_the_trace_is_no_trace(two_cpus, live_hand, monkeypatch, wrap):
    """In a notebook, the same step goes on after it."""
    weight, train = counted()
    hand = live_hand(wrap(lambda x: train(x) * 0 + x))
    interrupted_once(monkeypatch, untouched, "trace" if wrap is not tf.function else "unrepeatable_effect")
    with pytest.raises(KeyboardInterrupt):
        placed(hand, tf.constant(1.0))
    before = weight.numpy()
    placed(hand, tf.constant(1.0))
    assert hand(tf.constant(1.0)).numpy() == 1.0 and weight.numpy() < before
    hand.close()


def test_ctrl_c_in_the_first_call_does_not_hide_why_the_step_is_left_alone(two_cpus, live_hand, monkeypatch):
    hand = live_hand(lambda x: print("seen") or x)
    interrupted_once(monkeypatch, variants, "unwatchable")
    with pytest.raises(KeyboardInterrupt):
        hand(tf.constant(1.0))
    hand(tf.constant(1.0))
    assert "print" in hand.live.left_alone
    hand.close()


def test_what_a_step_wrote_under_a_tape_before_it_failed_is_not_lost(two_cpus, live_hand):
    _, train = counted()
    count = tf.Variable(0.0)

    def step(x, skips=False):
        count.assign_add(1.0)
        if skips:
            raise ValueError("skipped")
        train(x)
        return count + 0.0

    hand = placed(live_hand(step), tf.constant(1.0))
    hand.move(lambda classes: dict.fromkeys(classes, 1))
    hand(tf.constant(1.0))
    before = count.numpy()
    with (
        pytest.warns(UserWarning, match="under a tf.GradientTape"), tf.GradientTape(),
        pytest.raises(ValueError, match="skipped"),
    ):  # fmt: skip
        hand(tf.constant(1.0), skips=True)
    assert hand(tf.constant(1.0)).numpy() == before + 2
    hand.close()


@pytest.mark.slow
def test_within_a_function_the_step_is_a_part_of_it(two_cpus, live_hand):
    weight, train = counted()
    hand = placed(live_hand(lambda x: train(x) * 0 + x), tf.constant(1.0))
    hand(tf.constant(1.0))
    twice = tf.function(lambda x: hand(x) + hand(x))
    before = weight.numpy()
    assert twice(tf.constant(1.0)).numpy() == 2.0
    assert weight.numpy() == pytest.approx(before - 0.2)
    hand(tf.constant(1.0))
    assert weight.numpy() == pytest.approx(before - 0.3)
    hand.close()


def test_a_python_function_that_reads_a_variable_keeps_the_step_where_it_is(two_cpus, live_hand):
    weight, train = counted()

    def step(x):
        seen = tf.numpy_function(lambda v: np.float32(v * weight.numpy()), [x], tf.float32)
        train(tf.ensure_shape(seen, []))
        return tf.ensure_shape(seen, [])

    for given, reason in ((tf.function(step), "it calls a Python function"), (step, "calls Python")):
        hand = live_hand(given)
        for _ in range(UNTOUCHED_STEPS):
            hand(tf.constant(1.0))
        with pytest.raises(BadInputError, match=reason):
            hand.place()
        assert hand(tf.constant(1.0)).numpy() > 0
        hand.close()


def rows(count=40):
    x, y = zip(*batches(1, rows=count), strict=True)
    return tf.data.Dataset.from_tensor_slices({"x": x[0], "y": y[0]}).batch(8)


def on_iterator(make):
    step, variables = make()

    def from_iterator(iterator):
        found = next(iterator)
        return step(found["x"], found["y"])

    return from_iterator, variables


def counts(values):
    return [int(value) for value in values if value.dtype.kind == "i"]


@pytest.mark.some(1)
@pytest.mark.parametrize("wrap", [tf.function, lambda step: step], ids=["tf.function", "plain"])
def test_batches_are_taken_from_an_iterator_one_a_step(two_cpus, live_hand, wrap):
    """Also the last short one, and the end of data ends it as untouched: a function's optimizer counts it as a step."""

    def trained_with(moves, placing=True):
        with by_hand(live_hand, lambda: on_iterator(momentum), wrap) as (hand, variables):
            returned, iterator = [], iter(rows(100))
            with pytest.raises(tf.errors.OutOfRangeError if wrap is tf.function else StopIteration):
                for i in range(99):
                    if placing and (i == UNTOUCHED_STEPS or (moves and i > UNTOUCHED_STEPS)):
                        hand.move() if i > UNTOUCHED_STEPS else hand.place()
                    returned.append(flat(hand(iterator)))
            assert len(returned) == 13
            returned.append(flat(hand(iter(rows()))))
            return returned, [v.numpy() for v in variables]

    for _ in range(TRIES if wrap is tf.function else 1):
        moved, kept = trained_with(True), trained_with(False)
        if counts(moved[1]) == counts(kept[1]):
            break
    assert same(moved, kept)
    np.testing.assert_allclose(np.ravel(trained_with(False, placing=False)[0]), np.ravel(moved[0]), rtol=1e-4)


def test_the_end_of_data_meets_the_function_as_it_was_written(two_cpus, live_hand, monkeypatch):
    """Before it fails there, TensorFlow runs what needs no batch: an optimizer counts its iterations on."""
    met = []

    def run(self, variant, args, kwargs, before=UntouchedFunction.run):
        met.append(variant)
        return before(self, variant, args, kwargs)

    with by_hand(live_hand, lambda: on_iterator(momentum), tf.function) as (hand, _):
        iterator = iter(rows(100))
        for _ in range(UNTOUCHED_STEPS):
            hand(iterator)
        hand.place()
        hand(iterator)
        monkeypatch.setattr(UntouchedFunction, "run", run)
        with pytest.raises(tf.errors.OutOfRangeError):
            for _ in range(99):
                hand(iterator)
        assert len(met) == 1 and hand.live.mode is hand.placed[0]
        hand(iter(rows()))
        assert len(met) == 1


def test_at_the_end_of_one_iterator_another_loses_what_it_loses_untouched(two_cpus, live_hand):
    """As in training on labelled rows and on more rows without labels, which are asked first."""

    def trained_with(placing):
        weight = tf.Variable(0.0)

        @tf.function
        def step(unlabelled, labelled):
            one = next(unlabelled)
            with tf.control_dependencies([one]):  # else the two are asked at once, and the end may come first
                weight.assign_add(one * next(labelled))
            return weight.read_value()

        hand = live_hand(step) if placing else step
        unlabelled, losses = iter(tf.data.Dataset.range(1000).map(lambda i: tf.cast(i, tf.float32))), []
        for epoch in range(6):
            labelled = iter(tf.data.Dataset.from_tensor_slices([1.0, -2.0, 3.0]))
            with pytest.raises(tf.errors.OutOfRangeError):
                losses.extend(float(hand(unlabelled, labelled)) for _ in range(9))
            if placing and epoch >= 2:
                hand.move() if hand.live.is_joined else hand.place()
        if placing:
            assert hand.live.left_alone is None and hand.is_placed
            hand.close()
        return losses, float(weight.numpy()), float(next(unlabelled))

    assert trained_with(True) == trained_with(False)


def corrupt(example):
    """Every fourth example cannot be read."""
    with tf.control_dependencies(
        [tf.debugging.assert_none_equal(tf.math.floormod(example, 4.0), 3.0, message="corrupt")]
    ):
        return tf.identity(example)


@pytest.mark.parametrize("wrap", [tf.function, lambda step: step], ids=["tf.function", "plain"])
def test_a_batch_that_cannot_be_read_ends_the_call_and_the_next_one_goes_on_as_untouched(two_cpus, live_hand, wrap):
    """What needs no batch happens nevertheless: a function's optimizer counts its iterations on, and a plain step has
    done what stands before it asks.
    """

    def trained_with(placing):
        weight, asked = tf.Variable(1.0), tf.Variable(0.0)
        optimizer = keras.optimizers.Adam(0.1)
        optimizer.build([weight])

        def step(iterator):
            asked.assign_add(1.0)
            x = next(iterator)
            with tf.GradientTape() as tape:
                loss = (weight - x) ** 2
            optimizer.apply([tape.gradient(loss, weight)], [weight])
            return loss

        step = wrap(step)
        hand = live_hand(step) if placing else step
        losses, failed = [], []
        iterator = iter(tf.data.Dataset.range(19).map(lambda i: tf.cast(i, tf.float32)).map(corrupt))
        for i in range(19):
            if placing and i in (8, 13):
                hand.move() if hand.live.is_joined else hand.place()
            try:
                losses.append(float(hand(iterator)))
            except tf.errors.InvalidArgumentError as error:
                failed.append("corrupt" in str(error))
        if placing:
            assert hand.live.left_alone is None and hand.is_placed
            hand.close()
        return losses, failed, float(weight), float(asked), int(optimizer.iterations)

    for _ in range(TRIES if wrap is tf.function else 1):
        alone, placed = trained_with(False), trained_with(True)
        if placed[3:] == alone[3:]:
            break
    assert alone[1] == [True] * 4 and len(alone[0]) == 15
    np.testing.assert_allclose(placed[0], alone[0], rtol=1e-5)
    assert placed[1] == alone[1] and placed[3:] == alone[3:]
    assert placed[2] == pytest.approx(alone[2], rel=1e-5)


def test_variables_of_a_branch_on_a_number_that_its_first_values_do_not_take_are_trained(two_cpus, live_hand):
    """As in averaging weights from some epoch on."""

    def trained_with(placing):
        weight, average = tf.Variable(1.0), tf.Variable(0.0)

        @tf.function
        def step(x, epoch):
            weight.assign(0.9 * weight + x)
            if epoch >= 3:
                average.assign(0.5 * average + 0.5 * weight)
            return weight.read_value()

        hand = live_hand(step) if placing else step
        found = []
        for epoch in range(6):
            for i in range(4):
                if placing and (epoch, i) == (0, 3):
                    hand.place()
                found.append(float(hand(tf.constant(0.1 * i), epoch)))
        if placing:
            assert hand.live.left_alone is None and hand.is_placed
            assert any(variant.following is not None for variant in hand.live.variants)
            hand.close()
        return found, float(weight), float(average)

    placed, alone = trained_with(True), trained_with(False)
    np.testing.assert_allclose(placed[0], alone[0], rtol=1e-5)
    assert placed[1:] == pytest.approx(alone[1:], rel=1e-5)


def test_a_step_with_numbers_that_is_left_alone_is_called_without_them_too(two_cpus, live_hand):
    weight = tf.Variable(1.0)

    @tf.function
    def step(x, rate=None):
        if rate is not None:
            weight.assign_sub(rate * x)
        return weight.read_value()

    hand = live_hand(step)
    for i in range(8):
        hand(tf.constant(1.0), 0.1 / (1 + i))
    assert hand.live.main.layout.numbers
    hand.live.leave_alone("because")
    assert float(hand(tf.constant(1.0))) == float(weight)
    hand.close()


def test_what_fails_in_any_way_while_another_signature_is_placed_leaves_that_one_untouched(
    two_cpus, live_hand, monkeypatch
):
    weight = tf.Variable(1.0)
    hand = live_hand(tf.function(lambda x: weight.assign_add(tf.reduce_sum(x)).read_value()))
    for _ in range(UNTOUCHED_STEPS):
        hand(tf.ones([2]))
    hand.place()
    monkeypatch.setattr("placer.train.builder.ScratchRun", lambda *_, **__: {}["nothing"])
    with pytest.warns(UserWarning, match="placing it failed: KeyError: 'nothing'"):
        for _ in range(4):
            hand(tf.ones([3]))
    assert float(hand(tf.ones([2]))) == 1.0 + 2 * (UNTOUCHED_STEPS + 1) + 3 * 4
    hand.close()


@pytest.mark.filterwarnings("error")
def test_where_warnings_are_errors_the_batch_of_a_signature_that_is_refused_is_trained(two_cpus, live_hand):
    weight, seen = tf.Variable(1.0), []

    @tf.function
    def step(iterator, twice):
        x = next(iterator)
        if twice:
            x = x + next(iterator)
        return weight.assign_add(x).read_value()

    hand = live_hand(step)
    iterator = iter(tf.data.Dataset.range(100).map(lambda i: tf.cast(i, tf.float32)))
    for i in range(UNTOUCHED_STEPS + 4):
        try:
            hand(iterator, i >= UNTOUCHED_STEPS)
        except UserWarning as warned:
            seen.append(str(warned))
    assert len(seen) == 1 and "does not take exactly one batch" in seen[0]
    assert float(weight) == 1.0 + sum(range(UNTOUCHED_STEPS + 8))
    hand.close()


def test_iterators_used_in_other_ways_leave_the_step_alone(two_cpus, live_hand):
    train = momentum()[0]
    held = iter(rows().repeat())

    def two(iterator):
        return train(**next(iterator)) + train(**next(iterator))

    @tf.function
    def maybe(iterator):
        return train(**next(iterator)) if tf.random.uniform([]) < 2.0 else tf.constant(0.0)

    def closed():
        return train(**next(held))

    def whole(dataset):
        return dataset.reduce(0.0, lambda total, batch: total + tf.reduce_sum(batch["x"])) + train(*batches(1)[0])

    given = [(two, (held,)), (maybe, (held,)), (closed, ()), (whole, (rows(),))]
    for step, args in given:
        hand, plain = live_hand(step), not isinstance(step, type(maybe))
        for _ in range(UNTOUCHED_STEPS if plain else 2):
            hand(*args)
        assert "batch" in hand.live.left_alone, step
        hand(*args)
        hand.close()
