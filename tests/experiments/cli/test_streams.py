"""What becomes of a command whose stdout, or one of whose files, cannot be written; and names as they are printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SIGPIPE = 141
FULL = Path("/dev/full")
HOME = str(Path(__file__).parents[3])
GRAPH = {
    "format": "placer.graph/1",
    "name": "small",
    "ops": [{"name": name, "cost_s": {"gpu": 1.0}, "memory_bytes": 1} for name in "ab"],
    "edges": [["a", "b", 8]],
}
TOPOLOGY = {
    "format": "placer.topology/1",
    "devices": [{"name": f"gpu:{i}", "kind": "gpu"} for i in range(2)],
    "links": [{"src": "*", "dst": "*", "latency_s": 1e-5, "bandwidth_bytes_per_s": 1e10}],
}
MAPPING = {"format": "placer.mapping/1", "assignment": {"a": "gpu:0", "b": "gpu:1"}}
FILES = ("graph.json", "topology.json", "mapping.json")


def placer(*arguments, stdout=subprocess.PIPE, **environment):
    command = [sys.executable, "-m", "placer", *map(str, arguments)]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=900, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture
def paths(tmp_path):
    """A graph, a topology and a mapping, as files."""
    for name, content in zip(FILES, (GRAPH, TOPOLOGY, MAPPING), strict=True):
        (tmp_path / name).write_text(json.dumps(content))
    return [tmp_path / name for name in FILES]


def lines(done):
    """What stderr says, which is never a traceback."""
    said = done.stderr.decode()
    assert "Traceback" not in said and "Exception" not in said
    return said.splitlines()


@pytest.fixture
def full():
    if not FULL.exists():
        pytest.skip("there is no /dev/full")
    with FULL.open("wb") as file:
        yield file


@pytest.fixture
def closed():
    """A pipe that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


