"""Fits of formulas whose constants are known: found again, the same for the same seed, and bad runs refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import nnls

from placer.errors import BadInputError
from surrogate.scaling.fit import ConstantsFit, FitSettings, checked, cross_validated, fit, nonnegative
from surrogate.scaling.form import Form
from surrogate.scaling.reading import sentences
from surrogate.scaling.runs import Runs

QUICK = FitSettings(samples=0, generations=60, folds=3)
PUBLISHED = Form.parse("filters,layers,activation", "batch,devices")
BOTH = Form.parse("activation", "machine")
LEVELS = {"relu": 1.0, "tanh": 2.0, "gelu": 4.0}


def table(count=90, noise=0.0, seed=0):
    """Runs of the published form: (2e-5 filters^2 + 3e-3 layers + activation * 4e-3) batch^0.9 devices^-0.8 + 0.01."""
    rng = np.random.default_rng(seed)
    cells = {
        "filters": rng.integers(8, 64, count).astype(float),
        "layers": rng.integers(1, 9, count).astype(float),
        "activation": rng.choice(list(LEVELS), count).tolist(),
        "batch": rng.integers(8, 256, count).astype(float),
        "devices": rng.integers(1, 9, count).astype(float),
    }
    own = np.array([LEVELS[name] for name in cells["activation"]])
    inside = 2e-5 * cells["filters"] ** 2 + 3e-3 * cells["layers"] + 4e-3 * own
    step_s = inside * cells["batch"] ** 0.9 * cells["devices"] ** -0.8 + 0.01
    return {**cells, "step_s": (step_s * rng.normal(1, noise, count)).tolist()}


def of(cells):
    return Runs.of({name: list(column) for name, column in cells.items()})


def constant(model, name):
    return model.constants[model.coding.names.index(name)]


@pytest.fixture(scope="module")
def exact():
    return fit(of(table()), PUBLISHED, "step_s", replace(QUICK, penalty="none"))


def test_the_constants_of_a_published_form_are_found_again(exact):
    for name, value in (("p filters", 2.0), ("p layers", 1.0), ("q batch", 0.9), ("q devices", -0.8)):
        assert constant(exact, name) == pytest.approx(value, abs=0.01)
    assert constant(exact, "C") * exact.scale == pytest.approx(0.01, rel=0.02)
    ratio = constant(exact, "a activation: activation=gelu") / constant(exact, "a activation: activation=relu")
    assert ratio == pytest.approx(4.0, rel=0.02)


def test_it_predicts_far_outside_what_it_saw(exact):
    far = {"filters": [200.0], "layers": [40.0], "activation": ["tanh"], "batch": [4096.0], "devices": [64.0]}
    true = (2e-5 * 200**2 + 3e-3 * 40 + 8e-3) * 4096**0.9 * 64**-0.8 + 0.01
    assert exact.values(of(far).columns)[0] == pytest.approx(true, rel=0.02)


def test_units_of_columns_and_times_do_not_matter(exact):
    cells = table()
    other = {**cells, "filters": [f * 1e6 for f in cells["filters"]], "step_s": [s * 1e3 for s in cells["step_s"]]}
    found = fit(of(other), PUBLISHED, "step_s", replace(QUICK, penalty="none"))
    assert constant(found, "p filters") == pytest.approx(constant(exact, "p filters"), abs=1e-3)
    assert_allclose(found.values(of(other).columns), 1e3 * exact.values(of(cells).columns), rtol=1e-3)


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_noise_is_no_harm_and_the_interval_holds_the_truth(penalty):
    cells = table(150, noise=0.03)
    known, unseen = of(cells).take(np.arange(100)), of(cells).take(np.arange(100, 150))
    model = fit(known, PUBLISHED, "step_s", replace(QUICK, penalty=penalty, samples=30))
    assert model.mape_cv < 0.06
    found = model.predict(unseen.columns)
    inside = (found.low <= unseen.numbers("step_s")) & (unseen.numbers("step_s") <= found.high)
    assert 0.75 <= inside.mean() <= 1.0
    assert (found.high / found.low < 1.5).mean() > 0.8


def test_a_product_needs_a_joined_term():
    rng = np.random.default_rng(1)
    a, b = rng.uniform(1, 10, 60), rng.uniform(1, 10, 60)
    runs = of({"a": a, "b": b, "step_s": 1e-3 * a**1.5 * b**2})
    joined = fit(runs, Form.parse("a*b"), "step_s", QUICK)
    assert joined.mape < 0.01 < 0.1 < fit(runs, Form.parse("a,b"), "step_s", QUICK).mape
    assert constant(joined, "p a*b: a") == pytest.approx(1.5, abs=0.02)


def test_a_text_among_the_extrinsic_columns_is_a_factor_per_level():
    rng = np.random.default_rng(2)
    size, machine = rng.uniform(1, 10, 60), rng.choice(["new", "old"], 60)
    runs = of({"size": size, "machine": machine.tolist(), "step_s": size * np.where(machine == "old", 3.0, 1.0)})
    model = fit(runs, Form.parse("size", "machine"), "step_s", QUICK)
    assert np.exp(constant(model, "q machine=old")) == pytest.approx(3.0, rel=0.02)


def test_the_same_seed_gives_the_same_model():
    runs = of(table(60, noise=0.05))
    one, again = (fit(runs, PUBLISHED, "step_s", replace(QUICK, samples=5)) for _ in range(2))
    np.testing.assert_array_equal(one.constants, again.constants)
    np.testing.assert_array_equal(one.samples, again.samples)


def test_both_searches_end_at_the_same_cost():
    """The projected search is a departure from the published one, so it must find what that finds, or better."""
    runs = of(table(60, noise=0.05))
    settings = replace(QUICK, generations=300)
    problems = [_problem(runs, replace(settings, search=search)) for search in ("plain", "projected")]
    plain, projected = (problem.cost(problem.solved()[None, :])[0] for problem in problems)
    assert projected <= plain * (1 + 1e-3)


def _problem(runs, settings, form=PUBLISHED, weight=0.0):
    coding, seconds = checked(runs, form, "step_s", settings)
    return ConstantsFit(coding, coding.coded(runs.columns), seconds / seconds.mean(), settings, weight)


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_the_slopes_are_those_of_the_residuals(penalty):
    problem = _problem(of(table(40, noise=0.1)), replace(QUICK, penalty=penalty), weight=0.01)
    at = np.random.default_rng(3).uniform(0.2, 1.2, len(problem.coding.names))
    numeric = [(problem._residuals(at + h) - problem._residuals(at - h)) / 2e-6 for h in 1e-6 * np.eye(len(at))]
    assert_allclose(problem._slopes(at), np.array(numeric).T, atol=1e-6)


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_a_heavier_penalty_makes_smaller_constants_and_larger_errors(penalty):
    problem = _problem(of(table(60, noise=0.1)), replace(QUICK, penalty=penalty))
    light, heavy = (problem.weighing(weight).polished(problem.solved()) for weight in (1e-6, 1e-1))
    size = np.abs if penalty == "l1" else np.square
    assert size(heavy[:-1]).sum() < size(light[:-1]).sum()
    assert problem.cost(light[None, :])[0] < problem.cost(heavy[None, :])[0]


def test_the_squares_of_the_residuals_are_the_cost():
    problem = _problem(of(table(40, noise=0.1)), QUICK, weight=0.01)
    at = np.full(len(problem.coding.names), 0.4)
    assert (problem._residuals(at) ** 2).sum() == pytest.approx(problem.cost(at[None, :])[0])


def test_weights_are_never_negative_and_near_the_best():
    rng = np.random.default_rng(4)
    for _ in range(30):
        basis, target = rng.uniform(0, 1, (40, 5)), rng.uniform(0, 1, 40)
        weights = nonnegative((basis.T @ basis)[None], (basis.T @ target)[None])[0]
        best, _ = nnls(basis, target)
        assert (weights >= 0).all()
        assert np.linalg.norm(basis @ weights - target) <= 1.1 * np.linalg.norm(basis @ best - target) + 1e-9


def test_errors_of_the_cross_validation_are_of_rows_left_out():
    """A row that nothing explains errs, although a formula with so many constants could be bent to it."""
    cells = table(30, seed=5)
    cells["step_s"][7] *= 4
    _, mape, errors = cross_validated(_problem(of(cells), QUICK))
    assert abs(errors[7]) == np.abs(errors).max() > 1 and mape > 0.02


@pytest.mark.parametrize("penalty", ["l2", "none"])
def test_repeats_of_the_same_runs_do_not_make_errors_smaller(penalty):
    """All repeats of a run are left out together; else those that are not tell what the left-out one takes."""
    cells = table(16, noise=0.3, seed=5)
    often = {name: list(column) * 4 for name, column in cells.items()}
    settings = replace(QUICK, penalty=penalty)
    once, repeated = (cross_validated(_problem(of(c), settings))[1:] for c in (cells, often))
    assert repeated[0] == pytest.approx(once[0], rel=0.05)
    assert_allclose(repeated[1], np.tile(once[1], 4), atol=0.05)


def test_repeats_of_a_single_run_are_left_out_one_by_one():
    problem = _problem(of(table(20)), QUICK)
    _, mape, errors = cross_validated(problem.of_rows(np.zeros(6, dtype=np.intp)))
    assert len(errors) == 6 and mape < 0.01


def test_a_text_level_of_one_run_spoils_no_error_and_no_interval():
    """Left out, nothing tells its constant; and each bootstrap sample has it."""
    cells = table(40)
    cells["activation"] = ["gelu", *["relu", "tanh"] * 20][:40]
    own = np.array([LEVELS[name] for name in cells["activation"]])
    cells["step_s"] = ((2e-5 * np.array(cells["filters"]) ** 2 + 4e-3 * own) * np.array(cells["batch"]) ** 0.9).tolist()
    form = Form.parse("filters,activation", "batch")
    _, mape, errors = cross_validated(_problem(of(cells), QUICK, form))
    assert len(errors) == 39 and mape < 0.01
    model = fit(of(cells), form, "step_s", replace(QUICK, samples=20))
    assert model.samples[:, model.coding.names.index("a activation: activation=gelu")].min() > 0


def of_texts(rng, noise=0.1):
    """One run of each of 4 activations on each of 5 machines, whose times differ by more than the noise."""
    activation, machine = list("abcd") * 5, list("vwxyz") * 4
    own = np.array([1.0 + "abcd".index(name) for name in activation])
    factor = np.array([1.0 + 0.5 * "vwxyz".index(name) for name in machine])
    step_s = own * factor * rng.lognormal(0, noise, 20)
    return {"activation": activation, "machine": machine, "step_s": step_s.tolist()}


def test_one_run_of_each_combination_of_texts_has_an_interval():
    """Samples of each combination's own runs would all be the table."""
    problem = _problem(of(of_texts(np.random.default_rng(7))), replace(QUICK, samples=40), BOTH)
    samples = problem.bootstrap(problem.solved())
    values = problem.coding.values(samples, problem.coded)
    assert (values.std(axis=0) > 0.01 * values.mean(axis=0)).all()
    np.testing.assert_array_equal(samples, problem.bootstrap(problem.solved()))


