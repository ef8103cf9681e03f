"""`placer search` as a user runs it, with a fault in one of its stages: it ends in time, says in one line what was
lost, and hands back what it had measured.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from experiments.benches.bench import Facts, say
from experiments.benches.faults.commands import Ended, Running
from experiments.benches.faults.fault import (
    CUT,
    GAP,
    IN_OWN_NETWORK,
    INTERRUPT,
    OF_NETWORKS,
    PARENT,
    PAUSE,
    TERMINATE,
    Fault,
    Outcome,
    faults,
    hit,
)
from experiments.benches.faults.leavings import Family
from experiments.benches.own_network import tcp_ports
from placer.errors import PlacerError
from placer.files import read_document
from placer.graph.graph_files import read_graph, read_topology
from placer.graph.mapping_files import MAPPING_FORMAT, MappingFile
from placer.measure.store import Store

MEASUREMENTS, GROUPS = 6, 24
LIMIT_S = 240.0  # within which a search with a fault must end, which waits 120 s for a worker that freezes early
TRIES = 3  # of a fault that came too late, each earlier in its stage
WORKER_S = 60.0  # within which a worker must be there
STAGES: dict[str, Callable[[str], bool]] = {
    "load": lambda line: True,
    "trace": lambda line: line.startswith("tracing "),
    "start": lambda line: line.startswith("opening devices"),
    "profile": lambda line: line.startswith("profiling ops"),
    "measure": lambda line: line.startswith("  "),  # the first mapping was measured
    "finalists": lambda line: line.startswith("measuring the finalists"),
}
"""{stage: whether a line on stderr begins the stage}. The first stage begins with the process."""
WITH_WORKERS = ("start", "profile", "measure", "finalists")
OURS = ("  ", "tracing", "timing", "opening", "profiling", "measuring", "wrote", "interrupted: ", "ended by SIGTERM: ")
CODES = {INTERRUPT: 130, TERMINATE: 143, PAUSE: 0, GAP: 0}

Rows = dict[tuple[str, ...], tuple[str, str]]
"""graph, topology and mapping of each stored measurement -> its kind and result."""


def search_facts(
    model: str, workers: int, how: str, repeats: int, over: Callable[[], bool] = lambda: False
) -> list[Facts]:
    """The outcome of each fault of one kind. Faults of workers fall `repeats` times into each stage that has workers.
    Other faults are `2 * repeats` in all, in all stages in turn. over: whether to begin no other fault.
    """
    few = how in (INTERRUPT, TERMINATE, PARENT)
    planned = list(faults(how, tuple(STAGES) if few else WITH_WORKERS, repeats))
    if few:
        planned = planned[: 2 * repeats]
    with TemporaryDirectory(prefix="placer-faults-") as folder:
        lengths = stage_lengths(model, workers, Path(folder) / "undisturbed", how)
        found = []
        for i, fault in enumerate(planned):
            if over():
                break
            found.append(_with(fault, model, workers, lengths, Path(folder) / f"{how}-{i}"))
            say(f"search, {how} in {fault.stage}: {found[-1].problems or found[-1].left or 'survived'}")
    return [outcome.facts() for outcome in found]


def stage_lengths(model: str, workers: int, folder: Path, how: str) -> dict[str, float]:
    """Seconds of each stage of an undisturbed search, which runs as searches with faults of kind `how` do. Raises
    PlacerError if the search does not end well.
    """
    with _running(model, workers, folder, None, how) as running:
        ended = running.ended(LIMIT_S)
        begins = stage_begins(running.lines)
    if ended.code != 0 or len(begins) != len(STAGES):
        raise PlacerError(f"a search that nothing disturbs ended with {ended.code}: {' '.join(ended.lines[-3:])}")
    ends = [*list(begins.values())[1:], ended.seconds]
    return {stage: max(0.0, end - begin) for (stage, begin), end in zip(begins.items(), ends, strict=True)}


def stage_begins(lines: Sequence[tuple[float, str]]) -> dict[str, float]:
    """Seconds from the start of a search to the begin of each stage, for the stages that began."""
    begins = {"load": 0.0}
    for stage, is_it in list(STAGES.items())[1:]:
        at = next((seconds for seconds, line in lines if is_it(line)), None)
        if at is not None:
            begins[stage] = at
    return begins


def _running(model: str, workers: int, folder: Path, deadline_s: float | None, how: str) -> Running:
    folder.mkdir()
    command = [
        *(IN_OWN_NETWORK if how in OF_NETWORKS else ()),
        "-m", "placer", "search", model, "--workers", str(workers), "--measurements", str(MEASUREMENTS),
        "--groups", str(GROUPS), "--split", "off", "--out", str(folder / "out"), "--report", str(folder / "report.md"),
        "--store", str(folder / "store.sqlite"), "--json",
    ]  # fmt: skip
    environment = {"PYTHONFAULTHANDLER": "1"} | ({} if deadline_s is None else {"PLACER_DEADLINE_S": str(deadline_s)})
    return Running(command, Family(str(folder), folder / "tmp"), environment)


def _with(fault: Fault, model: str, workers: int, lengths: dict[str, float], folder: Path) -> Outcome:
    """Run a search with the fault. If the search ends before the fault, try again with an earlier one, TRIES in all."""
    outcome = Outcome(fault.how, fault.stage)
    for attempt in range(TRIES):
        place = folder.with_name(f"{folder.name}-{attempt}")
        outcome = _once(fault, 0.9 * lengths[fault.stage] * fault.at / 2**attempt, model, workers, place)
        if outcome.injected:
            break
    return outcome


def _once(fault: Fault, delay_s: float, model: str, workers: int, folder: Path) -> Outcome:
    outcome = Outcome(fault.how, fault.stage)
    with _running(model, workers, folder, fault.deadline_s, fault.how) as running:
        is_there = fault.stage == "load" or running.wait_for(STAGES[fault.stage])
        time.sleep(delay_s)
        stored = rows(folder / "store.sqlite")
        running.family.look()
        begin_s = time.monotonic()
        outcome.injected = is_there and _inject(fault, running)
        injected_s = time.monotonic() - begin_s
        ended = running.ended(LIMIT_S)
        outcome.code, outcome.seconds = ended.code, ended.seconds
        outcome.left = running.family.left()
    outcome.left += [f"a part of a file: {path.name}" for path in folder.rglob("*.part")]
    kept = rows(folder / "store.sqlite")
    outcome.lost = sum(kept.get(key) != value for key, value in stored.items())
    ran = any(kind == "measured" for kind, _ in stored.values())
    outcome.problems = [
        *store_problems(folder / "store.sqlite"),
        *(["nobody took the worker for lost"] if fault.how == CUT and injected_s >= LIMIT_S else []),
        *([] if fault.how == PARENT else end_problems(fault, ended, outcome.injected)),
        *(answer_problems(ended, folder / "out") if ran and fault.how != PARENT else []),
    ]
    return outcome


def _inject(fault: Fault, running: Running) -> bool:
    """Inject the fault; False if the search had ended before."""
    number = {INTERRUPT: signal.SIGINT, TERMINATE: signal.SIGTERM, PARENT: signal.SIGKILL}.get(fault.how)
    if number is not None:
        return running.send(number)
    if fault.how == CUT:  # the cut ends with the worker; LIMIT_S is as long as a search may last
        fault = replace(fault, pause_s=LIMIT_S)
    end_s = time.monotonic() + WORKER_S
    while not (workers := _ready(running, fault)) and running.process.poll() is None and time.monotonic() < end_s:
        time.sleep(0.02)
    return hit(workers, fault)


def _ready(running: Running, fault: Fault) -> list[psutil.Process]:
    """The workers. If they are to be cut off, none before all listen, because only open ports can be cut off."""
    workers = running.family.workers()
    with suppress(PlacerError):  # a worker has ended
        if fault.how not in OF_NETWORKS or all(any(not other for _, other in tcp_ports(worker)) for worker in workers):
            return workers
    return []


def end_problems(fault: Fault, ended: Ended, injected: bool) -> list[str]:
    """What is wrong with how a search ended."""
    if ended.code is None:
        return [f"it had not ended after {LIMIT_S:.0f} s"]
    found = []
    own = [line for line in ended.lines if line.strip() and not line.startswith(OURS)]
    expected = CODES.get(fault.how, 1) if injected else 0
    # A loss after the last use of the worker, and a signal that came when all was done, change nothing.
    is_done = ended.code in (0, *_by_default(fault.how)) and _is_whole(ended.out)
    is_early = fault.stage == "load" and ended.code in _by_default(fault.how)
    if ended.code != expected and not (is_done or is_early):
        found.append(f"exit code {ended.code}, not {expected}: {' '.join(own[-2:])[-300:]}")
    if any("Traceback" in line for line in own):
        found.append(f"a traceback: {own[-1][-300:]}")
    elif ended.code == 0 and own:
        found.append(f"on stderr: {own[-1][-300:]}")
    elif ended.code and (len(own) > 1 or not all(line.startswith("placer: ") for line in own)):
        found.append(f"not one line on stderr: {' / '.join(own)[-300:]}")
    return found


def _by_default(how: str) -> tuple[int, ...]:
    """The exit codes of a process that the signal ends before or after Placer's code runs (a shell says 130, 143)."""
    return {INTERRUPT: (-signal.SIGINT,), TERMINATE: (-signal.SIGTERM,)}.get(how, ())


