"""The run of all faults: in searches and trainings, outputs that cannot be written, hostile input."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from experiments.benches.bench import RECORDS, BenchOptions, Facts, commit, say
from experiments.benches.faults.commands import ctrl_c_is_heard
from experiments.benches.faults.fault import CUT, FREEZE, GAP, INTERRUPT, KILL, PARENT, PAUSE, TERMINATE
from experiments.benches.faults.hostile import INPUTS, hostile_facts
from experiments.benches.faults.outputs import output_facts
from experiments.benches.faults.searches import search_facts
from experiments.benches.faults.suite_runs import suite_facts
from experiments.benches.faults.trainings import MODEL as TRAINED
from experiments.benches.faults.trainings import training_facts
from experiments.benches.kept_runs import kept
from experiments.benches.taken_options import Takes
from placer.errors import one_line

TAKES = Takes(workers=True, runs=True, minutes=True)
REPEATS = 3
SEARCHED = "mnist_softmax"
LANES = 2  # parts that run side by side: most of the time they wait for a fault, and no result depends on speed

Part = tuple[str, Facts, Callable[[Callable[[], bool]], object]]
"""(name, settings, run): `run` gets a function that says whether to begin nothing more."""


def bench_facts(options: BenchOptions) -> Facts:
    """Run every part, LANES of them side by side. With --runs, parts that were finished before are not run again.

    --model: the step that is searched. --measurements: faults of each kind in each stage; below 3, there is less
    hostile input in proportion. --minutes: nothing new begins after these, and parts are neither kept in --runs nor
    taken from there.
    """
    repeats = options.measurements or REPEATS
    model, workers = (options.models or (SEARCHED,))[0], options.workers
    at = commit(RECORDS)
    suite_facts(at)  # raises now if the runs cannot be read; runs that `make soak` adds meanwhile count, too
    end_s = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    ending = threading.Event()

    def is_over() -> bool:
        return ending.is_set() or (end_s is not None and time.monotonic() > end_s)

    with ctrl_c_is_heard(), ThreadPoolExecutor(LANES) as lanes:
        parts = _parts(model, workers, repeats)
        waiting = {name: lanes.submit(_part, options, name, settings, run, is_over) for name, settings, run in parts}
        try:
            found = {name: future.result() for name, future in waiting.items()}
        except BaseException:  # Ctrl-C: what is under way ends, and nothing new begins
            ending.set()
            lanes.shutdown(wait=True, cancel_futures=True)
            raise
    return judged(found, model, workers, repeats) | suite_facts(at)


def _parts(model: str, workers: int, repeats: int) -> list[Part]:
    """All parts, the longest first."""
    inputs = INPUTS * min(repeats, REPEATS) // REPEATS
    settings = {"model": model, "workers": workers, "repeats": repeats}
    return [
        *(_training(how, workers, repeats) for how in (FREEZE, PAUSE, KILL, CUT, GAP)),
        *(
            (f"search-{how}", settings, partial(search_facts, model, workers, how, repeats))
            for how in (PAUSE, FREEZE, KILL, CUT, GAP, INTERRUPT, TERMINATE, PARENT)
        ),
        _training(PARENT, workers, repeats),
        ("hostile", {"inputs": inputs}, partial(hostile_facts, inputs)),
        ("outputs", {}, output_facts),
    ]


def _training(how: str, workers: int, repeats: int) -> Part:
    settings = {"model": TRAINED, "workers": workers, "repeats": repeats}
    return f"training-{how}", settings, partial(training_facts, workers, how, repeats)


def _part(
    options: BenchOptions, name: str, settings: Facts, run: Callable[[Callable[[], bool]], object],
    over: Callable[[], bool],
) -> Facts:  # fmt: skip
    """Run a part. Returns {"found": result, "seconds": seconds}, or {"failed": line}."""

    def found() -> Facts:
        begin_s = time.monotonic()
        try:
            facts = {"found": run(over), "seconds": time.monotonic() - begin_s}
        except Exception as error:  # the other parts go on
            facts = {"failed": one_line(f"{type(error).__name__}: {error}")}
        if options.minutes is None and over():  # Ctrl-C: what was found so far is no whole part
            facts = {"failed": "it was cut short"}
        say(f"{name}: {facts.get('failed', 'done')}")
        return facts

    # What --minutes cuts short must not be taken for a whole part later.
    return found() if options.minutes is not None else kept(options, f"faults-{name}", settings, found)


def judged(found: dict[str, Facts], model: str, workers: int, repeats: int) -> Facts:
    """The figures over all parts. A part that failed as a whole counts as one fault that was not survived."""
    outcomes = {name: _outcomes(name, part) for name, part in found.items() if name != "hostile"}
    rows = [row for part in outcomes.values() for row in part if _counts(row)]
    hostile = found["hostile"].get("found", {})
    failed = {name: part["failed"] for name, part in found.items() if "failed" in part}
    return {
        "injected": len(rows) + len(failed),
        "survived": sum(row["survived"] for row in rows),
        "state_lost": sum(row["lost"] for row in rows),
        "left_behind": sum(len(row["left"]) for row in rows),
        "fuzzed": sum(row["inputs"] for row in hostile.values()),
        "mishandled": sum(row["mishandled"] for row in hostile.values()),
        "suite_runs": None,  # of the test suite, which `make soak` runs
        "flakes": None,
        "by_stage": [_stage(part, how, stage, outcomes[part]) for part, how, stage in _stages(outcomes)],
        "not_survived": [
            {"part": part, **row}
            for part in outcomes
            for row in outcomes[part]
            if _counts(row) and not row["survived"]
        ],
        "late": sum(not _counts(row) for part in outcomes.values() for row in part),
        "hostile": hostile,
        "skipped": found["outputs"].get("found", {}).get("skipped", []),
        "failed": failed,
        "seconds": {name: part.get("seconds") for name, part in found.items()},
        "model": model,
        "trained": TRAINED,
        "workers": workers,
        "repeats": repeats,
        "seeds": [0],  # of moments and workers; hostile input is seeded by the name of its kind
    }  # fmt: skip


def _counts(row: Facts) -> bool:
    """Whether the fault was injected, or the program had problems before it could be."""
    return bool(row["injected"] or row["problems"])


def _outcomes(name: str, part: Facts) -> list[Facts]:
    found = part.get("found", [])
    return list(found["outcomes"] if isinstance(found, dict) else found)


def _stages(outcomes: dict[str, list[Facts]]) -> Sequence[tuple[str, str, str]]:
    """(part, how, stage) of each kind of fault, in order; all outputs are one kind."""
    return list(
        dict.fromkeys(
            (part, "" if part == "outputs" else row["how"], row["stage"]) for part in outcomes for row in outcomes[part]
        )
    )


def _stage(part: str, how: str, stage: str, rows: Sequence[Facts]) -> Facts:
    mine = [row for row in rows if row["stage"] == stage and (not how or row["how"] == how) and _counts(row)]
    return {
        "part": part.partition("-")[0],
        "how": how,
        "stage": stage,
        "injected": len(mine),
        "survived": sum(row["survived"] for row in mine),
        "lost": sum(row["lost"] for row in mine),
        "left": sum(len(row["left"]) for row in mine),
        "slowest_s": max((row["seconds"] for row in mine), default=0.0),
    }
