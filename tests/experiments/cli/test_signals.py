"""The command line ended by a signal: exit codes 130 and 143, one line, no traceback, and the best so far."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from experiments.cli import app
from experiments.jobs import plan
from experiments.jobs.interrupt import EndedError, interruptible
from experiments.jobs.plan import Planned
from placer.errors import BadInputError

GRAPH = Path(__file__).parents[2] / "data" / "gnmt.json"
TOPOLOGY = {
    "format": "placer.topology/1",
    "devices": [{"name": f"gpu:{i}", "kind": "gpu"} for i in range(4)],
    "links": [{"src": "*", "dst": "*", "latency_s": 1e-5, "bandwidth_bytes_per_s": 1e10}],
}
# A plan for an hour that says on stderr when it begins to search.
PLAN = """
import signal, sys
from experiments.jobs import plan
whole = plan.plan

def planned(*arguments, **named):
    print("begun", file=sys.stderr, flush=True)
    return whole(*arguments, **named)

plan.plan = planned
signal.signal(signal.SIGINT, signal.default_int_handler)
from placer.__main__ import main
main()
"""


@pytest.fixture
def run(monkeypatch, capsys, ctrl_c_interrupts):
    """Runs `placer plan` in this process with another job: (exit code, stdout, lines on stderr)."""

    def run(job):
        monkeypatch.setattr(plan, "plan_command", lambda *given, **named: Planned(job(*given, **named), None))
        monkeypatch.setattr(sys, "argv", ["placer", "plan", "graph.json", "topology.json", "--json"])
        with pytest.raises(SystemExit) as ended:
            app.main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err.splitlines()

    return run


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_a_signal_ends_a_command_with_one_line(run, number, code, words):
    def nothing(*_):
        signal.raise_signal(number)

    def caught(*_):
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            return {"best": "so far"}

    def noted(*_):
        with interruptible(quick=True):
            signal.raise_signal(number)
        return {"best": "so far"}

    def early(*_):
        raise_signal_and(EndedError("too early."))

    def wrong(*_):
        raise_signal_and(BadInputError("no such thing."))

    def converted(*_):
        raise_signal_and(RuntimeError("KeyboardInterrupt in C++"))

    def raise_signal_and(error):
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise error from None

    left = f"placer: {words}; what was measured is in the store, if you gave one."
    so_far = json.dumps({"best": "so far"}) + "\n"
    assert run(nothing) == (code, "", [left])
    assert run(converted) == (code, "", [left])
    assert run(caught) == (code, so_far, [f"placer: {words}; what there was so far is handed back."])
    assert run(early) == (code, "", ["placer: too early."])
    assert run(wrong) == (code, "", ["placer: no such thing."])
    ended, out, lines = run(noted)
    assert (ended, out) == (code, so_far)
    assert lines == []  # it was said at once, past this process's sys.stderr


def test_a_bug_after_ctrl_c_was_noted_is_no_interrupt(run):
    """As in the finalists of a search, which hands back its races and then raises the error."""

    def noted(error):
        def job(*_):
            with interruptible():
                signal.raise_signal(signal.SIGINT)
            raise error

        return job

    code, out, lines = run(noted(KeyError("conv1")))
    assert (code, out, lines[0], lines[-1]) == (130, "", "Traceback (most recent call last):", "KeyError: 'conv1'")
    code, out, (line,) = run(noted(MemoryError()))
    assert (code, out) == (130, "") and line.startswith("placer: this process may take no more memory")


def test_a_bench_that_is_ended_does_not_speak_of_a_store(monkeypatch, capsys, ctrl_c_interrupts):
    monkeypatch.setattr(sys, "argv", ["placer", "bench", "surrogates"])
    monkeypatch.setattr(app, "run_app", lambda _: signal.raise_signal(signal.SIGINT))
    with pytest.raises(SystemExit) as ended:
        app.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 130
    assert line.endswith("runs that had ended are in the folder of --runs, if you gave one; nothing else is kept.")


def test_without_a_signal_exit_codes_and_tracebacks_are_what_they_were(run):
    def refused(*_):
        raise BadInputError("no such thing.")

    def broken(*_):
        raise RuntimeError("a fault of ours")

    assert run(lambda *_: {}) == (0, "{}\n", [])
    assert run(refused) == (2, "", ["placer: no such thing."])
    with pytest.raises(RuntimeError):
        run(broken)


# A command that SIGTERM reaches while a string is executed, as dataclasses and named tuples are made of. When it is
# taken down after that, under `python -m`, CPython ends by SIGINT, whatever the exit code.
STRING = """
from experiments.cli import app
from placer import __main__
app.run_app = lambda _: exec("import signal; signal.raise_signal(signal.SIGTERM)")
__main__.main()
"""


def test_a_signal_while_a_library_makes_a_class_ends_with_its_own_exit_code(tmp_path):
    (tmp_path / "ended.py").write_text(STRING)
    command, path = [sys.executable, "-m", "ended"], os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 143
    assert done.stderr.startswith("placer: ended by SIGTERM") and done.stderr.count("\n") == 1


# A command that is ended while something is under way that must not outlive Python.
LEFT = """
import atexit, os, signal
from experiments.cli import app
from placer import __main__

class Left:
    def __del__(self):
        os.write(1, b"taken down")

left = Left()
atexit.register(os.write, 1, b"at exit")
app.run_app = lambda _: signal.raise_signal(signal.SIGTERM)
__main__.main()
"""


def test_a_signal_ends_the_process_before_python_is_taken_down():
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (143, "at exit")
    assert done.stderr.startswith("placer: ended by SIGTERM") and done.stderr.count("\n") == 1


@pytest.fixture
def arguments(tmp_path):
    (tmp_path / "topology.json").write_text(json.dumps(TOPOLOGY))
    files = [str(GRAPH), str(tmp_path / "topology.json")]
    return [sys.executable, "-c", PLAN, "plan", *files, "--seconds", "3600", "--out", str(tmp_path / "mapping.json")]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_plan_that_is_ended_hands_back_its_best(arguments, tmp_path, number, code):
    with subprocess.Popen([*arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while "begun" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        out, said = process.communicate()
    assert process.returncode == code
    assert json.loads(out)["value"] > 0
    assert (tmp_path / "mapping.json").exists()
    (line,) = said.split("\n")[1:-1]
    assert "finishing what is under way" in line


def _owns_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.slow
def test_a_plan_whose_terminal_is_closed_still_writes_its_best(arguments, tmp_path):
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        arguments, stdin=inside, stdout=inside, stderr=inside, start_new_session=True, preexec_fn=_owns_terminal
    )
    os.close(inside)
    said = b""
    while b"begun" not in said:
        said += os.read(terminal, 1024)
    os.close(terminal)
    assert process.wait() == 128 + signal.SIGHUP
    assert (tmp_path / "mapping.json").exists()
