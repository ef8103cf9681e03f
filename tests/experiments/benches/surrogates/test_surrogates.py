"""The bench surrogates: what it says of samples whose truth is known, its page, its picture and its data."""

from __future__ import annotations

import csv
import random
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments.benches import sampling
from experiments.benches.bench import BenchOptions
from experiments.benches.sampling import MeasuredMappings, kinds
from experiments.benches.surrogates import run as surrogates
from experiments.benches.surrogates.page import headline, page_lines
from experiments.benches.surrogates.plot import draw, fill
from experiments.benches.surrogates.run import folds_of, keep_data
from placer.errors import BadInputError, PlacerError
from placer.graph.coarsen import Groups
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Measured
from search.problem.problem import Problem
from search.session.prediction import Prediction
from surrogate.learn.regressors import REGRESSORS
from surrogate.learn.selection import splits
from tests.experiments.benches.run_bench import run_bench

pytestmark = pytest.mark.slow

LINK = Link("*", "*", 1e-4, 2e9, send_s=1e-4, send_s_per_byte=2e-10, receive_s=1e-4, receive_s_per_byte=2e-10)
QUICK = {name: REGRESSORS[name] for name in ("simulator", "ridge", "neighbours")}
TOPOLOGY = Topology((Device("a", "cpu"), Device("b", "cpu")), (LINK,))


