"""What may go wrong around a placed step leaves the training where the same program unwrapped would be."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import queue
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf

from placer import tf_internals
from placer.errors import BadInputError
from placer.execute.agreement import LossDiffersError
from placer.execute.rewrite import PlacedStep, PlacementError
from placer.train import builder
from placer.train.calls import MOST_DISTURBED
from placer.train.device_session import DeviceSession
from placer.train.steps import recorder, variants
from placer.train.steps.modes import UNTOUCHED as UNTOUCHED_MODE
from placer.train.steps.scratch_run import ScratchRun
from placer.train.steps.untouched import UntouchedFunction
from placer.train.variables.hooks import watched_by

UNTOUCHED = 4
LONG_S = 300.0  # in which other threads do what is waited for


def program():
    """A step with two weights and a counter, and its variables."""
    one, other, count = tf.Variable([1.0, -1.0]), tf.Variable([0.5, 0.5]), tf.Variable(0)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.reduce_sum(x * one, -1) + tf.reduce_sum(x, -1) * tf.reduce_sum(other)))
        for variable, gradient in zip((one, other), tape.gradient(loss, (one, other)), strict=True):
            variable.assign_sub(0.01 * gradient)
        count.assign_add(1)
        return loss

    return step, [one, other, count]


def batch(i, rows=4):
    return tf.constant(np.random.default_rng(i).normal(size=(rows, 2)), tf.float32)


def unwrapped(batches):
    step, variables = program()
    for x in batches:
        step(x)
    return [v.numpy() for v in variables]


def started(live_hand, step):
    hand = live_hand(step)
    for i in range(UNTOUCHED):
        hand(batch(i))
    hand.place(first=False)
    return hand


def assert_same(variables, expected):
    for variable, value in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=1e-6)


@pytest.mark.parametrize("error", [
    tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"), PlacementError("an op ran elsewhere"),
    ValueError("a bug"),
])  # fmt: skip
def test_a_step_that_fails_when_it_first_trains_is_undone_and_runs_untouched(two_cpus, live_hand, monkeypatch, error):
    step, variables = program()
    hand = started(live_hand, step)
    placed, run = hand.live.mode, PlacedStep.run_flat

    def failing(self, inputs):
        run(self, inputs)  # it has written
        raise error

    monkeypatch.setattr(PlacedStep, "run_flat", failing)
    loss = hand(batch(UNTOUCHED))
    monkeypatch.undo()
    assert np.isfinite(float(loss)) and not hand.is_placed
    assert hand.live.failed is not None and hand.live.failed[0] is placed
    hand.live.mode = placed
    assert not hand.is_placed  # never again
    hand(batch(UNTOUCHED + 1))
    assert_same(variables, unwrapped(map(batch, range(UNTOUCHED + 2))))
    hand.close()


def test_an_error_of_the_step_itself_is_raised_once_and_only_once(two_cpus, live_hand):
    weight = tf.Variable(1.0)

    @tf.function
    def step(x):
        weight.assign_add(tf.debugging.check_numerics(x, "no number"))
        return weight.read_value()

    hand = live_hand(step)
    for _ in range(UNTOUCHED):
        hand(tf.constant(1.0))
    hand.place(first=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no number"):
        hand(tf.constant(np.nan))
    assert weight.numpy() == 1.0 + UNTOUCHED
    assert hand(tf.constant(1.0)).numpy() == 2.0 + UNTOUCHED
    hand.close()


def test_a_tf_function_whose_placed_step_fails_is_left_alone_with_a_word(two_cpus, live_hand):
    """Nothing orders an assert and the writes beside it: how much is written differs from mapping to mapping."""
    weights = [tf.Variable(1.0) for _ in range(3)]

    @tf.function
    def step(x):
        tf.debugging.assert_less(x, 50.0)
        for weight in weights:
            weight.assign_add(x)
        return weights[0].read_value()

    hand = live_hand(step)
    for _ in range(UNTOUCHED):
        hand(tf.constant(1.0))
    hand.place()
    hand(tf.constant(1.0))
    assert hand.is_placed
    with pytest.raises(tf.errors.InvalidArgumentError):
        hand(tf.constant(99.0))
    assert "its placed step failed (InvalidArgumentError), and may have written others" in hand.live.left_alone
    for weight in weights:
        weight.assign(1.0)
    assert hand(tf.constant(1.0)).numpy() == 2.0 and not hand.is_placed
    hand.close()


def test_another_signature_is_tried_before_it_is_placed(two_cpus, live_hand):
    step, variables = program()
    hand = started(live_hand, step)
    rows = [4, 3, 3, 4, 3, 3, 4]
    for i, count in enumerate(rows):
        hand(batch(UNTOUCHED + i, count))
    (other,) = (variant for variant in hand.live.variants if variant is not hand.live.main)
    assert other.following is not None and not other.refused
    seen = [batch(i, 4) for i in range(UNTOUCHED)] + [batch(UNTOUCHED + i, count) for i, count in enumerate(rows)]
    assert_same(variables, unwrapped(seen))
    hand.close()


def test_a_program_that_goes_over_to_another_signature_has_that_one_placed(two_cpus, live_hand, monkeypatch):
    monkeypatch.setattr(variants, "RECENT", 20)
    step, variables = program()
    hand = started(live_hand, step)
    seen = [batch(i) for i in range(UNTOUCHED)]

    def train(count, rows):
        for _ in range(count):
            seen.append(batch(len(seen), rows))
            hand(seen[-1])

    for _ in range(10):  # three of ten steps are of the other one
        train(7, 4), train(3, 3)
        assert hand.live.successor is None
    train(13, 3)
    assert hand.live.successor is None  # 16 of the last 20 are not more than 80 %
    train(1, 3)
    before, successor = hand.live.main, hand.live.successor
    hand.live.go_over(successor)
    assert hand.live.main is successor is not before and not hand.is_placed
    hand.live.mode = hand.placed[0]  # built for another signature
    assert not hand.is_placed
    train(2, 3)  # recorded
    hand.place(first=False)
    train(3, 3)
    assert hand.live.mode.step.captured is successor.captured
    train(3, 4)  # now this one follows
    assert before.following is not None and not before.refused
    train(20, 4)
    assert hand.live.successor is None  # it takes twice as many to go back
    assert_same(variables, unwrapped(seen))
    hand.close()


def test_another_signature_follows_the_run_order_of_the_main_one(two_cpus, live_hand):
    """Variables are no part of that order: the placed step takes them as arguments."""
    step, variables = program()
    hand = started(live_hand, step)
    captured = hand.live.joined.captured
    order = [name for name in captured.graph.ordered_like(()) if name not in captured.variables]
    hand.live.mode = hand.live.settle(hand.live.build([0] * len(captured.graph), order, "ordered"))
    rows = [4, 3, 3, 3, 4]
    for i, count in enumerate(rows):
        hand(batch(UNTOUCHED + i, count))
    (other,) = (variant for variant in hand.live.variants if variant is not hand.live.main)
    assert other.following is not None and other.following[1].order and not other.refused
    seen = [batch(i) for i in range(UNTOUCHED)] + [batch(UNTOUCHED + i, count) for i, count in enumerate(rows)]
    assert_same(variables, unwrapped(seen))
    hand.close()


def test_another_signature_that_does_something_else_is_never_placed(two_cpus, live_hand, monkeypatch):
    step, variables = program()
    hand = started(live_hand, step)

    def differs(self, step):
        raise LossDiffersError("variable 'w' changed by 1, and by 2 untouched")

    monkeypatch.setattr(ScratchRun, "run", differs)
    hand(batch(UNTOUCHED, 3))
    with pytest.warns(UserWarning, match="Calls of this signature run untouched") as warned:
        for i in range(1, 4):
            hand(batch(UNTOUCHED + i, 3))
    assert [warning.filename for warning in warned] == [inspect.getsourcefile(live_hand)]
    expected = [*(batch(i) for i in range(UNTOUCHED)), *(batch(UNTOUCHED + i, 3) for i in range(4))]
    assert_same(variables, unwrapped(expected))
    hand.close()


def test_another_signature_whose_step_fails_where_it_is_recorded_is_placed_later(two_cpus, live_hand, monkeypatch):
    step, variables = program()
    hand = started(live_hand, step)

    def failing(self, variant, args, kwargs, before=UntouchedFunction._timed):
        if variant is not hand.live.main and variant.calls == 2:
            raise ValueError("a bad batch")
        return before(self, variant, args, kwargs)

    monkeypatch.setattr(UntouchedFunction, "_timed", failing)
    given = [batch(UNTOUCHED + i, 3) for i in range(5)]
    hand(given[0])
    with pytest.raises(ValueError, match="a bad batch"):
        hand(given[1])
    for x in given[2:]:
        hand(x)
    (other,) = (variant for variant in hand.live.variants if variant is not hand.live.main)
    assert other.following is not None and not other.refused
    assert_same(variables, unwrapped([*map(batch, range(UNTOUCHED)), given[0], *given[2:]]))
    hand.close()


def test_another_signature_that_meets_a_lost_device_while_it_is_tried_is_tried_again(two_cpus, live_hand, monkeypatch):
    step, variables = program()
    hand = started(live_hand, step)
    recovery, recovered = hand.live.session.recovery, []

    def lost(*_, **__):
        raise tf.errors.UnavailableError(None, None, "Connection reset by peer")

    monkeypatch.setattr(recovery, "is_loss", lambda error: isinstance(error, tf.errors.UnavailableError))
    monkeypatch.setattr(recovery, "recover", lambda: recovered.append(hand.live.variants.forget_placed()))
    given = [batch(UNTOUCHED + i, 3) for i in range(6)]
    for x in given[:2]:  # untouched, and recorded
        hand(x)
    with monkeypatch.context() as broken:
        broken.setattr(builder, "PlacedStep", lost)
        hand(given[2])
    for x in given[3:]:
        hand(x)
    (other,) = (variant for variant in hand.live.variants if variant is not hand.live.main)
    assert len(recovered) == 1 and other.following is not None and not other.refused
    assert_same(variables, unwrapped([*map(batch, range(UNTOUCHED)), *given]))
    hand.close()


def test_an_error_of_tensorflow_while_another_signature_is_built_does_not_end_the_training(
    two_cpus, live_hand, monkeypatch
):
    step, variables = program()
    hand = started(live_hand, step)

    def broken(*_, **__):
        raise tf.errors.InternalError(None, None, "no such kernel")

    given = [*(batch(UNTOUCHED + i, 3) for i in range(3)), batch(UNTOUCHED + 3)]
    for x in given[:2]:  # untouched, and recorded
        hand(x)
    monkeypatch.setattr(builder, "PlacedStep", broken)
    with pytest.warns(UserWarning, match="no such kernel"):
        hand(given[2])
    monkeypatch.undo()
    hand(given[3])
    assert_same(variables, unwrapped([*map(batch, range(UNTOUCHED)), *given]))
    hand.close()


def test_the_end_of_one_search_frees_nothing_that_another_step_uses(two_cpus, live_hand):
    shared, session = tf.Variable([1.0, 2.0]), DeviceSession(None, False)

    def step(x):
        shared.assign_add(x)
        return tf.reduce_sum(shared)

    hands = [live_hand(tf.function(step), session=session) for _ in range(2)]
    for hand in hands:
        for _ in range(UNTOUCHED):
            hand(tf.constant([1.0, 1.0]))
        hand.place(first=False)
    for _ in range(3):
        hands[0].live.release([])  # as at the end of its search, where it goes on untouched
        hands[1](tf.constant([1.0, 1.0]))
        hands[0](tf.constant([1.0, 1.0]))
    assert shared.numpy()[0] == 1.0 + 2 * UNTOUCHED + 6
    for hand in hands:
        hand.close()


def test_the_end_of_one_step_keeps_no_replica_of_its_own_while_another_goes_on(two_cpus, live_hand):
    session, weight, other = DeviceSession(None, False), tf.Variable(1.0), tf.Variable(1.0)
    steps = [lambda x: weight.assign_add(x).read_value(), lambda x: other.assign_add(x).read_value()]
    hands = [live_hand(step, session=session) for step in steps]
    for hand in hands:
        for _ in range(4):
            hand(tf.constant(1.0))
        hand.place(first=False)
    for hand in (*hands, *hands):  # what the first step of each may have to be undone to is the truth for a while
        hand(tf.constant(1.0))
    hands[0].close()
    hands[1].live.release([hands[1].live.mode])
    assert id(weight) not in session.replicas._at and len(session.replicas._at[id(other)]) == 2
    assert weight.numpy() == 7.0
    hands[1].close()


def test_a_reader_in_tensorflows_threads_ends_placed_steps(two_cpus, live_hand):
    step, variables = program()
    hand = started(live_hand, step)
    hand(batch(UNTOUCHED))
    data = tf.data.Dataset.from_generator(lambda: iter([variables[2].numpy()]), output_types=tf.int32)
    assert int(next(iter(data))) == UNTOUCHED + 1  # the truth, already the first time
    hand(batch(UNTOUCHED + 1))
    assert not hand.is_placed
    assert "TensorFlow's threads reads its variables while steps run" in hand.live.left_alone
    numbers = iter(tf.data.Dataset.from_generator(lambda: iter([variables[2].numpy()] * 1), output_types=tf.int32))
    hand(batch(UNTOUCHED + 2))
    assert int(next(numbers)) == UNTOUCHED + 3
    assert_same(variables, unwrapped(map(batch, range(UNTOUCHED + 3))))
    hand.close()


def test_a_producer_may_read_weights_while_the_step_waits_for_its_batch(two_cpus, live_hand):
    """The lock that a read needs is not held while a batch is awaited."""
    weight, wanted, allowed = tf.Variable(0.0), threading.Event(), threading.Event()

    def numbers():
        for i in range(100):
            if i == UNTOUCHED + 2:
                wanted.set()
                assert allowed.wait(LONG_S)
            yield 1.0

    @tf.function
    def step(iterator):
        weight.assign_add(next(iterator))
        return weight.read_value()

    iterator = iter(tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.float32)))
    hand, seen = live_hand(step), []

    def look():
        wanted.wait(LONG_S)
        seen.append(float(weight.numpy()))
        allowed.set()

    for _ in range(UNTOUCHED):
        hand(iterator)
    hand.place(first=False)
    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(3):
        hand(iterator)
    reader.join(LONG_S)
    assert hand.is_placed and seen and float(weight.numpy()) == UNTOUCHED + 3
    hand.close()


@pytest.mark.parametrize("write", [
    lambda scale: scale.assign(0.5 * scale),
    tf.function(lambda scale: tf.map_fn(lambda x: x * scale, tf.ones([2]))),  # which only reads, as far as is known
], ids=["write", "nested"])  # fmt: skip
def test_a_producer_may_write_weights_while_an_untouched_step_waits_for_its_batch(two_cpus, live_hand, write):
    """The step holds the lock, and runs on the user's own variables, as does whoever makes its batch."""
    scale, weight, made, placed = tf.Variable(1.0), tf.Variable(0.0), queue.Queue(), threading.Event()
    asked = threading.Semaphore(0)  # once for each number that a step waits for

    def next_number():
        asked.release()
        return made.get()

    def numbers():
        yield from iter(next_number, None)

    @tf.function
    def step(iterator):
        weight.assign_add(scale * next(iterator))
        return weight.read_value()

    def make():
        for i in range(UNTOUCHED + 6):
            if i >= UNTOUCHED:
                assert placed.wait(LONG_S)  # steps that were recorded are not disturbed
            assert asked.acquire(timeout=LONG_S)
            if i >= UNTOUCHED:
                write(scale)
            made.put(1.0)
        made.put(None)

    hand = live_hand(step)
    iterator = iter(tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.float32)))
    producer = threading.Thread(target=make, daemon=True)

    def learn():
        for i in range(UNTOUCHED + 6):
            if i == UNTOUCHED:
                hand.place()
                hand.live.mode = UNTOUCHED_MODE
                placed.set()
            hand(iterator)

    learner = threading.Thread(target=learn, daemon=True)
    learner.start(), producer.start()
    learner.join(LONG_S), producer.join(LONG_S)
    assert not learner.is_alive() and not producer.is_alive()
    assert hand.live.left_alone is None
    hand.close()


