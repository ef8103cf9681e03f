"""The test suite is run again and again, whatever comes of it; what failed is counted by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from experiments import soak as soaking
from experiments.benches.bench import BenchOptions
from experiments.benches.faults import run as faults
from experiments.benches.faults.page import headline, page_lines
from experiments.benches.faults.suite_runs import SuiteRun, append, failures, read, suite_facts
from experiments.soak import KILLED, soak
from placer.errors import BadInputError

HOME = Path(__file__).parents[2]
# Stands in for pytest: each run does what the next word of PLAN says.
SUITE = """
import os, pathlib, sys, time
plan, report = pathlib.Path(sys.argv[1]), sys.argv[2].removeprefix("--junitxml=")
word, _, rest = plan.read_text().partition(" ")
plan.write_text(rest)
cases = {
    "passed": '<testcase classname="tests.a" name="test_one" />',
    "failed": '<testcase classname="tests.a" name="test_one" />'
        '<testcase classname="tests.b" name="test_two[a - b]"><failure>no</failure></testcase>',
    "error": '<testcase classname="tests.c" name="test_three"><error>no</error></testcase>',
}
if word == "crashed":
    os.abort()
if word == "torn":
    pathlib.Path(report).write_text("<testsuites><tes")
    sys.exit(3)
if word == "waits":
    time.sleep(600)
pathlib.Path(report).write_text(f"<testsuites><testsuite>{cases[word]}</testsuite></testsuites>")
sys.exit(word != "passed")
"""


@pytest.fixture
def suite(tmp_path: Path):
    """The command that stands in, given what its runs do."""
    program = tmp_path / "suite.py"
    program.write_text(textwrap.dedent(SUITE))

    def command(plan: str) -> list[str]:
        (tmp_path / "plan").write_text(plan)
        return [sys.executable, str(program), str(tmp_path / "plan")]

    return command


def test_every_run_is_counted_and_none_ends_the_others(suite, tmp_path: Path, capsys) -> None:
    path = tmp_path / "out" / "soak.jsonl"
    plan = "passed failed crashed torn error failed passed"
    done = soak(suite(plan), 7, hog=False, path=path)
    assert [run.code for run in done] == [0, 1, -6, 3, 1, 1, 0]
    assert failures(done) == {
        "tests.b::test_two[a - b]": 2,
        "tests.c::test_three": 1,
        "the suite ended with code -6 and names no test": 1,
        "the suite ended with code 3 and names no test": 1,
    }
    assert read(path) == done and len({run.commit for run in done}) == 1
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 7 and told[0].startswith("run 1 of 7") and "tests.b::test_two[a - b]" in told[1]


def test_a_run_that_does_not_end_is_killed(suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first may be killed before it has begun to wait. The other one has time, however slow the machine is."""
    whole, runs, asked = soaking._code, iter([("waits", 1.0), ("passed", 600.0)]), []

    def code(command: list[str], limit_s: float) -> int:
        asked.append(limit_s)
        plan, limit_s = next(runs)
        (tmp_path / "plan").write_text(plan)
        return whole(command, limit_s)

    monkeypatch.setattr(soaking, "_code", code)
    (found, after) = soak(suite(""), 2, hog=False, path=tmp_path / "soak.jsonl", limit_s=7.0)
    assert found.code == KILLED and len(found.failed) == 1 and after.failed == ()
    assert asked == [7.0, 7.0]