def chains(name, rng):
    """Two chains of twelve ops, in groups of two."""
    ops = tuple(Op(f"op{i}", cost_s={"cpu": float(s)}) for i, s in enumerate(rng.uniform(1e-3, 4e-3, 24)))
    edges = tuple(Edge(c * 12 + i, c * 12 + i + 1, int(rng.uniform(1e5, 4e6))) for c in range(2) for i in range(11))
    members = tuple((2 * g, 2 * g + 1) for g in range(12))
    grouped = tuple(Op(f"g{i}", cost_s={"cpu": sum(ops[v].cost_s["cpu"] for v in m)}) for i, m in enumerate(members))
    across = tuple(Edge(e.src // 2, e.dst // 2, e.edge_bytes) for e in edges if e.src // 2 != e.dst // 2)
    return Groups(OpGraph(name, ops, edges), OpGraph(name, grouped, across), members)


def sample(name, seed, mappings=20, noise=0.01):
    """Steps that take what is simulated, a third more for each chain that is cut short, and a little noise."""
    rng = np.random.default_rng(seed)
    prediction = Prediction.profiled(chains(name, rng), TOPOLOGY, 0.0)
    placements = np.array([[0] * 12, [1] * 12, *rng.integers(0, 2, (mappings - 2, 12))], dtype=np.int32)
    simulated_s = prediction.problem.simulator.makespans(placements)
    step_s = simulated_s * (1 + placements[:, [0, 6]].sum(axis=1) / 3) * rng.normal(1, noise, mappings)
    return MeasuredMappings(name, prediction, placements, step_s, noise * step_s, 2, noise, 1.0)


@pytest.fixture(scope="module")
def samples():
    return {name: sample(name, seed) for seed, name in enumerate(("one", "other"))}


def measured_are(patch, samples):
    """What a process that measures would return, or raise."""

    def alone(measure, name, seconds):
        if name not in samples:
            raise PlacerError("no single device can run it")
        return samples[name]

    patch.setattr(sampling, "alone", alone)


@pytest.fixture(scope="module")
def facts(samples):
    with pytest.MonkeyPatch.context() as patch:
        measured_are(patch, samples)
        patch.setattr(surrogates, "REGRESSORS", QUICK)
        yield surrogates.bench_facts(BenchOptions(("one", "broken", "other")))


def test_every_regressor_has_a_row_and_the_winner_is_one_that_errs_little(facts):
    assert {row["model"] for row in facts["table"]} == set(QUICK)
    assert {"mape", "spearman", "kendall", "topk_regret", "fit_s", "predict_s"} <= set(facts["table"][0])
    errors = [row["mape"] for row in facts["table"]]
    assert errors == sorted(errors)
    assert facts["winner"] in facts["eligible"]
    assert facts["networks"] == ["one", "other"] and facts["n_mappings"] == 40
    assert {row["model"] for row in facts["table_in_order"]} == set(QUICK)


def test_where_the_simulator_is_wrong_learning_adds_something(facts):
    of = {row["model"]: row["mape"] for row in facts["table"]}
    assert of[facts["winner"]] < 0.8 * of["simulator"]


def test_a_fold_knows_nothing_of_what_it_is_judged_by(samples):
    """Other step times of the unseen mappings change no feature: the calibration does not see them."""
    fold = folds_of(samples["one"], splits(len(samples["one"])))[0]
    unseen = np.isin(samples["one"].step_s, fold.unseen_s)
    spoilt = replace(samples["one"], step_s=np.where(unseen, 5.0, samples["one"].step_s))
    again = folds_of(spoilt, splits(len(spoilt)))[0]
    np.testing.assert_array_equal(again.x, fold.x)
    np.testing.assert_array_equal(again.unseen_x, fold.unseen_x)
    assert (again.unseen_s == 5.0).all()


def test_predictions_of_the_picture_were_made_while_unseen_and_cover_every_mapping(facts, samples):
    for name, row in facts["by_model"].items():
        assert sorted(row["points"]["measured_s"]) == sorted(samples[name].step_s.tolist())
        assert len(row["points"]["winner_s"]) == len(row["points"]["baseline_s"]) == 20


def test_the_page_tells_the_winner_the_networks_and_where_the_picture_is(facts):
    text = "\n".join(page_lines({**facts, "data": "benchmarks/surrogates.csv"}))
    won = next(row for row in facts["table"] if row["model"] == facts["winner"])
    assert f"| **{won['model']}** | {won['mape']:.1%} +- " in text
    assert "| `one` | 20 | 12 |" in text and "| `other` | 20 | 12 |" in text
    by_network = [r["mape"] for row in facts["by_model"].values() for r in row["table"] if r["model"] == won["model"]]
    median = f"(median {sum(by_network) / 2:.1%})"
    assert f"Over networks its MAPE is {won['mape']:.1%} {median}, its regret " in text
    assert headline(facts).startswith(f"`{won['model']}` off by {won['mape']:.1%} {median}, regret ")
    assert (facts["seeds"], facts["repeats"]["cross-validations"]) == ([0], facts["fold_repeats"])
    assert "(docs/surrogates.png)" in text and "`benchmarks/surrogates.csv`" in text
    assert "benchmarks/surrogates.csv" not in "\n".join(page_lines({**facts, "data": None}))


def test_the_page_says_in_plain_words_why_the_winner_won(facts):
    text = "\n".join(page_lines({**facts, "eligible": ["ridge", "neighbours"]}))
    assert "2 regressors err about equally (`ridge`, `neighbours`): the MAPE of each" in text
    assert "Of these, this one loses least when only its favourite mapping is measured." in text
    assert "No other errs as little." in "\n".join(page_lines({**facts, "eligible": [facts["winner"]]}))


def test_the_picture_shows_what_the_facts_say(facts, tmp_path):
    figure = Figure()
    fill(figure, facts)
    errors, _, predictions = figure.axes
    assert [label.get_text() for label in errors.get_yticklabels()] == [row["model"] for row in facts["table"]]
    assert [bar.get_width() for bar in errors.patches] == [row["mape"] for row in facts["table"]]
    of_one = {row["model"]: row["mape"] for row in facts["by_model"]["one"]["table"]}
    assert errors.collections[0].get_offsets()[0, 0] == of_one[facts["table"][0]["model"]]
    one = facts["by_model"]["one"]
    assert predictions.collections[0].get_offsets()[0, 0] * one["single_s"] == pytest.approx(
        one["points"]["measured_s"][0]
    )
    draw(facts, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_record_keeps_data_and_picture(samples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    measured_are(monkeypatch, {"towers": samples["one"]})
    monkeypatch.setattr(surrogates, "REGRESSORS", QUICK)
    found = run_bench("surrogates", BenchOptions(("towers",)), record=True)
    assert found["data"] == "benchmarks/surrogates.csv"
    assert (tmp_path / "benchmarks" / "surrogates.csv").exists()
    assert (tmp_path / "docs" / "surrogates.png").exists()


def test_the_data_holds_every_mapping_with_its_features(samples, tmp_path):
    path = tmp_path / "data.csv"
    assert keep_data(list(samples.values()), path) == str(path)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["network"] for row in rows] == ["one"] * 20 + ["other"] * 20
    assert float(rows[0]["step_s"]) == pytest.approx(samples["one"].step_s[0], rel=1e-5)
    assert rows[0]["cut_tensors"] == "0" and float(rows[5]["makespan_s"]) > 0


def test_data_that_is_too_large_is_not_kept(samples, tmp_path):
    assert keep_data([samples["one"]], tmp_path / "data.csv", largest_bytes=100) is None
    assert not (tmp_path / "data.csv").exists()


def test_too_few_mappings_are_refused_before_anything_is_measured():
    with pytest.raises(BadInputError, match="--measurements 4: surrogates needs at least 10"):
        run_bench("surrogates", BenchOptions(measurements=4), record=False)


def test_a_network_with_too_few_good_mappings_is_left_out_and_none_is_an_honest_failure(monkeypatch):
    measured_are(monkeypatch, {"one": sample("one", 0, mappings=7)})
    with pytest.raises(PlacerError, match="no network could be measured: one: 7 mappings are too few"):
        surrogates.bench_facts(BenchOptions(("one",)))


def test_kinds_differ_by_more_than_the_names_of_equal_devices():
    problem = Problem(chains("one", np.random.default_rng(0)).graph, TOPOLOGY)
    found = list(islice(kinds(problem, random.Random(0)), 40))
    forms = {problem.canonical(placement) for placement in found}
    assert len(forms) == len(found) == 40
    assert all(problem.fits(placement) for placement in found)
    assert not any(problem.canonical(single) in forms for single in problem.singles())


def test_kinds_of_a_small_network_come_to_an_end():
    two = OpGraph("two", (Op("a", cost_s={"cpu": 1.0}), Op("b", cost_s={"cpu": 1.0})), (Edge(0, 1, 8),))
    assert len(list(kinds(Problem(two, TOPOLOGY), random.Random(0)))) == 1


def test_disagreement_is_that_of_mappings_measured_twice():
    first = {"a": Measured(1.0), "b": Measured(2.0), "c": Measured(3.0)}
    again = {"a": Measured(1.1), "b": Measured(2.2)}
    assert sampling._disagreement(first, again) == pytest.approx(0.1)
    assert sampling._disagreement(first, {}) == 0
