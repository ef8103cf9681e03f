"""Operator models against operators whose true time is known: overhead + max(flops / peak, bytes / bandwidth)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placer.errors import BadInputError
from placer.profile.operators.dataset import Operator, OperatorRow, Tensor
from surrogate.operators import regressors
from surrogate.operators.features import families, family_of, features, traffic, work
from surrogate.operators.models import OVERALL, ROOFLINE, fit_models, table_of
from surrogate.operators.regressors import Roofline, candidates, fit_all

OVERHEAD_S, PEAK, BANDWIDTH = 5e-6, 50e9, 8e9
SHAPES = [(m, k, n) for m in (8, 32, 128, 512) for k in (16, 64, 256) for n in (32, 128, 512)]


def matmul(m: int, k: int, n: int) -> Operator:
    inputs = (Tensor((m, k), "float32"), Tensor((k, n), "float32"))
    return Operator("MatMul", inputs, (Tensor((m, n), "float32"),), {"transpose_a": False}, 2.0 * m * k * n)


def relu(n: int) -> Operator:
    return Operator("Relu", (Tensor((n,), "float32"),), (Tensor((n,), "float32"),), {}, float(n))


def true_s(op: Operator) -> float:
    return OVERHEAD_S + max(work(op) / PEAK, traffic(op) / BANDWIDTH)


def row(op: Operator, network: str = "net", seconds: float | None = None) -> OperatorRow:
    s = true_s(op) if seconds is None else seconds
    return OperatorRow(op, "worker:0", "cpu", "here", 8, network, "forward", "step", s, s, 0.0, 20)


MATMULS = [row(matmul(*shape), network=f"net{i % 3}") for i, shape in enumerate(SHAPES)]
RELUS = [row(relu(2**i)) for i in range(6, 22)]


@pytest.fixture(scope="module")
def models():
    return fit_models([*MATMULS, *RELUS])


def test_the_roofline_finds_its_constants():
    table = table_of([r.operator for r in MATMULS], [False] * len(MATMULS), ())
    roofline = Roofline()
    roofline.fit(table, np.log([r.median_s for r in MATMULS]))
    overhead_s, s_per_flop, s_per_byte = np.exp(roofline.constants["MatMul"])
    assert overhead_s == pytest.approx(OVERHEAD_S, rel=0.02)
    assert 1 / s_per_flop == pytest.approx(PEAK, rel=0.02)
    assert 1 / s_per_byte == pytest.approx(BANDWIDTH, rel=0.02)


def test_the_roofline_is_fitted_once_for_all_that_build_on_it(monkeypatch):
    fitted = []
    real = regressors._roofline_constants
    monkeypatch.setattr(regressors, "_roofline_constants", lambda *of: fitted.append(len(of[0])) or real(*of))
    operators = [r.operator for r in MATMULS]
    table, log_s = table_of(operators, [False] * len(operators), ("MatMul",)), np.log([true_s(o) for o in operators])
    shared = candidates()
    fit_all(shared.values(), table, log_s)
    assert fitted == [len(operators)] * 2  # over all types, and of the only one
    alone = candidates()["boosting on roofline"]
    alone.fit(table, log_s)
    assert shared["boosting on roofline"].predict(table) == pytest.approx(alone.predict(table), rel=1e-12)


def test_times_that_nothing_explains_are_not_explained_in_a_cross_validation():
    rng = np.random.default_rng(0)
    seconds = np.exp(rng.normal(np.log(1e-4), 1.0, len(SHAPES)))
    rows = [row(matmul(*shape), seconds=s) for shape, s in zip(SHAPES, seconds, strict=True)]
    (family,) = fit_models(rows).by_family.values()
    for name in ("gaussian process", "gaussian process on roofline"):
        assert family.scores[name].spread > 0.9 * np.std(np.log(seconds)), name


@pytest.mark.parametrize("name", list(candidates()))
def test_every_regressor_learns_and_says_the_same_again(name):
    operators = [r.operator for r in MATMULS]
    table, log_s = table_of(operators, [False] * len(operators), ("MatMul",)), np.log([true_s(o) for o in operators])
    found = []
    for _ in range(2):
        regressor = candidates()[name]
        regressor.fit(table, log_s)
        found.append(regressor.predict(table))
    assert np.array_equal(*found)
    assert np.abs(found[0] - log_s).mean() < np.abs(log_s - np.median(log_s)).mean() / 4


@pytest.mark.slow
def test_unseen_shapes_of_a_true_roofline_are_predicted(models):
    unseen = [matmul(64, 128, 256), matmul(256, 32, 64), matmul(200, 100, 300)]
    for op, predicted in zip(unseen, models.predict(unseen), strict=True):
        assert predicted.seconds == pytest.approx(true_s(op), rel=0.1)
        assert predicted.source.startswith("matmul: ")
        assert predicted.relative_spread > 0


def test_predictions_come_in_the_order_asked_and_single_ops_too(models):
    operators = [relu(1000), matmul(64, 64, 64), relu(100000)]
    together = models.predict(operators, single=True)
    assert [p.seconds for p in together] == [models.predict([o], single=True)[0].seconds for o in operators]


def test_a_type_never_measured_falls_back_to_the_roofline_of_all_and_says_so(models):
    for op_type in ("SomethingNew", "Tanh"):
        (found,) = models.predict([replace(relu(2**20), type=op_type)])
        assert found.source == OVERALL
        assert found.seconds > 0


def test_the_chosen_regressor_is_not_worse_than_the_roofline_and_few_rows_get_the_roofline(models):
    matmuls = models.by_family["matmul"]
    assert matmuls.scores[matmuls.choice].shapes <= matmuls.scores[ROOFLINE].shapes + 0.25
    assert matmuls.scores[matmuls.choice].networks is not None
    few = fit_models([row(relu(64)), row(relu(4096))])
    assert few.by_family["element-wise"].choice == ROOFLINE


@pytest.mark.nightly
def test_noise_is_told_as_spread(models):
    chance = np.random.default_rng(1)
    noisy = [replace(r, median_s=r.median_s * float(np.exp(chance.normal(0, 0.3)))) for r in MATMULS[::2]]
    big = [matmul(512, 256, 512)]
    assert models.predict(big)[0].relative_spread < 0.1 < fit_models(noisy).predict(big)[0].relative_spread


def test_a_dataset_without_rows_of_the_device_is_refused():
    with pytest.raises(BadInputError, match="placer profile"):
        fit_models(MATMULS, "gpu")


def test_the_error_of_few_operators_is_that_of_shapes_left_out():
    """Three constants pass through two operators; each of them left out is not met."""
    few = [
        row
        for row in MATMULS
        if row.operator.signature in {MATMULS[0].operator.signature, MATMULS[-1].operator.signature}
    ]
    slow = [replace(row, median_s=row.median_s * (1 if row is few[0] else 30)) for row in few]
    model = fit_models(slow).by_family["matmul"]
    assert model.choice == ROOFLINE and model.scores[ROOFLINE].shapes > 0.2


def test_one_operator_tells_no_error():
    model = fit_models([MATMULS[0]]).by_family["matmul"]
    assert (model.choice, model.scores) == (ROOFLINE, {}) and model.spread > 0


def test_fixed_regressors_are_taken_without_a_choice():
    found = fit_models([*MATMULS, *RELUS], fixed=("roofline",))
    matmuls = found.by_family["matmul"]
    assert (matmuls.choice, matmuls.scores) == ("roofline", {})
    (predicted,) = found.predict([matmul(64, 128, 256)])
    assert predicted.seconds == pytest.approx(true_s(matmul(64, 128, 256)), rel=0.05)


def conv(op_type: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], **attributes: object) -> Operator:
    tensors = tuple(Tensor(shape, "float32") for shape in inputs)
    return Operator(op_type, tensors, (Tensor(output, "float32"),), {"strides": [1, 2, 2, 1], **attributes})


def test_a_convolution_and_its_gradients_do_the_same_work():
    x, kernel, y = (8, 32, 32, 16), (3, 3, 16, 24), (8, 16, 16, 24)
    work_of = [
        work(conv("Conv2D", [x, kernel], y)),
        work(conv("Conv2DBackpropInput", [(4,), kernel, y], x)),
        work(conv("Conv2DBackpropFilter", [x, (4,), y], kernel)),
    ]
    assert work_of == [2 * 8 * 16 * 16 * 24 * 9 * 16] * 3
    first = work(conv("Conv2D", [(8, 16, 32, 32), kernel], (8, 24, 16, 16), data_format="NCHW", strides=[1, 1, 2, 2]))
    assert first == work_of[0]


def test_a_convolution_in_groups_does_the_work_of_its_kernel():
    """Each of 8 groups sees 2 of 16 channels."""
    x, kernel, y = (8, 32, 32, 16), (3, 3, 2, 24), (8, 16, 16, 24)
    forward = conv("Conv2D", [x, kernel], y)
    backward = conv("Conv2DBackpropFilter", [x, (4,), y], kernel)
    assert work(forward) == work(backward) == 2 * 8 * 16 * 16 * 24 * 9 * 2
    assert np.exp(features(forward, single=True)["log_groups"]) == pytest.approx(8)
    whole = conv("Conv2D", [x, (3, 3, 16, 24)], y)
    depthwise = conv("DepthwiseConv2dNative", [x, (3, 3, 16, 2)], (8, 16, 16, 32))
    assert [features(op, single=True)["log_groups"] for op in (whole, depthwise)] == [0.0, 0.0]


def test_pooling_reads_its_sizes_by_its_format():
    last = conv("MaxPool", [(8, 32, 30, 16)], (8, 16, 15, 16), ksize=[1, 2, 2, 1])
    first = conv(
        "MaxPool", [(8, 16, 32, 30)], (8, 16, 16, 15), data_format="NCHW", ksize=[1, 1, 2, 2], strides=[1, 1, 2, 2]
    )
    assert features(last, single=True) == features(first, single=True)
    assert np.exp(features(first, single=True)["log_c"]) == pytest.approx(16)


def test_the_roofline_reaches_devices_of_more_than_100_tera_flops():
    peak = 1e15
    operators = [matmul(2**i, 2**j, 4096) for i in range(9, 15) for j in range(10, 14)]
    seconds = [1e-6 + work(op) / peak for op in operators]
    roofline = Roofline()
    roofline.fit(table_of(operators, [False] * len(operators), ()), np.log(seconds))
    assert np.exp(-roofline.constants["MatMul"][1]) == pytest.approx(peak, rel=0.05)


def test_all_operators_of_a_family_have_the_same_features():
    one = features(conv("Conv2D", [(8, 32, 32, 16), (3, 3, 16, 24)], (8, 16, 16, 24)), single=True)
    other = features(conv("DepthwiseConv2dNative", [(1, 7, 7, 3), (5, 5, 3, 1)], (1, 7, 7, 3)), single=False)
    assert list(one) == list(other)
    assert all(np.isfinite(list(found.values())).all() for found in (one, other))


@pytest.mark.parametrize("family", families())
def test_odd_operators_have_features_too(family):
    """Scalars, unknown ranks, no inputs: whatever a graph holds gets a number."""
    from surrogate.operators.features import ELEMENTWISE, FAMILY_TYPES

    types = {**FAMILY_TYPES, "element-wise": tuple(ELEMENTWISE), "other": ("Odd",)}[family]
    scalar = Tensor((), "float32")
    for op_type in types:
        assert family_of(op_type) == family
        for inputs, outputs in (
            ((scalar,) * 5, (scalar,)),
            ((Tensor(None, "variant"),) * 3, (Tensor((None, 4), "int64"),)),
        ):
            assert np.isfinite(list(features(Operator(op_type, inputs, outputs, {}), single=False).values())).all()