def test_each_bootstrap_sample_has_each_level_of_each_text():
    """The first level of an extrinsic text, too, which has no constant: without it the others have nothing to be
    factors of.
    """
    cells = of_texts(np.random.default_rng(7))
    few = [i for i, name in enumerate(cells["machine"]) if name != "v"] + [0]
    problem = _problem(of({name: [column[i] for i in few] for name, column in cells.items()}), QUICK, BOTH)
    chance = np.random.default_rng(0)
    for _ in range(50):
        drawn = problem.drawn(chance)
        assert len(drawn) == len(few) and problem.levels[drawn].any(axis=0).all() and few.index(0) in drawn
    assert len(cross_validated(problem)[2]) == len(few) - 1  # nothing tells the error of the run on v, left out


def test_where_chance_would_miss_a_level_each_combination_keeps_its_rows():
    count = 40
    cells = {"activation": [f"a{i}" for i in range(count)], "size": np.arange(1.0, count + 1).tolist()}
    cells["step_s"] = cells["size"]
    problem = _problem(of({n: list(c) * 2 for n, c in cells.items()}), QUICK, Form.parse("activation,size"))
    drawn = problem.drawn(np.random.default_rng(0))
    assert problem.levels[drawn].any(axis=0).all() and (problem.levels[drawn].sum(axis=0) == 2).all()


