"""What was carried over to the cases of a campaign, and what the first of it came to, in sentences."""

from __future__ import annotations

from typing import Any

from experiments.report.text import ms

Facts = dict[str, Any]


def warm_lines(facts: Facts) -> list[str]:
    """A line for each case that starts from other campaigns."""
    return [f"{row['case']}: {row['line']}{_came(row)}." for row in facts["warm_starts"]]


def _came(row: Facts) -> str:
    """What the first one is predicted at, against what a search has without it, and what it came to."""
    if not row["carried"]:
        return ""
    said = f"; the first is predicted at {ms(row['carried'][0]['predicted_s'], None)}"
    if row["start_s"] is not None:
        said += f", the best start known without it (HEFT and others) at {ms(row['start_s'], None)}"
    if row["first_s"] is not None:
        said += f"; tried, it came to {ms(row['first_s'], None)}"
        if row["own_first_s"] is not None:
            said += f", and the first that a search chose itself to {ms(row['own_first_s'], None)}"
    return said
