"""Hostile files, stores and command lines: each is used, or refused in one line; never a traceback, never without end.

`make fuzz` tries a million. What a run finds is in the line of its failure: put it into a test of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from experiments.fuzz import judge
from experiments.fuzz.command_lines import STOPS, VALUES, commands, kind_of, words
from experiments.fuzz.judge import Input, Target, judged
from experiments.fuzz.targets import TARGETS
from placer.errors import BadInputError

INPUTS = int(os.environ.get("PLACER_FUZZ", "10000"))
APART = "command lines"  # they load TensorFlow and change the working folder


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_hostile_input_is_used_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    inputs = int(INPUTS * target.share)
    command = [sys.executable, "-m", "experiments.fuzz", name, str(inputs)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["mishandled"] == 0, "\n".join(found["lines"])
    assert found["inputs"] == inputs and found["refused"] > target.refused * inputs


@pytest.mark.parametrize("name", [name for name in TARGETS if name != APART])
def test_the_valid_one_is_used_and_some_hostile_ones_are(name: str, tmp_path: Path) -> None:
    found = judged(TARGETS[name], 20, name, tmp_path)
    assert (found.inputs, found.mishandled) == (20, 0), found.lines


def refuses(line: str) -> object:
    raise BadInputError(line)


def waits() -> None:
    signal.raise_signal(signal.SIGALRM)


def grows() -> None:
    """By a quarter of a GiB more than this process has ever held, which may be more than it holds now."""
    fallen = max(0, judge._most_held_bytes() - psutil.Process().memory_info().rss)
    bytearray(b"x") * (fallen + 2**28)


@pytest.mark.parametrize(
    ("use", "refused", "complaint"),
    [
        (lambda: None, 0, None),
        (lambda: refuses("this is no graph."), 1, None),
        (lambda: refuses("this\nis no graph."), 1, "not one line"),
        (lambda: refuses("x" * 5_000), 1, "not one line"),
        (lambda: refuses(""), 1, "not one line"),
        (lambda: {}["key"], 0, "KeyError"),
        (lambda: "x".encode("nosuch"), 0, "LookupError"),
        (waits, 0, f"not done after {judge.LATE_S} s"),
        (grows, 0, "MiB of memory"),
    ],
)
def test_what_is_mishandled(
    use: object, refused: int, complaint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "MOST_BYTES", 2**26)
    target = Target(lambda folder: lambda rng: Input("shown", use))  # type: ignore[arg-type]
    found = judged(target, 1, 0, tmp_path)
    assert (found.refused, found.mishandled) == (refused, int(complaint is not None))
    assert all(complaint in line and line.endswith(": shown") for line in found.lines)


def test_every_option_that_takes_a_path_has_values_that_harm_nothing() -> None:
    for path, command in commands():
        for parameter in command.params:
            if "path" in kind_of(parameter) or "FILE" in str(parameter.metavar):
                assert parameter.name in VALUES, (path, parameter.name)


def test_lines_end_with_what_stops_the_command() -> None:
    rng = random.Random(0)
    for command in commands():
        for _ in range(20):
            line = words(command, rng)
            assert line[: len(command[0])] == list(command[0])
            if command[0] in STOPS:
                option, values = STOPS[command[0]]
                assert line[-2] == option and line[-1] in values
