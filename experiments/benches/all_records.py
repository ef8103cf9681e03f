"""The recording of one benchmark after the other, each in its own process; it continues where it was stopped."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.benches.bench import EVERY, PAGE, BenchOptions, Facts, command_of, machine, record_of
from placer.errors import PlacerError

SHARING = ("sample-efficiency", "search-quality")  # made of the same runs, so the time of only one of them counts


def record_each(resumes: Mapping[str, bool], runs: Path | None) -> Facts:
    """Record the benchmarks named in `resumes` that have no whole record by this code on this machine. Returns
    {"recorded_s": {name: seconds}}.

    resumes: whether each takes --runs. The time left, estimated from the last records, is printed to stderr. Raises
    PlacerError, after all have run, if a benchmark or a part of one failed, or if code was committed meanwhile.
    """
    here = {key: fact for key, fact in machine().items() if key != "date"}
    left = [name for name in resumes if not _is_recorded(name, here)]
    print(f"{len(resumes) - len(left)} of {len(resumes)} are recorded whole at this commit, here.", file=sys.stderr)
    took_s, failed = {}, []
    while left:
        name = left.pop(0)
        print(f"{name}; {_ahead([name, *left])}", file=sys.stderr)
        begin_s = time.perf_counter()
        command = [sys.executable, "-m", "placer", "bench", name, "--record"]
        command += ["--runs", str(runs)] if runs is not None and resumes[name] else []
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
            failed.append(name)
        else:
            took_s[name] = time.perf_counter() - begin_s
    if failed:
        raise PlacerError(f"{', '.join(failed)} could not be recorded: the lines above say why; run the same again.")
    if machine()["commit"] != here["commit"]:
        raise PlacerError(f"code was committed since {here['commit']} began to be recorded: run the same again.")
    if partly := [name for name in took_s if _has_failures(record_of(name))]:
        raise PlacerError(f"parts of {', '.join(partly)} failed, as {PAGE} says: run the same again.")
    return {"recorded_s": took_s}


def _is_recorded(name: str, here: Facts) -> bool:
    """Whether there is a record of the whole bench, made by this code on this machine, in which nothing failed.

    here: commit, machine and versions. A record of uncommitted changes never counts, because no commit names its code.
    """
    record, at = record_of(name), here["commit"]
    if at is None or at.endswith("+") or any(record.get(key) != fact for key, fact in here.items()):
        return False
    return record.get("command") in (_command(name), _command(name, EVERY)) and not _has_failures(record)


def _command(name: str, *models: str) -> str:
    """The command that records the whole bench, or the bench of these models."""
    return command_of(name, BenchOptions(models=models or None))


def _has_failures(found: Any) -> bool:
    """Whether a record, or any part of it, failed."""
    if isinstance(found, dict):
        return bool(found.get("failed")) or any(map(_has_failures, found.values()))
    return isinstance(found, list) and any(map(_has_failures, found))


def _ahead(names: Sequence[str]) -> str:
    """A phrase on how long these benches will take, estimated from the last records of whole benches."""
    records = {name: record_of(name) for name in names}
    whole = {name: record for name, record in records.items() if record.get("command") == _command(name)}
    known_s = {name: record["took_s"] for name, record in whole.items() if "took_s" in record}
    shared_s = [known_s[name] for name in SHARING if name in known_s]
    ahead_s = sum(known_s.values()) - sum(shared_s) + max(shared_s, default=0.0)
    more = f", and {len(names) - len(known_s)} of unknown length" if len(known_s) < len(names) else ""
    return f"about {ahead_s / 60:.0f} min to go{more}."
