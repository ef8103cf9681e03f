"""The bench gpu: what comes first, what a GPU has room for, figures of made-up runs, and one real run on two CPUs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import tensorflow as tf
from matplotlib.figure import Figure

from experiments import zoo
from experiments.benches.bench import BenchOptions
from experiments.benches.gpu import run as gpu
from experiments.benches.gpu import study, tasks
from experiments.benches.gpu.ahead import compile_ahead
from experiments.benches.gpu.figures import (
    DEFAULT,
    all_facts,
    found_facts,
    mape,
    name_of,
    ratio_error,
    tight_facts,
    unseen,
)
from experiments.benches.gpu.page import headline, page_lines
from experiments.benches.gpu.parts_page import overhead_line
from experiments.benches.gpu.plot import draw, fill
from experiments.benches.gpu.tasks import Budget, Task, hardware_of, tables_mib
from experiments.jobs.search.finding import Trial
from placer.devices.variables import variable_on
from placer.errors import BadInputError
from placer.graph.topology import Device, Topology
from placer.result import Failed, Measured
from tests.clock import Clock
from tests.experiments.benches.run_bench import run_bench

pytestmark = pytest.mark.slow

NAMES = ("gpu:0", "cpu:0")


def searched(ratio, bound=1.1, delivered="hybrid", **changes):
    """The facts of one search whose default took 10 ms."""
    figures = {"step_s": 0.01 / ratio, "spread_s": 0.0002, "repeats": 50}
    return {
        "ratio_to_tf_default": ratio, "ratio_error": 0.003, "ratio_to_best_single": ratio * 0.98,
        "delivered": delivered,
        "tf_default_s": 0.01, **figures, "best_single": "gpu:0", "best_single_s": 0.0098, "best_mapping": "hybrid",
        "best_mapping_s": 0.01 / ratio, "predicted_s": 0.0101, "bound_s": 0.01 / bound, "bound_ratio": bound,
        "contestants": {
            DEFAULT: {**figures, "step_s": 0.01}, "gpu:0": {**figures, "step_s": 0.0098},
            "cpu:0": {**figures, "step_s": 0.5, "dropped": True}, "heft": {"failed": "memory"}, "hybrid": figures,
        },
        "placed": {"gpu:0": {"ops": 0.9, "seconds": 0.999}, "cpu:0": {"ops": 0.1, "seconds": 0.001}},
        "unseen": [[0.011, 0.01], [0.009, 0.01]], "ops": 300, "groups": 90, "measured": 10, "switch_s": 0.4,
        "ended": [], "seconds": 30.0, **changes,
    }  # fmt: skip


TIGHT = tight_facts(
    {"default": "fails: memory", "where": "when the model was made", "detail": "OOM"},
    {
        **searched(1.0), "best_single": "cpu:0", "best_single_s": 0.02, "best_mapping_s": 0.008, "limit_bytes": 2**30,
        "table_bytes": 3 * 2**29, "trains": True, "losses": [7.6, 7.1], "steps": 30,
    },
)  # fmt: skip
AUTOPLACE = {
    "overhead": 0.004, "overhead_total": 0.006, "overhead_error": 0.002, "bare_s": 0.01, "call_s": 0.01, "steps": 400,
    "settled_on": "gpu:0",
}  # fmt: skip
PARTS = {
    "models": {
        "vgg16": searched(1.0, 1.02, DEFAULT),
        "alexnet": searched(1.2),
        "mnist_softmax": searched(2.0, 5.0),
        "moe": {"failed": "died: the process ended with code -6"},
    },
    "gpus:2": {"towers": searched(1.3, 2.0)},
}


def made_up():
    """The facts of a whole run."""
    return {
        "device": "NVIDIA H200", "real": True, **deepcopy(all_facts(PARTS, TIGHT, AUTOPLACE)), "limit_mib": 1024,
        "measurements": 10, "minutes": 10.0, "not_reached": ["nasnet_mobile on CPU + GPU"],
        "failed": {"moe on CPU + GPU": "died: the process ended with code -6"}, "seconds": 580.0,
    }  # fmt: skip


class TestTasks:
    def test_published_networks_come_first_then_tight_memory_then_the_rest(self):
        planned = tasks.tasks_of(hardware_of(None))
        assert [task.name for task in planned[:3]] == ["vgg16", "alexnet", "mnist_softmax"]
        assert planned[3].part == "tight" and planned[4].part == "autoplace"
        assert {task.name for task in planned if task.part == "models"} == set(zoo.names())
        assert {task.devices for task in planned if task.part == "splits"} == {"gpus:2"}
        assert len({task.key for task in planned}) == len({task.title for task in planned}) == len(planned)

    def test_a_trial_on_cpus_has_small_networks_and_is_not_real(self):
        hardware = hardware_of("cpus:2")
        assert (
            not hardware.real
            and hardware.model("vgg16") == "vgg16"
            and hardware_of(None).model("vgg16") == "vgg16@native"
        )
        planned = tasks.tasks_of(hardware)
        assert {task.devices for task in planned} == {"cpus:2"}
        assert len({task.key for task in planned}) == len({task.title for task in planned}) == len(planned)

    def test_only_some_networks(self):
        planned = tasks.tasks_of(hardware_of(None), ("towers",))
        found = {(task.part, task.devices) for task in planned}
        assert found == {("models", None), ("autoplace", None), ("splits", "gpus:2")}

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"devices": "cpus:1"}, "N >= 2"),
            ({"devices": "gpus:2"}, "cpus:N"),
            ({"devices": "workers:2"}, "cpus:N"),
            ({"models": ("lenet",)}, "'lenet' is none of"),
            ({"measurements": 0}, "at least 1"),
            ({"minutes": 0.5}, "--minutes 0.5"),
            ({"devices": "cpus:2", "record": True}, "no GPU takes part"),
        ],
    )
    def test_bad_options_are_refused_before_any_process_starts(self, checkout, monkeypatch, options, says):
        monkeypatch.setattr(gpu, "Host", None)
        with pytest.raises(BadInputError, match=says):
            run_bench("gpu", BenchOptions(**options), record="record" in options)

    def test_other_benches_take_no_devices(self):
        with pytest.raises(BadInputError, match="takes no --devices"):
            run_bench("main-job", BenchOptions(devices="cpus:2"), record=False)


class TestBudget:
    def test_what_is_left_is_shared_out_and_the_first_may_take_more(self):
        clock = Clock()
        budget = Budget(10, clock)
        first, later = Task("models", "vgg16", None, 100.0, first=True), Task("models", "moe", None, 90.0)
        assert budget.share_s(first, 50) == 100.0
        assert budget.share_s(later, 1) == 90.0
        assert budget.share_s(later, 10) == pytest.approx(budget.seconds / 10)
        assert budget.share_s(later, 1000) == tasks.ENOUGH_S
        clock.now_s = budget.seconds - tasks.LEAST_S + 1
        assert budget.share_s(first, 1) is None

    def test_in_a_shorter_run_each_task_has_less(self):
        first, short = Task("models", "vgg16", None, 100.0, first=True), Task("models", "x", None, 20.0, first=True)
        budget = Budget(tasks.MINUTES / 2, Clock())
        assert budget.share_s(first, 50) == 50.0
        assert budget.share_s(short, 50) == tasks.LEAST_S
        assert budget.share_s(Task("models", "y", None, 90.0), 1000) == tasks.ENOUGH_S / 2
        assert Budget(2 * tasks.MINUTES, Clock()).share_s(first, 1) == 100.0

    @pytest.mark.parametrize("minutes", [1, 3, 10])
    def test_the_deadline_is_kept_whatever_tasks_take(self, minutes):
        """Each takes all that it is let, and those after it what is left."""
        clock = Clock()
        budget = Budget(minutes, clock)
        planned = tasks.tasks_of(hardware_of(None))
        reached = 0
        for i, task in enumerate(planned):
            share_s = budget.share_s(task, len(planned) - i)
            if share_s is not None:
                reached += 1
                clock.now_s += budget.limit_s(share_s)
        assert clock.now_s <= 60 * minutes - tasks.RESERVE_S
        assert 1 <= reached < len(planned)


class TestTables:
    @pytest.mark.parametrize("limit_mib", [tasks.TRIAL_LIMIT_MIB, tasks.LIMIT_MIB])
    def test_the_tables_do_not_fit_together_but_each_one_and_all_the_rest_do(self, limit_mib):
        small = zoo.load("two_tower@3MiB", batch=2)
        everything = sum(4 * w.shape.num_elements() for w in map(tf.convert_to_tensor, small.model.weights))
        rest = everything - study._table_bytes(small)
        tables, room = tables_mib(limit_mib) * 2**20, (1 - study.TIGHT_HEADROOM) * limit_mib * 2**20
        assert tables > limit_mib * 2**20
        assert tables / 3 < room and rest < room

    def test_tables_have_the_size_that_was_asked_for(self):
        found = study._table_bytes(zoo.load("two_tower@6MiB", batch=2))
        assert 0 <= 6 * 2**20 - found < 3 * 256

    @pytest.mark.parametrize("model", ["two_tower@6GiB", "two_tower@0MiB", "moe@6MiB", "vgg16@96"])
    def test_other_sizes_are_one_line(self, model):
        with pytest.raises(BadInputError, match="has no size"):
            zoo.find(model)

    def test_native_is_larger(self):
        assert zoo.load("mnist_softmax@native").example_inputs[0].shape == (128, 784)
        shapes = [zoo.load(name, batch=1).example_inputs[0].shape[1] for name in ("moe", "moe@native")]
        assert shapes == [256, 512]


def row(searcher, devices, result, predicted_s=None, stored=False):
    topology = Topology(tuple(Device(name, name.partition(":")[0]) for name in NAMES))
    mapping = SimpleNamespace(topology=topology, devices=devices, is_single=len(set(devices)) == 1)
    return Trial(searcher, mapping, result, predicted_s, stored=stored, replayed_s=0.009)


def finding(default_s, hybrid_s=0.008, gpu_s=0.009):
    singles = [row("single", (0, 0), Measured(gpu_s, 0.001, 12), 0.02)]
    singles.append(row("single", (1, 1), Measured(0.5, 0.0, 1, stopped_early=True), 0.4))
    best = row("hybrid", (0, 1), Measured(hybrid_s, 0.0, 12), predicted_s=0.01)
    failed = row("heft", (1, 0), Failed("memory", "OOM"), predicted_s=0.01)
    final = min([best, singles[0]], key=lambda r: r.result.step_s)
    default = Measured(default_s, 0.0, 30)
    return SimpleNamespace(
        best=final, best_single=singles[0], tf_default=default, finalists=(best, singles[0]), lower_bound_s=0.004,
        default_wins=default_s < final.result.step_s, measured=(*singles, best, failed), ops=2, switch_s=None,
        groups=SimpleNamespace(graph=[]), mapping=final.mapping, topology=final.mapping.topology, ended=(), seconds=1.0,
    )  # fmt: skip


class TestFigures:
    def test_the_delivered_mapping_is_held_against_default_and_best_single(self):
        facts = found_facts(finding(0.010), [0.006, 0.002])
        assert facts["ratio_to_tf_default"] == pytest.approx(1.25)
        assert facts["ratio_to_best_single"] == pytest.approx(9 / 8)
        assert facts["delivered"] == "hybrid" and facts["bound_ratio"] == pytest.approx(2.5)
        assert facts["placed"] == {
            "gpu:0": {"ops": 0.5, "seconds": pytest.approx(0.75)},
            "cpu:0": {"ops": 0.5, "seconds": pytest.approx(0.25)},
        }
        contest = facts["contestants"]
        assert set(contest) == {DEFAULT, "gpu:0", "cpu:0", "hybrid", "heft"}
        assert contest["cpu:0"]["dropped"] and contest["heft"] == {"failed": "memory", "detail": "OOM"}
        assert "dropped" not in contest["gpu:0"]

    def test_predictions_are_given_in_the_time_of_the_end(self):
        steady, faster = finding(0.010), finding(0.010)
        ends = [replace(r, result=replace(r.result, step_s=r.result.step_s / 2)) for r in faster.finalists]
        faster.finalists, faster.best = tuple(ends), ends[0]
        facts = found_facts(steady, [1.0, 0.0])
        assert facts["drift"] == 1.0 and facts["bound_s"] == 0.004 and facts["predicted_s"] == 0.009
        facts = found_facts(faster, [1.0, 0.0])
        assert facts["drift"] == 0.5 and facts["bound_s"] == 0.002 and facts["predicted_s"] == 0.0045
        assert facts["contestants"]["gpu:0"]["predicted_s"] == 0.0045
        assert facts["unseen"] == [(0.01, 0.008)]  # both from the search
        faster.finalists = ()
        assert found_facts(faster, [1.0, 0.0])["drift"] == 1.0

    def test_a_ratio_within_its_error_is_no_gain(self):
        steps = Measured(0.01, 0.001, 25), Measured(0.0098, 0.001, 25)
        assert ratio_error(*steps) == pytest.approx(0.027, abs=0.001)
        assert ratio_error(steps[0], steps[0]) == 0.0
        facts = made_up()
        facts["models"]["alexnet"] |= {"ratio_to_tf_default": 1.04, "ratio_error": 0.027}
        text = "\n".join(page_lines(facts))
        assert "default: `mnist_softmax` 2.00x." in text and "standard error: `alexnet` 1.04x." in text

    def test_where_the_default_wins_it_is_what_is_delivered(self):
        facts = found_facts(finding(0.007), [1.0, 0.0])
        assert facts["delivered"] == DEFAULT and facts["ratio_to_tf_default"] == 1.0
        assert facts["step_s"] == 0.007 and facts["best_mapping_s"] == 0.008
        assert facts["ratio_to_best_single"] == pytest.approx(9 / 7)

    def test_errors_are_of_what_was_predicted_before_it_was_measured(self):
        assert unseen(finding(0.010).measured) == [(0.01, 0.008)]
        assert unseen([row("hybrid", (0, 1), Measured(0.008), 0.01, stored=True)]) == []
        assert unseen([row("hybrid", (0, 1), Measured(0.008, repeats=1), 0.01)]) == []  # dropped after its first step
        assert mape([(1.1, 1.0), (0.8, 1.0)]) == pytest.approx(0.15) and mape([]) is None

    def test_all_parts_count_together_and_failures_give_no_figure(self):
        facts = all_facts(PARTS, TIGHT, AUTOPLACE)
        assert facts["n_unseen"] == 8 and facts["unseen_mape"] == pytest.approx(0.1)
        assert facts["worst_ratio_to_tf_default"] == 1.0
        assert (facts["overhead"], facts["overhead_medians"]) == (0.006, 0.004)
        nothing = all_facts({}, None, {"failed": "time: more than 9 s"})
        assert nothing["unseen_mape"] is None and nothing["overhead"] is None and nothing["models"] == {}

    def test_tight_memory_is_told_as_it_was(self):
        assert TIGHT["default"] == "fails: memory" and TIGHT["ratio_to_cpu_only"] == pytest.approx(2.5)
        died = tight_facts({"failed": "died: code -9"}, {"failed": "time: more than 9 s"})
        assert died["default"] == "died: code -9" and not died["trains"]

    def test_single_devices_go_by_their_name(self):
        assert [name_of(row("single", devices, Measured(1.0))) for devices in ((0, 0), (1, 1))] == list(NAMES)


class TestPage:
    def test_it_says_what_helps_and_what_does_not(self):
        text = "\n".join(page_lines(made_up()))
        assert "Faster than TensorFlow's default: `alexnet` 1.20x, `mnist_softmax` 2.00x." in text
        assert "No mapping beat the default on `vgg16`" in text
        assert "the GPU alone is the place for all that is heavy" in text
        assert "- `vgg16` 1.13x; here 1.00x, without placement. Predictions allow at most 1.02x." in text
        assert "- `alexnet` 1.18x; here 1.20x, without placement." in text
        assert (
            "- `mnist_softmax` 3.33x; here 2.00x, without placement. Predictions allow up to 5.00x; the search did not "
            "find that." in text
        )
        assert "`alexnet`: predictions allowed at most 1.10x; measured 1.20x, so they were wrong here." in text
        assert "Geometric mean over the networks: 1.34 (95% interval" in text
        assert "| `moe` | failed: died" in text and "| gpus:2 | `towers` |" in text
        assert "TensorFlow's default: fails: memory (when the model was made)" in text and "2.50x of everything" in text
        assert "off by 10.0% on average, 10.0% in the median" in text
        assert "`placer.autoplace` on `alexnet` once its search is over" in text
        assert "+0.6% by all seconds, +0.4% +- 0.2% by medians, of 10.0 ms" in text
        assert "Not reached in 10 minutes: nasnet_mobile on CPU + GPU." in text

    def test_what_autoplace_did_beside_the_measured_calls_is_said(self):
        line = overhead_line({**AUTOPLACE, "meanwhile": ["Steps take 1.2x as long.", "Going on."]})
        assert line.endswith("in blocks in turn. Meanwhile it said: Steps take 1.2x as long. Going on.")
        assert overhead_line({**AUTOPLACE, "meanwhile": []}) == overhead_line(AUTOPLACE)

    def test_what_was_delivered_without_a_placement_is_said(self):
        facts = made_up()
        both = {"gpu:0": {"ops": 0.9, "seconds": 0.95}, "cpu:0": {"ops": 0.1, "seconds": 0.05}}
        facts["models"]["mnist_softmax"] |= {"placed": both, "ratio_to_best_single": 1.05}
        text = "\n".join(page_lines(facts))
        assert "- `mnist_softmax` 3.33x; here 2.00x, 1.05x of it by placement. Predictions" in text
        alone = "On 1 of these what was delivered runs on one device, by all but 1 % of its seconds: that is no plac"
        assert text.count(alone) == 2
        assert "faster on 2 of 3 networks (2 tasks missing), on 1 without placement" in headline(facts)
        facts["models"]["alexnet"]["placed"] = facts["splits"]["gpus:2"]["towers"]["placed"] = both
        assert "on one device, by" not in "\n".join(page_lines(facts))

    def test_what_placement_gained_is_told_apart_from_what_was_delivered(self):
        facts = made_up()
        for name, ratio in (("vgg16", 1.0), ("alexnet", 1.0), ("mnist_softmax", 1.331)):
            facts["models"][name]["ratio_to_best_single"] = ratio
        assert "times TensorFlow's default, 1.10 times the best single device; faster" in headline(facts)
        assert "over the same step placed on the best single device: 1.10 (95%" in "\n".join(page_lines(facts))

    def test_a_ratio_that_was_not_allowed_for_shows_predictions_to_be_wrong(self):
        facts = made_up()
        facts["models"]["mnist_softmax"]["bound_ratio"] = 0.99
        text = "\n".join(page_lines(facts))
        wrong = "redictions allowed at most 0.99x; measured 2.00x, so they were wrong here."
        assert text.count(wrong) == 1 and f"3.33x; here 2.00x, without placement. P{wrong}" in text

    def test_tables_are_whole(self):
        lines = [line for line in page_lines(made_up()) if line.startswith("|")]
        assert {line.count("|") for line in lines if "`vgg16`" in line or "network | Tensor" in line} == {13}
        assert len({line.count("|") for line in lines}) == 2

    def test_a_mapping_over_both_kinds_is_said(self):
        facts = made_up()
        facts["models"]["alexnet"]["placed"] = {
            "gpu:0": {"ops": 0.9, "seconds": 0.9},
            "cpu:0": {"ops": 0.1, "seconds": 0.1},
        }
        assert "uses both CPU and GPU, each for at least 1 % of the seconds, on `alexnet`" in "\n".join(
            page_lines(facts)
        )

    def test_nothing_measured_is_a_page_and_a_picture_too(self, tmp_path):
        facts = {**made_up(), **all_facts({}, None, None)}
        assert "No network was measured" in "\n".join(page_lines(facts))
        assert headline(facts).startswith("unknown times TensorFlow's default, unknown times the best single device; ")
        assert "faster on 0 of 0 networks" in headline(facts)
        assert headline(facts).endswith("unseen mappings off by unknown; overhead - (wanted: 1%)")
        draw(facts, tmp_path / "p.png")

    def test_it_goes_through_json(self):
        facts = json.loads(json.dumps(made_up()))
        assert page_lines(facts) == page_lines(made_up())

    def test_the_picture_shows_what_the_facts_say(self, tmp_path):
        figure = Figure()
        fill(figure, made_up())
        whole, split, predictions = figure.axes
        assert [label.get_text() for label in whole.get_yticklabels()] == ["vgg16", "alexnet", "mnist_softmax"]
        assert [bar.get_width() for bar in whole.patches] == [1.0, 1.2, 2.0]
        bounds, published = whole.collections
        assert bounds.get_offsets().tolist() == [[1.02, 0], [1.1, 1]]  # 5.0 is beyond what is drawn
        assert published.get_offsets().tolist() == [[1.13, 0], [1.18, 1], [3.33, 2]]
        assert [label.get_text() for label in split.get_yticklabels()] == ["towers, gpus:2"]
        assert predictions.collections[1].get_offsets().tolist() == [[0.01, 0.011], [0.01, 0.009]]
        draw(made_up(), tmp_path / "p.png")
        assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


class Host:
    """Answers at once: what it was asked is kept."""

    asked: list

    def __init__(self, answers):
        self.asked, self.answers = [], answers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def end(self):
        self.asked.append("fresh")

    def ask_on(self, devices, method, argument, seconds):
        self.asked.append((devices, method, argument))
        answer = self.answers.get(method, {"failed": "died: code -6", "why": "died"})
        return dict(answer)


ANSWERS = {
    "hardware": {"gpus": ["NVIDIA H200"]}, "searched": searched(1.2), "autoplaced": {**AUTOPLACE},
    "default": {"default": "fails: memory"}, "tight": {**TIGHT},
}  # fmt: skip


class TestRun:
    def run(self, monkeypatch, answers=ANSWERS, **options):
        host = Host(answers)
        monkeypatch.setattr(gpu, "Host", lambda: host)
        monkeypatch.setattr(gpu, "compile_ahead", lambda searchers: None)
        return gpu.bench_facts(BenchOptions(**options)), host.asked

    def test_every_part_is_asked_and_every_key_is_there(self, monkeypatch):
        facts, asked = self.run(monkeypatch)
        assert facts["device"] == "NVIDIA H200" and facts["not_reached"] == [] and facts["failed"] == {}
        assert set(facts["models"]) == set(zoo.names()) and set(facts["splits"]) == {"gpus:2"}
        assert facts["tight_memory"]["default"] == "fails: memory" and facts["overhead"] == 0.006
        assert facts["seeds"] == [0] and facts["repeats"]["moe on CPU + GPU"] == 50
        first = asked.index(("gpus:1@1024", "default", asked[5][2]))
        assert asked[first - 1] == asked[first + 1] == "fresh"
        assert asked[first][2].model == "two_tower@1536MiB" and asked[first][2].limit_bytes == 2**30
        assert json.loads(json.dumps(facts))["unseen_mape"] == pytest.approx(0.1)

    def test_a_network_that_crashes_loses_no_other(self, monkeypatch):
        facts, _ = self.run(monkeypatch, {k: v for k, v in ANSWERS.items() if k != "searched"})
        assert facts["tight_memory"]["trains"] and len(facts["failed"]) == len(facts["models"]) + 2
        assert all("failed" in row for row in facts["models"].values())

    def test_without_a_gpu_it_ends_with_one_line(self, monkeypatch):
        with pytest.raises(BadInputError, match=r"sees no GPU here.*--devices cpus:2"):
            self.run(monkeypatch, {"hardware": {"gpus": []}})

    def test_what_there_is_no_time_for_is_listed(self, monkeypatch):
        monkeypatch.setattr(gpu.Budget, "left_s", tasks.LEAST_S - 1)
        facts, _ = self.run(monkeypatch)
        assert facts["models"] == {} and len(facts["not_reached"]) == len(tasks.tasks_of(hardware_of(None)))

    def test_a_second_run_goes_on_where_the_first_ended(self, monkeypatch, tmp_path):
        first, _ = self.run(monkeypatch, runs=tmp_path, models=("moe",))
        again, asked = self.run(monkeypatch, runs=tmp_path, models=("moe",))
        assert len(asked) == 1 and {**first, "seconds": 0} == {**again, "seconds": 0}


def test_what_searches_compile_is_compiled_ahead_without_a_fault(monkeypatch):
    faults = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    thread = compile_ahead(tasks.SEARCHERS)
    thread.join(1200)  # where nothing is cached, it takes a minute of a core
    assert not thread.is_alive() and [fault for fault in faults if fault.thread is thread] == []


def test_memory_used_up_is_known_by_type_words_and_cause():
    try:
        raise RuntimeError("in a layer") from tf.errors.ResourceExhaustedError(None, None, "OOM")
    except RuntimeError as error:
        assert study.for_memory(error)
    assert study.for_memory(RuntimeError("OOM when allocating tensor with shape[9]"))
    assert not study.for_memory(ValueError("shapes differ"))


def test_limits_leave_the_last_device_and_what_is_less_already(two_cpus):
    topology = replace(two_cpus.topology, devices=(Device("a", "gpu", 5), Device("b", "gpu"), Device("c", "cpu", 99)))
    found = study.limited(replace(two_cpus, topology=topology), 10)
    assert [d.memory_bytes for d in found.topology.devices] == [5, 10, 99]
    assert study.limited(two_cpus, None) is two_cpus


def test_a_model_made_under_a_device_has_its_variables_there(two_cpus):
    """On this the case of tight memory rests: no variable of the model touches the GPU."""
    where = two_cpus.tf_names["cpu:1"]
    with tf.device(where):
        training = zoo.load("two_tower@3MiB", batch=2)
    variables = [*training.model.weights, *training.optimizer.variables]
    assert {v.value.device for v in variables} == {variable_on(where, 0.0).device}


@pytest.mark.nightly
def test_a_trial_on_two_cpus_has_every_figure(tmp_path):
    command = [sys.executable, "-m", "placer", "bench", "gpu", "--devices", "cpus:2"]
    options = ["--model", "mnist_softmax", "--measurements", "3", "--minutes", "3", "--runs", str(tmp_path)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stderr[-2000:]
    facts = json.loads(done.stdout)
    row = facts["models"]["mnist_softmax"]
    assert facts["failed"] == {} and facts["not_reached"] == [], done.stderr[-2000:]
    assert row["ratio_to_tf_default"] >= 1.0 and row["ratio_to_best_single"] > 0
    assert {DEFAULT, "cpu:0", "cpu:1"} <= set(row["contestants"])
    assert sum(share["ops"] for share in row["placed"].values()) == pytest.approx(1.0)
    assert facts["unseen_mape"] > 0 and facts["overhead"] is not None and not facts["real"]
    assert "Traceback" not in done.stderr
    assert "mnist_softmax" in "\n".join(page_lines(facts))


def test_without_a_gpu_the_command_ends_with_one_line():
    command = [sys.executable, "-m", "placer", "bench", "gpu", "--model", "moe"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    assert "TensorFlow sees no GPU here" in done.stderr.splitlines()[-1]  # the others are TensorFlow's
