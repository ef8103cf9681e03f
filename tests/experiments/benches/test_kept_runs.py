"""Kept runs: none is run twice, unless it failed, or settings or the commit changed."""

import pytest

from experiments.benches import kept_runs
from experiments.benches.bench import BenchOptions
from experiments.benches.kept_runs import kept
from placer.errors import PlacerError


@pytest.fixture
def run(tmp_path):
    """Asks for a run: what it answers, or answered."""

    def ask(answer, settings=None, runs=tmp_path):
        return kept(BenchOptions(runs=runs), "net", settings or {"repeats": 3}, lambda: answer)

    return ask


def elsewhere(monkeypatch, change):
    here = kept_runs.machine() | change
    monkeypatch.setattr(kept_runs, "machine", lambda: here)


def test_a_run_is_kept(run):
    assert run({"step_s": 1.0}) == run({"step_s": 2.0}) == {"step_s": 1.0}


def test_what_a_kept_run_took_counts_for_a_bench_that_goes_on(tmp_path):
    first, again = (BenchOptions(runs=tmp_path) for _ in range(2))
    now_s = iter((100.0, 107.0))
    for options in (first, again):
        kept(options, "net", {}, lambda: {"step_s": 1.0}, clock=lambda: next(now_s))
    assert first.spared_s == [] and again.spared_s == [7.0]


def test_other_settings_are_run_anew(run):
    run({"step_s": 1.0})
    assert run({"step_s": 2.0}, {"repeats": 4}) == {"step_s": 2.0}


def test_another_commit_runs_anew_because_no_record_has_figures_of_two(run, monkeypatch):
    run({"step_s": 1.0})
    elsewhere(monkeypatch, {"commit": "5678"})
    assert run({"step_s": 2.0}) == {"step_s": 2.0}


def test_a_run_of_a_bench_that_began_at_another_commit_is_never_taken_again(tmp_path):
    def ask(answer, begun_at):
        return kept(BenchOptions(runs=tmp_path, begun_at=begun_at), "net", {}, lambda: answer)

    at = kept_runs.machine()["commit"]
    assert ask({"step_s": 1.0}, "before") == {"step_s": 1.0}
    assert ask({"step_s": 2.0}, at) == {"step_s": 2.0}


def test_a_run_during_which_code_changed_is_never_taken_again(run, monkeypatch):
    at = iter(("1234", "1234+"))
    here = kept_runs.machine()
    monkeypatch.setattr(kept_runs, "machine", lambda: {**here, "commit": next(at, "1234")})
    run({"step_s": 1.0})
    assert run({"step_s": 2.0}) == {"step_s": 2.0}


@pytest.mark.parametrize("name", [None, "1234+"])
def test_what_was_not_committed_runs_anew_because_its_changes_have_no_name(run, monkeypatch, name):
    elsewhere(monkeypatch, {"commit": name})
    run({"step_s": 1.0})
    assert run({"step_s": 2.0}) == {"step_s": 2.0}


@pytest.mark.parametrize("change", [{"machine": {"cpu": "other"}}, {"versions": {"tensorflow": "9"}}])
def test_another_machine_or_version_runs_anew(run, monkeypatch, change):
    run({"step_s": 1.0})
    elsewhere(monkeypatch, change)
    assert run({"step_s": 2.0}) == {"step_s": 2.0}


def test_a_failure_is_tried_again(run):
    run({"failed": "a worker was lost"})
    assert run({"step_s": 2.0}) == {"step_s": 2.0}


def test_a_failure_at_another_commit_leaves_what_was_kept(run, monkeypatch):
    run({"step_s": 1.0})
    with monkeypatch.context() as patch:
        elsewhere(patch, {"commit": "5678"})
        assert run({"failed": "not reached within 20 minutes"}) == {"failed": "not reached within 20 minutes"}
    assert run({"step_s": 2.0}) == {"step_s": 1.0}


def test_a_run_that_cannot_be_kept_is_not_lost(run, monkeypatch, capsys):
    def fails(path, content):
        raise PlacerError(f"{path}: cannot be written (No space left on device).")

    monkeypatch.setattr(kept_runs, "write_whole", fails)
    assert run({"step_s": 1.0}) == {"step_s": 1.0}
    assert "No space left on device" in capsys.readouterr().err


def test_a_failure_takes_the_place_of_a_failure(run, tmp_path):
    run({"failed": "a worker was lost"})
    run({"failed": "it was lost again"})
    assert "it was lost again" in (tmp_path / "net.json").read_text()


def test_without_a_folder_every_run_is_new(run):
    assert run({"step_s": 1.0}, runs=None) == {"step_s": 1.0}
    assert run({"step_s": 2.0}, runs=None) == {"step_s": 2.0}


def test_a_file_that_is_no_run_is_refused(run, tmp_path):
    (tmp_path / "net.json").write_text("{")
    with pytest.raises(PlacerError, match=r"net\.json: cannot be used"):
        run({"step_s": 1.0})
