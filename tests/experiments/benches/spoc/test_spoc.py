"""The bench spoc: its networks, its watched process, its analysis of times whose law is known, its page."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from functools import partial
from math import inf
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments.benches.bench import BenchOptions
from experiments.benches.process import alone
from experiments.benches.spoc import analysis
from experiments.benches.spoc import run as bench
from experiments.benches.spoc.analysis import (
    FLOPS,
    KINDS,
    METRICS,
    SETS,
    SPOC,
    TARGETS,
    Additive,
    TimedNetworks,
    analysed,
    correlation,
    flops_at_best,
    launch_operations,
    left_out,
    seconds_each,
    timed_of,
)
from experiments.benches.spoc.asking import NOT_REACHED, Asking
from experiments.benches.spoc.device_kinds import ALL_CORES, CORE_PER_OP, DEVICE_KINDS, ONE_CORE, settle
from experiments.benches.spoc.measure import Repeats, SpocStudy, in_turn
from experiments.benches.spoc.networks import Network, families, networks, stratified
from experiments.benches.spoc.page import headline, page_lines
from experiments.benches.spoc.plot import draw, fill
from experiments.benches.spoc.published import PUBLISHED, judged
from experiments.benches.spoc.run import skipped
from experiments.zoo.applications import SIDES
from placer.errors import BadInputError, PlacerError
from placer.graph.op_graph import Op, OpGraph
from surrogate.features.spoc import spoc
from tests.experiments.benches.run_bench import run_bench

pytestmark = pytest.mark.slow

BARE = asdict(spoc(OpGraph("bare", (Op("a", devices=("cpu",)),), ())))
RATES = {"ops": 5e-6, "traffic_bytes": 2e-10, "operations": 3e-11}  # seconds each, in the true law


def row(rng, family, name):
    """A network whose family decides how its operations, traffic and ops relate; times follow RATES exactly."""
    scale = rng.uniform(1, 20)
    metrics = {
        "ops": int(rng.uniform(100, 3000)),
        "traffic_bytes": float(10 ** rng.uniform(6, 9)),
        "parameters": int(rng.uniform(1e4, 1e7)),
        "operations": float(10 ** rng.uniform(6, 10)) * family,
        "span": int(rng.uniform(50, 900)),
    }
    metrics |= {"multiply_adds": metrics["operations"] / 2.1, "hops": metrics["span"] // 2}
    metrics = BARE | metrics | {"dense_multiply_adds": metrics["multiply_adds"], "name": name}
    seconds = sum(rate * metrics[key] for key, rate in RATES.items())
    facts = {"name": name, "family": f"family{family}", "repeats": 7, "reference_s": 0.01 * scale,
             "reference_spread_s": 0.0, "count_params": metrics["parameters"], "seconds": 3.0}  # fmt: skip
    facts["forward"] = {**metrics, "chain_operations": metrics["operations"]}
    for target, share in (("step", 1.0), ("inference", 0.3)):
        facts |= {target: metrics, f"{target}_s": share * seconds * scale, f"{target}_spread_s": 0.1 * seconds}
    return facts


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return [row(rng, family, f"net{family}-{i}") for family in range(1, 7) for i in range(8)]


@pytest.fixture(autouse=True, scope="module")
def quick_regressors():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "KINDS", {name: KINDS[name] for name in ("additive", "power law")})
        yield


@pytest.fixture(scope="module")
def facts(rows):
    counted = {"parameters": 10, "parameters_read": 9, "count_params": 10, "multiply_adds": 15.47e9}
    published = {kind: {"skipped": "time", "detail": "slow"} for kind in PUBLISHED}
    return bench.analysed_rows(rows) | {
        "skipped": [{"name": "huge", "skipped": "memory", "detail": "more than 7.0 GiB"}],
        "published": published | {"VGG16": judged("VGG16", counted)},
        "published_within": 0.02,
        "cap_s": 150.0,
        "cap_bytes": 7 * 2**30,
        "data": "benchmarks/spoc.csv",
    }


def test_there_are_at_least_400_networks_all_different_and_every_classifier_takes_part():
    every = networks()
    assert len(every) >= 400 and len({network.name for network in every}) == len(every)
    assert set(SIDES) <= {network.kind for network in every}
    assert {"dense_chain", "conv_chain", "separable_chain", "branches", "cells"} < set(families(every))


@pytest.mark.parametrize("count", [6, 19, 60])
def test_a_part_is_spread_over_all_families(count):
    every, some = networks(), stratified(networks(), count)
    assert len(set(some)) == count and set(some) <= set(every) and not any(network.heavy for network in some)
    light = [network for network in every if not network.heavy]
    of = {f: (sum(n.family == f for n in some), sum(n.family == f for n in light)) for f in families(every)}
    most = max(drawn for drawn, _ in of.values())
    assert all(drawn >= min(there, most - 1) for drawn, there in of.values())
    assert stratified(every[:0], count) == ()


def test_what_to_measure_is_chosen_by_options():
    assert len(bench.choose(BenchOptions())) == bench.NETWORKS
    assert bench.choose(BenchOptions(("all",))) == networks()
    assert set(families(bench.choose(BenchOptions(("vgg", "cells"))))) == {"vgg", "cells"}
    assert len(bench.choose(BenchOptions(("vgg", "cells"), measurements=6))) == 6
    for options, says in (
        (BenchOptions(("lenet",)), "no family"),
        (BenchOptions(("vgg",)), "a single family"),
        (BenchOptions(measurements=2), "at least 6"),
    ):
        with pytest.raises(BadInputError, match=says):
            run_bench("spoc", options, record=False)


def test_an_additive_law_is_found_and_predicts_families_that_it_has_not_seen(rows):
    timed = timed_of(rows, "step")
    predicted = left_out(timed, SETS[SPOC], Additive)
    np.testing.assert_allclose(predicted, timed.seconds, rtol=0.02)
    alone = left_out(timed, ("operations",), Additive)
    assert np.mean(np.abs(alone / timed.seconds - 1)) > 0.2


def test_a_power_law_reaches_families_that_take_far_longer_than_those_it_saw():
    """Thirty times the operations of all other families take thirty times as long."""
    operations = np.array([*np.geomspace(1e5, 1e7, 16), 3e8])
    metrics, names = dict.fromkeys(METRICS, operations), tuple(map(str, range(17)))
    timed = TimedNetworks(names, ("small",) * 8 + ("middle",) * 8 + ("large",), metrics, 1e-9 * operations)
    predicted = left_out(timed, SETS[FLOPS], KINDS["power law"])
    assert predicted[-1] == pytest.approx(timed.seconds[-1], rel=0.1)


def test_a_left_out_family_is_really_left_out(rows):
    """Spoiling a family's times leaves the predictions of that family as they were."""
    timed = timed_of(rows, "step")
    spoilt = timed_of([r | {"step_s": r["step_s"] * 1e3} if r["family"] == "family3" else r for r in rows], "step")
    of = np.array(timed.families) == "family3"
    before, after = (left_out(s, ("ops", "operations"), Additive) for s in (timed, spoilt))
    np.testing.assert_allclose(after[of], before[of], rtol=1e-6)
    assert not np.allclose(after[~of], before[~of], rtol=0.05)


