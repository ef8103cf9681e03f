"""The bench `campaign` as a page of BENCHMARKS.md."""

from __future__ import annotations

from experiments.benches.bench import Facts, missing_lines
from experiments.benches.campaign import speed, warm_start
from experiments.benches.campaign.kills import MEASUREMENTS, OPS, SEARCHERS, SEEDS
from experiments.benches.campaign.networks import ALIKE, FIRST
from experiments.report.text import markdown_table
from search.defaults import DEFAULT_SEARCHER

QUESTION = "Does a campaign that is killed lose measurements, how fast is it, and what does a warm start save?"
RAY_WANTED = 1.7


def page_lines(facts: Facts) -> list[str]:
    """The section of BENCHMARKS.md: each question that was asked."""
    missing = missing_lines(facts.get("missing", {}))
    return [*_kills(facts), *_speed(facts), *_report(facts), *_warm_start(facts), *missing]


def headline(facts: Facts) -> str:
    """Measurements lost to kills, the speedup of Ray, and the gain of a warm start, by default searcher and others."""
    parts = []
    if "kills" in facts:
        parts.append(f"{facts['kills']} SIGKILLs, {facts['lost']} measurements lost")
    if "ray_speedup" in facts:
        parts.append(f"Ray {facts['ray_speedup']:.2f}x on {facts['ray_cpus']:g} cores (wanted: {RAY_WANTED}x)")
    if facts.get("warm_start_rows"):
        worth = _worth(facts["warm_start_rows"])
        parts.append(f"measurements needed after a warm start (simulated; below 1 saves): {worth}")
    return "; ".join(parts) or "not measured"


def _worth(rows: list[Facts]) -> str:
    """Measurements of all warm searches divided by those of the cold ones: the default searcher, and all others."""
    mine = [row for row in rows if row["searcher"] == DEFAULT_SEARCHER]
    others = [row for row in rows if row["searcher"] != DEFAULT_SEARCHER]
    named = ((f"`{DEFAULT_SEARCHER}` (the default)", mine), ("other searchers", others))
    return ", ".join(f"{name} {_together(some):.2f}x" for name, some in named if some)


def _together(rows: list[Facts]) -> float:
    return float(sum(row["warm"] for row in rows) / sum(row["cold"] for row in rows))


def _kills(facts: Facts) -> list[str]:
    """The lines on kills; empty if that part failed."""
    if "kills" not in facts:
        return []
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


def _speed(facts: Facts) -> list[str]:
    """The lines on Ray; empty if the record is older than the question."""
    if "ray_speedup" not in facts:
        return []
    return [
        "",
        f"Over Ray on {facts['ray_cpus']:g} cores a campaign over one graph of {speed.OPS} ops "
        f"({', '.join(speed.SEARCHERS)}, "
        f"{len(speed.SEEDS)} seeds, {facts['ray_measurements']} measurements) took "
        f"{facts['ray_per_s']:.0f} measurements a second, in one process {facts['one_process_per_s']:.0f}: "
        f"{facts['ray_speedup']:.2f} times as many (interquartile range {facts['ray_speedup_spread']:.2f} over "
        f"{facts['ray_repeats']} repeats, the two in turn; wanted: {RAY_WANTED} on two cores). The start of Ray and of "
        "its processes is not counted.",
    ]


def _report(facts: Facts) -> list[str]:
    """The lines on the report; empty if that part failed, or the record is older than the question."""
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


def _warm_start(facts: Facts) -> list[str]:
    """The lines on warm starts; empty if that part failed, or the record is older than the question."""
    if "warm_start_ratio" not in facts:
        return []
    budget = facts.get("warm_start_measurements", warm_start.MEASUREMENTS)
    table = [
        [searcher, *(f"{row[name]:g}" if row[name] <= budget else f"more than {budget}" for name in ("cold", "warm"))]
        for searcher, row in facts["warm_start_by_searcher"].items()
    ]
    rows = facts["warm_start_rows"]
    saved, lost = (sum(row[less] < row[more] for row in rows) for less, more in (("warm", "cold"), ("cold", "warm")))
    return [
        "",
        f"What a campaign over one network saves a second one over a network that is alike ({', '.join(ALIKE)}; "
        f"{len(FIRST.graph())} ops, a GPU and a CPU, a clock on which each op takes other seconds than were profiled, "
        f"by {warm_start.OFF:.0%}): measurements until a search is within {warm_start.NEAR - 1:.0%} of the best that "
        "all cold searches found. Cold searches have HEFT and the other starts, too. "
        f"{facts['warm_start_at_once']:.0%} of the cold searches{_all_of(rows)} were within {warm_start.NEAR - 1:.0%} "
        f"at once, so a warm start could not help them. Of {len(rows)} searches, {saved} took fewer measurements warm "
        f"than cold, and {lost} more. Measurements of all warm searches by those of all cold ones (below 1, the warm "
        f"start saves some): {_together(rows):.2f}; by searcher: {_worth(rows)}. A search that never came near counts "
        f"as {budget + 1}. Medians over networks and seeds:",
        "",
        *markdown_table(("searcher", "cold", "warm"), table),
    ]


def _all_of(rows: list[Facts]) -> str:
    """A clause that names the searchers whose cold searches were all near the best at once; empty if none."""
    searchers = dict.fromkeys(row["searcher"] for row in rows)
    there = [name for name in searchers if all(row["cold"] == 1 for row in rows if row["searcher"] == name)]
    return f" (all those of {', '.join(f'`{name}`' for name in there)})" if there else ""
