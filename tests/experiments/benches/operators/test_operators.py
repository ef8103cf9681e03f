"""The bench `operators`: what it makes of networks left out, and that a network is planned and stepped for real."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from experiments.benches.bench import BenchOptions
from experiments.benches.operators import held_out, run
from experiments.benches.operators.elsewhere import elsewhere_facts
from experiments.benches.operators.held_out import evaluated
from experiments.benches.operators.left_out import DEVICES, left_out
from experiments.benches.operators.left_out_page import left_out_lines
from experiments.benches.operators.page import _aims, _elsewhere_lines, headline, rows_in_words
from experiments.benches.operators.plot import draw, fill
from experiments.benches.operators.run import left_out_facts, profiled, summary
from experiments.benches.process import alone
from placer.measure.store import Store
from placer.profile.operators.dataset import YARDSTICKS, Operator, OperatorRow, Tensor, from_record
from surrogate.operators.models import fit_models


def row(step_s: float, predicted_s: float, by_prediction_s: float, by_profile_s: float) -> dict[str, Any]:
    """A network whose own profile predicts its step."""
    return {
        "step_s": step_s, "spread_s": 0.0, "predicted_s": predicted_s, "profiled_s": step_s,
        "error": predicted_s / step_s - 1, "profiled_error": 0.0, "levelled_error": 0.5 * (predicted_s / step_s - 1),
        "guessed": {"Odd": 1}, "guessed_share": 0.02,
        "costs_s": 6.8,
        "by_prediction": {"step_s": by_prediction_s, "spread_s": 0.001, "plan_s": 0.9, "predicted_s": 0.4},
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
    page = "\n".join(left_out_lines(facts | {"networks": ["towers", "moe", "vgg16"]}))
    assert "| `towers` | 1000.0 ms +- 0.0 ms | 1200.0 ms | +20.0% | +10.0% | +0.0% | 2.0% | 6.8 | 0.9 |" in page
    assert "| 500.0 ms +- 1.0 ms (-20%) | 600.0 ms +- 1.0 ms | 1.20 |" in page
    assert "failed: a worker was lost" in page
    assert "(2 of the 3, to save time)" in page and "common factor of the other networks" not in page
    assert list(left_out_lines({"mape": 0.1})) == []


def lines_of(*errors: float) -> str:
    rows = {str(i): row(1.0, 1 + error, 1.0, 1.0) for i, error in enumerate(errors)}
    return "\n".join(left_out_lines({"left_out": rows, **summary(list(rows.values()))}))


def test_the_page_says_whether_all_errors_go_one_way_and_gives_each_mean_a_line() -> None:
    text = lines_of(-0.1, -0.2, -0.3)
    assert "is off by 20.0% (95% interval " in text and "median 20.0%) on average. All 3 are predicted too fast" in text
    assert "a common bias: -20.0% on average." in text
    assert "- If all steps are corrected by the common factor of the other networks: " in text
    assert "2 of 3 are predicted too fast; with its sign, the error is -10.0% on average." in lines_of(-0.1, -0.3, 0.1)
    assert "None could be measured." in "\n".join(left_out_lines({"left_out": {"moe": {"failed": "no."}}}))


def test_the_page_and_the_headline_say_which_aims_are_reached() -> None:
    facts = {"mape": 0.14, "mape_time_weighted": 0.05, "mape_unseen_networks": None, "step_mape_left_out": 0.2}
    (aims, _, networks, _) = _aims(facts | {"mape_by_unseen_network": {"moe": 0.25}})
    assert aims.startswith("Wanted: unseen shapes 8%: not reached, 14.0%; unseen shapes, weighted by time 5%: reached,")
    assert "unseen networks" not in aims and networks == "Unseen networks: moe 25.0%."
    told = headline(facts | {"left_out": {"a": row(1.0, 1.2, 1.0, 1.0), "b": {"failed": "no."}}})
    assert "unseen networks - (wanted: 20%)" in told and told.endswith("20.0% (median 20.0%) (wanted: 12%)")
    assert headline({}).endswith("left out unknown (wanted: 12%)")


def family(name: str, shapes: float, networks: float | None) -> dict[str, Any]:
    return {
        "family": name, "rows": 7, "mape_unseen_shapes": shapes, "mape_unseen_networks": networks,
        "mape_time_weighted": 0.05,
    }  # fmt: skip


def test_the_picture_shows_families_the_least_error_on_top_and_networks_left_out(tmp_path: Path) -> None:
    facts = {"families": [family("conv", 0.2, 0.3), family("sums", 0.1, None)]}
    rows = {"towers": row(1.0, 1.2, 1.0, 1.0), "vgg16": row(4.0, 3.0, 1.0, 1.0), "moe": {"failed": "no."}}
    figure = Figure()
    fill(figure, facts | {"left_out": rows})
    errors, steps = figure.axes
    assert [label.get_text() for label in errors.get_yticklabels()] == ["sums (7)", "conv (7)"]
    assert [bar.get_width() for bar in errors.patches] == [0.1, 0.2]
    assert errors.collections[0].get_offsets().tolist() == [[0.3, 1.0]]
    assert steps.collections[0].get_offsets().tolist() == [[1000.0, 1200.0], [4000.0, 3000.0]]
    assert {text.get_text() for text in steps.texts} == {"towers", "vgg16"}
    alone = Figure()
    fill(alone, facts)
    assert len(alone.axes) == 1
    draw(facts | {"left_out": rows}, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


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


def test_what_comes_from_an_op_that_is_held_out_is_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are of one op, at 12 batch sizes: either all are held out or none is."""

    def row(batch: int) -> OperatorRow:
        data = Tensor((batch, 64), "float32")
        op = Operator("Relu", (data,), (data,), {}, 64.0 * batch)
        seconds = 1e-5 + 1e-6 * batch
        return OperatorRow(op, "cpu:0", "cpu", "m", batch, "net", "forward", "step", seconds, seconds, 0.0, 9)

    other = replace(row(8), operator=replace(row(8).operator, type="Tanh"))
    for share, counts in ((1, 0), (16**16, 13)):
        monkeypatch.setattr(held_out, "HELD_OUT_SHARE", share)
        monkeypatch.setattr(held_out, "fit_models", lambda rows: fit_models([*rows, other]))
        facts = evaluated([row(batch) for batch in range(4, 16)] + [other], ())
        assert facts["n_train"] == counts and facts["held_out_whole_ops"]


def test_the_page_says_on_how_many_rows_errors_were_found() -> None:
    assert rows_in_words({"rows": 9000, "rows_tried": 1998}) == "9000 (errors of 1998)"
    assert rows_in_words({"rows": 90, "rows_tried": 90}) == rows_in_words({"rows": 90}) == "90"


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