def answer_problems(ended: Ended, out: Path) -> list[str]:
    """What is missing in the answer of a search that had measured a mapping."""
    facts = _answer(ended.out)
    if facts is None:
        return ["nothing on stdout, although a mapping had been measured"]
    found = [] if (facts.get("best") or {}).get("step_s", 0) > 0 else ["no best mapping on stdout"]
    try:
        read_document(out / "mapping.json", MappingFile, MAPPING_FORMAT)
        read_graph(out / "graph.json"), read_topology(out / "topology.json")
    except PlacerError as error:
        found.append(str(error))
    return found


def store_problems(path: Path) -> list[str]:
    """What is wrong with a store; empty if there is no store."""
    if not path.exists():
        return []
    try:
        with Store(path) as store:
            said = store.connection.execute("PRAGMA integrity_check").fetchone()[0]
            return [] if said == "ok" else [f"the store is damaged: {said}"]
    except (PlacerError, sqlite3.Error) as error:
        return [str(error)]


def rows(path: Path) -> Rows:
    """The measurements in a store; empty if there is no store yet."""
    if path.exists():
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT graph, topology, mapping, kind, result FROM measurements")
            return {tuple(row[:3]): (row[3], row[4]) for row in found}
    return {}


def _answer(out: str) -> dict[str, Any] | None:
    with suppress(ValueError, IndexError):
        found = json.loads(out.splitlines()[-1])
        return found if isinstance(found, dict) else None
    return None


def _is_whole(out: str) -> bool:
    facts = _answer(out)
    return facts is not None and not facts["lost"] and not facts["interrupted"]
