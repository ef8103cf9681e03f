"""Runs that are kept in a folder (--runs), so that a stopped bench continues where it ended.

A run is reused only at the commit, on the machine and with the versions that made it, so that a record never mixes
figures of several. Runs of uncommitted changes are never reused, because no commit names their code.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from experiments.benches.bench import BenchOptions, Facts, machine, say
from placer.errors import BadInputError, PlacerError
from placer.files import check_outputs, write_whole

RUNS = "PLACER_RUNS"  # environment variable: the folder, if --runs names none


def check_runs(options: BenchOptions) -> None:
    """Raises BadInputError, before anything runs, if the folder for runs cannot be written to."""
    folder = _folder(options)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"--runs {folder}: {error.strerror}; name another folder.") from None
    check_outputs(folder / "run.json")


def _folder(options: BenchOptions) -> Path | None:
    return options.runs or (Path(os.environ[RUNS]) if os.environ.get(RUNS) else None)


def kept(
    options: BenchOptions,
    name: str,
    settings: Facts,
    run: Callable[[], Facts],
    clock: Callable[[], float] = time.perf_counter,
) -> Facts:
    """Return the kept facts of an earlier `run` with the same settings, at this commit on this machine. If there are
    none, or they are of a failed run, call `run`, keep its facts and return them. The facts of a failed run, or of one
    that was not reached in time, take the place of no others: another commit or machine may still need those.

    name: of the file, without ".json"; may include a subfolder. Raises PlacerError, before the run, if the file cannot
    be used; if it cannot be written afterwards, that is only said.
    """
    folder = _folder(options)
    if folder is None:
        return run()
    path = folder / f"{name}.json"
    before = _before(path)
    made_by = {"settings": settings, **{name: fact for name, fact in machine().items() if name != "date"}}
    if options.begun_at is not None and made_by["commit"] != options.begun_at:
        made_by["commit"] = None  # this process runs the code of `begun_at`, processes that it starts run newer code
    is_named = made_by["commit"] is not None and not made_by["commit"].endswith("+")
    is_whole = "facts" in before and "failed" not in before["facts"]
    if is_whole and is_named and all(before.get(name) == fact for name, fact in made_by.items()):
        options.spared_s.append(before.get("took_s", 0.0))
        return dict(before["facts"])
    begin_s = clock()
    facts = run()
    took_s = clock() - begin_s
    if machine()["commit"] != made_by["commit"]:
        made_by["commit"] = None
    if not (is_whole and "failed" in facts):
        _keep(path, {**made_by, "took_s": took_s, "facts": facts})
    return facts


def _before(path: Path) -> Facts:
    """What is kept in the file; empty if there is none. Makes its folder. Raises PlacerError if it cannot be used."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except (OSError, ValueError, TypeError) as error:
        raise PlacerError(f"{path}: cannot be used ({error}); name another folder with --runs.") from error


def _keep(path: Path, run: Facts) -> None:
    """Write the file. If that fails, say so: the run's figures are still handed back."""
    try:
        write_whole(path, json.dumps(run, indent=1).encode())
    except PlacerError as error:
        say(f"{error} The bench goes on without it.")
