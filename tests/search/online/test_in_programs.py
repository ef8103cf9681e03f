"""A wrapped step as a part of the user's program: in the place of its function, in objects, functions and threads."""

from __future__ import annotations

import _thread
import copy
import gc
import inspect
import pickle
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.errors import BadInputError
from placer.other_tensorflow import LeftAlone
from placer.train.device_session import DeviceSession
from placer.train.steps.modes import UNTOUCHED
from placer.train.steps.untouched import IN_A_FUNCTION
from placer.train.variables.hooks import _Watched
from search.online.auto_step import AutoStep
from search.online.autoplace import autoplace, place

CALLS = 8  # more than it takes until a step is traced, and left alone if it is to be


@pytest.fixture(autouse=True)
def given_back(two_cpus: Any) -> Iterator[None]:
    yield
    if DeviceSession._open:  # after many tests, collecting takes seconds
        gc.collect()
    assert not DeviceSession._open


def wrapped(step: Callable[..., Any]) -> AutoStep:
    return autoplace(step, devices="cpus:2", beat_untouched=False)


def descending(weight: tf.Variable) -> Callable[[tf.Tensor], tf.Tensor]:
    def descend(x: tf.Tensor) -> tf.Tensor:
        """One step down."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(weight * x))
        (gradient,) = tape.gradient(loss, [weight])
        weight.assign_sub(0.01 * gradient)
        return loss

    return descend


def called(step: Callable[..., Any], calls: int = CALLS) -> list[float]:
    return [float(step(tf.fill([3], float(i + 1)))) for i in range(calls)]


class Copied:
    """A trainer that a program copies, to keep the best, say."""

    def __init__(self) -> None:
        self.weight = tf.Variable([1.0, 2.0, 3.0])

    def step(self, x: tf.Tensor) -> tf.Tensor:
        return descending(self.weight)(x)


class CopiedFunction(Copied):
    step = tf.function(Copied.step)


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


STAND_INS = [wrapped, lambda step: LeftAlone(step, "because")]


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("stand_in", STAND_INS)
@pytest.mark.parametrize("kind", [Copied, CopiedFunction])
def test_a_copy_trains_itself(kind: Any, stand_in: Any, copied: Any) -> None:
    trainer, alone = kind(), kind()
    with stand_in(trainer.step) as trainer.step:
        called(trainer.step)
        called(alone.step)
        other, before = copied(trainer), trainer.weight.numpy()
        np.testing.assert_allclose(called(other.step), called(alone.step), rtol=1e-5)
        np.testing.assert_allclose(other.weight.numpy(), alone.weight.numpy(), rtol=1e-5)
        assert type(other.weight) is type(alone.weight) and type(other.step) is type(alone.step)
        assert (trainer.weight.numpy() == before).all()


def doubled(x: tf.Tensor) -> tf.Tensor:
    return 2 * x


def test_a_function_is_copied_and_pickled_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    function = doubled
    with wrapped(function) as step:
        assert copy.copy(step) is copy.deepcopy(step) is pickled(step) is function
        monkeypatch.setitem(globals(), "doubled", step)
        assert pickled(step) is step


@pytest.mark.parametrize("stand_in", STAND_INS)
def test_pickled_it_names_nothing_of_placers(stand_in: Any) -> None:
    plain, function = Copied(), CopiedFunction()
    for step in (doubled, plain.step, function.step):
        with stand_in(step) as stands:
            assert b"placer" not in pickle.dumps(stands)


@pytest.mark.parametrize("stand_in", STAND_INS)
@pytest.mark.parametrize("kind", [lambda step: step, tf.function])
def test_it_is_called_and_documented_like_its_function_and_has_its_attributes(stand_in: Any, kind: Any) -> None:
    function = kind(descending(tf.Variable([1.0, 2.0, 3.0])))
    function.rate = 0.5
    with stand_in(function) as step:
        assert (step.__name__, step.__doc__, step.__wrapped__) == ("descend", "One step down.", function)
        assert list(inspect.signature(step).parameters) == ["x"]
        assert step.rate == 0.5
        step.rate = 0.25
        assert function.rate == 0.25 and "rate" not in vars(step)
        assert hasattr(step, "get_concrete_function") == hasattr(function, "get_concrete_function")
        del step.rate
        assert not hasattr(function, "rate") and not hasattr(step, "rate")
        for missing in ("nothing", "_private"):
            with pytest.raises(AttributeError, match=missing):
                getattr(step, missing)


def test_a_setting_that_a_function_keeps_as_its_attribute_is_read_at_each_step() -> None:
    def trained(wrap: Callable[..., Any]) -> list[Any]:
        weight = tf.Variable([1.0, 2.0])

        def descend(x: tf.Tensor) -> tf.Tensor:
            weight.assign_sub(descend.rate * x * weight)
            return tf.reduce_sum(weight)

        descend.rate = 0.1  # type: ignore[attr-defined]
        descend = wrap(descend)
        for i in range(2 * CALLS):
            descend.rate = 0.1 if i < CALLS else 0.01  # type: ignore[attr-defined]
            descend(tf.constant([1.0, 0.5]))
        getattr(descend, "close", lambda: None)()
        return weight.numpy().tolist()  # type: ignore[no-any-return]

    assert trained(wrapped) == trained(lambda step: step)


@pytest.mark.parametrize("named", ["steps", "_rate"])
def test_what_a_step_reads_of_what_wraps_it_leaves_it_alone(named: str) -> None:
    weight = tf.Variable([1.0, 2.0])

    def by_steps(x: tf.Tensor) -> tf.Tensor:
        weight.assign_sub(1e-3 * descend.steps * x)
        return tf.reduce_sum(weight)

    def by_private(x: tf.Tensor) -> tf.Tensor:
        weight.assign_sub(1e-3 * descend._rate * x)
        return tf.reduce_sum(weight)

    descend: Any = wrapped(by_steps if named == "steps" else by_private)
    descend._rate = 1.0
    for _ in range(CALLS):
        descend(tf.constant([1.0, 0.5]))
    assert f"it reads `descend.{named}`" in str(descend.left_alone)
    descend.close()


def test_a_second_wrap_that_is_refused_leaves_the_first_as_it_is() -> None:
    with wrapped(descending(tf.Variable([1.0, 2.0, 3.0]))) as step:
        with pytest.raises(BadInputError):
            autoplace(step, devices="cpus:2", max_memory={"gpu:9": "1GiB"})
        with pytest.raises(BadInputError):
            place(step, "no/such/mapping.json", devices="cpus:2")
        assert step.left_alone is None


def test_a_step_that_is_wrapped_again_is_the_same_function_wrapped_anew() -> None:
    weight = tf.Variable([1.0, 2.0, 3.0])
    first = wrapped(descending(weight))
    called(first, 3)
    with wrapped(first) as second:
        assert first.left_alone == "closed" and second.__wrapped__ is first.__wrapped__
        called(second)
        assert second.left_alone is None, second.left_alone
    alone = tf.Variable([1.0, 2.0, 3.0])
    called(descending(alone), 3)
    called(descending(alone))
    assert weight.numpy().tolist() == pytest.approx(alone.numpy().tolist(), rel=1e-6)


class Net(tf.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable([1.0, 2.0, 3.0])

    def train(self, x: tf.Tensor) -> tf.Tensor:
        return descending(self.weight)(x)


class KerasNet(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.layers.Dense(2)
        self.inner.build([None, 3])

    def train(self, x: tf.Tensor) -> tf.Tensor:
        return descending(self.inner.kernel.value)(x[:, None])


class Plain:
    def __init__(self) -> None:
        self.weight = tf.Variable([1.0, 2.0, 3.0])
        self.copy = 2

    def train(self, x: tf.Tensor) -> tf.Tensor:
        return descending(self.weight)(x) * self.copy


@pytest.mark.parametrize("kind", [Net, KerasNet, Plain])
def test_a_method_may_be_wrapped_on_its_object(kind: Callable[[], Any]) -> None:
    net = kind()
    net.train = wrapped(net.train)
    called(net.train)
    assert net.train.left_alone is None, net.train.left_alone
    net.train.close()


def test_a_wrapped_step_may_call_a_wrapped_one() -> None:
    inner = wrapped(descending(tf.Variable([1.0, 2.0, 3.0])))

    def twice(x: tf.Tensor) -> tf.Tensor:
        return inner(x) + inner(x)

    with inner, wrapped(twice) as outer:
        called(outer)
        assert outer.left_alone is None, outer.left_alone
        assert not [entry for entry in inner.journal.entries if entry.kind == "alone"]


def test_a_step_that_becomes_a_part_of_a_function_says_so_once() -> None:
    with wrapped(descending(tf.Variable([1.0, 2.0, 3.0]))) as step:

        @tf.function
        def epoch(data: tf.Tensor) -> tf.Tensor:
            return step(data[0]) + step(data[1])

        epoch(tf.ones([2, 3]))
        epoch(tf.ones([3, 3]))
        assert [entry.sentence for entry in step.journal.entries if entry.kind == "alone"] == [IN_A_FUNCTION]
        assert IN_A_FUNCTION in step.report()


def test_the_step_of_a_keras_model_that_is_wrapped_in_its_class_is_told_of_the_callback() -> None:
    class Model(keras.Model):  # type: ignore[misc]
        @autoplace
        def train_step(self, data: Any) -> Any:
            return data

    with pytest.raises(BadInputError, match=r"callbacks=\[placer.keras.AutoPlace\(\)\]"):
        Model().train_step(None)
    vars(Model)["train_step"].close()


def test_another_method_of_a_keras_model_is_told_to_be_wrapped_on_its_object() -> None:
    class Model(keras.Model):  # type: ignore[misc]
        @autoplace
        def descend(self, data: Any) -> Any:
            return data

    with pytest.raises(BadInputError, match=r"self.descend = placer.autoplace\(self.descend\)"):
        Model().descend(None)
    vars(Model)["descend"].close()


def test_a_step_that_raises_where_its_loss_is_no_number_is_left_alone_for_that_and_not_for_the_loss() -> None:
    descend = descending(tf.Variable([1.0, 2.0, 3.0]))

    def guarded(x: tf.Tensor) -> tf.Tensor:
        loss = descend(x)
        if tf.math.is_nan(loss):
            raise ValueError("loss is NaN")
        return loss

    with wrapped(guarded) as step:
        called(step)
        assert str(step.left_alone).startswith("it raises an exception (ValueError) in a branch or loop")


def test_a_thread_that_python_did_not_start_may_read_between_its_steps() -> None:
    weight = tf.Variable([1.0, 2.0, 3.0])
    with wrapped(descending(weight)) as step:
        found: list[Any] = []
        ended = threading.Event()

        def train() -> None:
            try:
                for i in range(CALLS):
                    step(tf.fill([3], float(i)))
                    found.append(float(tf.norm(weight)))
            finally:
                ended.set()

        _thread.start_new_thread(train, ())
        assert ended.wait(120) and len(found) == CALLS
        assert step.left_alone is None, step.left_alone


class Trainer:
    """Wraps its own step, in one way or another, and trains until a mapping runs."""

    def __init__(self, how: str) -> None:
        self.weight = tf.Variable([1.0, 2.0, 3.0])
        step = self.plain if how == "method" else self.function if how == "tf.function" else lambda x: self.plain(x)
        self.step = autoplace(step, devices="cpus:2", budget=1, beat_untouched=False)

    def plain(self, x: tf.Tensor) -> tf.Tensor:
        return descending(self.weight)(x)

    @tf.function
    def function(self, x: tf.Tensor) -> tf.Tensor:
        return descending(self.weight)(x)


def test_a_step_that_nothing_refers_to_is_given_back_before_garbage_is_collected() -> None:
    step = wrapped(tf.function(descending(tf.Variable([1.0, 2.0, 3.0]))))
    called(step)
    gc.disable()
    try:
        del step
        for thread in threading.enumerate():
            if thread.name == "placer-end":
                thread.join(60)
        assert not DeviceSession._open
    finally:
        gc.enable()


@pytest.mark.some(1)
@pytest.mark.parametrize("how", ["method", "tf.function", "closure"])
def test_a_trainer_that_wraps_its_own_step_is_dropped_like_any_other(how: str) -> None:
    trainer = Trainer(how)
    while trainer.step.phase not in ("steady", "left alone"):
        called(trainer.step, 1)
    assert trainer.step.phase == "steady", trainer.step.report()
    called(trainer.step)
    assert trainer.step._live.thread.finish(60)  # what runs there is not dropped
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None
    for thread in threading.enumerate():
        if thread.name == "placer-end":
            thread.join(60)


def test_a_step_that_is_left_alone_in_its_training_holds_nothing_more_and_trains_on() -> None:
    weights = [tf.Variable([1.0, 2.0, 3.0]) for _ in range(2)]
    plain = descending(weights[0])
    for _ in range(20):  # on a busy machine a search may end untouched
        step = autoplace(tf.function(descending(weights[1])), devices="cpus:2", budget=1, beat_untouched=False)
        while step.phase != "steady":
            assert called(step, 1) == pytest.approx(called(plain, 1), rel=1e-4, abs=1e-9)
        assert step._live.thread.finish(60)
        if step.controller.trials.mode is not UNTOUCHED:
            break
        step.close()
    scratch, trials = step._live.joined.scratch_run, step.controller.trials
    held = [weakref.ref(one) for one in (trials.mode, *trials.built)]
    assert trials.mode is not UNTOUCHED, step.report()
    step.leave_alone("somebody says so")
    assert called(step) == pytest.approx(called(plain), rel=1e-4, abs=1e-9)
    assert (step.phase, step.mapping, step.left_alone) == ("left alone", None, "somebody says so")
    gc.collect()
    assert step.controller.planner is None and scratch._is_closed and not any(one() for one in held)
    assert step.steps > CALLS and not isinstance(weights[1], _Watched)
    np.testing.assert_allclose(weights[1].numpy(), weights[0].numpy(), rtol=1e-4, atol=1e-9)
    step.close()


def test_a_program_that_evaluates_first_is_placed_once_it_trains() -> None:
    """By the mappings that are tried; on a busy machine the untouched step may win."""
    weight = tf.Variable([1.0, 2.0, 3.0])
    descend = descending(weight)

    @tf.function
    def run(x: tf.Tensor, training: bool) -> tf.Tensor:
        return descend(x) if training else tf.reduce_sum(tf.square(weight * x))

    with autoplace(run, devices="cpus:2", budget=1, beat_untouched=False) as step:
        with pytest.warns(UserWarning, match=r"updates no variable.*No mapping is searched until it does"):
            for _ in range(12):
                step(tf.ones([3]), False)
        while step.phase not in ("steady", "left alone"):
            step(tf.ones([3]), True)
        assert step.phase == "steady" and any(trial.op_devices for trial in step.tried), step.report()


@pytest.mark.parametrize("is_function", [True, False])
def test_what_the_first_call_was_given_is_not_held(is_function: bool) -> None:
    weight = tf.Variable([1.0, 2.0, 3.0])
    descend = descending(weight)

    def train(batches: Any) -> tf.Tensor:
        return descend(next(batches))

    dataset = tf.data.Dataset.from_tensors(tf.ones([3])).repeat()
    with wrapped(tf.function(train) if is_function else train) as step:
        batches = iter(dataset)
        step(batches)
        first = weakref.ref(batches)
        batches = iter(dataset)
        for _ in range(CALLS):
            step(batches)
        gc.collect()
        assert first() is None


def test_a_container_that_tensorflow_cannot_make_leaves_the_step_alone() -> None:
    weight = tf.Variable([1.0, 2.0, 3.0])

    def train(x: tf.Tensor, settings: Any) -> tf.Tensor:
        weight.assign_sub(settings["rate"] * x)
        return tf.reduce_sum(weight)

    with wrapped(train) as step:
        for _ in range(CALLS):
            step(tf.ones([3]), types.MappingProxyType({"rate": 0.125}))
        assert "put the step's arguments together" in (step.left_alone or "")
    np.testing.assert_array_equal(weight.numpy(), np.array([1.0, 2.0, 3.0]) - CALLS * 0.125)


class Saving:
    """A trainer that is called, and has something of its own that a wrapped step has, too."""

    def __init__(self) -> None:
        self.weight = tf.Variable([1.0, 2.0, 3.0])

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return descending(self.weight)(x)

    def save(self, path: str) -> str:
        return f"saved to {path}"


def test_an_object_whose_methods_would_be_hidden_is_refused() -> None:
    trainer = Saving()
    with pytest.raises(BadInputError, match=r"a Saving has save of its own.*autoplace\(trainer.__call__\)"):
        wrapped(trainer)
    with wrapped(trainer.__call__) as step:
        called(step)
    assert trainer.save("here") == "saved to here"


@pytest.mark.parametrize("name", ["steps", "phase", "save"])
@pytest.mark.parametrize("kind", [lambda step: step, tf.function, lambda step: types.MethodType(step, object())])
def test_a_function_whose_attribute_would_be_hidden_is_refused(kind: Any, name: str) -> None:
    """A count that the function keeps as `train.steps` would be counted on by Placer, too."""
    train = descending(tf.Variable([1.0, 2.0, 3.0]))
    setattr(train, name, 0)
    with pytest.raises(BadInputError, match=rf"descend has {name} of its own"):
        wrapped(kind(train))


@pytest.mark.parametrize("stand_in", STAND_INS)
def test_what_placer_keeps_on_a_step_is_not_to_be_set(stand_in: Any) -> None:
    with stand_in(descending(tf.Variable([1.0, 2.0, 3.0]))) as step:
        for name in ("steps", "name", "phase", "report"):
            with pytest.raises(AttributeError, match=f"{name} is what Placer keeps"):
                setattr(step, name, 0)
        called(step, 2)
        assert step.steps == 2


def test_several_threads_at_once_leave_the_step_alone_and_say_so() -> None:
    """The second thread calls while the script decides after the call of the first."""
    with wrapped(tf.function(descending(tf.Variable([1.0, 2.0, 3.0])))) as step:
        called(step, 1)

        def script() -> Iterator[Any]:
            thread = threading.Thread(target=called, args=(step, 1))
            thread.start()
            thread.join(60)
            yield UNTOUCHED

        step._run._script = script()  # type: ignore[assignment]
        step._run._choose(next)
        assert "several threads" in (step.left_alone or "")
        called(step)


@pytest.mark.parametrize("is_function", [True, False])
def test_a_step_that_a_distribution_strategy_runs_trains_as_alone(is_function: bool) -> None:
    """Its replicas wait for each other within the step."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        weights = [tf.Variable([1.0, 2.0, 3.0]) for _ in range(2)]

    def training(number: int) -> Callable[[tf.Tensor], tf.Tensor]:
        def train(x: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            gradient = context.all_reduce(tf.distribute.ReduceOp.SUM, 2.0 * weights[number] * x * x)
            weights[number].assign_sub(0.01 * gradient)
            return tf.reduce_sum(gradient)

        return train

    step = wrapped(tf.function(training(1)) if is_function else training(1))
    if is_function:
        with pytest.raises(BadInputError, match=r"give it train\.__wrapped__"):
            strategy.run(step, args=(tf.ones([3]),))
    else:
        for _ in range(CALLS):
            strategy.run(training(0), args=(tf.ones([3]),))
            strategy.run(step, args=(tf.ones([3]),))
        np.testing.assert_allclose(*(w.numpy() for w in weights))
    assert "strategy.run" in (step.left_alone or "")
    step.close()