@pytest.mark.parametrize(
    ("change", "form", "says"),
    [
        ({"layers": [3.0] * 90}, PUBLISHED, "column 'layers' is 3.0 in every row"),
        ({"activation": ["relu"] * 90}, PUBLISHED, "column 'activation' is relu in every row"),
        ({"batch": [-1.0, *([1.0, 2.0] * 45)][:90]}, PUBLISHED, "column 'batch' is -1 in row 1"),
        ({"step_s": [0.0, *([1.0, 2.0] * 45)][:90]}, PUBLISHED, "'step_s' is 0 in row 1; it must be above 0"),
        ({"step_s": ["fast", "slow"] * 45}, PUBLISHED, "column 'step_s' holds text"),
        ({"step_s": [1e-9, *[1e9] * 89]}, PUBLISHED, "'step_s' goes from 1e-09 to 1e+09, too far for one formula"),
        ({}, Form.parse("filters,step_s"), "'step_s' is the target"),
        ({}, Form.parse("filters,depth"), "has no column 'depth'; it has filters"),
    ],
)
def test_runs_that_a_form_cannot_be_fitted_to_are_one_line(change, form, says):
    with pytest.raises(BadInputError) as refused:
        fit(of({**table(), **change}), form, "step_s", QUICK)
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_fewer_rows_than_constants_are_refused():
    with pytest.raises(BadInputError, match=r"has 8 rows, and this form has (9|10) constants"):
        fit(of(table()).take(np.arange(8)), PUBLISHED, "step_s", QUICK)


