"""The operator dataset: what is read off a step, what is timed by itself, and rows that survive every file."""

from __future__ import annotations

import builtins
import sqlite3
from dataclasses import replace

import pytest

from placer.devices.host.machine import machine_name
from placer.errors import BadInputError, PlacerError
from placer.measure.store import SCHEMA_VERSION, Store
from placer.profile.operators.dataset import Operator, OperatorRow, Tensor, check_export, export, load
from placer.profile.operators.describe import operators_of
from placer.profile.operators.operator_profile import OperatorProfile
from placer.profile.operators.probes import probes_of
from placer.profile.operators.shapes import rescaled
from placer.trace.capture import capture

CONV = Operator(
    "Conv2D",
    (Tensor((8, 32, 32, 3), "float32"), Tensor((3, 3, 3, 16), "float32")),
    (Tensor((8, 32, 32, 16), "float32"),),
    {"strides": [1, 1, 1, 1], "padding": "SAME"},
    7077888.0,
)
ROW = OperatorRow(CONV, "worker:0", "cpu", "here", 8, "net", "forward", "step", 2e-3, 1.9e-3, 2e-4, 20)
UNKNOWN = replace(ROW, operator=Operator("While", (Tensor(None, "variant"), Tensor((None, 2), "int64")), (), {}, None))
ROWS = [ROW, replace(UNKNOWN, batch=None, phase=None, source="single")]


