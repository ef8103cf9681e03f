"""What all benchmarks share: their options, the record in benchmarks/, and the page made from all records."""

from __future__ import annotations

import csv
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

import psutil

from experiments.benches.evenness import pace_line
from experiments.benches.intervals import CONFIDENCE, MANY
from experiments.report.text import markdown_table
from experiments.versions import versions
from placer import number_format
from placer.devices.host.machine import cpu_model
from placer.errors import BadInputError, PlacerError, one_line
from placer.files import write_whole

Facts = dict[str, Any]
FOLDER = Path("benchmarks")
PAGE = Path("BENCHMARKS.md")
EVERY = "all"  # the --model with which a bench that usually takes a sample takes every network
CHECKOUT = Path(__file__).resolve().parents[2]
# Git pathspecs that leave out files that do not affect a measurement: what recording writes; all that no bench runs.
RECORDS = (":!benchmarks", ":!BENCHMARKS.md", ":!docs/*.png")
NO_CODE = (":!benchmarks", ":!*.md", ":!docs", ":!tests")


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class BenchOptions:
    """The options of a benchmark, which uses those that apply to it. None = the benchmark's own default."""

    models: tuple[str, ...] | None = None
    workers: int = 2
    measurements: int | None = None
    record: bool = False  # the facts will be kept, so pictures and data beside them should be, too
    runs: Path | None = None  # the folder in which runs that benchmarks share are kept
    devices: str | None = None  # what to measure on (gpu only)
    minutes: float | None = None  # how long the whole bench may take (faults, gpu, splitting, spoc)
    begun_at: str | None = None  # the commit when the bench began, if it is run for a record
    spared_s: list[float] = field(default_factory=list, compare=False)  # how long the runs reused from --runs took


class Page(Protocol):
    """The module that shows a bench on BENCHMARKS.md."""

    QUESTION: str  # which the bench answers

    def page_lines(self, facts: Facts) -> list[str]:
        """The bench's section, without its title."""

    def headline(self, facts: Facts) -> str:
        """The bench's main figures in one line, for the summary. The section has the same figures."""


def check_folder() -> None:
    """Raise BadInputError if there is no benchmarks/ to record in."""
    if not FOLDER.is_dir():
        raise BadInputError(f"{FOLDER}/ is not here; run placer bench --record in a checkout of Placer.")


def keep(name: str, facts: Facts, command: str, begun_at: str | None, pages: Mapping[str, Page]) -> None:
    """Write benchmarks/NAME.json, and write BENCHMARKS.md again.

    begun_at: the commit when the bench began. If the current commit differs, the record's commit gets a + and the
    record counts as failed, because its figures may be of two commits.
    """
    record = {"bench": name, **facts, "command": command, **machine()}
    if begun_at is not None and record["commit"] != begun_at:
        record["failed"] = f"code was committed or changed while it was measured, from {begun_at} to {record['commit']}"
        record |= {"commit": begun_at.rstrip("+") + "+", "clean": False}
    try:
        pages[name].page_lines(record)
        pages[name].headline(record)
    except Exception as error:  # the measurements are kept, but the record does not count as whole
        record["failed"] = one_line(f"its page cannot be made: {type(error).__name__}: {error}")
    write_whole(FOLDER / f"{name}.json", (json.dumps(record, indent=1) + "\n").encode())
    write_whole(PAGE, whole_page(FOLDER, pages).encode())


def data_facts(write: Callable[[], object]) -> Facts:
    """{"data": the files of data beside the record that `write` wrote}. If they cannot be written, the record is kept,
    but says so and does not count as whole.
    """
    try:
        return {"data": write()}
    except (PlacerError, OSError) as error:
        return {"failed": one_line(f"its data cannot be written: {error}")}


def record_of(name: str) -> Facts:
    """The last record of a bench; empty if there is none."""
    path = FOLDER / f"{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def command_of(name: str, options: BenchOptions) -> str:
    """The command line for the same measurement, without --runs, which makes no difference to the figures."""
    words = ["placer", "bench", name, "--record"]
    for model in options.models or ():
        words += ["--model", model]
    for option, value, usual in (
        ("--workers", options.workers, BenchOptions.workers),
        ("--measurements", options.measurements, None),
        ("--devices", options.devices, None),
        ("--minutes", options.minutes, None),
    ):
        words += [option, str(value)] if value != usual else []
    return shlex.join(words)


def as_json_numbers(facts: Any) -> Any:
    """The facts with None in place of numbers that JSON lacks: NaN and infinity, such as the correlation of values that
    do not differ.
    """
    if isinstance(facts, dict):
        return {name: as_json_numbers(fact) for name, fact in facts.items()}
    if isinstance(facts, list | tuple):
        return [as_json_numbers(fact) for fact in facts]
    return None if isinstance(facts, float) and not isfinite(facts) else facts