def test_zeros_are_welcome_where_exponents_are_not_negative():
    rng = np.random.default_rng(6)
    size = np.concatenate([[0.0, 0.0], rng.uniform(1, 10, 40)])
    runs = of({"size": size, "step_s": 0.2 + 0.1 * size**1.5})
    model = fit(runs, Form.parse("size"), "step_s", replace(QUICK, intrinsic=(0.0, 3.0)))
    assert_allclose(model.values(runs.columns), runs.numbers("step_s"), rtol=0.02)


def test_zeros_under_exponents_that_are_all_negative_are_refused():
    cells = {**table(), "filters": [0.0, *([1.0, 2.0] * 45)][:90]}
    with pytest.raises(BadInputError, match=r"column 'filters' is 0 in row 1, which a negative .* -3\.\.3"):
        fit(of(cells), PUBLISHED, "step_s", replace(QUICK, intrinsic=(-3.0, 0.0)))


def test_a_zero_bounds_the_exponents_of_its_column_only():
    """With the exponents of all columns at 0 or above, no time could fall with devices."""
    rng = np.random.default_rng(8)
    dropout, layers, devices = rng.choice([0.0, 0.2, 0.5], 60), rng.integers(1, 9, 60), rng.integers(1, 9, 60)
    cells = {"dropout": dropout, "layers": layers, "devices": devices}
    runs = of({**cells, "step_s": (0.2 * layers + dropout) * devices**-0.8})
    model = fit(runs, Form.parse("dropout,layers", "devices"), "step_s", QUICK)
    assert model.mape < 0.02 and constant(model, "q devices") == pytest.approx(-0.8, abs=0.02)
    assert constant(model, "p dropout") >= 0 and model.coding.zeros == {"dropout"}
    lines = sentences(model, runs.columns)
    assert any(line.startswith("dropout: 0 in some runs") for line in lines)
    assert any(line.startswith("devices: doubling it takes 0.57x") for line in lines)


@pytest.mark.parametrize(
    ("intrinsic", "extrinsic", "says"),
    [
        ("", "batch", "no intrinsic column"),
        ("a,,b", "", "a column name is empty"),
        ("a*a", "", "the term 'a\\*a' names 'a' twice"),
        ("a*b,b*a", "", "twice"),
        ("a", "b,b", "--extrinsic names 'b' twice"),
        ("a,b", "b", "both intrinsic and extrinsic"),
        ("N,C", "", "C is the formula's constant; give the column C another name"),
    ],
)
def test_forms_that_are_none_are_refused(intrinsic, extrinsic, says):
    with pytest.raises(BadInputError, match=says):
        Form.parse(intrinsic, extrinsic)


@pytest.mark.parametrize(
    "settings",
    [{"penalty": "l3"}, {"intrinsic": (2.0, 1.0)}, {"extrinsic": (0.0, 99.0)}, {"folds": 1}, {"samples": -1}],
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(BadInputError):
        FitSettings(**settings)


def test_a_target_that_predictions_could_not_name_is_refused():
    cells = table(30)
    cells["ratio"] = cells.pop("step_s")
    with pytest.raises(BadInputError, match="give the column ratio another name"):
        fit(of(cells), PUBLISHED, "ratio", QUICK)
