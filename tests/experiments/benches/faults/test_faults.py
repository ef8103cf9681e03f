"""The bench faults: what is wrong is counted, what is left behind is found, and a part that failed never looks good."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from experiments.benches.bench import BenchOptions
from experiments.benches.faults import fault, live, outputs, run, searches, trainings
from experiments.benches.faults.commands import Ended, Running
from experiments.benches.faults.fault import FREEZE, INTERRUPT, KILL, PARENT, PAUSE, TERMINATE, Fault, Outcome, faults
from experiments.benches.faults.leavings import AUTOGRAPH, Family, listening
from experiments.benches.online.training import Moment
from placer.errors import BadInputError, PlacerError
from placer.measure.store import Store
from tests.experiments.benches.run_bench import run_bench

WHOLE = json.dumps({"best": {"step_s": 0.1}, "lost": None, "interrupted": False})
PARTLY = json.dumps({"best": {"step_s": 0.1}, "lost": "worker:1 was lost", "interrupted": False})
LINE = "placer: worker:1 was lost while ops were profiled; check it."
HOSTILE = {
    "graph": {"inputs": 7_500, "refused": 5_000, "mishandled": 2, "lines": ["KeyError (x): b'{}'"], "seconds": 3}
}


# What is done, and when.


def test_the_same_seed_does_the_same_and_moments_differ() -> None:
    planned = list(faults(KILL, ("start", "measure"), 3))
    assert planned == list(faults(KILL, ("start", "measure"), 3)) != list(faults(KILL, ("start", "measure"), 3, seed=1))
    assert [found.stage for found in planned] == ["start", "measure"] * 3
    assert len({found.at for found in planned}) == 6 and all(0 <= found.at < 1 for found in planned)


def test_a_pause_is_shorter_than_the_deadline_it_is_under() -> None:
    for found in faults(PAUSE, ("start",), 3):
        assert 0 < found.pause_s < (found.deadline_s or 60.0)
    assert [found.pause_s for found in faults(PAUSE, ("start",), 2)] == [fault.LONG_PAUSE_S, fault.SHORT_PAUSE_S]


def test_a_trap_does_it_while_the_next_call_runs() -> None:
    class Owner:
        def work(self) -> str:
            time.sleep(0.2)
            return "done"

    owner, seen = Owner(), []
    trap = live.Trap(owner, "work")
    begin = time.monotonic()
    trap.arm(lambda: seen.append(time.monotonic() - begin), 0.1)
    assert not trap.is_sprung
    assert owner.work() == "done" and trap.is_sprung and trap.thread is not None
    trap.thread.join()
    assert len(seen) == 1
    owner.work()
    assert len(seen) == 1


# What is wrong with an end.


def ended(code: int | None, *lines: str, out: str = "") -> Ended:
    return Ended(code, out, lines, 1.0)


@pytest.mark.parametrize(
    ("how", "found", "complaint"),
    [
        (KILL, ended(1, "opening devices", LINE, out=PARTLY), None),
        (KILL, ended(0, "  single   1 ms", out=WHOLE), None),
        (KILL, ended(0, LINE, out=WHOLE), "on stderr"),
        (KILL, ended(0, out=PARTLY), "exit code 0, not 1"),
        (KILL, ended(None), "had not ended"),
        (KILL, ended(1, LINE, LINE), "not one line"),
        (KILL, ended(1, "Traceback (most recent call last):", "KeyError"), "a traceback"),
        (KILL, ended(-9), "exit code -9"),
        (FREEZE, ended(2, LINE), "exit code 2, not 1"),
        (PAUSE, ended(0, out=WHOLE), None),
        (PAUSE, ended(1, LINE), "exit code 1, not 0"),
        (INTERRUPT, ended(130, "placer: interrupted; ..."), None),
        (INTERRUPT, ended(143, "placer: ended by SIGTERM; ..."), "not 130"),
        (TERMINATE, ended(143, "placer: ended by SIGTERM; ..."), None),
        (TERMINATE, ended(-15), "exit code -15"),
    ],
)
def test_how_a_search_may_end(how: str, found: Ended, complaint: str | None) -> None:
    problems = searches.end_problems(Fault(how, "measure", 0.5, 0.5), found, True)
    assert len(problems) == (complaint is not None), problems
    assert complaint is None or complaint in problems[0]


def test_before_any_code_of_ours_runs_a_signal_ends_a_search_as_it_ends_any_program() -> None:
    assert searches.end_problems(Fault(TERMINATE, "load", 0.0, 0.0), ended(-15), True) == []
    assert searches.end_problems(Fault(TERMINATE, "load", 0.0, 0.0), ended(-9), True) != []


def test_the_stages_of_a_search_begin_with_its_lines() -> None:
    said = [(1.0, "tracing towers"), (2.0, "opening devices, measuring links"), (3.0, "profiling ops on each device")]
    more = [(4.0, "  single   1.0 ms"), (4.5, "  heft     0.9 ms"), (5.0, "measuring the finalists side by side")]
    begins = {"load": 0.0, "trace": 1.0, "start": 2.0, "profile": 3.0, "measure": 4.0, "finalists": 5.0}
    assert searches.stage_begins([*said, *more]) == begins
    assert list(searches.stage_begins(said)) == ["load", "trace", "start", "profile"]


def test_an_answer_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    assert searches.answer_problems(ended(1), tmp_path) == ["nothing on stdout, although a mapping had been measured"]
    (problem,) = searches.answer_problems(ended(1, out=WHOLE), tmp_path)
    assert "mapping.json" in problem or "graph.json" in problem


def test_a_store_that_is_damaged_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    assert searches.store_problems(path) == [] and searches.rows(path) == {}
    with Store(path):
        pass
    assert searches.store_problems(path) == []
    path.write_bytes(path.read_bytes()[:1000] + bytes(3000))
    assert searches.store_problems(path) != []


def stretch(**changed: Any) -> dict[str, Any]:
    """Two faults, at the steps 1 and 3 of six."""
    done = [
        {"how": KILL, "stage": "steady", "at": at, "injected": True, "noticed": True, "back_s": 1.5} for at in (1, 3)
    ]
    losses = [5.0, 4.0, 3.0, 2.0, 1.5, 1.25]
    whole = {"losses": losses, "undisturbed": losses, "ended": "", "forgotten": 0, "elsewhere": [], "faults": done,
             "apart": {"trained": 0.0, "other": 0.0, "counts": 0}, "variables": 4}  # fmt: skip
    return {**whole, **changed}


def test_a_fault_of_a_training_is_survived_where_every_loss_until_the_next_is_the_undisturbed_one() -> None:
    assert [found.survived for found in trainings.stretch_outcomes(stretch())] == [True, True]
    wrong = trainings.stretch_outcomes(stretch(losses=[5.0, 4.0, 3.1, 2.0, 1.5, 1.25]))
    assert [(found.survived, found.lost) for found in wrong] == [(False, 1), (True, 0)]


def test_a_loss_may_be_rounded_otherwise_where_the_step_was_taken_elsewhere_in_the_end() -> None:
    losses = [5.0, 4.0, 3.0001, 2.0, 1.5, 1.25]
    assert [found.lost for found in trainings.stretch_outcomes(stretch(losses=losses))] == [1, 0]
    assert [found.lost for found in trainings.stretch_outcomes(stretch(losses=losses, elsewhere=[2]))] == [0, 0]
    losses[2] = 3.1
    assert [found.lost for found in trainings.stretch_outcomes(stretch(losses=losses, elsewhere=[2]))] == [1, 0]


@dataclass
class Variable:
    dtype: tf.DType
    trainable: bool = False


def moment(count: int, weight: float, momentum: float) -> Moment:
    variables = Variable(tf.int64), Variable(tf.float32, True), Variable(tf.float32)
    values = np.array(count), np.array([5.0, weight]), np.array([0.0, momentum])
    return Moment(count, list(zip(variables, values, strict=True)))


def test_a_step_that_was_lost_shows_in_trained_variables_and_counts() -> None:
    start, whole = moment(100, 1.0, 0.1), moment(200, 2.0, 1e-5)
    assert trainings.variables_apart(**asdict(live.apart(start, moment(200, 2.0, 1e-5), whole))) == []
    rounded = live.apart(start, moment(200, 2.0 + 1e-6, 1.1e-5), whole)
    assert rounded.other == pytest.approx(0.1) and rounded.trained == pytest.approx(1e-6)
    assert len(trainings.variables_apart(**asdict(rounded))) == 2
    lost = live.apart(start, moment(199, 1.8, 1e-5), whole)
    assert lost == live.Apart(pytest.approx(0.2), 0.0, 1)
    said = trainings.variables_apart(**asdict(lost))
    assert said == ["trained variables differ by 2.0e-01 of their way", "1 counts differ"]


@pytest.mark.parametrize(
    "changed",
    [
        {"apart": {"trained": 0.2, "other": 0.0, "counts": 0}},
        {"apart": {"trained": 0.0, "other": float("nan"), "counts": 0}},
        {"apart": {"trained": 0.0, "other": 0.0, "counts": 1}},
        {"forgotten": 1},
        {"ended": "TimeoutError: never back", "undisturbed": []},
        {"apart": {"trained": 1e-7, "other": 0.0, "counts": 0}},
    ],
)
def test_a_training_that_lost_something_else_did_not_survive(changed: dict[str, Any]) -> None:
    assert not trainings.stretch_outcomes(stretch(**changed))[-1].survived


def test_a_worker_that_was_only_paused_must_not_be_taken_for_lost() -> None:
    done = stretch()["faults"]
    for row in done:
        row["how"] = PAUSE
    assert not any(found.survived for found in trainings.stretch_outcomes(stretch(faults=done)))


# What is left behind.

LEAVER = """
import os, signal, socket, subprocess, sys, tempfile
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
os.set_inheritable(listener.fileno(), True)
tempfile.mkstemp()
sleeper = "import time; print('up', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", sleeper], close_fds=False, start_new_session=True, stdout=2)
print("begun", file=sys.stderr, flush=True)
signal.pause()
"""


@pytest.mark.slow
def test_processes_sockets_and_files_that_are_left_are_found_and_ended(tmp_path: Path) -> None:
    family = Family("left by a test", tmp_path / "tmp")
    with Running(["-c", LEAVER], family) as running:
        assert running.wait_for(lambda line: line == "begun") and running.wait_for(lambda line: line == "up")
        family.look()
        (port,) = family.ports
        assert port in listening()
        running.process.kill()
        running.process.wait()
        left = family.left(limit_s=0.3)
    assert [what.split()[0] for what in left] == ["process", "a", "temporary"], left
    assert [what.split()[0] for what in family.left()] == ["temporary"]


def test_a_process_that_leaves_nothing_leaves_nothing(tmp_path: Path) -> None:
    family = Family("clean", tmp_path / "tmp")
    with Running(["-c", "print('out'); import sys; print('err', file=sys.stderr); sys.exit(3)"], family) as running:
        found = running.ended(60.0)
    assert (found.code, found.out, found.lines, family.left()) == (3, "out\n", ("err",), [])


def test_source_that_autograph_writes_is_not_counted_also_compiled(tmp_path: Path) -> None:
    family = Family("autograph", tmp_path)
    compiled = tmp_path / "__pycache__"
    compiled.mkdir()
    for path in (tmp_path / f"{AUTOGRAPH}abc.py", compiled / f"{AUTOGRAPH}abc.cpython-313.pyc"):
        path.touch()
    assert family.left() == []
    (compiled / "ours.cpython-313.pyc").touch()
    assert family.left(limit_s=0.0) == ["temporary file __pycache__", "temporary file ours.cpython-313.pyc"]


def test_a_command_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with Running(["-c", "import time; time.sleep(600)"], Family("late", tmp_path / "tmp")) as running:
        assert running.send(signal.SIGCONT)
        assert running.ended(0.2).code is None
        assert not running.send(signal.SIGCONT)


def test_a_stage_that_never_begins_is_not_waited_for(tmp_path: Path) -> None:
    with Running(["-c", "pass"], Family("short", tmp_path / "tmp")) as running:
        assert not running.wait_for(lambda line: True)


# All parts.


def parts(**found: Any) -> dict[str, Any]:
    """What the parts found, one fault each, and nothing wrong."""
    rows = {
        name: [Outcome(name.partition("-")[2], "measure").facts()] for name in (f"search-{KILL}", f"search-{PARENT}")
    }
    rows |= {f"training-{KILL}": [Outcome(KILL, "steady", seconds=2.0).facts()]}
    rows |= {
        "hostile": HOSTILE,
        "outputs": {"outcomes": [Outcome("a folder", "outputs").facts()], "skipped": ["a disk"]},
    }
    return {name: {"found": row, "seconds": 1.0} for name, row in {**rows, **found}.items()}


def test_what_is_counted() -> None:
    facts = run.judged(parts(), "towers", 2, 3)
    headlines = ("injected", "survived", "state_lost", "left_behind", "fuzzed", "mishandled")
    assert [facts[name] for name in headlines] == [4, 4, 0, 0, 7_500, 2]
    assert facts["seeds"] == [0]
    late, lost = Outcome(KILL, "start", injected=False), Outcome(KILL, "start", ["no store"], 2, ["process 1: x"])
    facts = run.judged(parts(**{f"search-{KILL}": [late.facts(), lost.facts()]}), "towers", 2, 3)
    assert [facts[name] for name in headlines[:4]] == [4, 3, 2, 1]
    assert facts["late"] == 1 and facts["not_survived"][0]["problems"] == ["no store"]


def test_a_part_that_failed_is_a_fault_that_was_not_survived() -> None:
    facts = run.judged({**parts(), f"training-{FREEZE}": {"failed": "PlacerError: it ended"}}, "towers", 2, 3)
    assert (facts["injected"], facts["survived"]) == (5, 4)


def test_the_bench_runs_each_part_and_the_page_has_it(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = parts(**{f"search-{KILL}": [Outcome(KILL, "start", ["no store"], 2, ["process 1: x"]).facts()]})
    failing = f"training-{FREEZE}"

    def fails(over: Any) -> Any:
        raise PlacerError("it ended with 1")

    def made(model: str, workers: int, repeats: int) -> list[Any]:
        assert (model, workers, repeats) == ("towers", 2, 1)
        rows = [(name, {}, lambda over, name=name: found[name]["found"]) for name in found]
        return [*rows, (failing, {}, fails)]

    monkeypatch.setattr(run, "_parts", made)
    facts = run_bench("faults", BenchOptions(models=("towers",), measurements=1), record=True)
    assert (facts["injected"], facts["survived"]) == (5, 3)
    page = (checkout / "BENCHMARKS.md").read_text()
    for said in ("| 3 of 5 |", "no store; process 1: x", "`training-freeze` failed", "KeyError (x)", "a disk", "7,500"):
        assert said in page, said


def test_after_its_minutes_nothing_begins(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    whole = {"hostile": HOSTILE, "outputs": {"outcomes": [], "skipped": []}}
    rows = [(name, {}, lambda over, name=name: (seen.append(over()), whole[name])[1]) for name in whole]
    monkeypatch.setattr(run, "_parts", lambda *_: rows)
    for minutes in (1e-9, 60.0):
        run_bench("faults", BenchOptions(minutes=minutes), record=False)
    assert seen == [True, True, False, False]


def test_the_parts_are_all_faults_in_searches_and_trainings() -> None:
    names = [name for name, _, _ in run._parts("towers", 2, 1)]
    assert len(names) == len(set(names)) == 16
    assert {f"search-{how}" for how in fault.WORDS} <= set(names)
    assert {f"training-{how}" for how in (*fault.OF_WORKERS, PARENT)} <= set(names)


@pytest.mark.parametrize("options", [{"models": ("nosuch",)}, {"devices": "cpus:2"}, {"minutes": 0.0}])
def test_options_that_it_cannot_use_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        run_bench("faults", BenchOptions(**options), record=False)


# Real ones.


@pytest.mark.nightly
def test_outputs_that_cannot_be_written_are_survived() -> None:
    found = outputs.output_facts()
    assert len(found["outcomes"]) + len(found["skipped"]) == len(list(outputs.cases()))
    assert [row for row in found["outcomes"] if not row["survived"]] == []


@pytest.mark.nightly
@pytest.mark.workers
def test_faults_in_a_search_are_survived(tmp_path: Path) -> None:
    model = "mnist_softmax"
    lengths = searches.stage_lengths(model, 2, tmp_path / "undisturbed", KILL)
    assert min(lengths.values()) > 0
    for how, stage in ((KILL, "finalists"), (PARENT, "measure"), (TERMINATE, "measure")):
        planned = Fault(how, stage, 0.3, random.Random(0).random(), 10.0)
        outcome = searches._with(planned, model, 2, lengths, tmp_path / how)
        assert outcome.injected and outcome.survived, outcome


@pytest.mark.nightly
@pytest.mark.workers
@pytest.mark.parametrize("how", fault.OF_NETWORKS)
def test_a_cut_network_in_a_search_is_survived(how: str) -> None:
    rows = searches.search_facts("mnist_softmax", 2, how, 1)
    assert [row["stage"] for row in rows] == list(searches.WITH_WORKERS)
    assert [row for row in rows if not (row["injected"] and row["survived"])] == []


@pytest.mark.nightly
@pytest.mark.workers
def test_faults_in_a_training_are_survived() -> None:
    rows = trainings.training_facts(2, KILL, 1)
    assert [row["stage"] for row in rows] == [*live.STAGES, *live.LAST_STAGES]
    assert [row for row in rows if not row["survived"]] == []


@pytest.mark.nightly
@pytest.mark.workers
@pytest.mark.parametrize("how", fault.OF_NETWORKS)
def test_a_cut_network_in_a_training_is_survived(how: str) -> None:
    rows = trainings.training_facts(2, how, 1)
    assert [row["stage"] for row in rows] == [*live.STAGES, *live.LAST_STAGES]
    assert [row for row in rows if not row["survived"]] == []


def test_the_processes_that_it_starts_are_those_there_are() -> None:
    for program in (trainings.PROGRAM, trainings.IN_OWN_NETWORK, ("-m", "experiments.fuzz")):
        found = subprocess.run(
            [sys.executable, "-c", f"import importlib.util; print(importlib.util.find_spec({program[1]!r}))"],
            capture_output=True, text=True,
        )  # fmt: skip
        assert "ModuleSpec" in found.stdout
