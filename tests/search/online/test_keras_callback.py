"""The Keras callback: a `fit` with it trains as one without it, whatever else `fit` is asked to do."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
import psutil
import pytest
import tensorflow as tf

from placer.devices.ports import listen_child
from placer.errors import BadInputError, PlacerError
from placer.keras import AutoPlace
from placer.trace.capture import capture
from placer.train.device_session import DeviceSession
from search.online.auto_step import AutoStep
from search.online.keras_callback import TrainFunction, _step_of, _tensors, _untouchable
from search.online.replan.replanner import Replanner
from tests.search.online.giving_way import MOST_STEPS, give_way

pytestmark = [
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),  # Keras, at the end of data of unknown length
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # Keras, when it saves
]

BATCH, BATCHES = 8, 6
STEPS = BATCH * BATCHES


def make_model(kind: type[keras.Model] = keras.Model, rate: float = 0.0, **compiling: Any) -> keras.Model:
    """Two towers with batch normalisation; the same weights every time."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(3)
    inputs = keras.Input((6,), name="x")
    towers = [keras.layers.Dense(5, activation="relu", name=f"tower{i}")(inputs) for i in range(2)]
    joined = keras.layers.BatchNormalization(name="norm")(keras.layers.Concatenate(name="both")(towers))
    if rate:
        joined = keras.layers.Dropout(rate, seed=11, name="drop")(joined)
    model = kind(inputs, keras.layers.Dense(3, name="logits")(joined))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    adam = keras.optimizers.Adam(0.01)
    model.compile(**{"optimizer": adam, "loss": loss, "metrics": ["accuracy"], "jit_compile": False, **compiling})
    return model


def data(count: int = STEPS, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 6)).astype("float32")
    return x, (x[:, 0] > 0).astype("int64") + (x[:, 1] > 0.5)


def assigned(
    model: keras.Model, batch: tuple[Any, ...], names: tuple[str, ...], seed: int, any_size: bool = False
) -> dict[str, str]:
    """A random device for each op of the model's training step, as called with one batch. any_size: of data that has
    batches of several sizes.
    """
    model._symbolic_build(data_batch=batch)
    spec = tf.nest.map_structure(
        lambda part: tf.TensorSpec((None if any_size else BATCH, *part.shape[1:]), part.dtype), batch
    )
    graph = capture(_step_of(model, spec), _tensors(batch), "train_step", needs_loss=False).graph
    rng = np.random.default_rng(seed)
    return {graph.ops[v].name: name for unit in graph.colocated for name in [rng.choice(names)] for v in unit}


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Path]:
    """Writes a random mapping over both devices for the training step of a model."""

    def write(model: keras.Model, batch: tuple[Any, ...], seed: int = 0, any_size: bool = False) -> Path:
        path = tmp_path / f"{seed}.json"
        write_assignment(path, assigned(model, batch, ("cpu:0", "cpu:1"), seed, any_size))
        return path

    return write


def write_assignment(path: Path, assignment: dict[str, str]) -> None:
    path.write_text(json.dumps({"format": "placer.mapping/1", "assignment": assignment}))


@pytest.fixture(autouse=True)
def given_back() -> Iterator[None]:
    """Whatever a fit went through, nothing stays watched, joined or replaced behind it."""
    yield
    if DeviceSession._open:  # after many tests, collecting takes seconds
        gc.collect()
    assert not DeviceSession._open


