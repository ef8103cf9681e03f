"""The results of repeated runs of the test suite (`make soak`), a JSON line each, and the sums over a commit's runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from experiments.benches.bench import Facts
from placer.errors import BadInputError

FILE = Path(__file__).parents[3] / "benchmarks" / "soak.jsonl"


class SuiteRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of all tests of `make test`.

    commit: with a + if files were changed since; None outside a checkout. failed: names of tests, and what else went
    wrong. code: the command's exit code. hog: whether a process that never rests ran beside it. python: the version.
    """

    commit: str | None
    at: str
    seconds: float
    code: int
    failed: tuple[str, ...]
    hog: bool
    python: str


def append(path: Path, run: SuiteRun) -> None:
    """Append the line of a run, in one write. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        file.write(msgspec.json.encode(run) + b"\n")


def read(path: Path) -> list[SuiteRun]:
    """All runs in the file; empty if there is no file. Raises BadInputError for a line that is no run."""
    runs = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), start=1):
        try:
            runs.append(msgspec.json.decode(line, type=SuiteRun))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadInputError(f"{path}, line {number} is no run of the tests ({error}): delete it.") from None
    return runs


def failures(runs: Iterable[SuiteRun]) -> Counter[str]:
    """The tests that ever failed, and in how many of the runs each of them did."""
    return Counter(name for run in runs for name in set(run.failed))


def suite_facts(commit: str | None, path: Path = FILE) -> Facts:
    """The sums over the runs of a commit. `suite_runs`: the commit, how many runs there were, how many of them beside a
    hog, and on which Pythons. `flakes`: how many tests failed in any of them. Both are None without runs.

    commit: the recorded one; runs of other commits say nothing about it. Runs with changed files belong to no commit.
    """
    known = commit is not None and not commit.endswith("+")
    runs = [run for run in read(path) if known and run.commit == commit]
    if not runs:
        return {"suite_runs": None, "flakes": None}
    pythons = dict(sorted(Counter(run.python for run in runs).items()))
    counts = {
        "commit": commit, "of_this_code": True, "runs": len(runs), "beside_hog": sum(run.hog for run in runs),
        "pythons": pythons,
    }  # fmt: skip
    return {"suite_runs": counts, "flakes": len(failures(runs))}
