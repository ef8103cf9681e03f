"""Command lines of random options and values, given to the command line in this process.

No work begins: models, benches and most devices do not exist, and searches on files end at once. The only outputs that
are named are files in a separate folder, and devices that swallow or refuse everything.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

import typer

from experiments.cli import app as command_line
from experiments.fuzz.files import write_valid
from experiments.fuzz.judge import Draw, Input, Target
from placer.errors import BadInputError

CODES = (0, 1, 2)  # done, failed honestly, bad input
MOST_SAID = 20_000  # characters on stderr
CHANGED = 0.15  # share of the lines in which a word is dropped, repeated or added
NUMBERS = (
    "0", "1", "2", "3", "-1", "1.5", "nan", "inf", "-inf", "1e999", "1e-320", "9" * 30, "0x10", "1_000", "\u00b2",
    "\u0663", "", " ", "true",
)  # fmt: skip
WORDS = (
    "", " ", "a", "-", "--", "-x", "--no-such", "\n", "\u202e", "\U0001f600", "\udc80", "x" * 5_000, "[red]", ":smile:",
    "(a+)+$", "=", "a=b", "a=cpu", "(=cpu:0", "1..", "..", "3..1", "1..16", "1..1e9", "1,2,\u00b2", "nan..nan",
)  # fmt: skip
FILES = (
    "graph.json", "topology.json", "mapping.json", "splits.json", "campaign.toml", "campaign.sqlite", "runs.csv",
    "hostile.json", "missing.json", ".", "", "/dev/null", "/dev/full", "x" * 300, "\udc80.json", "graph.json/x",
)  # fmt: skip
ENDINGS = ("json", "html", "md", "png", "svg", "pdf", "csv", "parquet", "sqlite", "exe", "")
OUTPUTS = (*(f"out.{ending}" for ending in ENDINGS), ".", "", "none/out.json", "/dev/null", "/dev/full", "\udc80.md")
MODELS = (
    "nosuch",
    "nosuch.py:step",
    "nosuch:step",
    "math:nosuch",
    "math:pi",
    ":",
    "a:b:c",
    "towers@",
    "keras:nosuch",
    "scaling.json",
)
DEVICES = (
    "nosuch", "cpus:0", "cpus:\u0663", "cpus:1@1", "gpus:9999999", "gpus:1@0", "workers:0", "workers:\u00b2",
    "workers:-1", "ray:0", "ray:x", "ray:1@:", "a:b", "topology.json", "missing.json", "localhost:99999999",
)  # fmt: skip
# Values that may be right, by the name of the option or argument; the others are numbers or words, by their type.
VALUES: dict[str, Sequence[str]] = {
    "graph": FILES, "topology": FILES, "mapping": FILES, "spec": FILES, "data": FILES, "split": ("auto", "off", *FILES),
    "one": FILES, "other": FILES,
    "model": MODELS, "models": MODELS, "name": ("nosuch",), "devices": DEVICES,
    "workers": ("0", "-1", "\u00b2", "9" * 30),
    "out": OUTPUTS, "report": OUTPUTS, "trace": OUTPUTS, "gantt": OUTPUTS, "store": OUTPUTS, "export": OUTPUTS,
    "curves": OUTPUTS, "plot": OUTPUTS, "best": OUTPUTS, "warm_start": FILES, "runs": OUTPUTS, "operators": FILES,
    "costs": ("profiled", "predicted", "nosuch"), "max_memory": ("gpu:0=1kB", "gpu:0=9GiB", "gpu:0=0", "=1", *WORDS),
    "seconds": ("0", "0.01", "nan", "-1", "x", ""), "samples": ("0", "2", "-1", "x"),
    "searcher": ("heft", "local", "hybrid", "random", "nosuch"), "objective": ("makespan", "max-load", "nosuch"),
    "schedule": ("rank", "donf", "fifo", "nosuch"), "pin": ("a=cpu", "a=gpu:0", ".*=cpu:0", *WORDS),
    "target": ("step_s", "layers", "nosuch"), "intrinsic": ("layers", "layers*kernel", "nosuch", ""),
    "extrinsic": ("kernel", "nosuch", ""), "exponents": ("-3..3", "0..0", "3..-3", "x"), "penalty": ("l2", "l1", "x"),
    "format": ("html", "md", "csv", "perfetto", "nosuch"), "listen": ("nosuch", ":", "localhost:99999", "1.2.3.4"),
    "ray": ("nosuch", ":", "local:", "a:b"), "cores": ("0", "x", "", "-1", "\u00b2"), "batch": NUMBERS,
    "given": ("batch=64", "layers=nan", "kernel=x", *WORDS), "vary": ("layers=1..16", "layers=1..1e300", *WORDS),
}  # fmt: skip
# Right values for some of these, so that some lines are right.
RIGHT = {
    "graph": "graph.json", "topology": "topology.json", "mapping": "mapping.json", "spec": "campaign.toml",
    "one": "mapping.json", "other": "mapping.json",
    "data": "runs.csv", "model": "scaling.json", "target": "step_s", "intrinsic": "layers", "extrinsic": "kernel",
    "exponents": "-3..3", "searcher": "local", "objective": "max-load", "schedule": "donf", "out": "out.json",
    "report": "out.md", "seed": "3", "pin": "a=gpu:0", "format": "md", "vary": "layers=1..16", "plot": "out.png",
    "given": "layers=3", "trace": "out.json", "gantt": "out.svg", "pays": "0.1",
}  # fmt: skip
# The option that ends a command which would otherwise do something by itself, or for long.
STOPS: dict[tuple[str, ...], tuple[str, Sequence[str]]] = {
    ("worker",): ("--listen", ("nosuch",)),
    ("devices",): ("--devices", ("nosuch",)),
    ("plan",): ("--seconds", VALUES["seconds"]),
    ("scale", "fit"): ("--samples", VALUES["samples"]),
}

Command = tuple[tuple[str, ...], Any]
"""The words that name a command, and the command, which is an object of click or of typer's copy of click."""


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[Command]:
    """Every command that is not a group of commands, with the words that name it."""
    command = typer.main.get_command(command_line.app) if command is None else command
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
    for name, part in (inner or {}).items():
        yield from commands(part, (*path, name))