def first_batch(*parts: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(part[:BATCH] for part in parts)


def fitted(model: keras.Model, *callbacks: Any, **how: Any) -> dict[str, list[float]]:
    x, y = data()
    how = {"x": x, "y": y, "batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0, **how}
    history: dict[str, list[float]] = model.fit(callbacks=list(callbacks), **how).history
    return history


def assert_same(one: dict[str, list[float]], other: dict[str, list[float]]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_allclose(values, other[name], rtol=2e-4, atol=1e-5, err_msg=name)


def assert_same_weights(one: keras.Model, other: keras.Model) -> None:
    for mine, theirs in zip(one.variables, other.variables, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-3, atol=1e-5, err_msg=mine.path)


class Placed(keras.callbacks.Callback):
    """Sees whether the steps are placed."""

    def __init__(self, placing: AutoPlace) -> None:
        super().__init__()
        self.placing, self.seen = placing, []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(self.placing.step is not None and self.placing.step.mapping is not None)


def with_generator() -> dict[str, Any]:
    x, y = data()

    def batches() -> Iterator[Any]:
        while True:
            for at in range(0, STEPS, BATCH):
                yield x[at : at + BATCH], y[at : at + BATCH]

    return {"x": batches(), "y": None, "batch_size": None, "steps_per_epoch": BATCHES}


def with_finite_generator() -> dict[str, Any]:
    """How many batches there are shows at the end of the first epoch only."""
    x, y = data()
    return {
        "x": tf.data.Dataset.from_generator(
            lambda: ((x[at : at + BATCH], y[at : at + BATCH]) for at in range(0, STEPS, BATCH)),
            output_signature=(tf.TensorSpec((None, 6)), tf.TensorSpec((None,), tf.int64)),
        ),
        "y": None, "batch_size": None,
    }  # fmt: skip


def with_dataset() -> dict[str, Any]:
    return {"x": tf.data.Dataset.from_tensor_slices(data()).batch(BATCH), "y": None, "batch_size": None}


def with_short_batch() -> dict[str, Any]:
    x, y = data(STEPS + 3)
    return {"x": x, "y": y}


def with_sample_weight() -> dict[str, Any]:
    return {"sample_weight": np.linspace(0, 1, STEPS, dtype="float32")}


HOW: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": dict,
    "generator": with_generator,
    "generator that ends": with_finite_generator,
    "dataset": with_dataset,
    "short last batch": with_short_batch,
    "class weight": lambda: {"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}},
    "sample weight": with_sample_weight,
    "validation data": lambda: {"validation_data": data(10, 2)},
    "validation split": lambda: {"validation_split": 0.25, "epochs": 3},
}


ANY_SIZE = ("generator", "generator that ends", "dataset", "short last batch", "validation split")
MARKS = {"validation data": [pytest.mark.slow], "generator": [pytest.mark.slow], "short last batch": [pytest.mark.slow]}


@pytest.mark.parametrize("how", [pytest.param(how, marks=MARKS.get(how, [pytest.mark.nightly])) for how in HOW])
def test_history_and_weights_are_those_of_an_untouched_fit(how: str, stored: Any) -> None:
    plain, model = make_model(), make_model()
    batch = first_batch(*data(), *([np.ones(STEPS, "float32")] if "weight" in how else []))
    placing = AutoPlace(mapping=stored(model, batch, any_size=how in ANY_SIZE), log_dir=None)
    placed = Placed(placing)
    assert_same(fitted(model, placing, placed, **HOW[how]()), fitted(plain, **HOW[how]()))
    assert_same_weights(model, plain)
    assert placed.seen[3:] and all(placed.seen[3:])
    assert not isinstance(model.train_function, TrainFunction)


@pytest.mark.nightly
def test_two_mappings_train_alike_to_the_last_bit(stored: Any) -> None:
    histories, weights = [], []
    for seed in (1, 2):
        model = make_model(rate=0.3)
        mapping = stored(model, first_batch(*data()), seed)
        histories.append(fitted(model, AutoPlace(mapping=mapping, log_dir=None), validation_data=data(10, 2)))
        weights.append([v.numpy() for v in model.variables])
    assert histories[0] == histories[1]
    assert all((a == b).all() for a, b in zip(*weights, strict=True))


@pytest.mark.slow
def test_other_callbacks_see_and_set_true_weights(stored: Any, tmp_path: Path) -> None:
    seen = []
    for placing in (True, False):
        folder = tmp_path / str(placing)
        folder.mkdir()
        model = make_model()
        own = [AutoPlace(mapping=stored(model, first_batch(*data())), log_dir=None)] if placing else []
        callbacks = [
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7),
            keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1, factor=0.5, min_delta=10.0),
            keras.callbacks.ModelCheckpoint(folder / "best.keras", save_best_only=True),
            keras.callbacks.ModelCheckpoint(folder / "latest.weights.h5", save_weights_only=True),
            keras.callbacks.EarlyStopping(monitor="loss", patience=1, min_delta=10.0, restore_best_weights=True),
            keras.callbacks.BackupAndRestore(folder / "backup"),
            keras.callbacks.CSVLogger(folder / "log.csv"),
        ]
        history = fitted(model, *own, *callbacks, validation_data=data(10, 2), epochs=6)
        best, latest = keras.models.load_model(folder / "best.keras"), make_model()
        latest.optimizer.build(latest.trainable_variables)
        latest.load_weights(folder / "latest.weights.h5")
        header, *rows = (folder / "log.csv").read_text().splitlines()
        assert len(rows) == len(history["loss"]) == 2  # stopped early
        seen.append((history, model, best, latest, header))
    (history, *models, header), (history_0, *models_0, header_0) = seen
    assert_same(history, history_0)
    assert header == header_0
    for model, model_0 in zip(models, models_0, strict=True):
        assert_same_weights(model, model_0)


@pytest.mark.nightly
def test_a_fit_goes_on_where_a_backup_was_made(stored: Any, tmp_path: Path) -> None:
    def stop(epoch: int, logs: Any) -> None:
        if epoch == 1:
            raise KeyboardInterrupt

    model = make_model()
    mapping = stored(model, first_batch(*data()))
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    with pytest.raises(KeyboardInterrupt):
        fitted(model, AutoPlace(mapping=mapping, log_dir=None), backup, On(epoch_begin=stop), epochs=3)
    model.compile(optimizer="adam", loss="mse")  # lets go of the step
    assert ends_soon(lambda: not DeviceSession._open)
    again, plain = make_model(), make_model()
    history = fitted(again, AutoPlace(mapping=mapping, log_dir=None), backup, epochs=3)
    expected = fitted(plain, epochs=3)
    assert_same(history, {name: values[1:] for name, values in expected.items()})
    assert_same_weights(again, plain)


@pytest.mark.slow
def test_some_steps_in_one_execution(stored: Any) -> None:
    """Six batches, four at a time: Keras tells of two executions in an epoch."""
    plain, model = make_model(steps_per_execution=4), make_model(steps_per_execution=4)
    placing = AutoPlace(mapping=stored(model, first_batch(*data())), log_dir=None)
    placed = Placed(placing)
    assert_same(fitted(model, placing, placed), fitted(plain))
    assert placed.seen == [True] * 4
    assert model.optimizer.iterations.numpy() == 2 * BATCHES


@pytest.mark.nightly
def test_executions_that_nobody_looks_at_are_those_of_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six batches, four at a time: full and partial executions, by Keras and step by step."""
    plain, model = make_model(steps_per_execution=4), make_model(steps_per_execution=4)
    passed: list[int] = []

    def pass_over(step: AutoStep, calls: int) -> bool:
        passed.append(calls)
        return len(passed) % 5 in (3, 4)

    monkeypatch.setattr(AutoStep, "pass_over", pass_over)
    placing = AutoPlace(budget=1, log_dir=None)
    assert_same(fitted(model, placing, epochs=8), fitted(plain, epochs=8))
    assert_same_weights(model, plain)
    assert passed == [4] * 16
    assert model.optimizer.iterations.numpy() == 8 * BATCHES
    assert not isinstance(model.train_function, TrainFunction)


class Annealed(keras.Model):
    """Reads a number of Python's that a callback changes, of which a trace keeps that of its time."""

    part = 1.0

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.part * self.compute_loss(x, y, self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


@pytest.mark.nightly
def test_executions_by_keras_are_of_the_trace_of_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras's own function, traced when it is first needed, would read what Python holds by then."""
    changed: list[keras.Model] = []

    def pass_over(step: AutoStep, calls: int) -> bool:
        return bool(changed)

    monkeypatch.setattr(AutoStep, "pass_over", pass_over)
    models = [make_model(Annealed, metrics=None, steps_per_execution=4) for _ in range(2)]

    def anneal(model: keras.Model, epoch: int) -> None:
        if epoch == 2:
            model.part = 0.0
            changed.append(model)

    histories = []
    for model, callbacks in zip(models, ([AutoPlace(budget=1, log_dir=None)], []), strict=True):
        anneals = On(epoch_begin=lambda epoch, logs, model=model: anneal(model, epoch))
        histories.append(fitted(model, *callbacks, anneals, epochs=4))
        assert changed.pop() is model
    assert_same(*histories)
    assert_same_weights(*models)


@pytest.mark.slow
def test_fits_in_a_row_with_whatever_comes_between(stored: Any, tmp_path: Path) -> None:
    plain, model = make_model(), make_model()
    placing = AutoPlace(mapping=stored(model, first_batch(*data())), log_dir=None)
    for m, callbacks in ((model, [placing]), (plain, [])):
        fitted(m, *callbacks)
        fitted(m, *callbacks, epochs=1)
        m.optimizer.learning_rate = 0.002
        m.train_on_batch(*first_batch(*data()))
        fitted(m)
        fitted(m, *callbacks, epochs=1)
    x, y = data(10, 2)
    np.testing.assert_allclose(model.evaluate(x, y, verbose=0), plain.evaluate(x, y, verbose=0), rtol=1e-3)
    np.testing.assert_allclose(model.predict(x, verbose=0), plain.predict(x, verbose=0), rtol=2e-2, atol=1e-3)
    model.save(tmp_path / "model.keras")
    assert_same_weights(keras.models.load_model(tmp_path / "model.keras"), model)
    assert_same_weights(model, plain)
    assert "2 steps" not in placing.report() and "placed by the mapping given" in placing.report()
    page = placing.report_html(tmp_path / "fit.html")  # of the end of `fit`, before the devices were given back
    assert page == (tmp_path / "fit.html").read_text() and "placed by the mapping given" in page


def test_there_is_no_page_before_fit() -> None:
    with pytest.raises(PlacerError, match="nothing was placed yet"):
        AutoPlace().report_html()


class Penalised(keras.Model):
    """Has a training step of its own, a metric of its own, and no `loss` in its logs."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            logits = self(x, training=True)
            loss = self.compute_loss(x, y, logits) + 0.01 * tf.add_n([tf.nn.l2_loss(v) for v in self.trainable_weights])
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"penalised": loss, "nested": {"largest": tf.reduce_max(logits)}}


@pytest.mark.slow
def test_a_training_step_of_its_own(stored: Any) -> None:
    plain, model = make_model(Penalised, metrics=None), make_model(Penalised, metrics=None)
    history = fitted(model, AutoPlace(mapping=stored(model, first_batch(*data())), log_dir=None))
    assert history.keys() == {"penalised", "largest"}
    assert_same(history, fitted(plain))
    assert_same_weights(model, plain)


class Branching(keras.Model):
    """Chooses in Python, where AutoGraph would make a branch of the graph."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        try:
            factor = 1.0 if loss > 100.0 else 2.0
        except TypeError:  # a tensor of a graph is neither true nor false
            factor = 0.1
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply([factor * gradient for gradient in gradients], self.trainable_weights)
        return {"loss": loss}


@pytest.mark.slow
def test_autograph_does_not_convert_a_training_step_as_in_keras() -> None:
    plain, model = (make_model(Branching, metrics=None, optimizer=keras.optimizers.SGD(0.1)) for _ in range(2))
    assert_same(fitted(model, AutoPlace(log_dir=None), epochs=1), fitted(plain, epochs=1))
    assert_same_weights(model, plain)


def make_outputs() -> keras.Model:
    """Two outputs, whose losses Keras weights by the batch's size where that is known when it traces."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(3)
    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(4, name="hidden")(inputs)
    outputs = {name: keras.layers.Dense(1, name=name)(hidden) for name in "op"}
    model = keras.Model(inputs, outputs)
    model.compile("sgd", {"o": "mse", "p": "mse"}, jit_compile=False)
    return model


@pytest.mark.slow
def test_a_step_is_traced_once_for_all_sizes_as_in_keras(tmp_path: Path) -> None:
    x, _ = data(4 * BATCH + 4)
    y = {"o": 3 * x[:, :1], "p": x[:, 1:2]}
    plain, model = make_outputs(), make_outputs()
    path = tmp_path / "mapping.json"
    batch = x[:BATCH], {name: part[:BATCH] for name, part in y.items()}
    write_assignment(path, assigned(model, batch, ("cpu:0", "cpu:1"), 0, any_size=True))
    placing = AutoPlace(mapping=path, log_dir=None)
    placed = Placed(placing)
    assert_same(fitted(model, placing, placed, x=x, y=y, epochs=3), fitted(plain, x=x, y=y, epochs=3))
    assert_same_weights(model, plain)
    assert placed.seen[3:] and all(placed.seen[3:])


class On(keras.callbacks.Callback):
    """Calls functions by the names of events."""

    def __init__(self, **events: Callable[..., Any]) -> None:
        super().__init__()
        for name, function in events.items():
            setattr(self, f"on_{name}", function)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_batch_that_a_callback_trains_ends_no_placement(weighted: bool, stored: Any) -> None:
    plain, model = make_model(), make_model()
    placing = AutoPlace(mapping=stored(model, first_batch(*data())), log_dir=None)
    placed = Placed(placing)
    weight = np.ones(BATCH, "float32") if weighted else None

    def train(m: keras.Model) -> On:
        return On(epoch_end=lambda epoch, logs: m.train_on_batch(*first_batch(*data()), sample_weight=weight))

    assert_same(fitted(model, placing, placed, train(model), epochs=3), fitted(plain, train(plain), epochs=3))
    assert_same_weights(model, plain)
    assert len(placed.seen) == 3 * BATCHES and all(placed.seen[3:])


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.parametrize("how", ["placed", "untouched"])
def test_the_first_end_of_data_of_unknown_length_counts_as_in_a_plain_fit(stored: Any, how: str) -> None:
    """Keras takes a step on no data there: its optimizer counts it, and its seeds move on."""
    plain, model = make_model(), make_model()
    mapping = stored(model, first_batch(*data()), any_size=True) if how == "placed" else None
    fitted(plain, epochs=2, **with_finite_generator())
    fitted(model, AutoPlace(budget=1, log_dir=None, mapping=mapping), epochs=2, **with_finite_generator())
    assert plain.optimizer.iterations.numpy() == model.optimizer.iterations.numpy() >= 2 * BATCHES
    assert_same_weights(model, plain)


@pytest.mark.slow
def test_a_train_function_made_anew_ends_the_placement_in_words(stored: Any) -> None:
    model = make_model()
    placing = AutoPlace(mapping=stored(model, first_batch(*data())), log_dir=None)
    anew = On(epoch_begin=lambda epoch, logs: epoch == 1 and model.make_train_function(force=True))
    with pytest.warns(UserWarning, match="got another train_function while fit runs") as told:
        fitted(model, placing, anew, epochs=3)
    assert len(told) == 1 and "got another train_function" in placing.report()


@pytest.mark.nightly
def test_a_train_function_made_anew_once_a_batch_has_begun_is_told_as_such() -> None:
    """By a callback that comes after AutoPlace, as Keras's recipe for `layer.trainable` has it."""
    plain, model = make_model(), make_model()
    for one, callbacks in ((plain, []), (model, [AutoPlace(log_dir=None)])):
        anew = On(train_batch_begin=lambda batch, logs, one=one: batch == 3 and one.make_train_function(force=True))
        with nullcontext() if one is plain else pytest.warns(UserWarning, match="got another train_function") as told:
            fitted(one, *callbacks, anew)
    assert len(told or ()) == 1
    assert_same_weights(model, plain)


@pytest.mark.nightly
def test_steps_of_an_execution_are_those_with_which_the_model_was_compiled(stored: Any) -> None:
    plain, model = make_model(), make_model()
    placing = AutoPlace(mapping=stored(model, first_batch(*data())), log_dir=None)
    for one, callbacks in ((plain, []), (model, [placing])):
        fitted(one, *callbacks, On(epoch_end=lambda epoch, logs, one=one: setattr(one, "steps_per_execution", 4)))
    assert_same_weights(model, plain)
    assert model.optimizer.iterations.numpy() == 2 * BATCHES


@pytest.mark.nightly
def test_a_model_that_is_left_alone_trains_by_keras_own_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, model = make_model(steps_per_execution=4), make_model(steps_per_execution=4)
    calls, call = [], AutoStep.__call__
    monkeypatch.setattr(AutoStep, "__call__", lambda step, *args: calls.append(1) or call(step, *args))
    placing = AutoPlace(budget=1, log_dir=None)
    leave = On(epoch_begin=lambda epoch, logs: epoch == 1 and placing.step.leave_alone("somebody says so"))
    assert_same(fitted(model, placing, leave, epochs=3), fitted(plain, epochs=3))
    assert len(calls) == BATCHES and model.optimizer.iterations.numpy() == 3 * BATCHES


class Encoding(keras.Model):
    """Learns what it is given; nobody says what it should be."""

    metrics = ()

    def train_step(self, data: Any) -> dict[str, Any]:
        x, nothing = data
        assert nothing is None
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


@pytest.mark.nightly
def test_a_dataset_with_nothing_in_the_place_of_a_target(stored: Any) -> None:
    plain, model = make_model(Encoding), make_model(Encoding)
    batches = tf.data.Dataset.from_tensor_slices(data()[0]).batch(BATCH).map(lambda x: (x, None))
    how = {"x": batches, "y": None, "batch_size": None}
    assert_same(fitted(model, AutoPlace(budget=1, log_dir=None), **how), fitted(plain, **how))
    assert_same_weights(model, plain)


def test_a_fit_that_does_not_compute_with_tensorflow_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    assert _untouchable(object()) == "Keras computes with torch, not with TensorFlow"


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.parametrize("flag", ["run_eagerly", "jit_compile"])
def test_a_train_function_made_under_another_flag_is_left_to_keras(flag: str) -> None:
    model = make_model(**{flag: True})
    fitted(model, epochs=1)
    setattr(model, flag, False)
    with pytest.warns(UserWarning, match="was made to run eagerly or for XLA"):
        fitted(model, AutoPlace(log_dir=None), epochs=1)


@pytest.mark.slow
def test_a_fit_leaves_the_traces_of_an_earlier_one() -> None:
    model = make_model()
    fitted(model, epochs=1)
    function = model.train_function
    fitted(model, AutoPlace(budget=1, log_dir=None), epochs=1)
    assert model.train_function is function


def interrupt(step: int, logs: Any = None) -> None:
    if step == 3:
        raise KeyboardInterrupt


class Printing(keras.Model):
    """Its step needs values, as where one looks for a mistake."""

    def train_step(self, given: Any) -> dict[str, Any]:
        x, y = given
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        assert loss.numpy() > 0
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


@pytest.mark.filterwarnings("ignore:Even though the")
def test_a_fit_whose_functions_run_eagerly_is_left_alone() -> None:
    tf.config.run_functions_eagerly(True)
    try:
        expected = fitted(make_model(Printing, metrics=None), epochs=1)
        with pytest.warns(UserWarning, match="functions are set to run eagerly"):
            assert fitted(make_model(Printing, metrics=None), AutoPlace(budget=1, log_dir=None), epochs=1) == expected
    finally:
        tf.config.run_functions_eagerly(False)


class FitsOthers(keras.callbacks.Callback):
    """Another fit of the model within a fit, on batches that have weights."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 3:
            x, y = first_batch(*data(seed=2))
            self.model.fit(x, y, batch_size=BATCH, sample_weight=np.ones(BATCH, "float32"), verbose=0)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*trains untouched from now on")
def test_another_fit_on_other_batches_trains_as_in_a_plain_fit() -> None:
    plain, model = make_model(), make_model()
    expected = fitted(plain, FitsOthers(), epochs=1)
    model = make_model()
    found = fitted(model, AutoPlace(budget=1, log_dir=None), FitsOthers(), epochs=1)
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
    for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


class TrainsSparse(keras.callbacks.Callback):
    def __init__(self, rows: tf.SparseTensor, labels: Any) -> None:
        super().__init__()
        self.rows, self.labels = rows, labels

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            self.model.train_on_batch(self.rows, self.labels, sample_weight=np.ones(4, "float32"))


def test_a_sparse_batch_that_a_callback_trains_is_one_as_in_a_plain_fit() -> None:
    rows, labels = tf.sparse.from_dense(tf.eye(4, 2)), np.ones([4, 1], "float32")
    batches = tf.data.Dataset.from_tensors((rows, labels, tf.ones(4))).repeat(4)

    def trained(*callbacks: keras.callbacks.Callback) -> list[np.ndarray]:
        keras.utils.set_random_seed(3)
        inputs = keras.Input((2,), sparse=True)
        model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
        model.compile("sgd", "mse", jit_compile=False)
        model.fit(batches, callbacks=[*callbacks, TrainsSparse(rows, labels)], shuffle=False, verbose=0)
        weights: list[np.ndarray] = model.get_weights()
        return weights

    for one, other in zip(trained(AutoPlace(budget=1, log_dir=None)), trained(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.slow
def test_a_fit_that_ended_in_another_thread_keeps_no_later_one_from_its_store(tmp_path: Path) -> None:
    x, y = data()
    model, placing = make_model(), AutoPlace(budget=1, log_dir=None, store=tmp_path / "store.sqlite")
    stop = keras.callbacks.LambdaCallback(on_train_batch_end=interrupt)

    def ends() -> None:
        with pytest.raises(KeyboardInterrupt):
            model.fit(x, y, batch_size=BATCH, callbacks=[placing, stop], verbose=0)

    thread = threading.Thread(target=ends)
    thread.start()
    thread.join(120)
    fitted(model, placing, epochs=1)
    assert model.train_function is not None


OTHERWISE = ("another AutoPlace", "without", "compiled anew", "dropped")


@pytest.mark.slow
@pytest.mark.parametrize(
    "goes_on", ["with AutoPlace", *(pytest.param(how, marks=pytest.mark.nightly) for how in OTHERWISE)]
)
def test_a_fit_interrupted_between_steps_leaves_all_usable(goes_on: str, stored: Any) -> None:
    plain, model = make_model(), make_model()
    mapping = stored(model, first_batch(*data()))
    placing = AutoPlace(mapping=mapping, log_dir=None)
    for m, callbacks in ((model, [placing]), (plain, [])):
        with pytest.raises(KeyboardInterrupt):
            fitted(m, *callbacks, On(train_batch_end=interrupt))
    assert DeviceSession._open  # nobody told AutoPlace
    assert_same_weights(model, plain)
    np.testing.assert_allclose(*(m.predict(data()[0], verbose=0) for m in (model, plain)), rtol=1e-2, atol=1e-3)
    if goes_on == "with AutoPlace":
        assert_same(fitted(model, placing), fitted(plain))
    elif goes_on == "without":
        assert_same(fitted(model), fitted(plain))
        assert not isinstance(model.train_function, TrainFunction)
    elif goes_on == "another AutoPlace":
        assert_same(fitted(model, AutoPlace(mapping=mapping, log_dir=None)), fitted(plain))
    else:
        del placing, callbacks, m
        if goes_on == "compiled anew":
            model.compile(optimizer="sgd", loss="mse")
        else:
            del model
        assert ends_soon(lambda: not DeviceSession._open)


def ends_soon(done: Callable[[], bool]) -> bool:
    """Whether what a dropped step holds is given back by its own thread."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "placer-end":
            thread.join(120)
    return done()


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 3])
def test_what_a_step_or_its_data_raises_ends_the_fit_and_nothing_else(stored: Any, at_once: int) -> None:
    x, y = data()
    model, plain = (make_model(steps_per_execution=at_once) for _ in range(2))
    placing = AutoPlace(mapping=stored(model, first_batch(*data())), log_dir=None)

    def batches() -> Iterator[Any]:
        yield from ((x[:BATCH], y[:BATCH]) for _ in range(4))
        raise KeyError("no such batch")

    dataset = tf.data.Dataset.from_generator(
        batches, output_signature=(tf.TensorSpec((BATCH, 6)), tf.TensorSpec((BATCH,), tf.int64))
    )
    for one, *placing_it in ((plain,), (model, placing)):
        with pytest.raises(tf.errors.OpError, match="no such batch"):
            fitted(one, *placing_it, x=dataset, y=None, batch_size=None)
    assert not DeviceSession._open
    assert not isinstance(model.train_function, TrainFunction)
    assert model.optimizer.iterations.numpy() == plain.optimizer.iterations.numpy()
    assert_same_weights(model, plain)
    assert np.isfinite(fitted(model, placing)["loss"]).all()


