"""Outputs that cannot be written: each command says so in one line, and loses neither its answer nor another file."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.benches.bench import Facts
from experiments.benches.faults.fault import Outcome
from experiments.benches.simulator_speed import layered, machine
from experiments.campaign.store import CampaignStore
from placer.graph.graph_files import write_graph, write_topology

LIMIT_S = 120.0
OPS, EDGES, WIDTH, MANY = 60, 150, 6, 6_000
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1  # linux/prctl.h, linux/capability.h
TMPFS_BYTES = 256 * 1024
STAGE = "outputs"
CAMPAIGN = ("campaign", "run", "campaign.toml", "--quiet", "--json")
SPEC = """format = "placer.campaign/1"
searchers = ["random"]
seeds = [0, 1, 2, 3]
measurements = 2000
[[predicted]]
graphs = ["graph.json"]
topologies = ["topology.json"]
"""


@dataclass(frozen=True)
class Case:
    """An output that cannot be written.

    name: what the output is. code: the exit code that the command must have. answers: whether it must print its result.
    unchanged: whether the other files in the folder are as they must be afterwards.
    """

    name: str
    code: int
    answers: bool
    run: Callable[[Path], subprocess.CompletedProcess[str]]
    unchanged: Callable[[Path], bool] = lambda folder: True


def output_facts(over: Callable[[], bool] = lambda: False) -> Facts:
    """The outcome of each case, and what could not be tried here."""
    outcomes: list[Outcome] = []
    skipped = []
    with TemporaryDirectory(prefix="placer-faults-") as held:
        for i, case in enumerate(cases()):
            folder = Path(held) / str(i)
            folder.mkdir()
            write_graph(folder / "graph.json", layered(OPS, EDGES, WIDTH))
            write_topology(folder / "topology.json", machine())
            if over():
                break
            try:
                outcomes.append(_tried(case, folder))
            except PermissionError as error:
                skipped.append(f"{case.name} ({error.strerror or error})")
    return {"outcomes": [outcome.facts() for outcome in outcomes], "skipped": skipped}


def _tried(case: Case, folder: Path) -> Outcome:
    outcome = Outcome(case.name, STAGE)
    try:
        done = case.run(folder)
    except subprocess.TimeoutExpired:
        outcome.problems.append(f"it had not ended after {LIMIT_S:.0f} s")
        return outcome
    outcome.code = done.returncode
    lines = [line for line in done.stderr.splitlines() if line.startswith("placer: ") or "Traceback" in line]
    if done.returncode != case.code:
        outcome.problems.append(f"exit code {done.returncode}, not {case.code}: {done.stderr[-300:]}")
    if len(lines) != 1 or "Traceback" in done.stderr:
        outcome.problems.append(f"not one line on stderr: {done.stderr[-300:]}")
    if case.answers and not _has_answer(done.stdout):
        outcome.problems.append("its result was not printed")
        outcome.lost += 1
    if not case.unchanged(folder):
        outcome.problems.append("what was there has changed")
        outcome.lost += 1
    outcome.left = [f"a part of a file: {path.name}" for path in folder.rglob("*.part")]
    return outcome


def cases() -> Iterator[Case]:
    """Yield the outputs: a full device, folders, pipes, a read-only folder, a full disk, a file that may not grow."""
    yield Case("/dev/full as --out", 1, True, partial(_plan, out="/dev/full"), _is_device("/dev/full"))
    yield Case("/dev/full as --trace beside --gantt", 1, True, _simulated, lambda folder: (folder / "x.svg").exists())
    yield Case("a folder as --out", 2, False, _on_folder, lambda folder: (folder / "taken").is_dir())
    yield Case("a pipe without a reader", 1, True, _on_pipe, lambda folder: _is_pipe(folder / "pipe"))
    yield Case("a pipe whose reader goes away", 1, True, _on_closed_pipe, lambda folder: _is_pipe(folder / "pipe"))
    yield Case("a folder that is not there", 2, False, partial(_plan, out="none/mapping.json"))
    yield Case(
        "a folder that may not be written", 2, False, _on_read_only, lambda folder: not any(_ro(folder).iterdir())
    )
    yield Case("a file that may not grow", 1, True, _on_limited, lambda folder: not (folder / "mapping.json").exists())
    yield Case("stdout on a full device", 1, False, partial(_plan, out="mapping.json", stdout="/dev/full"),
               lambda folder: (folder / "mapping.json").exists())  # fmt: skip
    yield Case("a full disk as --out", 1, True, _on_full_disk)
    yield Case("a campaign's store that may not grow", 1, False, _campaign_limited,
               lambda folder: _holds_measurements(folder / "copy.sqlite"))  # fmt: skip
    yield Case("a full disk as a campaign's store", 1, False, _campaign_on_full_disk,
               lambda folder: _holds_measurements(folder / "copy.sqlite"))  # fmt: skip


def _placer(
    arguments: Sequence[str], folder: Path, stdout: str | None = None, wrap: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    command = [*wrap, sys.executable, "-m", "placer", *arguments]
    with open(stdout, "w") if stdout else _pipe() as out:  # noqa: PTH123 - a device or a constant
        return subprocess.run(
            command, cwd=folder, stdout=out, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S,
            env=_environment(),
        )  # fmt: skip


def _environment() -> dict[str, str]:
    """This process's environment, in which Placer is found from any folder and Python writes no compiled modules."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def _pipe() -> Iterator[int]:
    yield subprocess.PIPE


