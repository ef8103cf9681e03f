"""What repeated runs of the test suite came to, a JSON line each (`make soak`), and what a commit's lines come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from experiments.benches.bench import Facts
from placer.errors import BadInputError

FILE = Path(__file__).parents[3] / "benchmarks" / "soak.jsonl"


class SuiteRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of all tests that `make test` takes. commit: with a + where files were changed since; None outside a
    checkout. failed: names of tests, and what else went wrong. code: how the command ended. hog: whether a process that
    never rests ran beside it. python: its version.
    """

    commit: str | None
    at: str
    seconds: float
    code: int
    failed: tuple[str, ...]
    hog: bool
    python: str


def append(path: Path, run: SuiteRun) -> None:
    """Add its line, by one write. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        file.write(msgspec.json.encode(run) + b"\n")


def read(path: Path) -> list[SuiteRun]:
    """All runs in the file; none where there is no file. Raises BadInputError for a line that is no run."""
    runs = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), start=1):
        try:
            runs.append(msgspec.json.decode(line, type=SuiteRun))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadInputError(f"{path}, line {number} is no run of the tests ({error}): delete it.") from None
    return runs


def failures(runs: Iterable[SuiteRun]) -> Counter[str]:
    """In how many of the runs each test failed that ever did."""
    return Counter(name for run in runs for name in set(run.failed))


def suite_facts(commit: str | None, path: Path = FILE) -> Facts:
    """What the runs of a commit came to, by `suite_runs`: which it is, how many runs there were, how many of them
    beside a hog, and on which Pythons; and `flakes`, how many tests failed in any of them. Both None without runs.

    commit: that is recorded; runs of another one say nothing of it. What ran with files changed since is of no commit.
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