@pytest.mark.slow
def test_a_mapping_of_another_model_ends_the_fit_in_words(stored: Any) -> None:
    mapping = stored(make_model(rate=0.5), first_batch(*data()))
    model = make_model()
    with pytest.warns(UserWarning, match="goes on as it is"), pytest.raises(BadInputError, match=r"\$\.assignment"):
        fitted(model, AutoPlace(mapping=mapping, log_dir=None))
    assert not DeviceSession._open
    assert len(fitted(model)["loss"]) == 2


class Noise(keras.layers.Layer):
    """Draws as code does that is older than Keras 3."""

    def call(self, x: Any) -> Any:
        return x + tf.random.normal(tf.shape(x))


@pytest.mark.slow
def test_seeded_draws_go_on_from_fit_to_fit_as_in_plain_ones() -> None:
    def trained(*fits: tuple[Any, ...]) -> keras.Model:
        tf.random.set_seed(4)
        inputs = keras.Input((6,))
        model = keras.Model(inputs, keras.layers.Dense(3)(Noise()(inputs)))
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.set_weights([np.full(weight.shape, 0.1, "float32") for weight in model.get_weights()])
        for callbacks in fits:
            batch = first_batch(*data(), np.ones(STEPS, "float32"))
            train = On(epoch_end=lambda epoch, logs, batch=batch: model.train_on_batch(*batch))
            fitted(model, *callbacks, train, epochs=1, **with_sample_weight())
        return model

    placing = AutoPlace(budget=1, log_dir=None)
    wrapped, plain = trained((placing,), (placing,), ()), trained((), (), ())
    for mine, theirs in zip(wrapped.variables, plain.variables, strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy(), err_msg=mine.path)
    assert "draws from a seeded stream" in placing.report()


