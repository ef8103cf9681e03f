"""A campaign's command that waits for the test: however fast or slow the machine is, it is caught in the middle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

# Waits once so many measurements of this run are stored, until its stdin is closed.
PROGRAM = """
import sys
from experiments.report.campaign.terminal import CampaignBar
whole, left = CampaignBar.trial, int(sys.argv.pop(1))

def trial(bar, *arguments):
    global left
    whole(bar, *arguments)
    left -= 1
    if left == 0:
        print("held", file=sys.stderr, flush=True)
        sys.stdin.read()

CampaignBar.trial = trial
from placer.__main__ import main
main()
"""


def held_at(count: int, spec: Path, *more: str, **options: Any) -> subprocess.Popen[str]:
    """`placer campaign run SPEC --json`, which waits after `count` measurements. Close its stdin to let it go on."""
    command = [sys.executable, "-c", PROGRAM, str(count), "campaign", "run", str(spec), "--json", *more]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, **pipes, text=True, **options)


def wait_until_held(process: subprocess.Popen[str]) -> None:
    """Returns when the command waits. Raises AssertionError if it ends before."""
    assert process.stderr is not None
    said = []
    while (line := process.stderr.readline()) != "held\n":
        said.append(line)
        assert line or process.wait() is None, "".join(said)
