"""Sentences on what was carried over to the cases of a campaign, and on the result of the first of it."""

from __future__ import annotations

from typing import Any

from placer.number_format import short_ms

Facts = dict[str, Any]


def warm_lines(facts: Facts) -> list[str]:
    """A line for each case that starts from other campaigns."""
    return [f"{row['case']}: {row['line']}{_came(row)}." for row in facts["warm_starts"]]


def _came(row: Facts) -> str:
    """A clause on the first carried placement: its prediction, that of the best start without it, and its result."""
    if not row["carried"]:
        return ""
    said = f"; the first is predicted at {short_ms(row['carried'][0]['predicted_s'])}"
    if row["start_s"] is not None:
        said += f", the best start known without it (HEFT and others) at {short_ms(row['start_s'])}"
    if row["first_s"] is not None:
        said += f"; tried, it came to {short_ms(row['first_s'])}"
        if row["own_first_s"] is not None:
            said += f", and the first that a search chose itself to {short_ms(row['own_first_s'])}"
    return said