def test_steps_during_which_another_thread_writes_are_not_tried_and_in_the_end_left_alone(
    two_cpus, live_hand, monkeypatch
):
    step, variables = program()

    def disturbed(self, variant, args, kwargs, before=UntouchedFunction._timed):
        found = before(self, variant, args, kwargs)
        writer = threading.Thread(target=variables[0].assign, args=([0.0, 0.0],))
        writer.start(), writer.join(LONG_S)
        return found

    monkeypatch.setattr(UntouchedFunction, "_timed", disturbed)
    hand = live_hand(step)
    for i in range(UNTOUCHED):
        hand(batch(i))
    assert not hand.live.is_ready
    with pytest.raises(BadInputError, match="another thread writes its variables while its steps run"):
        hand.place()
    for i in range(MOST_DISTURBED):
        hand(batch(i))
    assert "another thread writes its variables" in hand.live.left_alone and hand.live.is_ready
    hand.close()


ONE = tf.constant(1.0)


def driven(live_hand, step):
    """A live step of one number, placed on the second device."""
    hand = live_hand(step)
    for _ in range(UNTOUCHED):
        hand(ONE)
    hand.place(first=False)
    hand(ONE)
    assert hand.is_placed
    return hand


@pytest.mark.parametrize("write", [
    lambda rate, value: rate.assign(value, read_value=False),
    lambda rate, value: tf.raw_ops.AssignVariableOp(resource=rate.handle, value=value),
], ids=["assign", "raw"])  # fmt: skip
def test_what_a_function_writes_by_the_handle_alone_reaches_the_next_step(two_cpus, live_hand, write):
    """TensorFlow does not note the variable among those of the function."""
    rate, w = tf.Variable(0.5), tf.Variable(10.0)

    @tf.function
    def step(x):
        w.assign_sub(rate * x)
        return w.read_value()

    @tf.function
    def set_rate(value):
        write(rate, value)

    hand = driven(live_hand, step)
    set_rate(tf.constant(0.0))
    before = w.numpy()
    hand(ONE)
    assert w.numpy() == before
    hand.close()