def commit(without: Sequence[str] = NO_CODE) -> str | None:
    """The last commit that changed code, with a + if code has uncommitted changes; None outside a checkout.

    Records thus keep the same commit while the commits that add records follow each other.
    without: git pathspecs that leave out the paths that do not count as code.
    """
    try:
        told = [
            subprocess.run(
                ["git", "-C", str(CHECKOUT), *words, "--", ".", *without], capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (
                ("log", "-1", "--format=%h", "--abbrev=12"),
                ("status", "--porcelain", "--untracked-files=no"),
            )
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return told[0] + ("+" if told[1] else "")


def machine() -> Facts:
    """The machine, the commit, the versions and the date of a run."""
    at = commit()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": at,
        "clean": at is not None and not at.endswith("+"),
        "machine": {
            "cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "system": platform.system(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
        },
        "python": platform.python_version(),
        "versions": versions(),
    }  # fmt: skip


def whole_page(folder: Path, pages: Mapping[str, Page]) -> str:
    """The text of BENCHMARKS.md, made from every record in `folder`."""
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    parts = ["# Benchmarks", "", "Generated by `placer bench NAME --record`; not written by hand.", ""]
    parts += [*_summary(records, pages), ""]
    for name, facts in records.items():
        parts += [
            f"## {name}",
            "",
            f"**{pages[name].QUESTION}**",
            "",
            *_where(facts),
            "",
            *_not_whole(facts),
            *pages[name].page_lines(facts),
            "",
        ]
    return "\n".join(parts)


def missing_lines(missing: Mapping[str, Facts]) -> list[str]:
    """A paragraph on the parts of a bench that failed, {part: {"failed": line}}; empty if none failed."""
    lines = [f"- Not measured: {part}: {found['failed'].rstrip('.')}." for part, found in missing.items()]
    return ["", *lines] if lines else []


def _summary(records: Mapping[str, Facts], pages: Mapping[str, Page]) -> list[str]:
    """A table of the main results of all benches, below a paragraph on what can be compared."""
    dirty = any(not _is_clean(facts) for facts in records.values())
    rows = [
        [f"[{name}](#{name})", pages[name].headline(facts), _machine(facts), f"{_commit(facts)}, {facts['date']}",
         f"{facts['took_s'] / 60:.0f} min" if "took_s" in facts else ""]
        for name, facts in records.items()
    ]  # fmt: skip
    return [
        "Each section begins with the question that it answers. Every ratio was measured within one run. Seconds of "
        "two sections are not to be compared, not even at one commit: the machine is shared, and drifts. "
        "Worker processes are of one machine and talk over its loopback interface; no figure here is of a real network "
        "between machines. Networks are small versions of the published ones, unless they are called NAME@native "
        "([sizes](docs/networks.md)): `vgg16` has images of 32x32. *Commit*: the last one that changed code; records, "
        "tests and documents do not count."
        + (" A + after it: with changes that were not committed." if dirty else "")
        + f" Intervals ({CONFIDENCE:.0%}) are over the networks of a section, where nothing else is said: the "
        "range in which the mean would probably lie for other networks of this kind. They are bootstrapped from "
        f"{MANY} networks on, and by Student's t for fewer.",
        "",
        *markdown_table(("bench", "what it came to", "machine", "commit", "took"), rows, left=range(4)),
    ]


def _is_clean(facts: Facts) -> bool:
    return bool(facts.get("clean", not (facts.get("commit") or "+").endswith("+")))


def _machine(facts: Facts) -> str:
    at = facts["machine"]
    memory = f", {at['memory_gib']} GiB" if "memory_gib" in at else ""
    accelerator = f", {facts['device']}" if "device" in facts else ""
    return f"{at['cores']} cores of {at['cpu']}{memory}{accelerator}"


def _commit(facts: Facts) -> str:
    return facts.get("commit") or "not named"


def _not_whole(facts: Facts) -> list[str]:
    """Lines that say why a record is not whole; empty if it is."""
    failed = facts.get("failed")
    return [f"**Not a whole record: {failed.rstrip('.')}.**", ""] if isinstance(failed, str) else []


def _where(facts: Facts) -> list[str]:
    tools = facts["versions"]
    tensorflow = tools.get("tensorflow-cpu") or tools.get("tensorflow")
    at_commit = f", commit {facts['commit']}" if facts.get("commit") else ""
    how = f" `{facts['command']}`" if facts.get("command") else ""
    pace = pace_line(**facts["uneven"]) if "uneven" in facts else ""
    return [
        f"{facts['date']}, {_machine(facts)} ({facts['machine']['system']}), "
        f"Python {facts['python']}, TensorFlow {tensorflow}{at_commit}.{how} {pace}".rstrip()
    ]


def csv_bytes(rows: Sequence[Facts]) -> bytes:
    """Rows as CSV, with a column for every key; a cell is empty if its row lacks the key."""
    text = StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def ms(seconds: float) -> str:
    """Seconds as milliseconds, for a table."""
    return number_format.ms(seconds, 1)


def ms_spread(seconds: float, spread_s: float) -> str:
    """A median and its interquartile range, in milliseconds."""
    return f"{ms(seconds)} +- {ms(spread_s)}"
