"""The bench splitting: figures of runs whose truth is known, what counts as the same training, and a real tiny run."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from matplotlib.figure import Figure

from experiments import zoo
from experiments.benches.bench import BenchOptions
from experiments.benches.splitting import run
from experiments.benches.splitting.measure import Wanted, measured
from experiments.benches.splitting.page import headline, page_lines
from experiments.benches.splitting.plot import fill
from experiments.benches.splitting.sameness import gradient_slots, sameness, trained
from placer.errors import BadInputError
from search.splits import choose
from tests.experiments.benches.run_bench import run_bench

SAME = {
    "gradient_rel_err": 3e-7, "gradient_rel_err_threads": 2e-7, "loss_rel_err": 1e-7, "loss_rel_err_threads": 0.0,
    "drift": 4e-4, "drift_threads": 2e-6, "losses": [2.3, 0.1, 0.1], "steps": 50, "drift_rounded": 2e-4,
    "gradient_rel_err_rounded": 5e-7, "loss_rel_err_rounded": 0.0,
}  # fmt: skip
DIVIDED = {
    "best_single_s": 0.2, "off_s": 0.18, "auto_s": 0.1, "best_single_spread_s": 0.01, "off_spread_s": 0.01,
    "auto_spread_s": 0.02, "repeats": 40, "ratio_to_best_single": 2.0, "ratio_error": 0.05,
    "off_to_best_single": 1.11, "ratio_on_vs_off": 1.8, "on_vs_off_error": 0.04, "delivers_divided": True, "ended": [],
    "bound_s_off": 0.16, "bound_s_auto": 0.09, "bound_s_divided": 0.09, "predicted_s_off": 0.17,
    "predicted_s_auto": 0.1, "predicted_s_divided": 0.1, "crossing_bytes_off": 2**20, "crossings_off": 4,
    "crossing_bytes_auto": 2**21, "crossings_auto": 6, "crossing_bytes_divided": 2**21, "crossings_divided": 6,
    "policy": "columns", "ops_divided": 40, "variables_divided": 12, "ways": {"axis0": 30, "columns": 10},
    "sameness": SAME, "loss_rel_err": 1e-7, "ops": 100, "measured_off": 24, "measured_auto": 24, "commit": "abc",
    "seconds": 100.0, "untouched_s": 0.15, "untouched_spread_s": 0.01,
}  # fmt: skip
WHOLE = DIVIDED | {
    "auto_s": 0.2, "ratio_to_best_single": 1.0, "ratio_on_vs_off": 0.9, "on_vs_off_error": 0.04,
    "delivers_divided": False, "ended": ["no plan"], "policy": None, "ops_divided": None, "variables_divided": None,
    "ways": None, "sameness": None, "loss_rel_err": None,
    **{f"{key}_divided": None for key in ("bound_s", "predicted_s", "crossing_bytes", "crossings")},
}  # fmt: skip


@pytest.fixture
def asked(monkeypatch):
    """The networks that were measured, each with the answer of its name, else that of a divided network."""
    replies = {"vgg16": WHOLE, "alexnet": {"failed": "it did not end within 9 s"}}
    ran = []

    def answer(call, wanted, seconds):
        ran.append(wanted.model)
        return dict(replies.get(wanted.model, DIVIDED))

    monkeypatch.setattr(run, "facts_alone", answer)
    return ran


def bench(record=False, **options):
    return run_bench("splitting", BenchOptions(**options), record=record)


def test_all_networks_are_measured_those_with_a_figure_to_reach_first(asked):
    facts = bench()
    assert asked[: len(run.FIRST)] == list(run.FIRST)
    assert set(asked) == {*zoo.names(), "wide_mlp"} == set(facts["by_model"])
    assert facts["geomean_ratio"] == pytest.approx(2 ** ((len(asked) - 2) / (len(asked) - 1)))
    assert facts["worst_loss_rel_err"] == 1e-7 and facts["worst_drift"] == pytest.approx(2.0)


def test_where_nothing_crosses_one_device_was_delivered(asked, checkout, monkeypatch):
    alone = WHOLE | {"crossings_off": 0, "crossings_auto": 0}
    monkeypatch.setattr(run, "facts_alone", lambda *_, **__: dict(alone))
    bench(models=("vgg16",), record=True)
    page = (checkout / "BENCHMARKS.md").read_text()
    assert "| **0.90 +- 0.04** | one device |" in page
    assert "On 1 of these it delivered whole ops. On `vgg16` both delivered one device." in page


def test_slower_is_what_is_slower_beyond_its_error(asked):
    assert bench(models=("towers", "vgg16"))["slower"] == ["vgg16"]
    assert not run.is_slower(WHOLE | {"ratio_on_vs_off": 0.93})


def test_the_page_tells_figures_limits_sameness_and_failures(checkout, asked):
    facts = bench(models=("towers", "vgg16", "alexnet"), record=True)
    page = (checkout / "BENCHMARKS.md").read_text()
    times = "| 150.0 ms +- 10.0 ms | 200.0 ms +- 10.0 ms | 180.0 ms +- 10.0 ms | 100.0 ms +- 20.0 ms |"
    assert f"| `towers` {times} 1.11 | 2.00 +- " in page
    assert "**0.90 +- 0.04**" in page and "*Untouched, all cores*" in page
    assert "on 1 of 2 networks, by 10.0%: `vgg16`. On 1 of these it delivered whole ops." in page
    assert "1.41 (median 1.50) where ops may be divided. `--split auto` by `--split off`: 1.27 (median 1.35)." in page
    assert headline(facts) == (
        "1.41 (median 1.50) times as fast as the best single device (wanted: 1.6), slower than it on 0 of 2 "
        "networks (wanted: 0); 1.06 (median 1.12) times as fast as TensorFlow alone, timed before; `--split auto` by "
        "`off` 1.27, slower on 1"
    )
    assert facts["seeds"] == [0]
    assert "columns: 30 along axis0, 10 along columns; 12 variables" in page and "2.0 MiB in 6" in page
    assert "| `towers` | 3.0e-07 | 2.0e-07 | 5.0e-07 | 4.0e-04 | 2.0e-06 | 2.0e-04 | 2.3 | 0.1 | 0.1 |" in page
    assert "timed before the searches: 1.06 (median 1.12)." in page and "beyond that" not in page
    assert "- `alexnet`: it did not end within 9 s" in page
    assert (
        json.loads((checkout / "benchmarks" / "splitting.json").read_text())["by_model"]["vgg16"]
        == facts["by_model"]["vgg16"]
    )
    assert (checkout / "docs" / "splitting.png").stat().st_size > 10_000


def test_what_is_slower_than_the_single_device_is_named(asked, monkeypatch):
    below = WHOLE | {"ratio_to_best_single": 0.82, "ratio_error": 0.04}
    monkeypatch.setattr(run, "facts_alone", lambda call, wanted, seconds: below if wanted.model == "moe" else WHOLE)
    facts = bench(models=("moe", "towers"))
    assert "Slower than the best single device, beyond that: `moe`." in page_lines(facts)
    assert "slower than it on 1 of 2 networks (wanted: 0)" in headline(facts)


def test_an_older_record_has_no_column_of_untouched_steps(asked):
    facts = bench(models=("towers",))
    del facts["by_model"]["towers"]["untouched_s"]
    page = "\n".join(page_lines(facts))
    assert "ntouched, all cores" not in page and "| `towers` | 200.0 ms +- 10.0 ms | 180.0 ms" in page
    assert "by more than two standard errors, on 0 of 1 networks." in page


def test_where_nothing_could_be_measured_the_page_says_so(checkout, asked):
    facts = bench(models=("alexnet",), record=True)
    assert facts["geomean_ratio"] is None and facts["worst_loss_rel_err"] is None
    assert "No network was measured." in (checkout / "BENCHMARKS.md").read_text()


def test_runs_that_were_kept_are_not_repeated_and_what_there_was_no_time_for_is_tried_again(tmp_path, asked):
    options = {"models": ("towers", "vgg16"), "runs": tmp_path}
    assert "not reached" in bench(**options, minutes=1e-9)["by_model"]["towers"]["failed"]
    bench(**options)
    assert bench(**options)["by_model"]["towers"]["policy"] == "columns"
    assert asked == ["towers", "vgg16"]


@pytest.mark.parametrize(
    "options", [{"models": ("nosuch",)}, {"measurements": 0}, {"minutes": 0.0}, {"workers": 1}, {"devices": "cpus:2"}]
)
def test_what_cannot_be_is_refused_before_anything_runs(asked, options):
    with pytest.raises(BadInputError):
        bench(**options)
    assert asked == []


def test_the_picture_has_two_bars_a_network_and_no_bound_that_is_unknown(asked):
    facts = bench(models=("towers", "vgg16", "alexnet"))
    figure = Figure()
    fill(figure, facts)
    (ax,) = figure.axes
    assert [bar.get_width() for bar in ax.patches] == [1.11, 1.11, 2.0, 1.0]
    assert sum(len(marks.get_offsets()) for marks in ax.collections) == 3
    assert [label.get_text() for label in ax.get_yticklabels()] == ["towers", "vgg16"]


def training(*changes, losses=(2.0, 1.0)):
    """A training that changed the one number it looks at by so much after its first and its last step."""
    states = iter((0.0, *changes))
    outputs = iter(losses)
    return trained(
        lambda: [tf.constant(3), tf.constant(next(outputs))], lambda: {"w": np.full(4, next(states), np.float32)}, 2
    )


def test_how_far_trainings_are_apart_is_told_by_how_far_they_went():
    whole, divided, threads = training(0.5, 2.0), training(0.55, 2.5, losses=(2.2, 1.0)), training(0.5, 2.25)
    found = sameness(whole, divided, {"threads": threads})
    assert found["gradient_rel_err"] == pytest.approx(0.1, rel=1e-5) and found["gradient_rel_err_threads"] == 0.0
    assert (found["drift"], found["drift_threads"]) == pytest.approx((0.25, 0.125), rel=1e-5)
    assert found["loss_rel_err"] == pytest.approx(0.1, rel=1e-5) and found["steps"] == 2


def test_a_training_that_goes_nowhere_has_no_relative_difference():
    still = training(0.0, 0.0)
    assert sameness(still, training(0.1, 0.1), {})["gradient_rel_err"] is None


@pytest.mark.slow
def test_a_real_network_is_searched_twice_and_trains_alike(two_cpus, monkeypatch):
    monkeypatch.setattr(choose, "WORTH", float("inf"))
    wanted = Wanted("mnist_softmax", None, measurements=6, minutes=60.0, batch=16, steps=3, repeats=3)
    facts = json.loads(json.dumps(measured(wanted)))
    assert facts.keys() == DIVIDED.keys()
    assert facts["sameness"].keys() == SAME.keys()
    assert facts["repeats"] == 3 and facts["measured_off"] <= 6 and facts["measured_auto"] <= 6
    assert facts["off_to_best_single"] == pytest.approx(facts["best_single_s"] / facts["off_s"])
    assert facts["policy"] and facts["ops_divided"] >= sum(facts["ways"].values()) > 0
    assert facts["sameness"]["gradient_rel_err"] < 1e-5 and facts["loss_rel_err"] < 1e-5
    assert 0 <= facts["sameness"]["drift_threads"] < 1e-4  # another number of threads may change no sum
    assert 0 < facts["sameness"]["drift_rounded"] < 1e-4
    assert facts["bound_s_divided"] > 0 and facts["crossing_bytes_divided"] >= 0


@pytest.mark.slow
def test_where_no_plan_is_worth_trying_there_is_nothing_to_compare(two_cpus, monkeypatch):
    monkeypatch.setattr(choose, "WORTH", 0.0)
    facts = measured(replace(Wanted("mnist_softmax", None, 4, 60.0, batch=16), steps=2, repeats=2))
    assert not facts["delivers_divided"] and facts["policy"] is None and facts["sameness"] is None
    assert facts["bound_s_divided"] is None and any("no plan" in line for line in facts["ended"])


def test_gradients_are_read_where_the_optimizer_keeps_its_first_moments(two_cpus):
    from placer.trace.capture import capture

    step = zoo.load("wide_mlp", batch=2)
    captured = capture(step.step, step.example_inputs, step.name)
    slots = gradient_slots(captured)
    shapes = sorted(tuple(captured.variables[name].shape) for name in slots)
    assert shapes == sorted(tuple(variable.shape) for variable in step.model.trainable_variables)
