"""The part of the page of the bench `spoc` that sets counts of parameters and operations beside published ones."""

from __future__ import annotations

from experiments.benches.bench import Facts
from experiments.report.text import markdown_table


def published_lines(facts: Facts) -> list[str]:
    """How many counts agree, and a row for each published network."""
    found = facts["published"]
    good = {kind: row for kind, row in found.items() if "skipped" not in row}
    left = [f"{kind} ({row['skipped']}: {row['detail']})" for kind, row in found.items() if kind not in good]
    exact, within = (sum(row[key] for row in good.values()) for key in ("exact", "within"))
    heads = ("network", "parameters", "never read", "`count_params`", "multiply-adds", "published", "off", "source")
    return [
        "Counts of one image at native size, traced only. Parameters are those of the traced graph's variables and of "
        f"variables that it never reads; they equal Keras's `count_params` for {exact} of {len(good)} networks, and "
        f"for {facts['exact_parameters']} of the {facts['n_networks']} measured ones. Multiply-adds are within "
        f"{facts['published_within']:.0%} of the published figure for {within} of {len(good)}.",
        "",
        *markdown_table(heads, [_counts(kind, row) for kind, row in good.items()], left=(0, 7)),
        *(["", f"Not counted: {', '.join(left)}."] if left else []),
    ]


def _counts(kind: str, row: Facts) -> list[str]:
    return [
        kind,
        f"{row['parameters']:,}",
        str(row["parameters"] - row["parameters_read"]),
        f"{row['count_params']:,}",
        f"{row['multiply_adds'] / 1e6:,.1f} M",
        f"{row['published'] / 1e6:,.0f} M",
        f"{row['off']:+.1%}",
        row["source"] + (f" ({row['counts']})" if row["counts"] else ""),
    ]