def test_the_reference_takes_out_the_pace_of_the_machine(rows):
    """Every row was measured at another pace; by the reference's all follow one law."""
    timed = timed_of(rows, "step")
    law = sum(rate * timed.metrics[key] for key, rate in RATES.items())
    ratio = timed.seconds / law
    np.testing.assert_allclose(ratio, ratio[0])


def test_correlations_of_what_is_known():
    seconds = np.array([1.0, 2.0, 4.0, 8.0])
    assert correlation(seconds**3, seconds) == pytest.approx({"pearson": 1.0, "spearman": 1.0})
    assert correlation(1 / seconds, seconds) == pytest.approx({"pearson": -1.0, "spearman": -1.0})
    assert correlation(np.ones(4), seconds) == {"pearson": 0.0, "spearman": 0.0}


def test_facts_have_every_key_and_spoc_beats_flops(facts):
    assert facts["n_networks"] == 48 and facts["n_families"] == 6
    assert facts["spoc_error"] < 0.05 < facts["flops_error_at_best"] <= facts["flops_error"]
    by_kind = facts["targets"]["step"]["errors"]
    assert facts["flops_error_at_best"] == by_kind[facts["flops_regressor_at_best"]][FLOPS]["mean"]
    assert (facts["seeds"], facts["repeats"]) == ([0], {"at least": 7, "at most": 7})
    assert -1 <= facts["cdl_spearman"] <= 1
    assert json.loads(json.dumps(facts)) == facts
    families_of = facts["targets"]["step"]["families"]
    whole = np.average(
        [f[SPOC]["mean"] for f in families_of.values()], weights=[f["networks"] for f in families_of.values()]
    )
    assert whole == pytest.approx(facts["spoc_error"])