def test_what_a_function_reads_by_the_handle_alone_is_true(two_cpus, live_hand):
    w = tf.Variable([10.0], trainable=False)

    @tf.function
    def step(x):
        w.assign_sub([x])
        return w.read_value()

    @tf.function
    def first():
        return tf.gather_nd(w, [[0]])

    hand = driven(live_hand, step)
    assert first().numpy() == 10.0 - UNTOUCHED - 1
    hand.close()


@pytest.mark.parametrize("early", [False, True], ids=["later", "before"])
def test_what_assign_returns_is_the_same_variable(two_cpus, live_hand, early):
    """TensorFlow makes another object of the same handle. early: the first one before the variable is watched."""
    first = rate = tf.Variable(0.5)
    w = tf.Variable(10.0)
    if early:
        rate = rate.assign(0.5)

    @tf.function
    def step(x):
        w.assign_sub(first * x)
        return w.read_value()

    hand = driven(live_hand, step)
    for value in (0.25, 0.0):
        rate = rate.assign(value)
        before = w.numpy()
        hand(ONE)
        assert w.numpy() == before - value
    hand.close()


@pytest.mark.parametrize("read", [
    lambda w: w.numpy(), lambda w: w.read_value().numpy(), lambda w: tf.add(w, 0.0).numpy(), lambda w: float(w),
], ids=["numpy", "read_value", "op", "float"])  # fmt: skip
def test_what_assign_returned_is_true(two_cpus, live_hand, read):
    w = tf.Variable(10.0)
    unread = w.assign_add(1.0)

    @tf.function
    def step(x):
        w.assign_sub(x)
        return w.read_value()

    hand = driven(live_hand, step)
    assert read(unread) == 11.0 - UNTOUCHED - 1
    later = unread.assign_add(1.0)
    hand(ONE)
    assert read(later) == read(unread) == w.numpy() == 11.0 - UNTOUCHED - 1
    hand.close()
    later.assign(3.0)
    assert w.numpy() == 3.0


