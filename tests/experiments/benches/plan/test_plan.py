"""The bench of plans: its graphs are steps, its cases say what DESIGN names, and the page shows them."""

import pytest

from experiments.benches.bench import BenchOptions
from experiments.benches.plan import run
from experiments.benches.plan.graphs import attention, cells, gpus, inception, residual
from experiments.benches.plan.page import headline, page_lines
from placer.errors import BadInputError, PlacerError
from search.offline.plan import plan
from tests.clock import Clock


@pytest.mark.parametrize("network", [cells(2), inception(2), attention(2), residual(2)])
def test_a_step_has_a_gradient_for_each_op_and_an_update_for_each_weight(network):
    forward, step = network.inference("forward"), network.step("step")
    gradients = [op.name.removesuffix("/gradient") for op in step.ops if op.name.endswith("/gradient")]
    assert sorted(gradients) == sorted(op.name for op in forward.ops)
    updates = {op.colocate for op in step.ops if op.name.endswith("/update")}
    assert updates == {name for name, held in zip(network.names, network.weight_bytes, strict=True) if held}
    assert len(step.order) == len(step.ops)  # acyclic


def test_memory_of_gpus_may_be_limited_beside_a_cpu_that_holds_everything():
    machine = gpus(2, 1e6, cpus=1)
    assert [device.memory_bytes for device in machine.devices] == [1_000_000, 1_000_000, None]


@pytest.fixture
def hurried(monkeypatch):
    """Two small cases, planned by a clock on which two looks take a second, however busy the machine is."""
    monkeypatch.setattr(run, "plan", lambda *given, seconds: plan(*given, seconds=seconds, clock=Clock(tick_s=0.5)))
    monkeypatch.setitem(run.MADE, "small", lambda: attention(3).step("small"))
    cases = (run.Case("small", 2), run.Case("small", 3, "max-load", tight=True))
    monkeypatch.setattr(run, "CASES", cases)


def test_every_case_has_what_hybrid_and_the_others_found_over_one_bound(hurried, tmp_path):
    facts = run.bench_facts(BenchOptions(runs=tmp_path))
    makespan, load = facts["cases"]
    assert set(makespan["peers"]) == {"heft", "peft", "cpop", "donf", "local"}
    assert set(load["peers"]) >= {"heft", "local"}
    for row in facts["cases"]:
        assert 1 <= row["over_bound_60s"] <= row["over_bound_1s"] * 1.05
        assert row["best_peer"] == min(row["peers"].values()) >= 1
    assert facts["worst_vs_peer"] == max(row["over_bound_10s"] / row["best_peer"] for row in facts["cases"])
    assert run.bench_facts(BenchOptions(runs=tmp_path)) == facts  # kept
    page = "\n".join(page_lines(facts))
    assert "`small`" in page and "max-load" in page and "they hold for variables only" in page
    assert (facts["seeds"], facts["repeats"]) == ([0], 1)


def test_what_is_behind_another_method_is_said_to_be_slower():
    def facts(*ratios):
        cases = [{"graph": str(i), "over_bound_10s": 1.2 * r, "best_peer": 1.2} for i, r in enumerate(ratios)]
        return {"cases": [*cases, {"case": "large", "failed": "no."}], "worst_vs_peer": max(ratios)}

    told = headline(facts(0.9, 1.0005, 0.9995, 1.005))
    assert told.startswith("plans after 10 s are better than those of the best other method on 1 of 4 cases, equal wit")
    assert "equal within 0.1% on 2, worse on 1 (wanted: none); value as a share of the best other's: 0.98" in told


def test_a_graph_counts_once_however_many_rows_it_has():
    ratios = (("a", 1.0), ("a", 1.0), ("b", 0.25))
    cases = [{"graph": name, "over_bound_10s": ratio, "best_peer": 1.0} for name, ratio in ratios]
    assert "as a share of the best other's: 0.50" in headline({"cases": cases})


def test_a_case_that_fails_is_a_row_and_the_others_go_on(hurried, monkeypatch):
    def fails():
        raise MemoryError

    monkeypatch.setitem(run.MADE, "large", fails)
    monkeypatch.setattr(run, "CASES", (run.Case("large", 4), run.Case("small", 2)))
    facts = run.bench_facts(BenchOptions())
    assert "| `large-4-makespan` | failed: MemoryError" in (page := "\n".join(page_lines(facts)))
    assert "`hybrid` took at most" in page and facts["median_first_s"] == facts["cases"][1]["first_s"]
    with pytest.raises(PlacerError, match="no graph could be planned: MemoryError"):
        run.bench_facts(BenchOptions(models=("large",)))


def test_a_graph_that_no_case_has_is_refused():
    with pytest.raises(BadInputError, match="plan knows cells-1800"):
        run.TAKES.check("plan", BenchOptions(models=("nonsense",)))
