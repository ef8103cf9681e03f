"""Which operators come from one op: at other batch sizes, and rescaled for the profile."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from placer.profile.operators.dataset import Operator, OperatorRow, Tensor
from surrogate.operators import models, regressors
from surrogate.operators.base_ops import bases_of
from surrogate.operators.models import fit_models


def relu(*shape, batch=8, network="net", source="step", seconds=1e-4):
    tensor = Tensor(shape, "float32")
    op = Operator("Relu", (tensor,), (tensor,), {}, float(np.prod(shape)))
    return OperatorRow(op, "cpu:0", "cpu", "m", batch, network, "forward", source, seconds, seconds, 0.0, 9)


def test_one_op_at_two_batches_is_one():
    one, half, other = bases_of([relu(8, 28, 28, 64), relu(4, 28, 28, 64, batch=4), relu(8, 14, 14, 64)])
    assert one == half != other


def test_what_was_rescaled_from_an_op_is_one_with_it():
    base = relu(8, 28, 28, 64)
    probes = [relu(*shape, source="single") for shape in ((4, 28, 28, 64), (16, 28, 28, 64), (8, 28, 28, 48))]
    assert set(bases_of([base, replace(base, source="single"), *probes])) == {bases_of([base])[0]} | set(
        bases_of([base, *probes])
    )
    assert len(set(bases_of([base, *probes]))) == 1


def test_ops_of_a_step_are_not_taken_for_probes_of_each_other():
    assert len(set(bases_of([relu(8, 28, 28, 64), relu(8, 28, 28, 96)]))) == 2
    other_net = relu(8, 28, 28, 96, network="other", source="single")
    assert len(set(bases_of([relu(8, 28, 28, 64), other_net]))) == 2
    assert len(set(bases_of([relu(8, 28, 28, 64), relu(8, 14, 14, 64, source="single")]))) == 2


def test_a_probe_of_two_ops_does_not_make_them_one():
    """96 channels are 64 * 1.5 and 128 * 0.75."""
    small, probe, large = bases_of([relu(8, 64), relu(8, 96, source="single"), relu(8, 128)])
    assert small != large and probe in (small, large)


def test_what_a_network_has_at_both_batches_does_not_depend_on_the_batch():
    """Gradients of biases of 32 and 64 numbers would else be one op."""
    small, large = [relu(32, batch=batch) for batch in (4, 8)], [relu(64, batch=batch) for batch in (4, 8)]
    assert len(set(bases_of([*small, *large]))) == 2
    assert len(set(bases_of([small[0], large[1]]))) == 1
    assert len(set(bases_of([small[0], replace(large[1], network="other")]))) == 2


def test_what_comes_from_an_op_does_not_depend_on_the_order_of_rows():
    """A probe of 96 channels may come from 64 and from 128."""
    rows = [relu(8, width, source=source) for width, source in [(64, "step"), (128, "step"), (96, "single")]]
    of = dict(zip((row.operator.signature for row in rows), bases_of(rows), strict=True))
    for order in itertools.permutations(rows):
        assert bases_of(order) == [of[row.operator.signature] for row in order]


def groups_seen(monkeypatch):
    """A list to which each cross-validation adds the group of each row. The regressor learns nothing: that is quick."""
    seen = []
    real = models._left_out
    monkeypatch.setattr(
        models, "_left_out", lambda of, table, log_s, groups: seen.append(groups) or real(of, table, log_s, groups)
    )
    monkeypatch.setattr(models, "candidates", lambda: {models.ROOFLINE: models.Roofline()})
    monkeypatch.setattr(regressors, "_roofline_constants", lambda table, log_s: np.log([1e-5, 1e-12, 1e-9]))
    return seen


@pytest.mark.parametrize("others", [0, 1, 3])
def test_of_few_ops_each_row_is_predicted_by_a_fit_of_others(monkeypatch, others):
    """They are left out by their signatures: held out whole, hardly anything would be left to fit."""
    rows = [relu(batch, 64, batch=batch) for batch in range(1, 41)] + [relu(8, 7 + i) for i in range(others)]
    assert len(set(bases_of(rows))) == 1 + others
    seen = groups_seen(monkeypatch)
    fit_models(rows)
    assert len(set(seen[0])) == models.FOLDS and np.bincount(seen[0]).max() < 20


def test_an_op_is_predicted_by_fits_that_have_not_seen_it_at_other_sizes(monkeypatch):
    """Each fold of the cross-validation holds out whole ops."""
    rows = [relu(batch, 4 * width, batch=batch) for width in range(1, 13) for batch in (4, 8)]
    seen = groups_seen(monkeypatch)
    found = fit_models(rows)
    (groups,) = seen
    assert groups[::2].tolist() == groups[1::2].tolist() and len(set(groups)) == models.FOLDS
    assert found.by_family["element-wise"].tried == len(rows)


@pytest.mark.slow
def test_every_probe_is_found_to_come_from_its_op():
    import keras
    import tensorflow as tf

    from placer.profile.operators.describe import operators_of
    from placer.profile.operators.probes import probes_of
    from placer.profile.operators.shapes import SCALES, rescaled
    from placer.trace.capture import capture

    keras.utils.set_random_seed(3)
    pixels = keras.Input((16, 16, 3))
    x = keras.layers.BatchNormalization()(keras.layers.Conv2D(8, 3, activation="relu")(pixels))
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.MaxPooling2D()(keras.layers.DepthwiseConv2D(3)(x)))
    model = keras.Model(pixels, keras.layers.Dense(5)(x))

    def step(pixels, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=model(pixels, training=True))
            )
        for variable, gradient in zip(
            model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True
        ):
            variable.value.assign_sub(0.1 * tf.convert_to_tensor(gradient))
        return loss

    captured = capture(step, (tf.ones([6, 16, 16, 3]), tf.constant([0, 1, 2, 3, 4, 0])), "small")
    of_step = operators_of(captured)
    in_step = {operator.signature for operator in of_step.values()}
    row = relu(1, batch=6)
    rows = [replace(row, operator=operator) for operator in of_step.values()]
    probes = []
    for probe in probes_of(captured, of_step).values():
        for letter, factor in SCALES:
            other = rescaled(probe, letter, factor)
            if other is not None and other.operator.signature not in in_step:
                probes.append(len(rows))
                rows.append(replace(row, operator=other.operator, source="single"))
    bases = bases_of(rows)
    from_step = {base for base, row in zip(bases, rows, strict=True) if row.source == "step"}
    missed = [(rows[i].operator.type, rows[i].operator.inputs) for i in probes if bases[i] not in from_step]
    assert len(probes) > 40 and missed == []
    assert len(from_step) > 20