def by_assign(seen):
    seen.assign_add(1, read_value=False)


def by_handle(seen):
    tf.raw_ops.AssignAddVariableOp(resource=seen.handle, value=tf.constant(1))


@pytest.mark.parametrize("wrap", [tf.function, lambda step: step], ids=["tf.function", "plain"])
@pytest.mark.parametrize("write", [by_assign, by_handle])
def test_what_the_step_writes_by_the_handle_alone_is_a_variable_of_it(two_cpus, live_hand, write, wrap):
    w, seen = tf.Variable(10.0), tf.Variable(0)

    @wrap
    def counted(x):
        w.assign_sub(0.125 * x)
        write(seen)
        return w.read_value()

    hand = live_hand(counted)
    for _ in range(UNTOUCHED):
        hand(ONE)
    hand.place(first=False)
    assert seen.numpy() == UNTOUCHED  # no trial has written it
    for _ in range(3):
        hand(ONE)
    assert hand.is_placed and seen.numpy() == UNTOUCHED + 3 and w.numpy() == 10.0 - 0.125 * (UNTOUCHED + 3)
    seen.assign(0)
    hand(ONE)
    assert hand.is_placed and seen.numpy() == 1
    hand.close()


def test_a_variable_of_which_only_the_handle_is_left_leaves_the_step_alone(two_cpus, live_hand):
    w, handle = tf.Variable(10.0), tf.Variable(0).handle

    @tf.function
    def counted(x):
        w.assign_sub(0.125 * x)
        tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.constant(1))
        return w.read_value()

    hand = live_hand(counted)
    for _ in range(UNTOUCHED):
        hand(ONE)
    assert "keeps nothing but the handle" in hand.live.left_alone
    assert tf_internals.variables.read_variable(handle, tf.int32).numpy() == UNTOUCHED
    hand.close()