def words(command: Command, rng: random.Random) -> list[str]:
    """A command line, without the name of the program: most of it right, some of it wrong."""
    path, found = command
    said = list(path)
    for parameter in found.params:
        if parameter.name == "help":
            continue
        is_option = parameter.param_type_name == "option"
        if is_option and not parameter.required and rng.random() > 0.2:
            continue
        times = rng.randint(0, 2) if parameter.nargs == -1 or parameter.multiple else 1
        for _ in range(times):
            said += [rng.choice(parameter.opts)] if is_option else []
            said += [] if getattr(parameter, "is_flag", False) else [_value(parameter, rng)]
    if rng.random() < CHANGED:
        said = _changed(said, len(path), rng)
    if path in STOPS:
        option, values = STOPS[path]
        said += [option, rng.choice(values)]
    return said


def kind_of(parameter: Any) -> str:
    """The type of a parameter's values, in lower case."""
    descriptor = getattr(parameter, "type_descriptor", None)
    return str(parameter.type.name if descriptor is None else descriptor.annotation).lower()


def _value(parameter: Any, rng: random.Random) -> str:
    """A value for the parameter: mostly one that may be right, else anything."""
    name = "devices" if "--devices" in parameter.opts else parameter.name or ""
    known = VALUES.get(name)
    if name in RIGHT and rng.random() < 0.7:
        return RIGHT[name]
    is_number = "int" in kind_of(parameter) or "float" in kind_of(parameter)
    if known is not None and (is_number or rng.random() < 0.9):
        return rng.choice(known)
    return rng.choice(NUMBERS if is_number else WORDS)


def _changed(said: list[str], first: int, rng: random.Random) -> list[str]:
    """The words with one dropped, or with a new or repeated one added, after the `first` words."""
    at = rng.randint(first, len(said))
    kind = rng.randrange(3)
    if kind == 0:
        return [*said[:at], *said[at + 1 :]]
    return [*said[:at], rng.choice(WORDS) if kind == 1 else rng.choice(said), *said[at:]]


def _run(said: list[str]) -> None:
    """Run a command line. Raises BadInputError if it was refused, and ValueError if it was mishandled."""
    out, err = io.StringIO(), io.StringIO()
    with _arguments(["placer", *said]), redirect_stdout(out), redirect_stderr(err):
        try:
            command_line.main()
            code: Any = 0
        except SystemExit as end:
            code = end.code
    shown = err.getvalue()
    if code not in CODES:
        raise ValueError(f"exit code {code}")
    if "Traceback" in shown or len(shown) > MOST_SAID:
        raise ValueError(f"on stderr: {shown[-300:]}")
    if code and not shown.strip():
        raise ValueError(f"exit code {code} without a word")
    if code == 2:
        raise BadInputError("refused")


@contextmanager
def _arguments(said: list[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, said
    try:
        yield
    finally:
        sys.argv = before


def _begin(folder: Path) -> Draw:
    """Return what draws command lines. Their files are in a folder that is filled again for each line, and that is the
    working folder from now on.
    """
    valid, here = folder / "valid", folder / "here"
    valid.mkdir()
    write_valid(valid)
    (valid / "hostile.json").write_bytes(b"[" * 3_000)
    every = [command for command in commands() if command[0]]
    here.mkdir()
    os.chdir(here)
    with suppress(BadInputError):
        _run(["search", "nosuch"])  # loads TensorFlow, whose memory must not count for an input

    def draw(rng: random.Random) -> Input:
        for old in here.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        for path in valid.iterdir():
            (here / path.name).write_bytes(path.read_bytes())
        said = words(rng.choice(every), rng)
        return Input(said, partial(_run, said))

    return draw


COMMAND_LINES = {"command lines": Target(_begin, share=0.01, refused=0.3)}