COMMANDS = [("--help",), ("simulate", *FILES), ("simulate", *FILES, "--json")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_stdout_is_one_line_and_exit_code_1(paths, full, command, monkeypatch):
    monkeypatch.chdir(paths[0].parent)
    done = placer(*command, stdout=full, PYTHONPATH=HOME)
    (line,) = lines(done)
    assert done.returncode == 1
    assert line.startswith("placer: stdout: cannot be written (No space left on device)")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_stdout_ends_quietly(paths, closed, command, monkeypatch):
    monkeypatch.chdir(paths[0].parent)
    done = placer(*command, stdout=closed, PYTHONPATH=HOME)
    assert (done.returncode, lines(done)) == (SIGPIPE, [])


def test_more_than_a_buffer_is_no_other_case(paths, full, closed, tmp_path):
    devices = [{"name": f"gpu:{i}", "kind": "gpu"} for i in range(500)]
    paths[1].write_text(json.dumps({**TOPOLOGY, "devices": devices}))
    done = placer("simulate", *paths, "--json", stdout=full)
    assert (done.returncode, len(lines(done))) == (1, 1)
    done = placer("simulate", *paths, stdout=closed)
    assert (done.returncode, lines(done)) == (SIGPIPE, [])


def test_files_are_written_where_stdout_cannot_be(paths, full, closed, tmp_path):
    for stdout, code in ((full, 1), (closed, SIGPIPE)):
        trace = tmp_path / f"{code}.json"
        done = placer("simulate", *paths, "--trace", trace, stdout=stdout)
        assert done.returncode == code and len(lines(done)) == (code == 1)
        assert "traceEvents" in json.loads(trace.read_text())


def test_a_message_that_cannot_be_written_ends_nothing(paths, full, tmp_path):
    command = [sys.executable, "-m", "placer", "plan", *map(str, paths[:2]), "--seconds", "0", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, timeout=900, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["value"] > 0
    refused = subprocess.run([*command, "--seconds", "-1"], stdout=subprocess.PIPE, stderr=full, check=False)
    assert refused.returncode == 2


@pytest.mark.slow
def test_a_file_that_fails_at_the_end_loses_neither_the_result_nor_the_others(paths, tmp_path):
    trace, gantt = tmp_path / "trace.json", tmp_path / "step.png"
    os.mkfifo(trace)  # which nobody reads
    done = placer("simulate", *paths, "--trace", trace, "--gantt", gantt, "--json")
    (line,) = lines(done)
    assert done.returncode == 1 and line.startswith(f"placer: {trace}: nobody reads from it")
    assert json.loads(done.stdout)["value"] > 0
    assert gantt.read_bytes().startswith(b"\x89PNG")
    out = tmp_path / "out.json"
    os.mkfifo(out)
    planned = placer("plan", *paths[:2], "--seconds", 0, "--out", out)
    assert planned.returncode == 1 and len(lines(planned)) == 1
    assert b"makespan" in planned.stdout


def test_each_that_fails_is_a_line(paths, tmp_path):
    pipes = [tmp_path / "trace.json", tmp_path / "step.png"]
    for pipe in pipes:
        os.mkfifo(pipe)
    done = placer("simulate", *paths, "--trace", pipes[0], "--gantt", pipes[1])
    said = lines(done)
    assert done.returncode == 1 and len(said) == 2
    assert all(f"placer: {pipe}: nobody reads" in line for pipe, line in zip(pipes, said, strict=True))


def test_an_output_that_is_none_is_refused_before_the_work(paths, tmp_path):
    runs = [
        ("plan", *paths[:2], "--seconds", 600, "--out", tmp_path),
        ("simulate", *paths, "--trace", tmp_path / "trace.json", "--gantt", tmp_path / "none" / "step.png"),
        ("scale", "sgd", *paths[:2], "--plot", tmp_path / "none" / "plot.png"),
    ]
    for run in runs:
        done = placer(*run)
        assert (done.returncode, done.stdout, len(lines(done))) == (2, b"", 1)
    assert sorted(tmp_path.iterdir()) == sorted(paths)


NAMES = ("mine.py:ok:", ":smile:", "[red]bold[/]", "[/]", "\u66ff\u3048\u308b", "\U0001f600", "caf\u00e9")


@pytest.fixture
def named(paths):
    """The same with devices of these names."""
    paths[1].write_text(json.dumps({**TOPOLOGY, "devices": [{"name": name, "kind": "gpu"} for name in NAMES]}))
    paths[2].write_text(json.dumps({**MAPPING, "assignment": dict.fromkeys("ab", NAMES[0])}))
    return paths


def test_names_come_out_as_they_are(named):
    done = placer("simulate", *named, PYTHONIOENCODING="utf-8")
    assert (done.returncode, lines(done)) == (0, [])
    assert all(f" {name} " in done.stdout.decode() for name in NAMES)


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_what_an_encoding_lacks_is_escaped(named, environment):
    done = placer("simulate", *named, **environment)
    assert (done.returncode, lines(done)) == (0, [])
    assert all(name.encode("ascii", "backslashreplace") in done.stdout for name in NAMES)


@pytest.mark.nightly
def test_a_search_hands_back_all_that_it_can(tmp_path, closed):
    os.mkfifo(tmp_path / "groups.json")  # which nobody reads
    command = ("search", "mnist_softmax", "--devices", "cpus:2", "--measurements", 3, "--quiet", "--out", tmp_path)
    done = placer(*command, "--report", tmp_path / "report.md", "--json")
    assert done.returncode == 1
    assert lines(done)[-1].startswith(f"placer: {tmp_path / 'groups.json'}: nobody reads from it")
    best = json.loads(done.stdout)["best"]
    assert json.loads((tmp_path / "mapping.json").read_text())["measured_s"] == best["step_s"]
    assert {"graph.json", "topology.json", "report.md"} <= {path.name for path in tmp_path.iterdir()}
    (tmp_path / "groups.json").unlink()
    (tmp_path / "mapping.json").unlink()
    done = placer(*command, stdout=closed)
    assert done.returncode == SIGPIPE
    assert {"groups.json", "mapping.json"} <= {path.name for path in tmp_path.iterdir()}


NOISY = """
import os, subprocess, sys
from experiments.cli.options import measuring, show_result
from experiments.cli.streams import guard_streams

guard_streams()
with measuring():
    print("by Python")
    os.system("echo by a program")
    import ctypes
    ctypes.CDLL(None).puts(b"by a library in C")
show_result(True, {"done": 1}, lambda: None)
"""


def test_what_a_users_code_prints_in_whichever_way_is_not_on_stdout():
    done = subprocess.run([sys.executable, "-c", NOISY], capture_output=True, timeout=900, check=True, cwd=HOME)
    assert json.loads(done.stdout) == {"done": 1}
    assert [f"by {what}" in done.stderr.decode() for what in ("Python", "a program", "a library in C")] == [True] * 3


@pytest.mark.parametrize("descriptor", [1, 2])
def test_a_stream_that_was_closed_before_is_no_failure(paths, descriptor):
    command = [sys.executable, "-m", "placer", "simulate", *map(str, paths), "--json"]
    shown = subprocess.run(
        ["sh", "-c", f'exec "$@" {descriptor}>&-', "sh", *command], capture_output=True, timeout=900, check=False
    )
    assert shown.returncode == 0
    assert shown.stderr == b""
    assert (json.loads(shown.stdout)["objective"] if descriptor == 2 else shown.stdout) in ("makespan", b"")


def test_bad_input_without_stderr_leaves_stdout_empty():
    command = f'exec "{sys.executable}" -m placer simulate no.json no.json no.json --json 2>&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=900, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