def test_a_step_that_is_closed_leaves_nothing_of_its_own_to_the_others(two_cpus, live_hand):
    session = DeviceSession(None, False)
    (step, variables), (other, kept) = program(), program()
    first, second = (live_hand(one, session=session) for one in (step, other))
    for i in range(UNTOUCHED):
        first(batch(i)), second(batch(i))
    first.place(first=False), second.place(first=False)
    given = [batch(UNTOUCHED + i) for i in range(4)]
    for x in given[:2]:
        first(x), second(x)
    first.close()
    assert [watched_by(v) for v in variables] == [None] * 3
    assert {id(v) for v in session.replicas.kept} == {id(v) for v in kept}
    for x in given[2:]:
        second(x)
    assert_same(kept, unwrapped([*map(batch, range(UNTOUCHED)), *given]))
    assert_same(variables, unwrapped([*map(batch, range(UNTOUCHED)), *given[:2]]))
    second.close()


@dataclasses.dataclass
class Given:
    x: tf.Tensor


def of_tensors():
    weight = tf.Variable([1.0, -1.0])

    def step(x):
        return weight.assign_sub(0.01 * tf.reduce_sum(x, 0)).read_value()

    return step


def of_objects():
    weight = tf.Variable([1.0, -1.0])

    def step(given):
        return weight.assign_sub(0.01 * tf.reduce_sum(given.x, 0)).read_value()

    return step


