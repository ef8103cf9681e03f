"""The bench simulator-accuracy: what it says of samples whose truth is known, and its page."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from experiments.benches import sampling
from experiments.benches.bench import BenchOptions
from experiments.benches.simulator_accuracy import run as simulator_accuracy
from experiments.benches.simulator_accuracy.page import headline, page_lines
from experiments.benches.simulator_accuracy.run import MeasuredNetwork
from placer.errors import PlacerError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.profile.operators.dataset import Operator, Tensor
from search.problem.problem import Problem
from surrogate.calibrate.calibration import Calibration, Predictor, launches
from surrogate.simulate.simulator import Simulator

TRUTH = Calibration((1.1, 1.1), tensor_factor=2.0, byte_factor=2.5, base_s=1e-3)


def sample(name, seed, mappings=14, noise=0.01):
    """Two chains of twelve ops; steps as the simulator has them under TRUTH, and a little noise."""
    rng = np.random.default_rng(seed)
    ops = tuple(Op(f"op{i}", cost_s={"cpu": float(s)}) for i, s in enumerate(rng.uniform(1e-3, 4e-3, 24)))
    edges = tuple(Edge(c * 12 + i, c * 12 + i + 1, int(rng.uniform(1e5, 4e6))) for c in range(2) for i in range(11))
    link = Link("*", "*", 1e-4, 2e9, send_s=1e-4, send_s_per_byte=2e-10, receive_s=1e-4, receive_s_per_byte=2e-10)
    topology = Topology((Device("a", "cpu"), Device("b", "cpu")), (link,))
    graph = OpGraph(name, ops, edges)
    placements = np.array([[0] * 24, [1] * 24, *rng.integers(0, 2, (mappings - 2, 24))], dtype=np.int32)
    profiled = Predictor(Simulator(graph, topology), launches(graph))
    step_s = replace(profiled, given=TRUTH).step_s(placements) * rng.normal(1, noise, mappings)
    operators = tuple(product(op.cost_s["cpu"]) for op in ops)
    return MeasuredNetwork(name, profiled, placements, step_s, noise * step_s, 2, mappings, operators)


def product(seconds):
    """A product of matrices that takes so long at 10 GFLOP/s."""
    count = round(seconds * 1e10 / (2 * 256 * 256))
    tensors = [Tensor(shape, "float") for shape in ((count, 256), (256, 256), (count, 256))]
    return Operator("MatMul", tuple(tensors[:2]), tuple(tensors[2:]), {}, 2.0 * count * 256 * 256)


def measured_are(patch, samples):
    """What a process that measures would return, or raise."""

    def alone(measure, name, seconds):
        if name not in samples:
            raise PlacerError("no single device can run it")
        return samples[name]

    patch.setattr(sampling, "alone", alone)


@pytest.fixture(scope="module")
def facts():
    samples = {name: sample(name, seed) for seed, name in enumerate(("one", "other"))}
    with pytest.MonkeyPatch.context() as patch:
        measured_are(patch, samples)
        yield simulator_accuracy.bench_facts(BenchOptions(("one", "other", "broken")))


def test_shown_some_mappings_it_predicts_the_others(facts):
    assert facts["n_mappings"] == 28
    assert facts["unseen_mape"] < 0.06 < facts["singles_only_mape"]
    assert facts["replay_mape"] < 0.04
    assert facts["kendall_tau"] > 0.7


def test_costs_that_other_networks_tell_are_nearly_as_good_as_a_profile_without_calibration(facts):
    for row in facts["by_model"].values():
        assert 0.01 < row["predicted_costs_mape"] < 0.5
    assert facts["unseen_mape"] < facts["predicted_costs_mape"]
    assert "never profiled" in "\n".join(page_lines(facts))


def test_without_operators_nothing_is_said_of_networks_never_profiled(monkeypatch):
    samples = {name: replace(sample(name, seed), operators=None) for seed, name in enumerate(("one", "other"))}
    measured_are(monkeypatch, samples)
    found = simulator_accuracy.bench_facts(BenchOptions(("one", "other")))
    assert found["predicted_costs_mape"] is None and page_lines(found)


def test_a_network_that_could_not_be_measured_is_on_the_page(facts):
    assert facts["missing"] == {"broken": {"failed": "no single device can run it"}}
    assert page_lines(facts)[-2:] == ["", "- Not measured: broken: no single device can run it."]


def test_other_networks_tell_what_a_transfer_takes(facts):
    assert facts["held_out_mape"] < facts["singles_only_mape"] / 2


def test_predictions_that_are_all_equal_rank_nothing():
    """NaN would make the mean over all networks NaN, which the page shows as unknown."""
    network = sample("one", 3)
    same = replace(network, placements=np.zeros_like(network.placements))
    assert simulator_accuracy._tau(same, same.profiled, slice(2, None)) == 0.0


def test_of_contentions_that_fit_as_many_networks_the_first_is_taken(monkeypatch):
    networks = [sample("one", 3), sample("other", 1)]
    fits = iter(("port", "link", "link", "port"))
    monkeypatch.setattr(
        simulator_accuracy.MeasuredNetwork,
        "calibrated",
        lambda self, count: replace(
            self.profiled, given=Calibration((1.0,) * len(self.topology), contention=next(fits))
        ),
    )
    assert [simulator_accuracy._from_others(networks).contention for _ in range(2)] == ["link", "link"]


def test_alone_there_is_no_other_network(monkeypatch):
    measured_are(monkeypatch, {"one": sample("one", 3)})
    facts = simulator_accuracy.bench_facts(BenchOptions(("one",)))
    assert facts["held_out_mape"] is None
    assert "| one | 14 |" in "\n".join(page_lines(facts))


def test_no_network_at_all_is_an_honest_failure(monkeypatch):
    measured_are(monkeypatch, {})
    with pytest.raises(PlacerError, match="no network could be measured"):
        simulator_accuracy.bench_facts(BenchOptions(("broken",)))


def test_the_page_has_a_row_per_network_and_the_mean(facts):
    rows = [line for line in page_lines(facts) if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[2:]] == ["| one", "| other", "| mean", "| median"]
    assert f"{facts['unseen_mape']:.1%}" in rows[-2]
    assert facts["seeds"] == [0] and facts["repeats"] == 8


@pytest.mark.slow
def test_all_errors_are_of_the_same_mappings():
    """Other step times of the mappings that calibrate leave every error of a calibration by single devices as it is."""
    network = sample("one", 3)
    spoilt = network.step_s.copy()
    spoilt[network.singles : simulator_accuracy.CALIBRATED_ON] *= 5
    before, after = (
        simulator_accuracy._judged(n, [sample("other", 1)]) for n in (network, replace(network, step_s=spoilt))
    )
    assert before["n_judged"] == 14 - 8
    for key in ("singles_only_mape", "held_out_mape", "held_out_tau"):
        assert before[key] == after[key]
    assert before["unseen_mape"] != after["unseen_mape"]


def test_what_a_calibration_by_single_devices_was_shown_judges_nothing():
    found = simulator_accuracy._judged(sample("one", 3, 2), [])
    assert found["unseen_mape"] is None and found["n_judged"] == 0


def row(unseen, singles):
    return {"n_mappings": 18, "unseen_mape": unseen, "kendall_tau": 0.5, "replay_mape": 0.02, "held_out_mape": None,
            "singles_only_mape": singles, "noise": 0.01}  # fmt: skip


def test_an_older_record_says_what_each_column_is_of_and_where_calibration_does_harm():
    by_model = {"a": row(0.34, 0.15), "b": row(0.02, 0.1), "c": row(0.105, 0.1)}
    facts = {"n_mappings": 54, "workers": 2, "calibrated_on": 8, "by_model": by_model, "kendall_tau": 0.5,
             "singles_only_mape": 0.1}  # fmt: skip
    text = "\n".join(page_lines(facts))
    assert (
        "In this record the columns judge different mappings" in text and "those after the first 8, *transfers" in text
    )
    assert "single devices only for: a (34.0%, by single devices only 15.0%)." in text
    assert "| median | 54 | 10.5% | 0.50 |" in text and "| mean | 54 | 15.5% |" in text and "never" not in text
    assert headline(facts).startswith("unseen mappings off by 15.5% (95% interval ")
    assert "Kendall tau 0.50 (95% interval 0.50 to 0.50; median 0.50) (wanted: 0.85)" in headline(facts)
    assert headline(facts).endswith("; calibrated by single devices only 10.0%")
    new = "\n".join(page_lines({**facts, "same_mappings": True, "by_model": {"b": by_model["b"]}}))
    assert "All columns judge the same mappings: those after the first 8." in new and "For no network does" in new


class FewUnits:
    """As much of a job as mappings are drawn from."""

    def __init__(self, units):
        ops = tuple(Op(f"op{i}", cost_s={"cpu": 1e-3}) for i in range(units))
        edges = tuple(Edge(i, i + 1, 1000) for i in range(units - 1))
        self.problem = Problem(OpGraph("small", ops, edges), Topology((Device("a", "cpu"), Device("b", "cpu"))))
        self.topology = self.problem.topology


@pytest.mark.parametrize("units", [1, 2, 3])
def test_a_network_with_few_mappings_ends(units):
    """Two equal devices: a mapping and its mirror image are one."""
    job = FewUnits(units)
    asked = list(simulator_accuracy._kinds(job, random.Random(0)))
    assert len(set(map(job.problem.canonical, asked))) == len(asked) <= 2 ** (units - 1)


@pytest.mark.parametrize("mappings", [2, 3, 5])
def test_few_mappings_are_judged_as_far_as_they_go_and_the_page_says_so(monkeypatch, mappings):
    measured_are(monkeypatch, {"one": sample("one", 3, mappings)})
    facts = simulator_accuracy.bench_facts(BenchOptions(("one",)))
    page = "\n".join(page_lines(facts))
    assert f"one: {mappings} mappings instead of 18" in page and "nan" not in page


def test_the_page_is_silent_of_a_network_with_mappings_enough(monkeypatch):
    measured_are(monkeypatch, {"one": sample("one", 3)})
    facts = simulator_accuracy.bench_facts(BenchOptions(("one",), measurements=14))
    assert "instead" not in "\n".join(page_lines(facts))
