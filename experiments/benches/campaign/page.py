"""The bench `campaign` as a page of BENCHMARKS.md."""

from __future__ import annotations

from experiments.benches.bench import Facts
from experiments.benches.campaign.kills import MEASUREMENTS, OPS, SEARCHERS, SEEDS
from experiments.report.text import markdown_table


def page_lines(facts: Facts) -> list[str]:
    """The section of BENCHMARKS.md: each question that was asked."""
    return [*_kills(facts), *_report(facts)]


def _kills(facts: Facts) -> list[str]:
    rows = [
        ("SIGKILLs at random moments", facts["kills"]),
        ("measurements stored by the last of them, of all", f"{facts['at_kills']} of {facts['measurements']}"),
        ("measurements lost", facts["lost"]),
        ("taken twice", facts["duplicated"]),
        ("same placements and results as without a kill", "yes" if facts["asks_identical"] else "no"),
        ("to store one measurement", f"{facts['store_ms']:.2f} ms +- {facts['store_spread_ms']:.2f} ms"),
    ]
    return [
        f"A campaign over one graph of {OPS} ops on four devices, judged by the simulator: {len(SEARCHERS)} searchers, "
        f"{len(SEEDS)} seeds, {MEASUREMENTS} measurements each. After each SIGKILL the same command goes on.",
        "",
        *markdown_table(("what", "measured"), [(what, str(value)) for what, value in rows]),
    ]


def _report(facts: Facts) -> list[str]:
    """Nothing where the record is from before it was asked."""
    if "report_s" not in facts:
        return []
    usable_s = facts["report_usable_s"]
    opened = "there was no browser" if usable_s is None else f"{usable_s:.2f} s"
    rows = [
        ("`placer campaign report --out x.html`, from start to end", f"{facts['report_s']:.2f} s"),
        ("its file", f"{facts['report_bytes'] / 1e6:.2f} MB"),
        ("from opening it to its first figures, in headless Chromium", opened),
    ]
    return ["", f"The page of a campaign of {facts['report_measurements']} measurements:", "",
            *markdown_table(("what", "measured"), rows)]  # fmt: skip