def called_once_each(hand, make):
    """Calls with what `make` gives for 1, 2, ..., in weak references."""
    held = []
    for rows in range(1, 41):
        given = make(rows)
        held.append(weakref.ref(given))
        hand(given)
    return held


@pytest.mark.parametrize("wrap", [tf.function, lambda step: step])
def test_of_many_signatures_no_batch_is_held(two_cpus, live_hand, wrap):
    hand = live_hand(wrap(of_tensors()))
    held = called_once_each(hand, lambda rows: batch(rows, rows))
    gc.collect()
    assert [one() for one in held[:-1]] == [None] * 39  # the last one may be traced after its call
    hand.close()


@pytest.mark.parametrize(
    ("step", "make"), [(of_tensors, lambda rows: batch(rows, rows)), (of_objects, lambda rows: Given(batch(rows)))]
)
def test_a_step_that_is_left_alone_holds_nothing_that_it_was_given(two_cpus, live_hand, step, make):
    hand = live_hand(step())
    held = called_once_each(hand, make)
    assert hand.live.left_alone is None
    hand.live.leave_alone("because")
    hand.live.let_go()
    gc.collect()
    assert [one() for one in held] == [None] * 40
    hand(make(1))
    hand.close()


def test_a_signature_that_is_neither_recorded_nor_placed_is_not_traced(two_cpus, live_hand, monkeypatch):
    step, _ = program()
    hand = started(live_hand, step)
    hand.live.mode, traced = UNTOUCHED_MODE, []
    monkeypatch.setattr(UntouchedFunction, "trace", lambda self, variant: traced.append(variant))
    for i in range(4):
        hand(batch(i, 3))
    assert not traced
    monkeypatch.undo()
    hand.live.mode = hand.placed[0]
    for i in range(3):
        hand(batch(i, 3))
    (other,) = (variant for variant in hand.live.variants if variant is not hand.live.main)
    assert other.following is not None and not other.args
    hand.close()