class OwnFunction(keras.Model):
    """Brings its own train_function."""

    def make_train_function(self, force: bool = False) -> Any:
        return super().make_train_function(force)


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "compiling", "reason"),
    [
        (keras.Model, {"run_eagerly": True}, "run_eagerly"),
        (keras.Model, {"jit_compile": True}, "XLA"),
        (OwnFunction, {}, "not what Keras makes of its train_step"),
    ],
)
def test_a_model_left_alone_trains_with_one_warning(kind: Any, compiling: dict[str, Any], reason: str) -> None:
    model = make_model(kind, **compiling)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        callback = AutoPlace(log_dir=None)
        history = fitted(model, callback)
    assert "left alone" in callback.report() and reason in callback.report()
    with pytest.raises(PlacerError, match=r"left alone: .*; so there is no page"):
        callback.report_html()
    assert [str(w.message) for w in told if "placer" in str(w.message)] == [
        str(w.message) for w in told if reason in str(w.message)
    ]
    assert sum("placer" in str(w.message) for w in told) == 1
    assert len(history["loss"]) == 2


def clipped(model: keras.Model, train: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A train_function that also cuts weights after each batch, as in a WGAN."""

    def train_and_cut(iterator: Any) -> Any:
        logs = train(iterator)
        for weight in model.trainable_variables:
            weight.assign(tf.clip_by_value(weight, -0.2, 0.2))
        return logs

    return train_and_cut


class Cutting(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_begin(self, logs: Any = None) -> None:
        self.model.train_function = clipped(self.model, self.model.train_function)


class CuttingModel(keras.Model):
    def _make_function(self, step: Any) -> Any:
        return clipped(self, super()._make_function(step))


def cut_by_attribute(model: keras.Model) -> None:
    model.make_train_function()
    model.train_function = clipped(model, model.train_function)


def cut_by_method(model: keras.Model) -> None:
    def make(force: bool = False) -> None:
        if model.train_function is None or force:
            model.train_function = clipped(model, model._make_function(model.train_step))

    model.make_train_function = make


def with_another_step(model: keras.Model) -> None:
    model.train_function = model._make_function(lambda data: model.test_step(data))


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("kind", "prepare", "before"),
    [
        (keras.Model, cut_by_attribute, ()), (keras.Model, cut_by_method, ()), (keras.Model, None, (Cutting,)),
        (CuttingModel, None, ()), (keras.Model, with_another_step, ()),
    ],
    ids=["attribute", "method", "callback", "class", "step"],
)  # fmt: skip
def test_a_train_function_that_is_not_keras_own_is_called_for_each_batch(kind: Any, prepare: Any, before: Any) -> None:
    alone, wrapped = make_model(kind), make_model(kind)
    placing = AutoPlace(log_dir=None)
    for model in (alone, wrapped):
        if prepare is not None:
            prepare(model)
    fitted(alone, *(callback() for callback in before))
    with pytest.warns(UserWarning, match="its train_function is not what Keras makes"):
        fitted(wrapped, *(callback() for callback in before), placing)
    assert_same_weights(alone, wrapped)
    assert "left alone: its train_function" in placing.report()


class OwnFit(keras.Model):
    """Trains without the function that `fit` calls."""

    def fit(self, x: Any, y: Any, callbacks: Any = ()) -> None:
        told, step = keras.callbacks.CallbackList(list(callbacks), model=self), tf.function(self.train_step)
        told.on_train_begin()
        for batch in range(3):
            told.on_train_batch_begin(batch)
            told.on_train_batch_end(batch, step((x[:BATCH], y[:BATCH])))
        told.on_train_end()


def test_a_fit_that_calls_no_train_function_is_told() -> None:
    model, placing = make_model(OwnFit), AutoPlace(log_dir=None)
    model.optimizer.build(model.trainable_variables)
    with pytest.warns(UserWarning, match="its fit does not call train_function") as told:
        model.fit(*data(), callbacks=[placing])
    assert [warning.filename for warning in told] == [__file__]
    assert "left alone: its fit does not call train_function" in placing.report()


@pytest.mark.slow
def test_a_step_that_is_left_alone_between_two_batches_ends_its_search() -> None:
    placing, over = AutoPlace(log_dir=None), []

    class LeavesAlone(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            assert placing.step is not None
            if len(over) == 2:
                placing.step._live.leave_alone("another thread reads its variables")
            over.append(placing.step.is_over)

    alone, wrapped = make_model(), make_model()
    fitted(alone)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which says the same, where the step is just being captured
        fitted(wrapped, placing, LeavesAlone())
    assert over[:3] == [False] * 3 and over[-1]
    assert "another thread reads its variables" in placing.report()
    assert_same_weights(alone, wrapped)


class Listing(keras.Model):
    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        return {**logs, "both": [logs["loss"], 2.0 * logs["loss"]]}


@pytest.mark.nightly
def test_a_list_among_the_logs_is_an_array_as_in_a_plain_fit(stored: Callable[..., Path]) -> None:
    found: list[Any] = []
    seen = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: found.append(logs["both"]))
    for placing in (
        (),
        (AutoPlace(log_dir=None, mapping=stored(make_model(Listing), first_batch(*data())), devices="cpus:2"),),
    ):
        fitted(make_model(Listing), seen, *placing)
    count = len(found) // 2
    assert {type(both) for both in found} == {type(found[0])} and not isinstance(found[0], list)
    np.testing.assert_allclose(found[:count], found[count:], rtol=2e-4)


def test_a_model_made_under_a_distribution_strategy_is_known_as_one_later() -> None:
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        made = keras.Sequential()
    for model, reason in ((made, "it runs under a distribution strategy"), (keras.Sequential(), None)):
        model.compile(jit_compile=False)
        assert _untouchable(model) == reason


class Immediately:
    """A planner that answers at once and within this process, however busy the machine is."""

    def __init__(self, *begin: Any) -> None:
        self._plan = Replanner(*begin)

    def start(self) -> Future[Any]:
        return _done(None)

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Future[Any]]:
        return lambda *args: _done(getattr(self._plan, name)(*args))


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


@pytest.mark.slow
def test_a_search_ends_placed_and_the_bar_says_what_was_gained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_cpus: Any
) -> None:
    """As many batches as the search takes; the bar has what the history has not."""
    monkeypatch.setattr("search.online.controller.Planner", Immediately)
    model = make_model(rate=0.2)
    placing = AutoPlace(budget=3, log_dir=tmp_path)
    shown: list[dict[str, float]] = []

    def look(batch: int, logs: dict[str, float]) -> None:
        shown.append(dict(logs))
        model.stop_training = placing.step is not None and placing.step.phase == "steady"
        give_way(len(shown))

    history = fitted(model, placing, On(train_batch_end=look), epochs=MOST_STEPS)
    assert shown[-1]["speedup"] > 0
    assert history.keys() == {"loss", "accuracy"}
    assert np.isfinite(history["loss"]).all()
    assert "x the fastest single device" in placing.report()
    assert "measured" in (tmp_path / "placer.jsonl").read_text()


@pytest.mark.nightly
def test_a_fit_whose_searcher_was_chosen_is_an_untouched_fit(monkeypatch: pytest.MonkeyPatch, two_cpus: Any) -> None:
    """All that it asks is measured while the model trains, and the weights are those of as many plain steps."""
    monkeypatch.setattr("search.online.controller.Planner", Immediately)
    model, plain = make_model(), make_model()
    placing = AutoPlace(searcher="random", budget=4, log_dir=None)
    proposed: dict[str, int] = {}
    steps = 0

    def look(batch: int, logs: Any) -> None:
        nonlocal steps
        steps += 1
        if placing.step is not None and placing.step.phase == "steady":
            proposed.update(Counter(trial.name for trial in placing.step.tried if trial.op_devices))
            model.stop_training = True
        give_way(steps)

    history = fitted(model, placing, On(train_batch_end=look), epochs=MOST_STEPS)
    assert proposed == {"single": 2, "random": 2}, placing.report()

    def end(batch: int, logs: Any) -> None:
        plain.stop_training = int(plain.optimizer.iterations) == steps

    assert_same(fitted(plain, On(train_batch_end=end), epochs=MOST_STEPS), history)
    assert_same_weights(model, plain)


def on_workers(folder: str) -> None:
    """For a process of its own."""
    plain, model = make_model(), make_model()
    expected = fitted(plain, validation_data=data(10, 2))
    mapping = Path(folder) / "mapping.json"
    write_assignment(mapping, assigned(model, first_batch(*data()), ("worker:0", "worker:1"), 0))
    placing = AutoPlace(devices="workers:2", mapping=mapping, log_dir=Path(folder) / "logs")
    placed = Placed(placing)
    keep = keras.callbacks.ModelCheckpoint(Path(folder) / "latest.keras")
    assert_same(fitted(model, placing, placed, keep, validation_data=data(10, 2)), expected)
    assert all(placed.seen[3:])
    assert_same_weights(model, plain)
    assert_same_weights(keras.models.load_model(Path(folder) / "latest.keras"), plain)
    assert not [process for process in psutil.Process().children() if listen_child.__name__ not in process.cmdline()]


@pytest.mark.workers
@pytest.mark.slow
def test_a_fit_on_workers_is_an_untouched_fit_and_ends_them(tmp_path: Path) -> None:
    code = f"import {__name__} as t; t.on_workers({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stderr
