"""The contract names tests and loops that exist, and every loop that is left alone is in its table."""

from __future__ import annotations

import re
from pathlib import Path

from experiments.loops.catalogue import LOOPS

HOME = Path(__file__).parents[2]
TEXT = (HOME / "docs" / "contract.md").read_text()
NAMED = re.compile(r"loops? ((?:`\w+`(?:, | and |, and )?)+)")


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", TEXT))
    assert len(named) > 15
    assert not [path for path in named if not (HOME / path).is_file()]


def test_every_guarantee_names_its_tests() -> None:
    guarantees = TEXT.split("## What is guaranteed")[1].split("## What is left alone")[0].strip().split("\n\n")
    assert all(part.startswith("**") and "*Tests:*" in part for part in guarantees)


def test_loops_are_named_as_they_are() -> None:
    named = {name for part in NAMED.findall(TEXT) for name in part.split("`")[1::2]}
    assert named <= set(LOOPS)
    assert {loop.name for loop in LOOPS.values() if loop.alone} <= named


def test_readme_and_autoplace_lead_to_it() -> None:
    from placer import autoplace

    assert "(docs/contract.md)" in (HOME / "README.md").read_text()
    assert "docs/contract.md" in (autoplace.__doc__ or "")
