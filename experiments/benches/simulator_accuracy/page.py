"""The part of BENCHMARKS.md of the bench simulator-accuracy."""

from __future__ import annotations

from experiments.benches.bench import Facts, ms
from experiments.report.text import markdown_table

HEADS = ("network", "mappings", "step times", "unseen mappings", "Kendall tau", "replay", "network held out",
         "single devices only", "noise")  # fmt: skip


def page_lines(facts: Facts) -> list[str]:
    """The errors as a table."""
    rows = [*facts["by_model"].items(), ("mean", facts)]
    return [
        f"Predicted against measured step times on {facts['workers']} one-core worker processes: mean absolute error. "
        f"*Unseen mappings*: calibrated on the first {facts['calibrated_on']} measured mappings, single devices "
        "included, asked for the others. *Replay*: calibrated on all. *Network held out*: what transfers cost is taken "
        "from the other networks, only this one's single-device steps are known. *Single devices only*: links as "
        "measured by themselves. *Noise*: interquartile range of one mapping's step times.",
        "",
        *markdown_table(HEADS, [_cells(name, row) for name, row in rows]),
    ]


def _cells(name: str, row: Facts) -> list[str]:
    return [
        name,
        str(row["n_mappings"]),
        f"{ms(row['fastest_s'])} to {ms(row['slowest_s'])}" if "fastest_s" in row else "",
        f"{row['unseen_mape']:.1%}",
        f"{row['kendall_tau']:.2f}",
        f"{row['replay_mape']:.1%}",
        "" if row["held_out_mape"] is None else f"{row['held_out_mape']:.1%}",
        f"{row['singles_only_mape']:.1%}",
        f"{row['noise']:.1%}",
    ]
