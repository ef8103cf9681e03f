"""The bench spoc: fits that are carried from one kind of device to another, and advice that is tried, by known laws."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments.benches.spoc import advice, transfer
from experiments.benches.spoc.advice_page import advice_lines
from experiments.benches.spoc.device_kinds import ALL_CORES, CORE_PER_OP, ONE_CORE
from experiments.benches.spoc.networks import Network, networks
from experiments.benches.spoc.page import _devices
from experiments.benches.spoc.plot import _draw_gains, _other_device
from experiments.jobs.spoc_reading import LAUNCH_OPERATIONS, Limit
from placer.graph.op_graph import Op, OpGraph
from surrogate.features.spoc import spoc

BARE = asdict(spoc(OpGraph("bare", (Op("a", devices=("cpu",)),), ())))


def law(counts, slower=1.0):
    return slower * (5e-6 * counts["ops"] + 3e-11 * counts["operations"])


def measured(name, family, counts, seconds, reference_s):
    """A row of the bench, on a machine whose reference takes `reference_s`."""
    chain = {"chain_operations": counts["operations"], "dense_multiply_adds": counts["operations"] / 2}
    whole = BARE | {"span": 9, "traffic_bytes": 1} | counts | chain
    return {
        "name": name, "family": family, "step": whole, "inference": whole, "forward": None, "step_s": seconds,
        "inference_s": seconds / 3, "reference_s": reference_s,
    }  # fmt: skip


def rows_of(slower, reference_s):
    """Every step takes `slower` times as long, and so does the reference."""
    rng, found = np.random.default_rng(0), []
    for family in range(4):
        for i in range(6):
            counts = {"ops": int(rng.uniform(100, 3000)), "operations": float(10 ** rng.uniform(7, 10))}
            found.append(measured(f"net{family}-{i}", f"f{family}", counts, law(counts, slower), reference_s))
    return found


@pytest.fixture(scope="module")
def kinds():
    return {ALL_CORES.name: rows_of(1.0, 0.01), ONE_CORE.name: rows_of(1.7, 0.017)}


def test_a_fit_on_one_kind_times_one_factor_is_a_fit_on_a_kind_that_is_slower_by_one_factor(kinds):
    for row in transfer.transfers(kinds):
        expected = 1.7 if row["to"] == ONE_CORE.name else 1 / 1.7
        assert row["factor"] == pytest.approx(expected) and row["best_factor"] == pytest.approx(expected, rel=0.01)
        assert max(row[key]["mean"] for key in ("error", "error_best_factor", "error_own")) < 0.02


def test_a_kind_of_another_balance_is_not_explained_by_one_factor(kinds):
    """Ops cost the same there, and operations twice as much."""
    other = [
        r | {f"{t}_s": (5e-6 * r[t]["ops"] + 6e-11 * r[t]["operations"]) for t in ("step", "inference")}
        for r in kinds[ALL_CORES.name]
    ]
    found = transfer.transfers({"a": kinds[ALL_CORES.name], "b": other})
    sent = next(row for row in found if row["from"] == "a" and row["target"] == "step")
    assert sent["error_own"]["mean"] < 0.02 < 0.1 < sent["error_best_factor"]["mean"] <= sent["error"]["mean"]


def test_the_page_and_the_picture_tell_both_kinds(kinds):
    facts = {"devices": transfer.by_device(kinds), "transfers": transfer.transfers(kinds), "n_shared": 24,
             "regressor": "additive"}  # fmt: skip
    text = "\n".join(_devices(facts))
    assert "| all cores to one core | training step | 1.70 |" in text and "The 24 networks" in text
    assert _devices({}) == []
    axes = Figure().subplots(1, 2)
    _other_device(axes, facts)
    assert "times 1.70" in axes[1].get_title() and "one core" in axes[0].get_title()


def launch_bound(name, flops_per_op, seconds, family="f0"):
    return measured(name, family, {"ops": 1000, "operations": 1000.0 * flops_per_op}, seconds, 0.01)


def test_a_sample_has_some_of_every_sentence_and_none_that_is_heavy():
    light = [n for n in networks() if not n.heavy][:24]
    rows = [launch_bound(n.name, 1e3 if i % 2 else 1e9, 1.0) for i, n in enumerate(light)]
    heavy = next(n for n in networks() if n.heavy)
    found = advice.sample([*rows, launch_bound(heavy.name, 1e3, 1.0)], networks())
    assert [limit for _, limit in found] == [Limit.LAUNCH] * advice.FEWEST + [Limit.COMPUTE] * advice.FEWEST
    assert heavy not in [n for n, _ in found] and len({n for n, _ in found}) == len(found)
    assert advice.sample(rows, ()) == []


def test_a_promise_that_is_kept_counts_as_right_and_one_that_is_not_as_wrong():
    """`kept`'s step takes the same time at 4 times the batch; `broken`'s takes 4 times as long; the minutes in which
    these were tried were slower than others, which the reference takes out."""
    names = {"kept": 1.0, "broken": 4.0}
    chosen = [Network("f", name, 8, 2) for name in names]
    rows = {
        kind.name: {n.name: launch_bound(n.name, 1e3, slower) for n in chosen}
        for kind, slower in ((ALL_CORES, 0.5), (ONE_CORE, 1.0))
    }

    def ask(network, kind):
        if kind == CORE_PER_OP:
            return launch_bound(network.name, 1e3, 1.0)
        assert kind == ALL_CORES and network.batch == 8
        return launch_bound(network.name, 1e3, 3 * 0.5 * names[network.kind]) | {"reference_s": 0.03}

    tried = [advice.tried(network, Limit.LAUNCH, rows, ask) for network in chosen]
    found = advice.judged(tried)
    assert [gain["batch"] for gain in found["networks"]] == pytest.approx([4.0, 1.0])
    assert [gain["split"] for gain in found["networks"]] == pytest.approx([2.0, 2.0])
    told = found["sentences"][Limit.LAUNCH.value]
    assert (told["batch"]["right"], told["batch"]["wrong"]) == (1, 1)
    assert told["devices"]["says"] is None
    assert all(gain["bound"] >= 1 for gain in found["networks"])
    assert told["split"] == {"says": None, "right": None, "wrong": None, "median": pytest.approx(2.0)}
    text = "\n".join(advice_lines({"advice": found | {"pairs": advice.batch_pairs([])}}))
    assert "| launch-bound | 2 | will help: 1 right, 1 wrong, median 2.50x |" in text
    assert "Right / wrong in all: a bigger batch 1 / 1, more devices 0 / 0, split ops 0 / 0." in text
    assert "the bound that the advice gives on 0 of 2." in text
    first = found["networks"][0]
    over = found | {"networks": [first | {"devices": first["bound"] + 1}], "pairs": advice.batch_pairs([])}
    assert "on 1 of 1: `kept" in "\n".join(advice_lines({"advice": over}))
    assert "tried on 2 networks, drawn only from those that are not heavy." in text
    assert "| wide | 0 | - | - | - |" in text
    ax = Figure().subplots()
    _draw_gains(ax, found)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "launch-bound: a bigger batch", "launch-bound: more devices", "launch-bound: split ops"
    ]  # fmt: skip


def test_what_could_not_be_tried_is_told():
    network = replace(networks()[0], batch=3)
    rows = {kind.name: {network.name: launch_bound(network.name, 1e3, 1.0)} for kind in (ALL_CORES, ONE_CORE)}
    found = advice.tried(network, Limit.WIDE, rows, lambda *_: {"skipped": "memory", "detail": "more than 7.0 GiB"})
    judged = advice.judged([found])
    assert judged["networks"] == [] and judged["skipped"] == [found]
    text = "\n".join(advice_lines({"advice": judged | {"pairs": advice.batch_pairs([])}}))
    assert f"Not tried: {network.name} (memory)." in text


def test_networks_of_two_batches_judge_the_rule_for_launch_bound_steps():
    """A 16-fold batch that makes 4 times as many examples a second is a gain of 2 at 4 times the batch."""
    few, many = LAUNCH_OPERATIONS / 10, LAUNCH_OPERATIONS * 10
    rows = [
        launch_bound("a-1px-batch1", few, 1.0), launch_bound("a-1px-batch16", few, 4.0),
        launch_bound("b-1px-batch1", many, 1.0), launch_bound("b-1px-batch16", many, 16.0),
        launch_bound("c-1px-batch4", many, 1.0), launch_bound("c-1px-batch6", many, 1.0),
    ]  # fmt: skip
    found = advice.batch_pairs(rows)
    assert (found["n"], found["says"], found["says_right"], found["denies_right"]) == (2, 1, 1, 1)
    np.testing.assert_allclose(found["by_operations"], [(few, 2.0), (many, 1.0)])
