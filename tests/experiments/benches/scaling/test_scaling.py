"""The bench scaling: its design, what it says of runs whose truth is known, its page, its picture and its data."""

from __future__ import annotations

import csv
from dataclasses import asdict

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments.benches.bench import BenchOptions
from experiments.benches.scaling import run as scaling
from experiments.benches.scaling.design import CHUNKS, DEVICES, FORMS, SPACES, Config, Range, design, reference
from experiments.benches.scaling.judge import (
    BLACKBOXES,
    GENERIC,
    blackboxes,
    features,
    form_of,
    joined_terms,
    pooled,
    stability,
    study,
)
from experiments.benches.scaling.page import headline, page_lines
from experiments.benches.scaling.plot import draw, fill
from placer.errors import BadInputError, PlacerError
from surrogate.scaling.fit import FitSettings
from surrogate.scaling.form import Form
from tests.experiments.benches.run_bench import run_bench

pytestmark = pytest.mark.slow

QUICK = FitSettings(samples=0, generations=25, folds=2, population=6, weights=(0.0, 1e-4))


def seconds(config):
    """Operations at 20 GFLOP/s a worker, shared by those on a core, longer in chunks, and 2 ms."""
    return config.operations / 2e10 / config.devices**0.9 * config.workers_per_core * config.chunks**0.1 + 2e-3


def measured_rows(records):
    """As the real thing reports it: over a reference of 10 ms."""
    return {
        "rows": [
            {"ratio": seconds(Config(**r)) / 0.01, "spread": 0.01, "reference_s": 0.01, "took_s": 1.0} for r in records
        ]
    }


def good(kind, count):
    return [(config, seconds(config)) for config in design(kind, count)]


@pytest.mark.parametrize("kind", list(SPACES))
class TestDesign:
    def test_networks_differ_and_cover_their_space(self, kind):
        found = design(kind, 60)
        assert len({tuple(config.columns.items()) for config in found}) == 60
        for name, axis in SPACES[kind].items():
            values = {config.settings[name] for config in found}
            if isinstance(axis, Range):
                assert axis.low <= min(values) and max(values) <= axis.high
                assert all(value % axis.unit == 0 for value in values)
                assert max(values) / min(values) > 0.7 * axis.high / axis.low
            else:
                assert values == set(axis)
        for levels, name in ((DEVICES, "devices"), (CHUNKS, "chunks")):
            counts = [sum(config.columns[name] == level for config in found) for level in levels]
            assert sum(counts) == 60 and all(15 <= count <= 25 for count in counts)

    def test_workers_beyond_the_cores_are_marked(self, kind):
        for config in design(kind, 30, cores=2):
            assert config.columns["workers_per_core"] == {1: 1, 2: 1, 4: 2}[config.devices]
        assert {config.workers_per_core for config in design(kind, 30, cores=4)} == {1}

    def test_the_same_seed_gives_the_same_networks(self, kind):
        assert design(kind, 20, seed=3) == design(kind, 20, seed=3) != design(kind, 20, seed=4)

    def test_more_of_everything_is_more_operations(self, kind):
        low, high = (
            Config(kind, {n: getattr(a, end) if isinstance(a, Range) else a[0] for n, a in SPACES[kind].items()}, 1)
            for end in ("low", "high")
        )
        assert high.operations > 20 * low.operations

    def test_every_form_names_columns_that_there_are(self, kind):
        (config,) = design(kind, 1)
        for form in FORMS[kind].values():
            assert set(Form.parse(*form).columns) <= set(config.columns)


def test_operations_are_those_of_its_layers():
    settings = {"batch": 2, "layers": 2, "hidden": 5, "activation": "relu", "optimizer": "sgd"}
    assert Config("mlp", settings, 1).operations == 2 * 6 * (576 * 5 + 5 * 5 + 5 * 10)


@pytest.fixture(scope="module")
def facts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling, "facts_alone", answered)
        patch.setattr(scaling, "own_cores", lambda: (0, 1))
        patch.setattr(scaling, "ProcessPoolExecutor", Here)
        patch.setattr(scaling, "study", lambda kind, runs, operations: study(kind, runs, operations, QUICK))
        patch.setattr("experiments.benches.scaling.judge.SEEDS", 2)
        yield scaling.bench_facts(BenchOptions(("cnn", "mlp"), measurements=80))


def answered(measure, records, seconds):
    """What the process that measures would answer: of synchronous SGD nothing."""
    return {"failed": "not measured here"} if measure is scaling.measure_sgd else measured_rows(records)