def test_one_family_cannot_be_left_out_and_few_networks_cannot_be_fitted(rows):
    with pytest.raises(PlacerError, match="only one family"):
        analysed(timed_of(rows[:8], "step"))
    with pytest.raises(PlacerError, match="3 networks"):
        bench.analysed_rows(rows[:3])


def test_the_page_tells_errors_skips_counts_and_where_the_picture_is(facts):
    text = "\n".join(page_lines(facts))
    step = facts["targets"]["step"]["errors"][facts["regressor"]]
    figures = f"{step[SPOC]['mean']:.1%} | {step[SPOC]['median']:.1%}"
    assert f"| **{SPOC}** ({', '.join(SETS[SPOC])}) | {figures} |" in text
    assert f"| **{FLOPS}** (operations) |" in text and "huge" in text and "1 (memory)" in text
    assert "| VGG16 | 10 | 1 | 10 | 15,470.0 M | 15,300 M | +1.1% |" in text
    assert "within 2% of the published figure for 1 of 1" in text and "VGG19 (time: slow)" in text
    assert "(docs/spoc.png)" in text and "`benchmarks/spoc.csv`" in text


def test_the_page_names_heavy_networks_that_are_not_in_the_sample_and_medians(facts):
    heavy = [network.name for network in networks() if network.heavy]
    text = "\n".join(page_lines(facts | {"skipped": [], "networks": ["MobileNet-64px"]}))
    assert (
        "None of those drawn was skipped. The sample is drawn only from networks that are not heavy, that is slow"
        in text
    )
    assert f"{len(heavy)} heavy ones are not in it." in text
    assert "heavy ones" not in "\n".join(page_lines(facts | {"networks": heavy}))
    assert f"SPOC errs by {facts['spoc_error']:.1%} (95% interval " in text and "FLOPs alone err by" in text
    assert "The formula has no fixed cost per step" in text


def test_the_headline_gives_flops_the_regressor_that_suits_them(facts):
    errors = {"a": {FLOPS: {"mean": 0.9}}, "b": {FLOPS: {"mean": 0.4, "median": 0.2}}}
    assert flops_at_best(errors) == ("b", {"mean": 0.4, "median": 0.2})
    told = f"on families left out, FLOPs alone by {facts['flops_error_at_best']:.1%} (median "
    assert told in headline(facts) and headline(facts).endswith("%) at best")
    sentence = {what: {"right": 2, "wrong": 1} for what in ("batch", "devices")} | {
        "split": {"right": None, "wrong": 0}
    }
    told = headline(facts | {"advice": {"sentences": {"launch-bound": sentence, "wide": sentence}}})
    assert told.endswith("; advice right / wrong: a bigger batch 4 / 2, more devices 4 / 2, split ops 0 / 0")


def test_the_record_is_shown_as_it_was_even_where_it_is_older_than_the_code():
    here = Path(__file__).parents[4]
    facts = json.loads((here / "benchmarks" / "spoc.json").read_text(encoding="utf-8"))
    page = (here / "BENCHMARKS.md").read_text(encoding="utf-8").splitlines()
    assert all(line in page for line in page_lines(facts))


