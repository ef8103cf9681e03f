"""A step whose ops and variables are divided for a while trains as if it had been left whole.

All is computed in double precision, where parts that are added in another order differ by less than 1e-12; so BOUND is
far above rounding, and far below what a lost update, or a part in a wrong place, would make of any variable.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.splits.plan import PlanError, SplitPlan
from placer.splits.step_graph import StepGraph
from placer.train.device_session import DeviceSession
from placer.train.steps.modes import UNTOUCHED
from search.splits.candidates import plan_by
from search.splits.propagate import Rates

BOUND = 1e-9
FREE = 1e-12  # seconds a byte, so that plans divide whatever they can
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")


@pytest.fixture(autouse=True)
def double_precision():
    policy = keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy(policy)


def batch(i, rows=8):
    rng = np.random.default_rng(i)
    return tf.constant(rng.normal(size=(rows, 12))), tf.constant(rng.integers(0, 3, rows))


def made(optimizer=None):
    """(step, a second step on the same weights, all variables); the same values every time."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(5)
    inputs = keras.Input((12,))
    x = keras.layers.Dense(10, activation="relu")(inputs)
    x = keras.layers.BatchNormalization()(keras.layers.Dense(10, activation="tanh")(x))
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    optimizer = optimizer or keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    other = keras.optimizers.SGD(0.05, momentum=0.9)
    other.build(model.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = LOSS(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    def decay(x, y):
        with tf.GradientTape() as tape:
            loss = LOSS(y, model(x, training=False)) + 0.01 * sum(
                tf.reduce_sum(w**2) for w in model.trainable_variables
            )
        other.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    variables = [*model.variables, *optimizer.variables, *other.variables]
    return tf.function(step), tf.function(decay), [v.value for v in variables]


def plan_of(live, policy, parts=2):
    """What a policy divides of the step that was captured."""
    captured = live.captured()
    graph = StepGraph(captured.graph_def)
    rates = Rates(dict.fromkeys(graph.nodes, 1e-3), FREE, 0.0)
    return plan_by(policy, graph, {op.name: op.phase for op in captured.graph.ops}, rates, parts)


def apart(hand, turn=0):
    """Place the step so that parts are on different devices, and move what the plan divides there."""

    def move(plan):
        parts = {op.colocate or op.name: op.part or 0 for op in hand.live.captured(plan).graph.ops}
        hand.move(lambda classes: {name: (parts[name] + turn) % 2 for name in classes}, plan)

    return move


def divided_variables(hand):
    return hand.live.mode.step.captured.divided


def same(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=BOUND, atol=BOUND)


def taken(step, i, rows=8):
    return float(step(*batch(i, rows)))


def values(variables):
    return [v.numpy() for v in variables]


@pytest.mark.slow
def test_a_step_moved_between_plans_trains_as_it_does_alone(two_cpus, live_hand, tmp_path):
    """Untouched, divided by columns, whole, divided by turns and placed the other way round, untouched; and meanwhile
    others look, write and save.
    """

    def looked(i, variables, weight, checkpoint):
        if i == 8:
            return [weight.numpy().sum(), float(tf.reduce_sum(weight)), float(total(weight))]
        if i == 10:
            weight.assign(weight * 0.5)
        if i == 14:
            halved(weight)
        if i in (9, 17):
            return [v.numpy() for v in variables]
        if i == 20:
            kept.append(checkpoint.save(str(tmp_path / f"{len(kept)}")))
        if i == 24:
            checkpoint.restore(kept[-1]).assert_consumed()
        return []

    total = tf.function(lambda v: tf.reduce_sum(v))
    halved = tf.function(lambda v: v.assign_sub(0.25 * v))
    kept = []

    def trained(step, moved):
        found = []
        for i in range(32):
            moved(i)
            found.append(taken(step, i))
            found += looked(i, variables, weight, checkpoint)
        return [*found, *values(variables)]

    step, _, variables = made()
    weight, checkpoint = variables[0], tf.train.Checkpoint(variables=variables)
    alone = trained(step, lambda i: None)

    step, _, variables = made()
    weight, checkpoint = variables[0], tf.train.Checkpoint(variables=variables)
    hand = live_hand(step)

    def moved(i):
        if i == 4:
            hand.place()
            numbers.extend(hand.live.divide(plan_of(hand.live, policy)) for policy in ("columns", "alternate"))
            apart(hand)(numbers[0])
            assert len(divided_variables(hand)) >= 6  # weights and their slots
        if i == 12:
            hand.move()
            assert not divided_variables(hand)
        if i == 16:
            apart(hand, turn=1)(numbers[1])
        if i == 22:
            apart(hand)(numbers[1])
        if i == 26:
            apart(hand)(numbers[0])
        if i == 29:
            hand.live.mode = UNTOUCHED

    numbers = []
    same(trained(hand, moved), alone)
    hand.close()
    same(values(variables), alone[-len(variables) :])


@pytest.mark.slow
def test_steps_that_share_variables_may_divide_them_differently(two_cpus, live_hand):
    def trained(step, decay, moved):
        found = []
        for i in range(20):
            moved(i)
            found += [taken(step, i), taken(decay, 100 + i)]
        return [*found, *values(variables)]

    step, decay, variables = made()
    alone = trained(step, decay, lambda i: None)

    step, decay, variables = made()
    session = DeviceSession(None, False)
    hands = live_hand(step, session=session), live_hand(decay, session=session)

    def moved(i):
        if i == 4:
            hands[0].place(), hands[1].place()
            for hand, policy in zip(hands, ("columns", "alternate"), strict=True):
                apart(hand)(hand.live.divide(plan_of(hand.live, policy)))
            assert divided_variables(hands[0]) != divided_variables(hands[1])
        if i == 9:
            hands[1].move()
        if i == 14:
            apart(hands[1], turn=1)(1)

    same(trained(*hands, moved), alone)
    hands[0].close(), hands[1].close()
    same(values(variables), alone[-len(variables) :])


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.parametrize(("policy", "rows"), [("columns", 5), ("batch", 1)])
def test_a_partial_last_batch_is_divided_too_or_stays_whole(two_cpus, live_hand, policy, rows):
    """One example cannot be divided: that signature follows with whole ops."""

    def trained(step, moved):
        found = []
        for i in range(18):
            moved(i)
            found.append(taken(step, i, rows if i % 6 == 5 else 8))
        return [*found, *values(variables)]

    step, _, variables = made()
    alone = trained(step, lambda i: None)

    step, _, variables = made()
    hand = live_hand(step)

    def moved(i):
        if i == 4:
            hand.place()
            apart(hand)(hand.live.divide(plan_of(hand.live, policy)))

    same(trained(hand, moved), alone)
    assert [v.following[1].plan for v in hand.live.variants if v.following] == [0 if rows == 1 else 1]
    hand.close()


@pytest.mark.slow
def test_what_a_divided_step_held_is_freed(two_cpus, live_hand):
    step, _, variables = made()
    hand = live_hand(step)
    for i in range(4):
        taken(hand, i)
    hand.place()
    apart(hand)(hand.live.divide(plan_of(hand.live, "columns")))
    taken(hand, 4)
    divided = hand.live.mode
    before = values(variables)
    hand.move()
    taken(hand, 5)
    hand.live.release([hand.live.mode])
    at = hand.live.session.replicas._at
    assert all(len(places) <= 2 and all(isinstance(place, str) for place in places) for places in at.values())
    assert any((a != b).any() for a, b in zip(before, values(variables), strict=True))
    hand.close()
    del divided


def test_a_divided_step_that_fails_when_it_first_trains_is_undone(two_cpus, live_hand, monkeypatch):
    step, _, variables = made()
    hand = live_hand(step)
    alone, _, expected = made()
    for i in range(4):
        taken(hand, i), taken(alone, i)
    hand.place()
    apart(hand)(hand.live.divide(plan_of(hand.live, "columns")))
    run = hand.live.mode.step.run_flat

    def failing(tensors):
        run(tensors)
        raise tf.errors.InternalError(None, None, "broken")

    monkeypatch.setattr(hand.live.mode.step, "run_flat", failing)
    same([taken(hand, 4)], [taken(alone, 4)])
    assert hand.live.failed is not None and not hand.is_placed
    same(values(variables), values(expected))
    hand.close()


@pytest.mark.slow
def test_a_batch_of_another_size_from_an_iterator_is_trained_whole_and_never_cut_as_the_others(two_cpus, live_hand):
    sizes = [8] * 6 + [12, 8, 5, 8]

    def of_batches():
        spec = tf.TensorSpec((None, 12), tf.float64), tf.TensorSpec((None,), tf.int64)
        return iter(tf.data.Dataset.from_generator(lambda: map(batch, range(10), sizes), output_signature=spec))

    def on_batches(step):
        return tf.function(lambda iterator: step(*next(iterator)))

    step, _, variables = made()
    alone, _, expected = made()
    hand, alone, iterator, other = live_hand(on_batches(step)), on_batches(alone), of_batches(), of_batches()
    for i in range(len(sizes)):
        if i == 4:
            hand.place()
            apart(hand)(hand.live.divide(plan_of(hand.live, "batch")))
            assert hand.live.mode.plan
        same([hand(iterator)], [alone(other)])
        same(values(variables), values(expected))
    assert hand.live.left_alone is None and hand.is_placed
    hand.close()


def test_a_plan_for_another_step_is_refused(two_cpus, live_hand):
    hand = live_hand(made()[0])
    for i in range(4):
        taken(hand, i)
    hand.place()
    plan = SplitPlan.of_regions([(next(plan_of(hand.live, "batch").regions())[0], ["nothing"])])
    with pytest.raises(PlanError, match="it is for another graph"):
        hand.live.divide(plan)
    assert hand.live.divide(plan_of(hand.live, "batch")) == 1
    hand.close()


@pytest.mark.slow
def test_a_step_traced_once_for_any_size_is_divided_for_each(two_cpus, live_hand):
    """As Keras traces a step whose last batch is smaller: no batch is cut as one of another size."""
    sizes = [8, 8, 8, 8, 5, 8, 5, 8, 5, 5, 1, 8, 1, 1, 8, 12, 12, 12]
    signature = [tf.TensorSpec((None, 12), tf.float64), tf.TensorSpec((None,), tf.int64)]
    step, _, variables = made()
    alone, _, expected = made()
    step, alone = (tf.function(one.python_function, input_signature=signature) for one in (step, alone))
    hand = live_hand(step)
    for i, rows in enumerate(sizes):
        if i == 4:
            hand.place()
            apart(hand)(hand.live.divide(plan_of(hand.live, "batch")))
            assert hand.live.mode.plan
        same([taken(hand, i, rows)], [taken(alone, i, rows)])
        same(values(variables), values(expected))
    assert hand.live.left_alone is None and hand.is_placed
    assert [v.following[1].plan for v in hand.live.variants if v.following] == [1, 0, 1]  # one example stays whole
    assert step.experimental_get_tracing_count() == 1
    hand.close()