@pytest.fixture(scope="module")
def convolutions():
    """A small step with convolution, pooling, reduction, softmax, embedding, and their gradients."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(3)
    words, pixels = keras.Input((4,), dtype="int32"), keras.Input((16, 16, 3))
    x = keras.layers.Conv2D(8, 3, activation="relu")(pixels)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.MaxPooling2D()(keras.layers.DepthwiseConv2D(3)(x)))
    words_in = keras.layers.Flatten()(keras.layers.Embedding(20, 8)(words))
    model = keras.Model([words, pixels], keras.layers.Dense(5)(keras.layers.Concatenate()([x, words_in])))

    def step(words, pixels, y):
        with tf.GradientTape() as tape:
            logits = model([words, pixels], training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        for variable, gradient in zip(
            model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True
        ):
            variable.value.assign_sub(0.1 * tf.convert_to_tensor(gradient))
        return loss

    inputs = (tf.zeros([6, 4], tf.int32), tf.ones([6, 16, 16, 3]), tf.constant([0, 1, 2, 3, 4, 0]))
    captured = capture(step, inputs, "convolutions")
    return captured, captured.flat_inputs(inputs), model


@pytest.fixture(scope="module")
def profile(convolutions, two_cpus):
    captured, inputs, _ = convolutions
    profile = OperatorProfile(captured, inputs, two_cpus, 0, batch=6, scales=True)
    profile.run_pass(2)
    profile.run_pass(1)
    return profile


def test_every_op_has_an_operator_that_says_what_decides_its_time(convolutions):
    captured, _, _ = convolutions
    operators = operators_of(captured)
    assert set(operators) == {op.name for op in captured.graph.ops}
    conv = next(o for o in operators.values() if o.type in ("Conv2D", "_FusedConv2D"))
    assert conv.inputs[0] == Tensor((6, 16, 16, 3), "float32")
    assert conv.inputs[1].shape == (3, 3, 3, 8)
    assert conv.attributes["strides"] == [1, 1, 1, 1] and conv.attributes["padding"] == "VALID"
    assert conv.flops == 2 * (6 * 14 * 14 * 8) * 27
    assert conv.bytes_out == 4 * 6 * 14 * 14 * 8


def test_constants_that_decide_the_work_are_part_of_the_signature():
    axis = [replace(CONV, type="Sum", attributes={"input1": [i]}).signature for i in (0, 1)]
    assert axis[0] != axis[1]
    assert CONV.signature == replace(CONV, flops=None).signature


def test_variables_and_control_flow_are_left_to_the_step(convolutions):
    captured, _, _ = convolutions
    operators = operators_of(captured)
    probes = probes_of(captured, operators).values()
    assert probes
    for probe in probes:
        assert all(t.dtype not in ("resource", "variant") for t in probe.operator.inputs)


def test_rows_of_both_sources_with_their_repeats(profile):
    rows = profile.rows()
    steps = {row.operator.signature: row for row in rows if row.source == "step"}
    singles = {row.operator.signature: row for row in rows if row.source == "single"}
    assert {o.signature for o in profile.operators.values()} >= set(steps)
    assert all(row.repeats == 3 for row in singles.values())
    assert all(row.repeats == 3 for row in steps.values())
    assert all(0 <= row.low_s <= row.median_s for row in rows)
    assert {"Conv2DBackpropFilter", "MaxPoolGrad", "SparseSoftmaxCrossEntropyWithLogits"} <= {
        row.operator.type for row in singles.values()
    }


def test_every_probe_ran(profile):
    assert {row.operator.signature for row in profile.rows() if row.source == "single"} == set(profile.probes)


@pytest.mark.parametrize(
    ("letter", "factor", "x", "kernel"),
    [("N", 2.0, (12, 16, 16, 3), (3, 3, 3, 8)), ("C", 2.0, (6, 16, 16, 6), (3, 3, 6, 8)),
     ("O", 0.5, (6, 16, 16, 3), (3, 3, 3, 4))],
)  # fmt: skip
def test_a_convolution_at_other_sizes(convolutions, letter, factor, x, kernel):
    captured, _, _ = convolutions
    probes = probes_of(captured, operators_of(captured)).values()
    conv = next(p for p in probes if p.operator.type in ("Conv2D", "_FusedConv2D"))
    other = rescaled(conv, letter, factor)
    assert other is not None
    assert other.operator.inputs[0].shape == x and other.operator.inputs[1].shape == kernel
    assert other.operator.flops == factor * conv.operator.flops
    assert other.operator.outputs[0].shape == (x[0], 14, 14, kernel[3])


def test_the_gradients_scale_with_the_values_of_their_shape_constants(convolutions):
    captured, _, _ = convolutions
    probes = probes_of(captured, operators_of(captured)).values()
    gradient = next(p for p in probes if p.operator.type == "Conv2DBackpropFilter")
    other = rescaled(gradient, "O", 2.0)
    assert other is not None and other.operator.outputs[0].shape == (3, 3, 3, 16)


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_rows_survive_a_file(tmp_path, name):
    export(ROWS, tmp_path / name)
    assert load(tmp_path / name) == ROWS


@pytest.mark.parametrize("name", ["rows.xls", "rows", "none/rows.csv"])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path, name):
    with pytest.raises(BadInputError, match="--export"):
        check_export(tmp_path / name)


def test_without_pyarrow_parquet_is_refused_in_one_line(tmp_path, monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(BadInputError, match=r"placer\[parquet\]"):
        check_export(tmp_path / "rows.parquet")


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadInputError, match="no operator dataset"):
        load(tmp_path / "rows.csv")


def test_the_store_keeps_rows_and_merges_what_is_measured_again(tmp_path):
    again = replace(ROW, median_s=4e-3, low_s=3.9e-3, spread_s=4e-4, repeats=60)
    with Store(tmp_path / "s.sqlite") as store:
        store.add_operators(ROWS)
        assert store.operators() == ROWS
        store.add_operators([again, replace(ROW, network="other")])
        merged, *others = store.operators("here")
        assert len(others) == 2 and store.operators("elsewhere") == []
    assert merged.repeats == 80
    assert merged.median_s == pytest.approx((20 * 2e-3 + 60 * 4e-3) / 80)


def test_rows_of_a_gpu_and_of_another_one_are_kept_apart(tmp_path):
    rows = [ROW, replace(ROW, device_kind="gpu"), replace(ROW, device_kind="gpu", machine=machine_name("H200"))]
    with Store(tmp_path / "s.sqlite") as store:
        store.add_operators(rows)
        assert store.operators() == rows
        assert store.operators(machine_name("H200")) == rows[2:]
    assert machine_name() != machine_name("H200")


def test_an_old_store_opens_and_gets_the_new_table(tmp_path):
    path = tmp_path / "old.sqlite"
    with Store(path):
        pass
    old = sqlite3.connect(path)
    old.executescript("DROP TABLE operators; PRAGMA user_version=1")
    old.close()
    with Store(path) as store:
        store.add_operators(ROWS)
        assert len(store.operators()) == 2
        assert store.connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION


def test_a_store_of_the_future_is_refused(tmp_path):
    path = tmp_path / "new.sqlite"
    future = sqlite3.connect(path)
    future.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    future.close()
    with pytest.raises(PlacerError, match="schema"):
        Store(path)
