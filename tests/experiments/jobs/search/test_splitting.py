"""A search that divides ops: the plan is chosen or given, the divided step is measured, the faster one handed back."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from experiments.jobs.search import ending, main_job, splitting
from experiments.jobs.search.finding import Progress
from experiments.jobs.search.main_job import run_search
from experiments.jobs.search.settings import SearchSettings
from experiments.jobs.search.splitting import divided_job, measure_by_turns
from experiments.report.result_files import write_results
from experiments.report.search_tables import finding_facts, show_finding, summary_lines
from placer.devices.workers.deadline import DeviceLostError
from placer.errors import BadInputError
from placer.graph.held_memory import Lack
from placer.graph.mapping_files import SPLIT_FORMAT, read_mapping_file
from placer.splits.plan_files import SPLIT_AUTO, plan_of
from search.session.prediction import Prediction
from search.splits import choose

SETTINGS = SearchSettings("mnist_softmax", measurements=8, groups=24, split=SPLIT_AUTO)


def counted(rows, *, divided):
    return [row for row in rows if row.searcher.endswith(", divided") == divided]


class Watcher(Progress):
    """Notes what it is told."""

    def __init__(self):
        self.totals, self.trials, self.phases = [], [], []

    def phase(self, text):
        self.phases.append(text)

    def begin(self, total):
        self.totals.append(total)

    def trial(self, trial, best):
        self.trials.append((trial, best))


@pytest.fixture(scope="module")
def watcher():
    return Watcher()


@pytest.fixture(scope="module")
def ends(two_cpus, watcher):
    """(the jobs of a search in which the best plan is tried, whatever it promises, what it found where divided ops were
    the fastest at the end, and where whole ops were).
    """
    kept = []
    stepped, finish = ending.stepped, ending.finish

    def paced(slow):
        def stepped_so(job, steps, repeats, **race):
            results, default = stepped(job, steps, repeats, **race)
            pace = [100.0 if (step.captured.undivided is not None) == slow else 1.0 for step in steps]
            paced = zip(results, pace, strict=True)
            return [replace(r, step_s=r.step_s * x, stopped_early=False) for r, x in paced], default

        return stepped_so

    def finish_twice(jobs, *arguments, **named):
        for slow in (True, False):
            patch.setattr(ending, "stepped", paced(slow))
            kept.append(finish(jobs, *arguments, **named))
        kept.insert(0, list(jobs))
        return kept[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "WORTH", float("inf"))
        patch.setattr(main_job, "finish", finish_twice)
        run_search(SETTINGS, watcher)
        jobs, whole, divided = kept
        yield SimpleNamespace(jobs=jobs, whole=whole, divided=divided)


@pytest.mark.slow
def test_whole_and_divided_jobs_share_all_they_work_with(ends):
    whole, divided = ends.jobs
    assert divided.beside is whole and divided.devices is whole.devices
    assert divided.workbench.suspends is whole.workbench.suspends and divided.begin_s == whole.begin_s


def test_whole_and_divided_mappings_share_the_measurements_and_one_bar(ends, watcher):
    for found in (ends.whole, ends.divided):
        assert len(counted(found.measured, divided=False)) == 5  # two single devices, and half of the other six
        assert len(counted(found.measured, divided=True)) == 3
    assert watcher.totals == [8]
    assert len(watcher.trials) == 8
    best_s = [best.result.step_s for _, best in watcher.trials if best is not None]
    assert best_s == sorted(best_s, reverse=True)  # of both together


def test_all_finalists_are_measured_once_and_divided_ops_are_one_half_of_them(ends):
    for found in (ends.whole, ends.divided):
        assert len(counted(found.finalists, divided=True)) == 2
        assert len(counted(found.finalists, divided=False)) == 3
        assert found.best in found.finalists and found.best_single in found.finalists
        assert found.best_single.mapping.is_single and "divided" not in found.best_single.searcher
        assert found.switch_s > 0


def test_where_whole_ops_are_faster_they_are_handed_back(ends):
    found = ends.whole
    assert found.plan is None and found.whole is None
    assert "divided" not in found.best.searcher
    assert any("dividing ops gave" in line and "stay whole" in line for line in found.ended)


def test_where_divided_ops_are_faster_files_and_report_say_how(ends, tmp_path, capsys):
    found = ends.divided
    assert "divided" in found.best.searcher and not any("stay whole" in line for line in found.ended)
    assert found.best.result.step_s < found.whole.result.step_s <= found.best_single.result.step_s
    write_results(found, tmp_path, tmp_path / "report.md", None)
    file = read_mapping_file(tmp_path / "mapping.json")
    assert file.format == SPLIT_FORMAT and plan_of(file) == found.plan
    assert any("/part_1" in name for name in file.assignment)
    assert finding_facts(found)["splits"][0]["parts"] == 2
    assert any("are divided" in line for line in summary_lines(found))
    show_finding(found)
    assert "divided" in capsys.readouterr().out


def test_the_races_of_both_are_in_one_anchors_time(ends):
    whole, divided = ends.jobs
    assert divided.anchor_s == whole.anchor_s
    assert divided.traced.plan and whole.traced.plan is None


def test_where_devices_are_lost_what_was_measured_of_divided_ops_is_kept(ends):
    found = ending.cut_short(ends.jobs, "worker:1 is gone")
    assert len(counted(found.measured, divided=True)) == 3
    assert found.best.result == min((row.result for row in found.measured if not row.result.stopped_early), key=seconds)
    assert found.lost and found.groups is (ends.divided if found.plan else ends.whole).groups


def seconds(result):
    return result.step_s


@pytest.mark.slow
def test_a_plan_that_was_given_is_the_one_that_is_measured(ends, two_cpus, tmp_path):
    write_results(ends.divided, tmp_path, None, None)
    given = replace(SETTINGS, measurements=4, split=str(tmp_path / "mapping.json"))
    jobs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main_job, "finish", lambda ran, *_, **__: jobs.extend(ran))
        run_search(given)
    whole, divided = jobs
    assert divided.traced.plan == ends.divided.plan
    assert [row.searcher for row in whole.trials] == ["single", "single"]
    assert divided.trials[0].searcher == "single, divided"
    assert len(divided.trials) == 2


def failing(monkeypatch, error, **settings):
    """A search whose ops cannot be divided for that reason."""

    def fails(*_):
        raise error

    monkeypatch.setattr(splitting, "_divided", fails)
    return SimpleNamespace(settings=replace(SETTINGS, **settings), ended=[])


def test_what_goes_wrong_with_a_plan_that_nobody_asked_for_is_a_line(monkeypatch):
    job = failing(monkeypatch, KeyError("conv1"))
    with divided_job(job) as divided:
        assert divided is None
    assert job.ended == ["ops stay whole, because dividing them failed (KeyError: 'conv1')."]


def test_a_plan_that_was_asked_for_and_a_lost_device_are_failures(monkeypatch):
    for error, split in ((BadInputError("no axis"), "pipeline:4"), (DeviceLostError("worker:1 was lost"), SPLIT_AUTO)):
        with pytest.raises(type(error)), divided_job(failing(monkeypatch, error, split=split)):
            pass


class Plain:
    """A job that measures as many mappings as it may, each in one second of its own clock."""

    def __init__(self, settings, made=2, beside=None):
        self.settings, self.beside, self.trials, self.ended = settings, beside, ["single"] * made, []
        self.traced = SimpleNamespace(plan=None)
        self.now = lambda: sum(len(job.trials) for job in (self, beside) if job is not None)

    def measurements_left(self):
        return max(0, self.settings.measurements - self.now())

    def time_left_s(self):
        return float("inf") if self.settings.minutes is None else 60 * self.settings.minutes - self.now()

    def time_is_up(self):
        return self.time_left_s() < 0

    def leave_share(self):
        pass

    def measure_singles(self, most, over):
        self.trials += ["single"] * min(2, most)

    def measure_searchers(self, over, most=None):
        for _ in range(self.measurements_left() if most is None else most):
            if not (over() or self.time_is_up()):
                self.trials.append("asked")


@pytest.mark.parametrize(
    ("change", "whole", "divided"),
    [
        ({"measurements": 14}, 8, 6),
        ({"measurements": 4}, 3, 1),
        ({"measurements": 100, "minutes": 0.5}, 17, 14),  # seconds, a second each
        ({"measurements": 100, "minutes": 0.01}, 2, 0),
    ],
)
def test_measurements_and_time_are_shared(change, whole, divided):
    settings = replace(SETTINGS, **change)
    first = Plain(settings)
    second = Plain(settings, made=0, beside=first)
    measure_by_turns([first, second])
    assert (len(first.trials), len(second.trials)) == (whole, divided)
    assert any("time was up" in line for line in second.ended) == (divided == 0)


def test_searchers_have_their_share_of_the_minutes_though_judging_plans_took_all():
    class Late(Plain):
        granted = False

        def leave_share(self):
            self.granted = True

        def time_left_s(self):
            return 60.0 if self.granted else -1.0

    job = Late(SETTINGS)
    measure_by_turns([job])
    assert "asked" in job.trials


@pytest.mark.parametrize("change", [{"measurements": 3}, {"measurements": 8, "minutes": 0.01}])
def test_nothing_is_divided_where_nothing_could_be_measured_of_it(change):
    job = Plain(replace(SETTINGS, **change))
    with divided_job(job) as divided:
        assert divided is None
    assert any("no ops were divided" in line for line in job.ended)


def test_after_ctrl_c_nothing_is_said_of_plans_of_splits_that_were_not_judged(monkeypatch):
    pressed = []

    def best(*_):
        pressed.append("Ctrl-C")
        return "no op of this step can be divided by a plan."

    job = Plain(SETTINGS)
    job.topology, job.progress = (), Progress()
    monkeypatch.setattr(splitting, "_judge", lambda *_: SimpleNamespace(best=best))
    with divided_job(job, lambda: bool(pressed)) as divided:
        assert divided is None and pressed
    assert job.ended == []


def test_after_ctrl_c_a_divided_step_does_not_say_that_the_time_was_up():
    first = Plain(SETTINGS)
    second = Plain(SETTINGS, made=0, beside=first)
    measure_by_turns([first, second], over=lambda: True)
    assert second.ended == ["nothing was measured with ops divided, because the search was interrupted."]


@pytest.mark.parametrize("found", ["no op of this step can be divided by a plan.", "a plan"])
def test_nothing_is_divided_once_judging_plans_has_used_up_the_time(monkeypatch, found):
    def best(*_):
        job.trials += ["a second"] * 100
        return found

    job = Plain(replace(SETTINGS, measurements=1000, minutes=1.0))
    job.topology, job.progress = (), Progress()
    monkeypatch.setattr(splitting, "_judge", lambda *_: SimpleNamespace(best=best))
    monkeypatch.setattr(splitting, "DividedStep", lambda *_: "a divided step")
    monkeypatch.setattr("placer.splits.step.with_variables", lambda step: step)
    found = found if found.startswith("no op") else SimpleNamespace(step=None, policy="by examples")
    with divided_job(job) as divided:
        assert divided is None
    assert job.ended == [splitting.NO_TIME]


@pytest.fixture(scope="module")
def matmul(two_cpus):
    """An op of mnist_softmax that can be divided."""
    from experiments import zoo
    from placer.trace.capture import capture

    training = zoo.load("mnist_softmax", seed=0)
    graph = capture(training.step, training.example_inputs, training.name).graph
    return next(op.name for op in graph.ops if op.type == "MatMul")


@pytest.mark.parametrize(
    ("op", "way", "parts", "said"),
    [
        ("no_such_op", "batch", 2, "no_such_op.*another graph"),
        (None, "sideways", 2, "no rule for 'sideways'; it can be divided along"),
        (None, "rows", 10**6, "1000000 parts"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_right_after_tracing(two_cpus, matmul, tmp_path, op, way, parts, said):
    path, watcher = tmp_path / "mapping.json", Watcher()
    splits = [{"way": way, "parts": parts, "ops": [op or matmul]}]
    path.write_text(json.dumps({"format": SPLIT_FORMAT, "assignment": {}, "splits": splits}))
    with pytest.raises(BadInputError, match=said) as error:
        run_search(replace(SETTINGS, split=str(path)), watcher)
    assert "\n" not in str(error.value)
    assert watcher.phases == ["tracing mnist_softmax"]


def test_plans_and_the_whole_step_are_judged_by_the_same_costs(ends, monkeypatch):
    """A calibration that halves all costs must not make every plan look twice as slow beside the whole step."""
    asked = []

    class Judging(choose.Judge):
        def whole_s(self):
            asked.append(self.profiled)
            return super().whole_s()

    monkeypatch.setattr(choose, "Judge", Judging)
    monkeypatch.setattr(choose, "WORTH", 0.0)
    job = replace_settings(ends.jobs[0], measurements=100)
    with divided_job(job) as divided:
        assert divided is None
    (profiled,) = asked
    assert job.prediction.predictor.calibration != profiled.predictor.calibration
    assert profiled.predictor.calibration == Prediction.profiled(job.groups, job.topology, 0.1).predictor.calibration
    assert any("as profiled: " in line for line in job.ended)


def replace_settings(job, **changes):
    """The job with more to measure."""
    twin = copy.copy(job)
    twin.settings, twin.ended = replace(job.settings, **changes), []
    return twin


@pytest.mark.slow
def test_micro_batches_are_measured_beside_the_largest_load(two_cpus):
    found = run_search(replace(SETTINGS, measurements=5, split="pipeline:4"))
    assert (found.pipelined.micro_batches, found.pipelined.in_flight) == (4, 3)
    assert found.pipelined.step_s > 0 and found.pipelined.load_s > 0
    assert finding_facts(found)["pipeline"]["micro_batches"] == 4
    assert any(
        line.startswith("In 4 micro-batches, of which 3 may be under way, a step took") for line in summary_lines(found)
    )


def test_a_mapping_whose_activations_no_device_holds_is_not_run(ends, monkeypatch):
    job = copy.copy(ends.jobs[1])
    job.trials, job.anchor_s = [], 1.0
    monkeypatch.setattr(Prediction, "lack", lambda prediction, mapping: Lack("cpu:0", 3 << 20, 2 << 20))
    row = job.measure("some", ends.jobs[1].trials[0].mapping)
    assert row.result.reason == "memory" and "cpu:0 would hold 3.0 MiB at once" in row.result.detail
    assert not row.stored


@pytest.mark.slow
def test_more_micro_batches_than_examples_are_refused(two_cpus):
    with pytest.raises(BadInputError, match=r"^a step of 128 examples has no 1000 micro-batches; ask for 2 to 128\.$"):
        run_search(replace(SETTINGS, split="pipeline:1000"))