def test_ctrl_c_keeps_what_was_done(suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter([0])

    def code(command, limit_s):
        del command, limit_s
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(soaking, "_code", code)
    assert len(soak(suite(""), 5, hog=False, path=tmp_path / "soak.jsonl")) == 1


def test_a_hog_runs_beside_it_and_is_gone_afterwards(suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    popen = subprocess.Popen

    def opened(command, **options):
        started.append(popen(command, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", opened)
    (found,) = soak(suite("passed"), 1, hog=True, path=tmp_path / "soak.jsonl")
    (hog,) = (process for process in started if soaking.BURN in process.args)
    assert found.hog and hog.returncode == KILLED


def test_the_command_prints_one_line_at_the_end(suite, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from experiments import soak; "
        f"soak.soak.__defaults__ = (Path({str(tmp_path / 'soak.jsonl')!r}), 60.0); soak.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "2", "--", *suite("passed failed")],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(HOME)}, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["1 of 2: tests.b::test_two[a - b]", "2 runs, 1 flaky tests"]
    assert done.returncode == 1
    assert [json.loads(line)["code"] for line in (tmp_path / "soak.jsonl").read_text().splitlines()] == [0, 1]


@pytest.mark.parametrize("count", ["x", "0", "-1", "²"])
def test_a_number_of_runs_that_is_none_is_one_line(count: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["soak", count, "--", "pytest"])
    with pytest.raises(SystemExit) as ended:
        soaking.main()
    assert ended.value.code == 2 and capsys.readouterr().err.startswith(f"soak: RUNS is {count!r}")


def run_of(commit: str | None, *failed: str) -> SuiteRun:
    return SuiteRun(
        commit, "2026-11-24T08:00:00+00:00", 300.0, int(bool(failed)), failed, hog=bool(failed), python="3.12.1"
    )


def test_facts_are_those_of_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    none = {"suite_runs": None, "flakes": None}
    assert suite_facts("abc", path) == none  # no file
    for run in (run_of("abc"), run_of("abc", "a", "b"), run_of("abc", "a"), run_of("abc+", "c"), run_of("def")):
        append(path, run)
    three = {"commit": "abc", "of_this_code": True, "runs": 3, "beside_hog": 2, "pythons": {"3.12.1": 3}}
    assert suite_facts("abc", path) == {"suite_runs": three, "flakes": 2}
    assert suite_facts("def", path) == {
        "suite_runs": {"commit": "def", "of_this_code": True, "runs": 1, "beside_hog": 0, "pythons": {"3.12.1": 1}},
        "flakes": 0,
    }


def test_a_commit_without_runs_has_no_flakes_to_tell(tmp_path: Path) -> None:
    path, none = tmp_path / "soak.jsonl", {"suite_runs": None, "flakes": None}
    for commit in ("abc+", "abc", "def", None):  # changes have no name
        append(path, run_of(commit, "c"))
    for asked in ("abc+", None, "123"):
        assert suite_facts(asked, path) == none


def test_a_line_that_is_no_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    append(path, run_of("abc"))
    with path.open("a") as file:
        file.write('{"commit": 3}\n')
    with pytest.raises(BadInputError, match="line 2 is no run"):
        suite_facts("abc", path)


def test_the_bench_of_faults_has_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    append(path, run_of("abc", "a"))
    parts = [("hostile", {}, lambda over: {}), ("outputs", {}, lambda over: {"outcomes": [], "skipped": []})]
    monkeypatch.setattr(faults, "_parts", lambda *_: parts)
    monkeypatch.setattr(faults, "commit", lambda _: "abc")
    monkeypatch.setattr(faults, "suite_facts", lambda commit: suite_facts(commit, path))
    facts = faults.bench_facts(BenchOptions())
    assert (facts["suite_runs"]["runs"], facts["flakes"]) == (1, 1)
    assert any(
        "| 1 | tests that failed in any of 1 runs" in line and "commit abc;" in line for line in page_lines(facts)
    )
    assert headline(facts).endswith("1 flaky tests in 1 runs")


def test_the_page_of_an_older_record_says_that_the_suite_ran_at_another_commit() -> None:
    record = json.loads((HOME / "benchmarks" / "faults.json").read_text(encoding="utf-8"))
    suite = {"commit": "abc", "runs": 20, "beside_hog": 10, "pythons": {"3.12.1": 20}}
    older = {**record, "commit": "def", "suite_runs": suite, "flakes": 0}
    assert "of commit abc, which is not the commit of this record;" in "\n".join(page_lines(older))
    assert headline(older).endswith("in 20 runs, of another commit")
    assert headline({**older, "commit": "abc"}).endswith("in 20 runs")
    assert "flak" not in headline({**older, "suite_runs": None})
    assert "| flakes | 0 | not measured |" in "\n".join(page_lines({**older, "suite_runs": None}))
