"""Every bench says in a line of the summary what its record came to, also of a record that is older than the code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.benches import NAMES, _part
from experiments.benches.intervals import UNKNOWN, geomean_in_words, mean_in_words

RECORDS = Path(__file__).parents[3] / "benchmarks"
LONGEST = 360


@pytest.mark.parametrize("name", NAMES)
def test_a_record_has_a_headline_of_one_line_that_a_table_can_hold(name: str) -> None:
    record = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    page = _part(name, "page")
    line = page.headline(record)
    assert "|" not in line and "\n" not in line and "nan" not in line and "None" not in line
    assert 20 < len(line) <= LONGEST
    assert page.page_lines(record)
    assert page.QUESTION.endswith("?") and f"**{page.QUESTION}**" in (RECORDS.parent / "BENCHMARKS.md").read_text()


def test_the_mean_of_nothing_is_unknown() -> None:
    assert mean_in_words([]) == geomean_in_words([]) == UNKNOWN
