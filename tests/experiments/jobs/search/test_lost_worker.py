"""`placer search` with a worker that freezes or dies: one line, nothing measured is lost, nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import psutil
import pytest

from placer.devices.workers.workers import start_workers
from placer.measure.store import Store
from placer.profile.operators.dataset import load
from placer.profile.operators.operator_profile import RUNS
from tests.processes import still_running, words

pytestmark = [pytest.mark.slow, pytest.mark.workers]


def nightly(*values):
    return pytest.param(*values, marks=pytest.mark.nightly)


SEARCH = ["search", "mnist_softmax", "--measurements", "6", "--groups", "24", "--split", "off"]
OURS = ("  ", "tracing", "timing", "opening", "profiling", "measuring", "mnist_softmax, pass", "wrote")
# The command with a worker that is killed before the function of `ending` is called whose name is the first argument.
KILLED = """
import sys
from experiments.jobs.search import ending
name = sys.argv.pop(1)
whole = getattr(ending, name)

def after_a_kill(first, *arguments, **named):
    job = first if name == "stepped" else first.job
    job.devices.workers.processes[1].kill()
    return whole(first, *arguments, **named)

setattr(ending, name, after_a_kill)
from placer.__main__ import main
main()
"""
# The command, which waits behind the line that has the first argument in it until its stdin is closed.
HELD = """
import sys
from rich.console import Console
phase, print_line = sys.argv.pop(1), Console.print

def held(console, *texts, **named):
    print_line(console, *texts, **named)
    if phase in str(texts[0]):
        sys.stdin.read()

Console.print = held
from placer.__main__ import main
main()
"""
PROFILING, LAST = "profiling ops on each device", "measuring the finalists side by side"


LATE_S = 1200  # after which a command that should have ended is killed, and its test fails


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    lines: tuple[str, ...]  # of stderr, phases and progress apart
    left: tuple[psutil.Process, ...]

    def line(self):
        assert len(self.lines) == 1, "\n".join(self.lines)
        return self.lines[0]


def hit(folder, phase, act, command=SEARCH, devices=("--workers", "2"), deadline_s="10", program=None):
    """Run the command; act on its process and its workers' processes once stderr says that `phase` begins.

    The command waits meanwhile, however slow the machine is, unless a `program` of another kind runs it.
    """
    program = program or ("-c", HELD, phase)
    arguments = [*command, *devices, "--store", str(folder / "store.sqlite")]
    if command is SEARCH:
        arguments += ["--out", str(folder / "out"), "--report", str(folder / "report.md"), "--json"]
    environment = {**os.environ, "PLACER_DEADLINE_S": deadline_s}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    said, processes = [], []
    with subprocess.Popen(
        [sys.executable, *program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=_hears_ctrl_c,
    ) as running:
        late = threading.Timer(LATE_S, running.kill)
        late.start()
        for line in running.stderr:
            said.append(line.rstrip())
            if phase is not None and phase in line and not processes:
                processes = psutil.Process(running.pid).children(recursive=True)
                act(running, [p for p in processes if "placer.devices.workers.worker" in words(p)])
                running.stdin.close()
        out = running.stdout.read()
        code = running.wait()
        late.cancel()
    left = still_running(processes)
    own = [line for line in said if line and not line.startswith(OURS)]
    return Ended(code, out, tuple(own), tuple(left))


def _hears_ctrl_c():
    """Who starts the tests in the background has them ignore it, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def freeze(_, workers):
    workers[1].send_signal(signal.SIGSTOP)


def kill(_, workers):
    workers[1].kill()


def signalled(number, frozen):
    def act(running, workers):
        freeze(running, workers)  # so that the signal comes before the phase is over
        running.stdin.close()
        time.sleep(0.5)
        running.send_signal(number)
        if not frozen:
            workers[1].send_signal(signal.SIGCONT)

    return act


@pytest.mark.nightly
def test_a_healthy_search_prints_nothing_on_stderr_that_is_not_ours(tmp_path):
    ended = hit(tmp_path, PROFILING, lambda *_: None, deadline_s="300")
    assert (ended.code, ended.lines, ended.left) == (0, (), ())
    assert json.loads(ended.out)["lost"] is None


@pytest.mark.nightly
@pytest.mark.parametrize("act", [freeze, nightly(kill)])
def test_while_ops_are_profiled(tmp_path, act):
    ended = hit(tmp_path, PROFILING, act)
    assert (ended.code, ended.left) == (1, ())
    line = ended.line()
    assert line.startswith("placer: worker:1 ")
    assert "while ops were profiled" in line