def _plan(
    folder: Path, out: str, stdout: str | None = None, wrap: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    return _placer(
        ["plan", "graph.json", "topology.json", "--seconds", "0.1", "--searcher", "local", "--out", out, "--json"],
        folder, stdout, wrap,
    )  # fmt: skip


def _simulated(folder: Path) -> subprocess.CompletedProcess[str]:
    _plan(folder, "mapping.json")
    files = ["graph.json", "topology.json", "mapping.json"]
    return _placer(["simulate", *files, "--trace", "/dev/full", "--gantt", "x.svg", "--json"], folder)


def _on_folder(folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "taken").mkdir()
    return _plan(folder, "taken")


def _on_pipe(folder: Path) -> subprocess.CompletedProcess[str]:
    os.mkfifo(folder / "pipe")
    return _plan(folder, "pipe")


def _on_closed_pipe(folder: Path) -> subprocess.CompletedProcess[str]:
    """Write to a pipe whose reader takes one byte and ends. The pipe holds 64 KiB, and the mapping is larger."""
    os.mkfifo(folder / "pipe")
    write_graph(folder / "graph.json", layered(MANY, 2 * MANY, WIDTH))
    reader = [sys.executable, "-c", "import os; os.read(os.open('pipe', os.O_RDONLY), 1)"]
    with subprocess.Popen(reader, cwd=folder) as process:
        done = _plan(folder, "pipe")
        process.kill()
    return done


def _ro(folder: Path) -> Path:
    return folder / "read-only"


def _on_read_only(folder: Path) -> subprocess.CompletedProcess[str]:
    """Write to a read-only folder, without the capability that lets root write anywhere; other users lack it anyway."""
    _ro(folder).mkdir(mode=0o555)
    drop = f"ctypes.CDLL(None).prctl({PR_CAPBSET_DROP}, {CAP_DAC_OVERRIDE}, 0, 0, 0)"
    return _plan(folder, "read-only/mapping.json", wrap=_after("ctypes", drop))


def _on_limited(folder: Path) -> subprocess.CompletedProcess[str]:
    return _plan(folder, "mapping.json", wrap=_limited(512))


def _limited(size: int) -> tuple[str, ...]:
    """The prefix that limits the files of a command to `size` bytes each."""
    return _after("resource", f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))")


def _after(module: str, statement: str) -> tuple[str, ...]:
    """The prefix that runs a Python statement in the process of a command before the command."""
    return sys.executable, "-c", f"import os, sys, {module}; {statement}; os.execv(sys.argv[1], sys.argv[1:])"


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    """A file system of TMPFS_BYTES. Raises PermissionError if this process may not mount one."""
    place = folder / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "placer-faults", str(place)]
    if mount is None or subprocess.run(command, capture_output=True).returncode:
        raise PermissionError(1, "no file system may be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], capture_output=True)


def _filled(place: Path, but_bytes: int) -> None:
    """Fill the file system, except for `but_bytes`."""
    with suppress(OSError), (place / "filler").open("wb", buffering=0) as filler:
        while filler.write(b"\0" * 4096):
            pass
    with (place / "filler").open("r+b") as filler:
        filler.truncate(max(0, (place / "filler").stat().st_size - but_bytes))


def _on_full_disk(folder: Path) -> subprocess.CompletedProcess[str]:
    with _small_disk(folder) as place:
        _filled(place, 0)
        return _plan(folder, str(place / "mapping.json"))


def _campaign_on_full_disk(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a campaign whose store grows until the disk is full, and copy the store, which is checked afterwards."""
    with _small_disk(folder) as place:
        store = place / "campaign.sqlite"
        (folder / "campaign.toml").write_text(SPEC.replace("seeds", f'store = "{store}"\nseeds'))
        done = _placer(CAMPAIGN, folder)
        for ending in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copy(f"{store}{ending}", folder / f"copy.sqlite{ending}")
    return done


def _campaign_limited(folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "campaign.toml").write_text(SPEC.replace("seeds", 'store = "copy.sqlite"\nseeds'))
    return _placer(CAMPAIGN, folder, wrap=_limited(TMPFS_BYTES))


def _holds_measurements(path: Path) -> bool:
    """Whether a campaign's store is intact and has measurements."""
    with CampaignStore(path) as store:
        whole = store.connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        return whole and any(held.trials for held in store.held())


def _is_device(path: str) -> Callable[[Path], bool]:
    return lambda folder: stat.S_ISCHR(os.stat(path).st_mode)  # noqa: PTH116 - a device


def _is_pipe(path: Path) -> bool:
    return stat.S_ISFIFO(path.stat().st_mode)


def _has_answer(out: str | None) -> bool:
    with suppress(ValueError, IndexError):
        return bool(json.loads((out or "").splitlines()[-1])["value"] > 0)
    return False