def test_the_part_that_is_measured_by_default_is_judged_by_itself(facts, monkeypatch):
    rng = np.random.default_rng(1)
    names = dict.fromkeys(network.name for count in (12, 24) for network in stratified(networks(), count))
    rows = [row(rng, 1 + i % 6, name) for i, name in enumerate(names)]
    monkeypatch.setattr(bench, "NETWORKS", 12)
    part = bench.part_facts(rows)
    assert part["n_networks"] == 12 and part["spoc_error"] < 0.01
    assert bench.part_facts(rows[:12]) is None
    assert "The stratified 12 of these" in "\n".join(page_lines(facts | {"part": part}))


def test_the_picture_shows_what_the_facts_say(facts, tmp_path):
    figure = Figure()
    fill(figure, facts)
    flops, whole, correlations = figure.axes
    assert [ax.get_title().split(":")[0] for ax in (flops, whole)] == [FLOPS, SPOC]
    drawn = [predicted for dots in whole.collections for _, predicted in dots.get_offsets().tolist()]
    assert sorted(drawn) == sorted(facts["targets"]["step"]["points"][SPOC])
    assert [label.get_text() for label in correlations.get_yticklabels()][:-1] == list(METRICS)
    draw(facts, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_the_data_holds_every_number_of_a_network(rows):
    kept = bench.data_row(rows[5])
    assert list(kept)[:4] == ["name", "family", "repeats", "reference_s"]
    assert kept["name"] == rows[5]["name"]
    assert float(kept["step_operations"]) == pytest.approx(rows[5]["step"]["operations"])


@pytest.mark.parametrize(("why", "asked_again"), [("time", True), ("died", True), ("failed", True), ("memory", False)])
def test_what_a_busy_machine_may_have_skipped_is_asked_again(tmp_path, why, asked_again):
    def measurer(answer):
        return {ALL_CORES: SimpleNamespace(ask=lambda method, network: answer)}

    def asked(answer):
        asking = Asking(BenchOptions(runs=tmp_path), measurers=measurer(answer), until_s=inf)
        return asking.measured(networks()[0], ALL_CORES)

    first = asked({"skipped": why, "detail": "more than 150 s"})
    assert ("failed" in first) == asked_again
    assert (asked({"step_s": 1.0}) == {"step_s": 1.0}) == asked_again
    assert skipped({ALL_CORES.name: {"a": first}})[0].get("failed") == ("more than 150 s" if asked_again else None)


@pytest.mark.nightly
def test_a_campaign_goes_on_where_it_was_stopped(rows, tmp_path, monkeypatch):
    """What was measured, and what was skipped for a reason, is not asked for again."""
    asked = []

    class Fake:
        def __init__(self, make, _):
            self.kind = make.args[0]

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ask(self, method, network):
            asked.append((self.kind, network))
            if method == "counted" or network.family == "vgg":
                return {"skipped": "memory", "detail": "more than 7.0 GiB"}
            return {k: v for k, v in rows[len(asked) % len(rows)].items() if k not in ("name", "family")}

    monkeypatch.setattr(bench, "Measurer", Fake)
    options = BenchOptions(measurements=12, runs=tmp_path)
    first = bench.bench_facts(options)
    count, tries = len(asked), len(first["advice"]["networks"])
    assert count == 1 + 11 * len(DEVICE_KINDS) + len(PUBLISHED) + 2 * tries and tries > 0
    again = bench.bench_facts(options)
    assert len(asked) == count
    assert {**first, "seconds": 0} == {**again, "seconds": 0}
    assert [(r["device"], r["skipped"]) for r in first["skipped"]] == [(ALL_CORES.name, "memory")]
    assert first["n_networks"] == first["n_shared"] == 11 and all(first["targets"][t]["families"] for t in TARGETS)

    kept = sorted((tmp_path / "spoc" / ONE_CORE.slug).glob("*.json"))
    for path in kept[:3]:
        path.unlink()
    cut_short = bench.bench_facts(replace(options, minutes=1e-9))
    assert len(asked) == count
    assert sorted(r["name"] for r in cut_short["skipped"] if r["skipped"] == NOT_REACHED) == [p.stem for p in kept[:3]]
    assert (cut_short["n_networks"], cut_short["n_shared"]) == (11, 8)
    bench.bench_facts(options)
    of = {path.stem for path in kept[:3]}
    assert {(kind, network.name) for kind, network in asked[count:]} >= {(ONE_CORE, name) for name in of}


def test_calls_are_made_in_turn_after_a_warm_up_until_the_time_is_over():
    now, made = [0.0], []

    def call(name, seconds):
        made.append(name)
        now[0] += seconds

    calls = [partial(call, "a", 1.0), partial(call, "b", 0.5)]
    times_s = in_turn(calls, Repeats(warm_up=2, fewest=3, most=9, seconds=6.0), lambda: now[0])
    np.testing.assert_array_equal(times_s, [[1.0, 0.5]] * 4)
    assert "".join(made) == "aabb" + "ab" * 4
    assert len(in_turn(calls, Repeats(warm_up=0, fewest=3, most=9, seconds=0.1), lambda: now[0])) == 3
    assert len(in_turn(calls, Repeats(warm_up=0, fewest=1, most=2, seconds=99.0), lambda: now[0])) == 2
    made.clear()
    slow = Repeats(warm_up=2, fewest=5, most=9, seconds=1.0, fewest_long=3, long_s=0.8)
    assert len(in_turn(calls, slow, lambda: now[0])) == 3 and made[:3] == ["a", "b", "b"]


def test_a_small_network_is_measured_beside_the_reference():
    study = SpocStudy(Repeats(warm_up=1, fewest=2, most=2))
    found = study.measured(Network("test", "conv_chain", 8, 2, (("filters", 4), ("depth", 2))))
    study.forget()
    assert found["repeats"] == 2 and found["reference_s"] > 0 and found["step_s"] > 0 and found["inference_s"] > 0
    assert found["step"]["parameters"] == found["inference"]["parameters"] == found["count_params"]
    assert found["step"]["operations"] > 2 * found["inference"]["operations"]
    counted = study.counted(Network("test", "conv_chain", 8, 1, (("filters", 4), ("depth", 2))))
    assert counted["parameters"] == counted["count_params"] == found["count_params"]


def test_the_price_of_an_op_and_of_a_flop_are_found_and_say_what_launching_is_worth(rows):
    each = seconds_each(timed_of(rows, "step"))
    pace = np.median([r["reference_s"] for r in rows]) / 0.01
    assert each["ops"] / pace == pytest.approx(RATES["ops"], rel=0.05)
    assert each["traffic_bytes"] / pace == pytest.approx(RATES["traffic_bytes"], rel=0.05)
    assert launch_operations(each) == pytest.approx(RATES["ops"] / RATES["operations"], rel=0.15)
    assert launch_operations({"ops": 1.0, "operations": 0.0, "dense_multiply_adds": 0.0}) is None


def test_tiny_steps_are_not_predicted_from_the_constant_of_large_ones():
    """One family takes a hundredth of all others: with ops to count, there is no constant that hides this."""
    rng = np.random.default_rng(2)
    rows = [row(rng, family, f"net{family}-{i}") for family in range(1, 5) for i in range(8)]
    for r in rows[:8]:
        for target in TARGETS:
            r[target] = {**r[target], **{key: r[target][key] / 100 for key in METRICS}}
            r[f"{target}_s"] /= 100
    timed = timed_of(rows, "step")
    np.testing.assert_allclose(left_out(timed, SETS[SPOC], Additive)[:8], timed.seconds[:8], rtol=0.1)
    assert Additive(("operations",)).constant and not Additive(SETS[SPOC]).constant


@pytest.mark.nightly
def test_a_process_of_one_core_has_one_core_and_one_thread_for_each_pool():
    for kind, cores, op in ((ONE_CORE, 1, 1), (CORE_PER_OP, len(os.sched_getaffinity(0)), 1)):
        assert alone(pools, kind) == (cores, op, cores)
    before = len(os.sched_getaffinity(0))
    assert alone(pools, ALL_CORES) == (before, 0, 0)  # 0: as TensorFlow chooses


def pools(kind):
    settle(kind)
    import tensorflow as tf

    threads = tf.config.threading
    cores = {len(os.sched_getaffinity(int(t.name))) for t in Path("/proc/self/task").iterdir()}
    assert len(cores) == 1
    return cores.pop(), threads.get_intra_op_parallelism_threads(), threads.get_inter_op_parallelism_threads()
