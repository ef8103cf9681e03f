"""Fitted formulas: what they predict and say, and their way into a file and back."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from placer.errors import BadInputError
from surrogate.scaling.files import formula, read_scaling, write_scaling
from surrogate.scaling.fit import FitSettings, fit
from surrogate.scaling.form import Form
from surrogate.scaling.reading import at_bounds, factors, intervals, sentences, stops_paying
from surrogate.scaling.runs import Runs


@pytest.fixture(scope="module")
def runs():
    """(size^2 + kind) devices^-0.5: size matters most, `idle` not at all."""
    rng = np.random.default_rng(0)
    size, devices = rng.uniform(1, 10, 80), rng.integers(1, 9, 80)
    kind, idle = rng.choice(["a", "b"], 80), rng.uniform(1, 2, 80)
    step_s = (size**2 + np.where(kind == "b", 4.0, 1.0)) * devices**-0.5 * rng.normal(1, 0.01, 80)
    return Runs.of({"size": size, "kind": kind.tolist(), "devices": devices, "idle": idle, "step_s": step_s})


@pytest.fixture(scope="module")
def model(runs):
    return fit(runs, Form.parse("size,kind", "devices,idle"), "step_s", FitSettings(samples=20, generations=60))


def test_what_matters_is_told_in_order(model, runs):
    found = {factor.name: factor for factor in factors(model, runs.columns)}
    assert next(iter(found)) == "size" and list(found)[-1] == "idle"
    assert sum(factor.matters for factor in found.values()) == pytest.approx(1.0)
    assert found["devices"].power == pytest.approx(-0.5, abs=0.03)
    assert found["devices"].low <= found["devices"].power <= found["devices"].high
    assert 1 < found["size"].power < 2 and found["kind"].power is None
    assert found["kind"].ratio > 1


def test_shares_of_the_time_make_a_whole_and_follow_the_truth(model, runs):
    shares = model.shares(runs.columns)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["size"] > shares["kind"] > shares["C"]


def test_scaling_stops_paying_where_the_power_says(model):
    """One more of n devices brings 1 - (n / (n + 1))^0.5."""
    found = stops_paying(model, model.usual, "devices", pays=0.05)
    assert found == pytest.approx(0.05**-1 * 0.5 - 0.5, abs=1.5)
    assert stops_paying(model, model.usual, "devices", pays=0.5) == 1
    assert stops_paying(model, model.usual, "devices", pays=1e-6) is None


def test_the_reading_is_in_words(model, runs):
    lines = sentences(model, runs.columns)
    assert lines[0].startswith("size matters most")
    assert any(line.startswith("devices: doubling it takes 0.7") and "one more brings" in line for line in lines)


def test_a_form_that_does_not_suit_is_told_of():
    rng = np.random.default_rng(1)
    a, b = rng.uniform(1, 10, 60), rng.uniform(1, 10, 60)
    runs = Runs.of({"a": a, "b": b, "step_s": 1e-3 * a**2.9 * b**2.9})
    sums = fit(runs, Form.parse("a,b"), "step_s", FitSettings(samples=0, generations=60))
    assert any("--intrinsic a*b" in line for line in sentences(sums, runs.columns))
    joined = fit(runs, Form.parse("a*b"), "step_s", FitSettings(samples=0, generations=60))
    assert not any("--intrinsic" in line for line in sentences(joined, runs.columns))


def test_a_factor_at_the_bound_of_its_exponents_is_told_of(runs):
    settings = FitSettings(extrinsic=(0.0, 3.0), samples=0, generations=60)
    bounded = fit(runs, Form.parse("size,kind", "devices"), "step_s", settings)
    assert at_bounds(bounded)[1] == ["devices"]
    assert any(line.startswith("devices: at the bound") for line in sentences(bounded, runs.columns))


def test_a_model_of_an_older_file_tells_nothing_of_extrinsic_bounds(runs, model, tmp_path):
    path = tmp_path / "model.json"
    write_scaling(path, model)
    kept = {name: value for name, value in json.loads(path.read_text()).items() if name != "extrinsic_bounds"}
    path.write_text(json.dumps(kept))
    assert read_scaling(path).extrinsic_bounds is None and at_bounds(read_scaling(path))[1] == []


def test_intervals_hold_their_values_most_of_the_time(model):
    found = intervals(model)
    assert tuple(found) == model.coding.names
    assert np.mean([low - 0.05 <= value <= high + 0.05 for value, low, high in found.values()]) > 0.8


@pytest.mark.parametrize("level", [0.5, 0.9, 0.98])
def test_an_interval_holds_as_many_runs_as_it_says(model, level):
    """Of errors that are spread evenly from -1 to 1, those nearer than `level` are as many."""
    kept = np.quantile(np.linspace(-1, 1, 10_001), (np.arange(39) + 0.5) / 39, method="hazen")
    even = replace(model, errors=kept, samples=model.samples[:0])
    found = even.predict(
        {name: np.array([value]) if not isinstance(value, str) else [value] for name, value in model.usual.items()},
        level,
    )
    assert found.high[0] / found.value[0] - 1 == pytest.approx(min(level, 1 - 1 / 39), abs=1e-3)
    assert 1 - found.low[0] / found.value[0] == pytest.approx(min(level, 1 - 1 / 39), abs=1e-3)


def test_a_run_takes_what_is_given_and_the_usual_for_the_rest(model):
    row = model.row({"devices": 4.0})
    assert row["devices"] == 4.0 and row["kind"] in ("a", "b") and set(row) == set(model.usual)
    one, many = model.predict(model.table(row)), model.predict(model.table(row, "devices", [4.0, 16.0]))
    assert_allclose(one.value[0], many.value[0])
    assert many.value[1] / many.value[0] == pytest.approx(0.5, rel=0.05)
    assert ((many.low <= many.value) & (many.value <= many.high)).all()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"depth": 1.0}, "no column 'depth'; it has size, kind, devices, idle"),
        ({"kind": "c"}, "kind is 'c', which no run had; they had a, b"),
        ({"devices": "many"}, "devices is 'many'; the model needs a number"),
        ({"devices": 0.0}, "a number above 0"),
        ({"size": -1.0}, "a number above 0"),
        ({"size": float("nan")}, "a number above 0"),
    ],
)
def test_runs_that_are_none_are_refused(model, given, says):
    with pytest.raises(BadInputError, match=says):
        model.row(given)


def test_leaving_what_was_measured_is_told(model):
    assert model.outside(model.usual) == []
    assert model.outside({**model.usual, "devices": 64.0}) == ["devices 64 (1 to 8 were measured)"]


def test_a_file_holds_all_of_it(model, runs, tmp_path):
    path = tmp_path / "model.json"
    write_scaling(path, model)
    again = read_scaling(path)
    assert json.loads(path.read_text())["format"] == "placer.scaling/1"
    np.testing.assert_array_equal(again.values(runs.columns), model.values(runs.columns))
    for one, other in zip(again.predict(runs.columns), model.predict(runs.columns), strict=True):
        assert_allclose(one, other, rtol=1e-5)
    assert formula(again) == formula(model) == "step_s = scale ((a1 size^p1 + a2[kind]) devices^q1 idle^q2 + C)"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "placer.scaling/9"}, "this needs a 'placer.scaling/1' file"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"terms": [["size"], ["kind"], ["depth"]]}, "levels and $.typical"),
        ({"terms": []}, "no intrinsic column"),
        ({"constants": {"C": 1.0}}, "$.constants"),
        ({"samples": [[1.0]]}, "$.samples"),
        ({"usual": {"size": "big", "kind": "a", "devices": 1.0, "idle": 1.0}}, "$.usual.size"),
        ({"scale": 0.0}, "$.scale"),
        ({"penalty": "l9"}, "$.penalty"),
        ({"errors": []}, "$.errors"),
    ],
)
def test_a_bad_file_is_one_line(model, tmp_path, change, says):
    path = tmp_path / "model.json"
    write_scaling(path, model)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadInputError) as refused:
        read_scaling(path)
    assert says in str(refused.value) and "model.json" in str(refused.value) and "\n" not in str(refused.value)