@pytest.mark.nightly
@pytest.mark.parametrize("act", [freeze, kill])
def test_while_finalists_are_measured_what_was_found_so_far_is_written(tmp_path, act):
    ended = hit(tmp_path, LAST, act)
    assert (ended.code, ended.left) == (1, ())
    line = ended.line()
    assert line.startswith("placer: worker:1 ")
    facts = json.loads(ended.out)
    assert facts["lost"] in line
    assert facts["best"]["step_s"] > 0
    assert facts["lost"] in (tmp_path / "report.md").read_text()
    assert (tmp_path / "out" / "mapping.json").exists()
    with Store(tmp_path / "store.sqlite") as store:
        assert len(store) == len(facts["measured"]) > 1


@pytest.mark.nightly
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_signal_while_finalists_are_measured_hands_back_the_best_so_far(tmp_path, number, code, frozen):
    ended = hit(tmp_path, LAST, signalled(number, frozen), deadline_s="100000")
    assert (ended.code, ended.left) == (code, ())
    line = ended.line()
    assert line.startswith("placer: ")
    facts = json.loads(ended.out)
    assert facts["interrupted"] and facts["best"]["step_s"] > 0
    assert (tmp_path / "out" / "mapping.json").exists()
    with Store(tmp_path / "store.sqlite") as store:
        assert len(store) == len(facts["measured"]) > 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), nightly(signal.SIGTERM, 143)])
@pytest.mark.parametrize("frozen", [nightly(False), True])
def test_a_signal_while_ops_are_profiled_leaves_one_line(tmp_path, number, code, frozen):
    ended = hit(tmp_path, PROFILING, signalled(number, frozen), deadline_s="100000")
    assert (ended.code, ended.left, ended.out) == (code, (), "")
    line = ended.line()
    assert "before a mapping had run, so nothing is handed back" in line


@pytest.mark.nightly
@pytest.mark.parametrize("during", ["stepped", nightly("_switch_s")])
def test_a_worker_killed_at_the_end_leaves_what_was_found_so_far(tmp_path, during):
    command = [*SEARCH, "--out", str(tmp_path / "out"), "--json"]
    ended = hit(tmp_path, None, kill, command, program=("-c", KILLED, during))
    assert ended.code == 1
    line = ended.line()
    assert line.startswith("placer: worker:1 ")
    facts = json.loads(ended.out)
    assert facts["lost"] in line and facts["best"]["step_s"] > 0
    assert (tmp_path / "out" / "mapping.json").exists()


@pytest.mark.nightly
def test_a_worker_killed_while_the_best_step_is_traced_leaves_what_was_measured_side_by_side(tmp_path):
    """The session may never end, so that the files are the last that comes."""
    report, trace = tmp_path / "report.md", tmp_path / "trace.json"
    command = [*SEARCH, "--report", str(report), "--trace", str(trace), "--json"]
    ended = hit(tmp_path, None, kill, command, program=("-c", KILLED, "_trace"))
    assert ended.code == 1
    line = ended.line()
    assert line.startswith("placer: worker:1 ") and "while ops were profiled" in line
    said = report.read_text()
    assert "while ops were profiled" in said and "In a race" not in said
    assert "Switching a running step" in said and not trace.exists()


@pytest.mark.nightly
def test_a_worker_elsewhere_that_freezes_cannot_be_ended_so_the_search_ends(tmp_path):
    with start_workers(2) as workers:
        ended = hit(
            tmp_path,
            LAST,
            lambda *_: os.kill(workers.processes[1].pid, signal.SIGSTOP),
            devices=("--devices", ",".join(workers.addresses)),
        )
    assert (ended.code, ended.left) == (1, ())
    line = ended.line()
    assert "did not answer" in line
    assert (tmp_path / "out" / "mapping.json").exists()
    with Store(tmp_path / "store.sqlite") as store:
        assert len(store) > 1


@pytest.mark.nightly
@pytest.mark.parametrize("command", [nightly("compare"), "profile"])
def test_other_commands_end_as_well(tmp_path, command):
    phase = {"compare": PROFILING, "profile": "pass 1"}[command]
    ended = hit(tmp_path, phase, freeze, [command, "mnist_softmax"])
    assert (ended.code, ended.left) == (1, ())
    assert ended.lines[-1].startswith("placer: worker:1 did not answer")


@pytest.mark.nightly
@pytest.mark.parametrize("act", [freeze, kill])
def test_a_profile_keeps_the_passes_before_a_worker_was_lost(tmp_path, act):
    export = tmp_path / "rows.csv"
    ended = hit(tmp_path, "pass 2", act, ["profile", "mnist_softmax", "--export", str(export)])
    assert (ended.code, ended.left) == (1, ())
    assert ended.lines[-1].startswith("placer: worker:1 ")
    with Store(tmp_path / "store.sqlite") as store:
        rows = store.operators()
    assert max(row.repeats for row in rows) >= 2 * RUNS  # one pass on each worker
    assert {row.source for row in rows} == {"step", "single"}
    assert load(export) == rows
