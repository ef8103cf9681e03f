"""Benchmarks: the page is made from what was recorded, and the record is whole."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from experiments import benches
from experiments.benches import all_records, bench, try_bench
from experiments.benches.bench import RECORDS, BenchOptions, command_of
from experiments.benches.main_job import page as main_job_page
from experiments.benches.main_job import plot as main_job_plot
from experiments.benches.main_job import run as main_job
from experiments.cli import bench as cli_bench
from placer.errors import BadInputError, PlacerError
from tests.experiments.benches.run_bench import run_bench

FOUND = {
    "ops": 10, "groups": 5, "tf_default_s": None, "in_process_s": 0.08, "lower_bound_s": 0.07, "switch_s": 0.5,
    "seconds": 60.0, "measured": [{"step_s": step_s, "at_s": 10.0 * i} for i, step_s in
                                  enumerate((0.18, None, 0.104, 0.1, 0.12), 1)],
    "best": {"searcher": "local", "step_s": 0.1, "spread_s": 0.01, "repeats": 30, "replayed_s": 0.09,
             "stopped_early": False, "ratio_to_best_single": 1.8},
    "best_single": {"step_s": 0.18, "spread_s": 0.02},
}  # fmt: skip


def run(record=True):
    return run_bench("main-job", BenchOptions(("towers", "moe"), measurements=4), record=record)


MACHINE = {"date": "2026-01-01", "commit": "c0ffee", "machine": {"cpu": "a", "cores": 2, "system": "Linux"},
           "python": "3.13.0", "versions": {"tensorflow": "2.21.0"}}  # fmt: skip


TURNS = {"ratio": 0.8, "spread": 0.05, "untouched_s": 0.08, "placed_s": 0.1, "pairs": 12, "steps": 144}


def answers(monkeypatch, **replies):
    """What searches come to, by network; {} = a failure."""
    replies = replies or {"towers": FOUND, "moe": {"failed": "placer: no."}}
    monkeypatch.setattr(main_job, "seeds_of", lambda network: (0,))
    monkeypatch.setattr(main_job, "command_facts", lambda command, model, *options, **limits: replies[model])
    monkeypatch.setattr(main_job, "against_untouched", lambda model, mapping, workers: TURNS)


def test_a_record_holds_figures_machine_versions_and_date(checkout, monkeypatch):
    answers(monkeypatch)
    facts = run()
    kept = json.loads((checkout / "benchmarks" / "main-job.json").read_text())
    assert kept["models"]["towers"]["ratio_to_best_single"] == 1.8
    assert kept["geomean_ratio"] == facts["geomean_ratio"] == pytest.approx(1.8)
    assert kept["geomean_to_untouched"] == pytest.approx(0.8)
    assert kept["models"]["towers"]["answer_s"] == 60.0
    assert kept["models"]["towers"]["near_s"] == 30.0
    assert {"date", "machine", "versions", "python", "took_s", "seeds", "clean"} <= set(kept)
    assert {"numba", "scikit-learn", "ray"} <= set(kept["versions"])
    assert kept["clean"] == (kept["commit"] is not None and not kept["commit"].endswith("+"))  # None: not git's
    assert kept["command"] == "placer bench main-job --record --model towers --model moe --measurements 4"


def test_a_figure_that_json_lacks_is_none_in_the_record(checkout, monkeypatch):
    answers(monkeypatch, towers=FOUND | {"lower_bound_s": float("nan")}, moe={"failed": "placer: no."})
    facts = run()
    kept = json.loads((checkout / "benchmarks" / "main-job.json").read_text(), parse_constant=pytest.fail)
    assert kept["models"]["towers"]["lower_bound_s"] is None
    assert json.loads(json.dumps(facts, allow_nan=False))["models"] == kept["models"]


def test_the_page_tells_figures_and_failures(checkout, monkeypatch):
    answers(monkeypatch)
    run()
    page = (checkout / "BENCHMARKS.md").read_text()
    assert "over 1 of 2 networks: 1.80 (median 1.80)." in page
    assert "| `towers` | 180.0 ms +- 20.0 ms | 100.0 ms +- 10.0 ms | 1.80 | local |" in page
    assert "| 80.0 ms | 100.0 ms | 0.80 +- 0.05 |" in page and "took blocks of steps in turn" in page
    assert "failed: placer: no." in page
    assert "| [main-job](#main-job) | 1.80 (median 1.80) times as fast as the best single worker" in page
    assert "a switch takes 0.5 s in the median, 0.5 s at the worst (wanted: 1)" in page


def test_a_search_with_other_seeds_counts_and_a_training_that_was_not_placed_fails_its_network(checkout, monkeypatch):
    answers(monkeypatch, towers=FOUND, moe=FOUND)
    ratios = iter((1.8, 1.6, 1.7))
    monkeypatch.setattr(main_job, "seeds_of", lambda network: (0, 1, 2) if network == "towers" else (0,))

    def search(command, model, *options, **limits):
        ratio = next(ratios) if model == "towers" else 2.0
        return {**FOUND, "best": {**FOUND["best"], "ratio_to_best_single": ratio}}

    def train(model, mapping, workers):
        if model == "moe":
            raise PlacerError("the training was not placed: left alone.")
        return TURNS

    monkeypatch.setattr(main_job, "command_facts", search)
    monkeypatch.setattr(main_job, "against_untouched", train)
    facts = run()
    assert facts["models"]["towers"]["by_seed"] == {"0": 1.8, "1": 1.6, "2": 1.7}
    assert facts["geomean_ratio"] == pytest.approx((1.8 * 1.6 * 1.7) ** (1 / 3))
    assert "not placed: left alone" in facts["models"]["moe"]["failed"]
    assert "| `towers` | 1.80 | 1.60 | 1.70 |" in (checkout / "BENCHMARKS.md").read_text()


def test_the_last_record_of_another_machine_stays_in_brief(checkout, monkeypatch):
    answers(monkeypatch)
    here, there, old = ({"cpu": cpu, "cores": 2} for cpu in ("here", "there", "old"))
    brief = {"machine": there, "commit": "a", "date": "2026-01-01", "geomean_ratio": 1.5, "geomean_to_untouched": 0.9}
    assert main_job.elsewhere({}, here) == []
    whole = {**brief, "models": {"towers": {"in_turn": TURNS, "ratio_to_best_single": 1.5}}}
    assert main_job.elsewhere(whole, here) == [{**brief, "in_turn": True}]
    assert main_job.elsewhere({**brief, "elsewhere": [{**brief, "machine": old}]}, there) == [{**brief, "machine": old}]
    known = [{**brief, "machine": here}, {**brief, "machine": old}]
    before = {**brief, "models": {"towers": {"ratio_to_best_single": 1.5}}, "elsewhere": known}
    assert main_job.elsewhere(before, here) == [{**brief, "in_turn": False}, known[1]]
    page = "\n".join(main_job_page.page_lines({**run(), "elsewhere": [brief]}))
    assert "On 2 cores of there (2026-01-01, commit a): 1.50, and 0.90 to TensorFlow alone, timed before the" in page
    page = "\n".join(main_job_page.page_lines({**run(), "elsewhere": [{**brief, "in_turn": True}]}))
    assert "On 2 cores of there (2026-01-01, commit a): 1.50, and 0.90 to TensorFlow alone.\n" in page


def test_a_record_that_timed_tensorflow_alone_before_says_so(checkout, monkeypatch):
    answers(monkeypatch)
    facts = run()
    del facts["models"]["towers"]["in_turn"]
    page = "\n".join(main_job_page.page_lines(facts))
    assert "minutes before the delivered mapping" in page and "| 80.0 ms |  | 0.80 |" in page


def test_a_network_whose_switch_was_not_measured_or_that_has_no_single_device_is_on_the_page(checkout, monkeypatch):
    answers(monkeypatch, towers={**FOUND, "switch_s": None}, moe={**FOUND, "best_single": None})
    run()
    page = (checkout / "BENCHMARKS.md").read_text()
    assert "| not measured | 60 s |" in page and "| `moe` | failed: no single device ran it" in page


def test_a_record_during_which_code_was_committed_is_of_no_commit(checkout, monkeypatch):
    answers(monkeypatch)
    monkeypatch.setattr(bench, "machine", lambda: {**MACHINE, "commit": "after"})
    for began, named in (("before", "before+"), ("before+", "before+"), ("after", "after"), (None, "after")):
        monkeypatch.setattr(benches, "commit", lambda began=began: began)
        run()
        record = json.loads((checkout / "benchmarks" / "main-job.json").read_text())
        assert record["commit"] == named
        if began not in ("after", None):
            assert "code was committed or changed" in record["failed"] and record["clean"] is False
            assert "**Not a whole record: code was committed" in (checkout / "BENCHMARKS.md").read_text()


def test_measurements_whose_picture_or_page_cannot_be_made_are_kept_but_are_no_whole_record(checkout, monkeypatch):
    def fails(*_):
        raise ValueError("no.")

    answers(monkeypatch)
    for of, what in (("draw", "picture cannot be drawn"), ("page_lines", "page cannot be made")):
        with monkeypatch.context() as patch, pytest.raises(ValueError, match="no"):
            patch.setattr(main_job_plot if of == "draw" else main_job_page, of, fails)
            run()
        record = json.loads((checkout / "benchmarks" / "main-job.json").read_text())
        assert what in record["failed"] and record["models"]["towers"]["ratio_to_best_single"] == 1.8
        (checkout / "benchmarks" / "main-job.json").unlink()


@pytest.mark.parametrize("taken", ["benchmarks/main-job.json", "BENCHMARKS.md", str(main_job_plot.PICTURE)])
def test_what_could_not_be_recorded_is_refused_before_anything_is_measured(checkout, monkeypatch, taken):
    answers(monkeypatch, towers=None)  # a bench that began would fail otherwise
    (checkout / taken).mkdir(parents=True)
    with pytest.raises(BadInputError, match=taken):
        run()


def test_a_folder_of_runs_that_cannot_be_written_is_refused_before_anything_is_measured(checkout, monkeypatch):
    answers(monkeypatch, towers=None)
    (checkout / "file").write_text("")
    for given, environment in ((checkout / "file" / "runs", ""), (None, str(checkout / "file"))):
        monkeypatch.setenv("PLACER_RUNS", environment)
        with pytest.raises(BadInputError, match=r"--runs .*file"):
            run_bench("main-job", BenchOptions(runs=given), record=False)


def full_disk(monkeypatch):
    def fails(path, content):
        raise PlacerError(f"{path}: cannot be written (No space left on device).")

    monkeypatch.setattr(bench, "write_whole", fails)


def test_figures_that_cannot_be_recorded_are_printed_all_the_same(checkout, monkeypatch, capsys):
    answers(monkeypatch)
    full_disk(monkeypatch)
    monkeypatch.setattr(cli_bench, "measuring", nullcontext)
    with pytest.raises(PlacerError, match="No space left"):
        cli_bench.bench("main-job", record=True, models=["towers"], measurements=4, minutes=None, spec=None, runs=None,
                        workers=2)  # fmt: skip
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert facts["models"]["towers"]["ratio_to_best_single"] == 1.8


def test_a_record_is_kept_before_it_is_drawn(checkout, monkeypatch):
    kept = []
    answers(monkeypatch)
    there = lambda *_: kept.append((checkout / "benchmarks" / "main-job.json").exists())  # noqa: E731
    monkeypatch.setattr(main_job_plot, "draw", there)
    run()
    assert kept == [True]


def test_data_that_cannot_be_written_leaves_a_record_that_is_not_whole(checkout, monkeypatch):
    def fails():
        raise PlacerError("benchmarks/x.csv: cannot be written (No space left on device).")

    answers(monkeypatch)
    whole = main_job.bench_facts
    monkeypatch.setattr(main_job, "bench_facts", lambda options: whole(options) | bench.data_facts(fails))
    facts, failures = try_bench("main-job", BenchOptions(("towers",), measurements=4), record=True)
    record = json.loads((checkout / "benchmarks" / "main-job.json").read_text())
    assert record["failed"] == facts["failed"] == str(failures[0]) and "x.csv" in facts["failed"]
    assert bench.data_facts(lambda: "x.csv") == {"data": "x.csv"}


def test_without_record_nothing_is_written(checkout, monkeypatch):
    answers(monkeypatch)
    run(record=False)
    assert not (checkout / "BENCHMARKS.md").exists()


def test_an_unknown_bench_and_a_record_outside_a_checkout_are_refused(tmp_path, monkeypatch):
    with pytest.raises(BadInputError, match="everything"):
        run_bench("everything", BenchOptions(), record=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match="checkout"):
        run()


def test_the_page_says_which_records_are_of_one_commit(checkout, monkeypatch):
    answers(monkeypatch)
    run()
    facts = json.loads((checkout / "benchmarks" / "main-job.json").read_text())
    for name, at in (("main-job", "abc"), ("plan", "def+"), ("spoc", None)):
        record = {**facts, "commit": at, "took_s": 90.0}
        del record["clean"]
        (checkout / "benchmarks" / f"{name}.json").write_text(json.dumps(record))
    shown = SimpleNamespace(QUESTION="Is it fast?", page_lines=lambda facts: [], headline=lambda facts: "fast")
    page = bench.whole_page(checkout / "benchmarks", dict.fromkeys(("main-job", "plan", "spoc"), shown))
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| [")]
    assert [(row[0], row[1], row[3].split(",")[0], row[4]) for row in rows] == [
        ("| [main-job](#main-job)", "fast", "abc", "2 min |"), ("| [plan](#plan)", "fast", "def+", "2 min |"),
        ("| [spoc](#spoc)", "fast", "not named", "2 min |"),
    ]  # fmt: skip
    assert "with changes that were not committed" in page


def test_commits_of_records_tests_and_documents_do_not_change_which_code_ran(tmp_path, monkeypatch):
    def git(*words):
        name = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        return subprocess.run(
            ["git", "-C", str(tmp_path), *name, *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    def change(path, text, commit=True):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
        if commit:
            git("add", path)
            git("commit", "-qm", path)

    for name in [name for name in os.environ if name.startswith("GIT_")]:  # as in a hook of git's
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    assert bench.commit() is None
    git("init", "-q")
    change("placer/a.py", "1")
    first = bench.commit()
    assert first == git("rev-parse", "--short=12", "HEAD")
    for path in ("benchmarks/plan.json", "BENCHMARKS.md", "docs/a.png", "tests/test_a.py", "README.md"):
        change(path, "1")
    assert bench.commit() == first != bench.commit(RECORDS)  # a test was changed since
    change("docs/a.png", "2", commit=False)
    assert bench.commit() == first
    change("placer/a.py", "2", commit=False)
    assert bench.commit() == first + "+"
    git("commit", "-qam", "more")
    assert bench.commit() == git("rev-parse", "--short=12", "HEAD")


def recorded(folder, name, at, took_s=60.0, **changes):
    record = {**MACHINE, "commit": at, "took_s": took_s, "command": command_of(name, BenchOptions()), **changes}
    (folder / "benchmarks" / f"{name}.json").write_text(json.dumps(record))


@pytest.fixture
def ran(checkout, monkeypatch):
    """The commands that were run; those of 'moody' fail."""
    commands = []

    def run(command, **_):
        commands.append(command[4:])
        recorded(checkout, command[4], "c0ffee")
        return SimpleNamespace(returncode=int("moody" in command))

    monkeypatch.setattr(all_records, "subprocess", SimpleNamespace(run=run, DEVNULL=None))
    monkeypatch.setattr(all_records, "machine", lambda: MACHINE)
    return commands


def test_all_are_recorded_but_those_that_this_commit_recorded(checkout, ran, capsys):
    recorded(checkout, "plan", "c0ffee")
    recorded(checkout, "spoc", "before", took_s=600.0)
    facts = all_records.record_each({"plan": True, "spoc": True, "trust": False}, checkout / "runs")
    assert ran == [["spoc", "--record", "--runs", str(checkout / "runs")], ["trust", "--record"]]
    assert set(facts["recorded_s"]) == {"spoc", "trust"}
    said = capsys.readouterr().err
    assert "1 of 3 are recorded" in said and "spoc; about 10 min to go, and 1 of unknown length." in said


def test_runs_that_two_share_are_counted_once(checkout, ran, capsys):
    for name, took_s in (("sample-efficiency", 600.0), ("search-quality", 900.0), ("plan", 60.0)):
        recorded(checkout, name, "before", took_s=took_s)
    all_records.record_each({"plan": False, "sample-efficiency": False, "search-quality": False}, None)
    assert "plan; about 16 min to go." in capsys.readouterr().err


def test_a_record_of_every_network_stands_for_the_sample_and_one_of_some_does_not(checkout, ran):
    for name, model in (("spoc", "all"), ("plan", "towers")):
        recorded(checkout, name, "c0ffee", command=command_of(name, BenchOptions(models=(model,))))
    all_records.record_each({"spoc": True, "plan": True}, None)
    assert ran == [["plan", "--record"]]


def test_one_that_fails_is_named_after_all_others_were_recorded(checkout, ran):
    with pytest.raises(PlacerError, match="moody could not be recorded"):
        all_records.record_each({"moody": False, "trust": False}, None)
    assert [command[0] for command in ran] == ["moody", "trust"]


def test_a_commit_of_code_while_all_are_recorded_is_said(checkout, ran, monkeypatch):
    at = iter(("c0ffee", "decade"))
    monkeypatch.setattr(all_records, "machine", lambda: {**MACHINE, "commit": next(at)})
    with pytest.raises(PlacerError, match="code was committed since c0ffee"):
        all_records.record_each({"trust": False}, None)


def test_a_bench_of_which_a_part_failed_is_named_at_the_end(checkout, ran, monkeypatch):
    before = all_records.subprocess.run

    def run(command, **_):
        ended = before(command)
        recorded(checkout, "trust", "c0ffee", by_loop={"gan": {"failed": "no."}})
        return ended

    monkeypatch.setattr(all_records.subprocess, "run", run)
    with pytest.raises(PlacerError, match="parts of trust failed"):
        all_records.record_each({"trust": False}, None)


@pytest.mark.parametrize(
    "change",
    [
        {"command": "placer bench plan --record --model towers"}, {"machine": {"cpu": "b"}}, {"python": "3.12.0"},
        {"cases": [{"graph": "a"}, {"graph": "b", "failed": "a worker was lost"}]},
    ],
)  # fmt: skip
def test_a_part_of_a_bench_or_one_in_which_something_failed_or_of_another_machine_is_recorded_anew(
    checkout, ran, change
):
    recorded(checkout, "plan", "c0ffee", **change)
    recorded(checkout, "faults", "c0ffee", failed={}, injected=3)
    all_records.record_each({"plan": False, "faults": False}, None)
    assert ran == [["plan", "--record"]]


@pytest.mark.parametrize("at", ["c0ffee+", None])
def test_with_code_that_no_commit_holds_nothing_counts_as_recorded(checkout, ran, monkeypatch, at):
    monkeypatch.setattr(all_records, "machine", lambda: {**MACHINE, "commit": at})
    recorded(checkout, "plan", at)
    all_records.record_each({"plan": False}, None)
    assert ran == [["plan", "--record"]]
