"""`python -m experiments.soak RUNS [hog] -- COMMAND` runs the test suite RUNS times, whether or not tests fail."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from experiments.benches.bench import RECORDS, commit
from experiments.benches.faults.suite_runs import FILE, SuiteRun, append, failures

LIMIT_S = 7200.0  # for one run of all tests, which takes minutes
KILLED = -signal.SIGKILL
BURN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(1_000_000))\n"


def soak(command: Sequence[str], runs: int, hog: bool, path: Path = FILE, limit_s: float = LIMIT_S) -> list[SuiteRun]:
    """Run the command `runs` times, report each run on stderr and append it to `path`. Ctrl-C ends the runs early.

    command: pytest and its arguments. hog: whether another process computes meanwhile. limit_s: seconds after which a
    run is killed, which counts as a failure.
    """
    done: list[SuiteRun] = []
    with _hog() if hog else nullcontext(), suppress(KeyboardInterrupt):
        for number in range(1, runs + 1):
            found = _run(command, hog, limit_s)
            append(path, found)
            done.append(found)
            said = f"{len(found.failed)} failed: {', '.join(found.failed)}" if found.failed else "all passed"
            print(f"run {number} of {runs}, {found.seconds:.0f} s: {said}", file=sys.stderr, flush=True)
    return done


def _run(command: Sequence[str], hog: bool, limit_s: float) -> SuiteRun:
    at, begin_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="placer-soak-") as folder:
        report = Path(folder) / "report.xml"
        code = _code([*command, f"--junitxml={report}"], limit_s)
        failed = _failed(report)
    if code and not failed:
        failed = (f"the suite ended with code {code} and names no test",)
    took_s = round(time.monotonic() - begin_s, 1)
    return SuiteRun(commit(RECORDS), at, took_s, code, failed, hog, platform.python_version())


def _code(command: Sequence[str], limit_s: float) -> int:
    """Run the command and return its exit code, or KILLED after `limit_s`. All that it started is killed at the end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return KILLED
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _failed(report: Path) -> tuple[str, ...]:
    """Names of the tests that failed or could not be set up, from pytest's report in JUnit's format."""
    try:
        cases = ElementTree.parse(report).iter("testcase")
    except (OSError, ElementTree.ParseError):
        return ()
    wrong = (case for case in cases if case.find("failure") is not None or case.find("error") is not None)
    return tuple(sorted({f"{case.get('classname')}::{case.get('name')}" for case in wrong}))


@contextmanager
def _hog() -> Iterator[None]:
    """Keep another process computing without rest during the block. It also ends if this process dies."""
    process = subprocess.Popen([sys.executable, "-c", BURN])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Run the suite, print how often each failing test failed, and a line about all runs. The exit code is 1 if a test
    failed and 2 if RUNS is not a positive number.
    """
    split = sys.argv.index("--")
    count, *more = sys.argv[1:split]
    if not (count.isascii() and count.isdigit() and int(count)):
        print(f"soak: RUNS is {count!r}; give how often to run the tests, at least 1.", file=sys.stderr)
        sys.exit(2)
    done = soak(sys.argv[split + 1 :], int(count), "hog" in more)
    found = failures(done)
    for name, times in found.most_common():
        print(f"{times} of {len(done)}: {name}")
    print(f"{len(done)} runs, {len(found)} flaky tests")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