def test_a_step_that_is_left_alone_before_it_joins_devices_leaves_its_variables_alone(two_cpus, live_hand):
    session = DeviceSession(None, False)
    (step, variables), (other, kept) = program(), program()
    first, second = (live_hand(one, session=session) for one in (step, other))
    for i in range(UNTOUCHED):
        first(batch(i)), second(batch(i))
    second.live.capture()
    assert all(watched_by(variable) is session.replicas for variable in (*variables, *kept))
    first.live.leave_alone("because")
    first.live.let_go()
    assert [watched_by(variable) for variable in variables] == [None] * 3
    assert all(watched_by(variable) is session.replicas for variable in kept)
    first(batch(UNTOUCHED)), second(batch(UNTOUCHED))
    assert_same(variables, [variable.numpy() for variable in kept])
    first.close(), second.close()


def test_two_recorded_steps_hold_two_copies_of_the_variables(two_cpus, live_hand, monkeypatch):
    copies, values_of = [], recorder._values_of

    def noted(variables):
        found = values_of(variables)
        copies.append(weakref.ref(next(iter(found.values()))))
        return found

    monkeypatch.setattr(recorder, "_values_of", noted)
    step, variables = program()
    hand = live_hand(step)
    for i in range(UNTOUCHED):
        hand(batch(i))
    assert [one() is not None for one in copies] == [True, False, True]
    hand.place(first=False)
    hand(batch(UNTOUCHED))
    assert hand.is_placed
    assert_same(variables, unwrapped(map(batch, range(UNTOUCHED + 1))))
    hand.close()


def test_a_recording_that_is_cut_short_while_values_are_copied_is_made_again(two_cpus, live_hand, monkeypatch):
    values_of, calls = recorder._values_of, []

    def cut_short(variables):
        calls.append(1)
        if len(calls) == 3:  # the values after the second recorded step
            raise KeyboardInterrupt
        return values_of(variables)

    monkeypatch.setattr(recorder, "_values_of", cut_short)
    step, variables = program()
    hand, interrupted = live_hand(step), 0
    for i in range(UNTOUCHED + 2):
        try:
            hand(batch(i))
        except KeyboardInterrupt:  # the step has run
            interrupted += 1
    hand.place(first=False)
    hand(batch(UNTOUCHED + 2))
    assert hand.is_placed and interrupted == 1
    assert_same(variables, unwrapped(map(batch, range(UNTOUCHED + 3))))
    hand.close()
