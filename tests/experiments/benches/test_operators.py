"""The bench `operators`: what it makes of networks left out, and that a network is planned and stepped for real."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from experiments.benches.bench import BenchOptions
from experiments.benches.operators import run
from experiments.benches.operators.elsewhere import elsewhere_facts
from experiments.benches.operators.left_out import DEVICES, left_out
from experiments.benches.operators.page import _elsewhere_lines, _left_out_lines
from experiments.benches.operators.run import left_out_facts, profiled, summary
from experiments.benches.process import alone
from placer.measure.store import Store
from placer.profile.operators.dataset import YARDSTICKS, Operator, OperatorRow, Tensor, from_record


def row(step_s: float, predicted_s: float, by_prediction_s: float, by_profile_s: float) -> dict[str, Any]:
    """A network whose own profile predicts its step."""
    return {
        "step_s": step_s, "spread_s": 0.0, "predicted_s": predicted_s, "profiled_s": step_s,
        "error": predicted_s / step_s - 1, "profiled_error": 0.0, "levelled_error": 0.5 * (predicted_s / step_s - 1),
        "guessed": {"Odd": 1}, "guessed_share": 0.02,
        "by_prediction": {"step_s": by_prediction_s, "spread_s": 0.001},
        "by_profile": {"step_s": by_profile_s, "spread_s": 0.001},
    }  # fmt: skip


def test_errors_and_worth_of_several_networks() -> None:
    found = summary([row(1.0, 1.2, 0.5, 0.5), row(2.0, 1.8, 1.0, 0.81)])
    assert found["step_mape_left_out"] == pytest.approx(0.15)
    assert found["step_mape_left_out_spread"] == pytest.approx(0.05)
    assert (found["step_mape_levelled"], found["step_mape_profiled"]) == (pytest.approx(0.075), 0)
    assert found["geomean_worth"] == pytest.approx(sqrt(0.81))


def test_what_all_networks_are_off_by_is_corrected_by_the_others() -> None:
    assert summary([row(s, 1.25 * s, s, s) for s in (1.0, 2.0, 5.0)])["step_mape_corrected"] == pytest.approx(0)
    apart = summary([row(1.0, 0.5, 1.0, 1.0), row(1.0, 2.0, 1.0, 1.0)])
    assert apart["step_mape_corrected"] == pytest.approx(((0.5 / 2.0 - 1) * -1 + (2.0 / 0.5 - 1)) / 2)
    assert summary([row(1.0, 0.5, 1.0, 1.0)])["step_mape_corrected"] is None


def test_the_page_shows_each_network_and_failures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = {"towers": row(1.0, 1.2, 0.5, 0.6), "moe": {"failed": "a worker was lost"}}
    monkeypatch.setattr(run, "facts_alone", lambda call, model, *_, **__: rows[model])
    facts = left_out_facts(BenchOptions(), ["towers", "moe"], tmp_path, {"models": ["towers", "moe"]})
    assert facts["step_mape_left_out"] == pytest.approx(0.2)
    page = "\n".join(_left_out_lines(facts))
    assert "| `towers` | 1000.0 ms +- 0.0 ms | 1200.0 ms | +20.0% | +10.0% | +0.0% | 2.0% |" in page
    assert "| 500.0 ms +- 1.0 ms | 600.0 ms +- 1.0 ms | 1.20 |" in page
    assert "failed: a worker was lost" in page
    assert list(_left_out_lines({"mape": 0.1})) == []


def times_of(machine: str, launch_s: float, peak: float, idle: float) -> list[OperatorRow]:
    """Two networks and yardsticks on a machine. idle: how many times faster a product is by itself than in a step."""

    def row(n: int, network: str, source: str, type_: str = "MatMul") -> OperatorRow:
        square = Tensor((n, n), "float32")
        op = Operator(type_, (square, square), (square,), {}, 2.0 * n**3 if type_ == "MatMul" else float(n * n))
        seconds = launch_s + (op.flops or 0.0) / peak / (idle if source == "single" else 1.0)
        return OperatorRow(op, "cpu:0", "cpu", machine, 8, network, "forward", source, seconds, seconds, 0.0, 9)

    marks = [row(n, YARDSTICKS, s, t) for n in (16, 128, 1024) for s in ("step", "single") for t in ("MatMul", "AddV2")]
    networks = {"one": range(100, 500, 20), "other": range(110, 600, 20)}
    return marks + [row(n, network, "step") for network, sizes in networks.items() for n in sizes]


def test_other_hardware_is_predicted_by_yardsticks_and_not_by_peaks() -> None:
    here, there = times_of("one core", 1e-5, 2e10, idle=1.0), times_of("all cores", 1e-5, 4e10, idle=4.0)
    facts = elsewhere_facts(here, there)
    assert facts["elsewhere"]["machine"] == "all cores" and facts["elsewhere"]["peaks"] == pytest.approx(1 / 8, rel=0.1)
    for found in facts["elsewhere"]["networks"].values():
        assert max(found["known"]["mean"], abs(found["known"]["whole"])) < 0.1 < found["by_peaks"]["mean"]
        assert found["left_out"]["mean"] < 0.25
    heads, *rows = [line for line in _elsewhere_lines(facts | {"counted_from_s": 2e-5}) if line.startswith("| ")]
    assert heads.startswith("| network | ops |") and rows[-1].startswith("| `other` | 25 | ")
    without = [row for row in here if row.network != YARDSTICKS]
    assert elsewhere_facts(without, there) == {} == elsewhere_facts(here, without)


def test_of_one_network_none_can_be_left_out(tmp_path: Path) -> None:
    facts = left_out_facts(BenchOptions(), ["towers"], tmp_path, {"models": ["towers"]})
    assert facts["left_out"] == {} and facts["step_mape_left_out"] is None


@pytest.mark.nightly
@pytest.mark.workers
def test_a_network_left_out_is_predicted_planned_and_stepped(tmp_path: Path) -> None:
    assert DEVICES == "workers:2"
    records = alone(profiled, ("mnist_softmax", "wide_mlp"), (None,), True, 1)["rows"]
    with Store(tmp_path / "ops.sqlite") as store:
        store.add_operators(map(from_record, records))
    found = alone(left_out, "mnist_softmax", tmp_path / "ops.sqlite")
    assert found["step_s"] > 0 and found["predicted_s"] > 0
    assert found["error"] == pytest.approx(found["predicted_s"] / found["step_s"] - 1)
    levelled = found["predicted_s"] * found["profiled_s"] / found["profiled_then_s"] / found["step_s"] - 1
    assert found["levelled_error"] == pytest.approx(levelled)
    assert {found[by]["repeats"] for by in ("by_prediction", "by_profile")} == {30}
