"""Iterations of synchronous SGD by formula against the clock: predictions, how errors are told, and one for real."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from experiments.benches.process import SILENT, environment, facts_alone
from experiments.benches.scaling.design import DEVICES, Config
from experiments.benches.scaling.sgd_clock import (
    INPUTS,
    MEMORY,
    PREFETCH,
    READ,
    ProfiledConfig,
    judged_sgd,
    measure_sgd,
    on_shared_cores,
    sgd_configs,
)
from experiments.benches.scaling.sgd_page import sgd_headline, sgd_lines
from experiments.benches.scaling.shared_cores import dealt, workers_per_core
from experiments.cli.scale import sgd
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology

SETTINGS = {"batch": 8, "layers": 2, "hidden": 192, "activation": "relu", "optimizer": "sgd"}
CONFIG = Config("mlp", SETTINGS, 1)
FOUR = Topology(tuple(Device(f"w{i}", "cpu") for i in range(4)), (Link("*", "*", 0.0, 1e12),))
COST = {"w0": 1.0, "w1": 2.0}
STEP = OpGraph(
    "step",
    (
        Op("f", cost_s=COST, memory_bytes=8, colocate="f", phase="forward"),
        Op("b", cost_s=COST, colocate="f", phase="backward"),
    ),
    (Edge(0, 1, 4),),
)
PROFILED = ProfiledConfig(CONFIG, STEP, input_bytes=8.0, io_bytes_per_s=4.0, host_bytes_per_s=8.0, reference_s=0.01)


def test_workers_are_dealt_to_cores_in_turn():
    assert dealt(5, (3, 7)) == (3, 7, 3, 7, 3)
    assert workers_per_core(5, (3, 7)) == (3, 2, 3, 2, 3)
    assert workers_per_core(2, (0, 1, 2)) == (1, 1)


def test_where_workers_share_a_core_each_op_takes_so_many_times_as_long():
    assert on_shared_cores(STEP, FOUR, 2, (0, 1)).ops[0].cost_s == {"w0": 1.0, "w1": 2.0}
    assert on_shared_cores(STEP, FOUR, 3, (0, 1)).ops[0].cost_s == {"w0": 2.0, "w1": 2.0, "w2": 2.0}
    assert on_shared_cores(STEP, FOUR, 4, (0, 1)).ops[0].cost_s == {"w0": 2.0, "w1": 4.0, "w2": 2.0, "w3": 4.0}


@pytest.mark.parametrize(("count", "manner", "seconds"), [
    (1, MEMORY, 1 + 2),  # a batch copied in 1 s, two ops of 1 s
    (1, READ, 2 + 1 + 2),  # and before it read in 2 s
    (1, PREFETCH, 1 + 2),  # read meanwhile; the copying takes the worker's core
    (2, MEMORY, 0.5 + 2),  # half a batch each, the second worker half as fast
    (2, READ, 2 + 0.5 + 2),
])  # fmt: skip
def test_the_manner_of_input_is_predicted(count, manner, seconds):
    assert PROFILED.predicted_s(FOUR, count, (0, 1), manner) == pytest.approx(seconds, rel=1e-6)


def rows(errors):
    """Two networks: 10 ms on one worker, 6 ms on two, 5 ms on four of two a core, and predictions off by `errors`."""
    figures = {"spread_s": 0.001, "input_bytes": 1e6, "io_bytes_per_s": 1e9, "host_bytes_per_s": 1e8}
    return [
        {"kind": kind, "settings": SETTINGS, "devices": n, "workers_per_core": max(n // 2, 1), "input": manner,
         "measured_s": s, "predicted_s": s * (1 + error), **figures}
        for kind in ("mlp", "cnn")
        for n, s, error in zip(DEVICES, (0.01, 0.006, 0.005), errors, strict=True)
        for manner in INPUTS
    ]  # fmt: skip


@pytest.fixture
def judged():
    return judged_sgd({"rows": rows((0.3, -0.1, 0.5)), "lost": [], "cores": 2, "failed": "tried again"})


def test_workers_that_share_cores_have_an_error_of_their_own(judged):
    assert judged["sgd_mape"] == pytest.approx(0.1)
    assert judged["sgd_mape_oversubscribed"] == pytest.approx(0.5)
    assert judged["by_input"] == pytest.approx(dict.fromkeys(INPUTS, 0.1))
    assert judged["sgd_mape_alone"] == pytest.approx(0.3)


def test_speed_ups_are_over_one_worker(judged):
    one, two, four = judged["by_devices"]
    assert (one["speedup_measured"], one["speedup_mape"]) == pytest.approx((1.0, 0.0))
    assert two["speedup_measured"] == pytest.approx(10 / 6)
    assert two["speedup_predicted"] == pytest.approx(10 / 6 * 1.3 / 0.9)
    assert four["bias"] == pytest.approx(0.5) and four["workers_per_core"] == 2


def test_the_page_shows_every_iteration_and_marks_what_is_oversubscribed(judged):
    text = "\n".join(sgd_lines(judged))
    assert text.count("| `mlp` batch 8, layers 2, hidden 192, sgd | ") == 9
    assert "4, 2 a core" in text and "2 (oversubscribed)" in text and "as long as workers share its core: 50.0%" in text
    assert sgd_lines(None) == []
    assert "could not be measured: lost." in "\n".join(sgd_lines({"failed": "lost"}))


def test_the_page_tells_the_error_of_the_speed_up_and_which_manner_was_checked(judged):
    text = "\n".join(sgd_lines(judged))
    assert "Its defaults, `--form ring` and `--batch fixed`, are not checked against the clock." in text
    assert "several workers, where each worker has a core of its own: 10.0% (median 10.0%); by input" in text
    assert "on one worker is predicted +30.0% off; with 2 workers -10.0%, so the speed-up is 44.4% off; with 4" in text
    assert sgd_headline(judged) == "`scale sgd`: speed-up 44.4% off, oversubscribed 13.3%, iteration 10.0%"
    assert sgd_headline(None) == sgd_headline({"failed": "lost"}) == "`scale sgd` not measured"


def test_the_help_of_the_command_says_what_was_checked():
    assert "Only --form server --batch shared was checked against the clock" in sgd.__doc__


def test_networks_are_others_than_the_studys_and_on_one_device():
    found = sgd_configs(("cnn", "mlp"), 2)
    assert [config.kind for config in found] == ["cnn", "cnn", "mlp", "mlp"]
    assert {(config.devices, config.chunks, config.workers_per_core) for config in found} == {(1, 1, 1)}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.workers
def test_real_iterations_are_measured_and_predicted_on_more_workers_than_cores():
    with environment(SILENT):
        found = facts_alone(measure_sgd, [asdict(replace(CONFIG, settings=SETTINGS))])
    assert found.get("lost") == [], found
    assert [(row["devices"], row["input"]) for row in found["rows"]] == [(n, i) for n in DEVICES for i in INPUTS]
    for row in found["rows"]:
        assert row["measured_s"] > 0 and row["predicted_s"] > 0
        assert row["input_bytes"] == 8 * (576 + 1) * 4
        assert row["workers_per_core"] == -(-row["devices"] // found["cores"])
