"""The bench run-order: what it says of step times whose truth is known, and a measurement of a small network."""

from __future__ import annotations

import pytest

from experiments.benches import run_order
from experiments.benches.bench import BenchOptions
from placer.errors import PlacerError


def row(name, rank_s, donf_s, fifo_s):
    """A mapping whose predictions are all 10 % too long."""
    times = {"rank": rank_s, "donf": donf_s, "fifo": fifo_s}
    return {"mapping": name} | {
        order: {"step_s": step_s, "spread_s": 1e-3, "predicted_s": 1.1 * step_s} for order, step_s in times.items()
    }


FOUND = {
    "towers": {"best_single_s": 0.4, "mappings": [row("local", 0.1, 0.2, 0.2), row("heft", 0.2, 0.2, 0.1)]},
    "two_tower": {"best_single_s": 0.4, "mappings": []},
    "transformer": {
        "failed": "1 of 2 mappings failed",
        "best_single_s": 0.4,
        "mappings": [
            row("local", 0.1, 0.2, 0.2),
            {"mapping": "heft", "failed": "InternalError: no."},
        ],
    },
    "moe": {"failed": "its process ended with code -9 and without a result"},
}


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(run_order, "facts_alone", lambda call, model, workers, repeats, seconds: FOUND[model])


def test_gains_are_ratios_to_tensorflows_own_order(known):
    facts = run_order.bench_facts(BenchOptions(tuple(FOUND)))
    assert facts["ratio"] == {"rank": pytest.approx(2 ** (1 / 3)), "donf": pytest.approx(0.5 ** (1 / 3))}
    assert facts["error"] == {name: pytest.approx(0.1) for name in ("rank", "donf", "fifo")}
    lines = "\n".join(run_order.page_lines(facts))
    assert "| `towers` | local | 100.0 ms +- 1.0 ms | 200.0 ms +- 1.0 ms | 200.0 ms +- 1.0 ms | 2.00 | 1.00 |" in lines
    assert "- moe: its process ended with code -9" in lines and "- transformer, heft: InternalError: no." in lines
    assert "4 of the zoo's 12 networks, to save time." in lines
    assert "*Gain*: TensorFlow's time divided by this one; above 1 is faster." in lines and facts["seeds"] == [0]
    assert "- two_tower: each of local, expert, heft puts all on one device" in lines


def test_what_gets_slower_is_counted_and_the_median_mapping_stands_beside_the_mean(known):
    facts = run_order.bench_facts(BenchOptions(tuple(FOUND)))
    lines = "\n".join(run_order.page_lines(facts))
    assert "geometric mean over networks: rank 1.41 (median 1.50), donf 0.84 (median 0.85)." in lines
    assert "Of 3 mappings rank makes 1 slower, donf 1; the median gain of a mapping is 2.000 by rank, 1.000" in lines
    assert run_order.headline(facts) == (
        "gain over TensorFlow's own order: rank 1.41 (median 1.50), slower on 1 of 3 mappings; donf 0.84 (median "
        "0.85), slower on 1"
    )


def test_where_no_network_could_be_measured_it_says_why(known):
    with pytest.raises(PlacerError, match="moe: its process ended"):
        run_order.bench_facts(BenchOptions(("moe",)))


@pytest.mark.nightly
def test_a_network_is_stepped_in_each_order():
    facts = run_order.bench_facts(BenchOptions(("towers",), measurements=3))
    names = [row["mapping"] for row in facts["by_model"]["towers"]["mappings"]]
    assert "local" in names and len(names) == len(set(names)) == facts["mappings"]
    assert all(found > 0 for found in facts["ratio"].values())
