"""The coverage-guided fuzzer finds what is planted, and says what to install where Atheris is missing."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from experiments.fuzz import guided
from experiments.fuzz.guided_targets import KINDS
from experiments.fuzz.judge import Tally, on_time
from placer.errors import BadInputError

RUNS = 60_000  # of which a blind one would find the fault's four bytes once
PLANTED = """
def read(data):
    if len(data) > 3 and data[0] % 16 == 1:
        if data[1] % 16 == 2:
            if data[2] % 16 == 3:
                if data[3] % 16 == 4:
                    {}["planted"]
"""
HARNESS = """
import json, os, sys
from dataclasses import asdict
from pathlib import Path
from experiments.fuzz import guided
from experiments.fuzz.guided import fuzz, fuzzer
from experiments.fuzz.guided_targets import Guided
from experiments.fuzz.judge import Input
from experiments.fuzz.mutations import garbled

with fuzzer().instrument_imports(include=["planted"]):
    import planted

def ended(tally):
    print(json.dumps(asdict(tally.found())), flush=True)
    os._exit(0)

guided.OPTIONS += ("-seed=1",)  # the same inputs each time
planted_one = Guided([b"valid"], lambda data: Input(data, lambda: planted.read(data)), garbled)
fuzz(planted_one, int(sys.argv[1]), Path("corpus"), ended)
"""


@pytest.mark.skipif(find_spec("atheris") is None, reason="needs atheris, which has wheels for Linux on x86-64")
def test_a_planted_fault_behind_four_branches_is_found(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "planted.py").write_text(PLANTED)
    paths = os.pathsep.join((str(guided.HOME), str(tmp_path)))
    ran = subprocess.run(
        [sys.executable, "-c", HARNESS, str(RUNS)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout)
    assert found["inputs"] == RUNS and found["mishandled"] > 0
    assert "KeyError" in found["lines"][0]


def test_without_atheris_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "atheris", None)
    monkeypatch.setattr(sys, "argv", ["guided", "graph", "10"])
    with pytest.raises(BadInputError, match="pip install 'atheris"):
        guided.fuzzer()
    with pytest.raises(SystemExit) as end:
        guided.main()
    assert end.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "pip install 'atheris" in lines[0]


@pytest.mark.parametrize("name", KINDS)
def test_valid_ones_are_used_and_changed_ones_judged(name: str, tmp_path: Path) -> None:
    opened = KINDS[name].opened(tmp_path)
    tally, rng = Tally(opened.refusal), random.Random(0)
    with on_time():
        for seed in opened.seeds[:12]:
            tally.use(opened.given(seed))
        assert (tally.refused, tally.lines) == (0, [])
        for _ in range(60):
            tally.use(opened.given(opened.mutate(rng.choice(opened.seeds), rng)))
        for data in (b"", b"\0", b"[" * 3000, b"\xff" * 20):
            tally.use(opened.given(data))
    assert tally.refused > 0 and tally.lines == []


def test_readers_are_followed_and_nothing_that_numba_compiles() -> None:
    left = set(guided._not_followed())
    followed = {
        ".".join(path.relative_to(guided.HOME).with_suffix("").parts).removesuffix(".__init__"): path.read_text()
        for package in guided.PACKAGES
        for path in (guided.HOME / package).rglob("*.py")
    }
    followed = {name: text for name, text in followed.items() if name not in left}
    assert {"placer.graph", "placer.graph.graph_files", "experiments.campaign.store"} <= followed.keys()
    assert not [name for name, text in followed.items() if "surrogate.jit" in text or "import numba" in text]