class Here:
    """A pool that does the work at once."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, function, *arguments):
        found = function(*arguments)
        return type("Done", (), {"result": lambda self: found})()


@pytest.mark.nightly
def test_the_formula_of_what_is_a_formula_is_found_and_wins_beyond(facts):
    assert facts["n_runs"] == 80 and facts["n_failed"] == 0 and facts["noise"] == 0.0
    assert facts["mape_heldout"] < 0.08
    assert facts["mape_extrapolation"] < facts["best_blackbox_extrapolation"]
    assert {"mape_heldout", "mape_extrapolation", "best_blackbox_extrapolation", "n_runs"} <= set(facts)


@pytest.mark.nightly
def test_all_models_are_judged_on_the_same_runs(facts):
    for row in facts["by_kind"].values():
        assert {f"{name} ({view})" for name in BLACKBOXES for view in ("logs", "seconds")} <= set(row["held_out"])
        assert GENERIC in row["held_out"]
        assert set(row["held_out"]) == set(row["extrapolation"])
        assert len(row["points"]["measured_s"]) == row["n_runs"] == 40
        assert all(len(ratios) == row["n_larger"] == 12 for ratios in row["beyond"]["ratio"].values())
        assert row["times_larger"] > 2


@pytest.mark.nightly
def test_the_page_tells_models_kinds_and_seeds(facts):
    text = "\n".join(page_lines({**facts, "data": ["benchmarks/scaling-cnn.csv"]}))
    assert f"| **generic** | {facts['mape_heldout']:.1%} | {facts['mape_extrapolation']:.1%} |" in text
    assert "| `cnn` | plain | none |" in text and "| `mlp` | projected, rows drawn anew |" in text
    assert "(docs/scaling.png)" in text and "could not be measured: not measured here." in text
    assert "on 1, 2 or 4 one-core worker processes" in text and "in 1, 2 or 4 chunks" in text
    held_out = f"`generic` held out: {facts['mape_heldout']:.1%} (95% interval "
    assert held_out in text and f"on larger networks: {facts['mape_extrapolation']:.1%} (95% interval " in text
    assert "form is chosen without seeing the test runs" in text
    assert headline(facts).startswith(f"step times off by {facts['mape_heldout']:.1%} (95% interval ")
    assert headline(facts).endswith("`scale sgd` not measured")
    assert facts["seeds"][:2] == [0, 1] and facts["repeats"]["steps at least"] == 7
    assert "This process had 2 cores, so 4 workers are oversubscribed" in text


@pytest.mark.nightly
def test_a_record_of_before_still_has_its_page(facts):
    before = {name: fact for name, fact in facts.items() if name not in ("sgd", "sgd_mape", "chunks", "cores")}
    text = "\n".join(page_lines({**before, "devices": 2}))
    assert "on 1 or 2 one-core worker processes" in text and "oversubscribed" not in text


@pytest.mark.nightly
def test_the_picture_is_drawn(facts, tmp_path):
    figure = Figure()
    fill(figure, facts)
    predictions, errors, larger = figure.axes
    assert {label.get_text() for label in errors.get_yticklabels()} == {row["model"] for row in facts["table"]}
    assert [label.get_text() for label in predictions.get_legend().get_texts()] == ["cnn", "mlp"]
    assert [label.get_text() for label in larger.get_legend().get_texts()] == [GENERIC, facts["best_blackbox"]]
    figure = Figure()
    row = {"devices": 4, "workers_per_core": 2, "input": "memory", "measured_s": 0.02, "predicted_s": 0.03}
    fill(figure, {**facts, "sgd": {"rows": [row]}})
    assert [label.get_text() for label in figure.axes[3].get_legend().get_texts()] == ["4 workers, 2 a core", "memory"]
    draw(facts, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_kept_runs_are_not_measured_again(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        scaling, "facts_alone", lambda measure, records, seconds: asked.append(records) or measured_rows(records)
    )
    configs = design("mlp", 30)
    options = BenchOptions(runs=tmp_path)
    first = scaling._measured(options, configs)
    assert len(first) == len(configs) + scaling.AGAIN and len(asked) == 2
    assert scaling._measured(options, configs) == first and len(asked) == 2


def test_seconds_are_told_in_the_time_of_the_typical_reference(monkeypatch):
    """The machine is half as fast in the last third: the reference says so."""
    configs = design("mlp", 60)
    rows = measured_rows([asdict(c) for c in configs])["rows"]
    slow = [{**row, "reference_s": row["reference_s"] * (2 if i >= 40 else 1)} for i, row in enumerate(rows)]
    found, apart = scaling._leveled(configs, slow)
    assert [s for _, s in found] == pytest.approx([seconds(config) for config in configs])
    assert apart == 0.0


def test_failures_are_counted_and_nothing_but_failures_is_one():
    configs = design("mlp", 3)
    rows = [*measured_rows([asdict(c) for c in configs[:2]])["rows"], {"failed": "lost"}]
    assert len(scaling._leveled(configs, rows)[0]) == 2
    with pytest.raises(PlacerError, match="no network could be measured: lost"):
        scaling._leveled(configs, [{"failed": "lost"}] * 3)


def test_the_same_network_measured_twice_tells_the_noise():
    configs = design("mlp", 2)
    rows = measured_rows([asdict(c) for c in [*configs, *configs]])["rows"]
    rows[2] = {**rows[2], "ratio": rows[2]["ratio"] * 1.2}
    assert scaling._leveled(configs, rows)[1] == pytest.approx(0.1)


@pytest.mark.parametrize(("options", "says"), [
    (BenchOptions(measurements=12), "--measurements 12: scaling needs at least 36"),
    (BenchOptions(measurements=60), "--measurements is 60; give at least 108"),
    (BenchOptions(("rnn",)), "'rnn' is no kind of network"),
])  # fmt: skip
def test_too_few_or_unknown_networks_are_refused_before_anything_is_measured(options, says):
    with pytest.raises(BadInputError, match=says):
        run_bench("scaling", options, record=False)


def test_the_data_can_be_fitted_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    path = scaling._keep_data("mlp", [*good("cnn", 3), *good("mlp", 5)])
    rows = list(csv.DictReader((tmp_path / path).read_text().splitlines()))
    assert len(rows) == 5 and {"hidden", "devices", "operations", "step_s"} <= set(rows[0])


def test_black_boxes_that_are_straight_lines_are_exact_on_them():
    runs = scaling.runs_of([(config, 1e-3 * config.settings["batch"]) for config in design("mlp", 40)])
    known, unseen = np.arange(30), np.arange(30, 40)
    found = blackboxes("mlp", runs, known, unseen, seed=0)
    np.testing.assert_allclose(found["linear (seconds)"], runs.numbers("step_s")[unseen], rtol=1e-6)
    np.testing.assert_allclose(found["linear (logs)"], runs.numbers("step_s")[unseen], rtol=1e-6)


def test_black_boxes_get_the_products_that_the_forms_join():
    runs = scaling.runs_of([(config, seconds(config)) for config in design("mlp", 40)])
    terms = joined_terms("mlp", runs)
    assert terms[:2] == [("hidden", "layers"), ("activation", "hidden", "layers")]
    plain, logs = (features("mlp", runs, logs=logs) for logs in (False, True))
    of_terms = sum(3 if {"activation", "optimizer"} & set(term) else 1 for term in terms)
    assert plain.shape == logs.shape == (40, 6 + 3 + 3 + of_terms)
    product = runs.numbers("hidden") * runs.numbers("layers")
    np.testing.assert_allclose(plain[:, 12], product)
    np.testing.assert_allclose(logs[:, 12], np.log(product))
    np.testing.assert_allclose(plain[:, 13:16].sum(axis=1), product)


def test_forms_leave_out_what_never_changes():
    runs = scaling.runs_of([(config, seconds(config)) for config in design("cnn", 30, cores=8)])
    for name in FORMS["cnn"]:
        assert "workers_per_core" not in form_of("cnn", name, runs).columns
        assert "devices" in form_of("cnn", name, runs).columns


def test_errors_of_kinds_are_pooled_run_by_run():
    by_kind = {"a": {"held_out": {"x": [0.1, 0.2], "y": [1.0, 1.0]}}, "b": {"held_out": {"x": [0.6], "y": [0.1]}}}
    assert pooled(by_kind, "held_out") == pytest.approx({"x": 0.3, "y": 0.7})


def test_a_seeded_search_that_is_not_polished_is_less_stable(monkeypatch):
    monkeypatch.setattr("experiments.benches.scaling.judge.SEEDS", 3)
    runs = scaling.runs_of(good("cnn", 40))
    table = stability(runs, form_of("cnn", "joined", runs), (np.arange(30), np.arange(30, 40)), QUICK)
    of = {(row["search"], row["resampled"], row["weight"] > 0): row for row in table}
    assert len(of) == 6
    assert of["projected", False, True]["predictions"] <= of["plain", False, True]["predictions"]


def test_the_reference_is_one_of_the_networks():
    assert reference(2).devices == 2 and set(reference(1).settings) == set(SPACES["cnn"])
