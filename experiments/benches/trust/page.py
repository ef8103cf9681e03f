"""The bench `trust` as a page of BENCHMARKS.md."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from experiments.benches.bench import Facts, ms
from experiments.benches.intervals import geomean_in_words
from experiments.report.text import markdown_table
from placer.number_format import mib

QUESTION = "Does a wrapped training compute what it computes alone, and what does wrapping it cost?"
PROMISED = 1.05  # times as long as alone, at most


def headline(facts: Facts) -> str:
    """The differences and stale reads, and the cost of wrapping loops that ended untouched."""
    loops = _untouched(facts)
    placed = sum(any(run.get("placed") for run in ways.values()) for ways in facts["by_loop"].values())
    slow = sum(pace["ratio"] > PROMISED for pace in loops.values())
    return (
        f"{_figure(facts['differences'])} differences in {facts['loops']} loops, {placed} of which were placed, and "
        f"{_figure(facts['stale_reads'])} stale reads (wanted: 0), on two CPU devices of one process; loops that ended "
        f"untouched, on {facts['workers']} workers: {_over_loops(facts)} of the time alone{_worst(facts)}, "
        f"{slow} of {len(loops)} above {PROMISED} (wanted: none)"
    )


def page_lines(facts: Facts) -> list[str]:
    """The headlines, then a row for each loop."""
    return [
        "Small training loops as tutorials show them (`experiments/loops`), each wrapped and alone from the same "
        "seeds, with new batches at every step. What is promised is in [the contract](docs/contract.md).",
        "",
        *markdown_table(("", "promised", "found", "details"), _headlines(facts), left=(0, 3)),
        "",
        *markdown_table(
            ("loop", "variables", "steps", "placed", "differences", "wrapped / alone", "a step alone", "ended"),
            (_loop(name, ways, facts["paces"].get(name)) for name, ways in facts["by_loop"].items()), left=(0, 7),
        ),
        "",
        *_cost(facts),
        *_details(facts),
        *NOTES,
    ]  # fmt: skip


def _headlines(facts: Facts) -> Iterator[list[str]]:
    said = f"{facts['loops']} loops, {facts['variables']} variables compared"
    yield ["differences", "0", _figure(facts["differences"]), said]
    reading = facts["reading"]
    details = reading.get("failed") or (
        f"in {reading['ways']} ways, each at least {reading['fewest']} times, over {reading['steps']} placed steps"
    )
    yield [f"stale reads of {facts['reads'] or 0:,}", "0", _figure(facts["stale_reads"]), details]
    worst = facts["worst_vs_untouched"]
    yield [
        "worst step against untouched", f"{PROMISED}", "failed" if worst is None else f"{worst:.3f}",
        f"default settings over {facts['workers']} worker processes of the same machine",
    ]  # fmt: skip
    growth = facts["growth"]
    kept = growth.get("failed") or (
        f"over as many wraps: {_mib(growth['wrap_growth_bytes'])}; the variables are {_mib(growth['variable_bytes'])}"
    )
    yield [f"growth over {growth.get('moves', 20)} moves", "", _mib(facts["growth_bytes"]), kept]


def _loop(name: str, ways: dict[str, Facts], pace: Facts | None) -> list[str]:
    runs = list(ways.values())
    if any("failed" in run for run in runs):
        return [f"`{name}`", "", "", "", "failed"]
    count = sum(len(run["different"]) + len(run["broken"]) for run in runs)
    row = [
        f"`{name}`", str(runs[0]["variables"]), str(sum(run["steps"] for run in runs)),
        str(sum(run["placed"] for run in runs)), str(count),
    ]  # fmt: skip
    if pace is None:
        return [*row, "", "", f"left alone: {runs[0]['alone'][0] if runs[0]['alone'] else ''}"]
    if "failed" in pace:
        return [*row, "failed", "", pace["failed"]]
    ended = ", ".join(state.partition(": ")[2] for state in pace["ended"])
    return [*row, f"{pace['ratio']:.3f} +- {pace['spread']:.3f}", ms(pace["alone_s"]), ended]


def _untouched(facts: Facts) -> dict[str, Facts]:
    """The step times of the loops whose steps all ended untouched."""
    return {
        name: pace
        for name, pace in facts["paces"].items()
        if "ratio" in pace and all(state.partition(": ")[2] == "untouched" for state in pace["ended"])
    }


def _over_loops(facts: Facts) -> str:
    return geomean_in_words([pace["ratio"] for pace in _untouched(facts).values()])


def _worst(facts: Facts) -> str:
    ratios = [pace["ratio"] for pace in _untouched(facts).values()]
    return f", worst {max(ratios):.2f}" if ratios else ""


def _cost(facts: Facts) -> Iterator[str]:
    """The cost of wrapping loops that gain nothing by it."""
    loops = _untouched(facts)
    if not loops:
        return
    longer = [pace["ratio"] - 1 for pace in loops.values() if pace["ratio"] > 1]
    above = [name for name, pace in loops.items() if pace["ratio"] > PROMISED]
    said = f"Of {len(loops)} loops that ended untouched, {len(longer)} took longer than alone"
    if longer:
        said += f", by {min(longer):.0%} to {max(longer):.0%}"
    middle = median(pace["ratio"] for pace in loops.values())
    said += f"; in the median, all {len(loops)} took {middle:.2f} times as long as alone. "
    said += f"{len(above)} took more than {PROMISED} times as long. "
    said += f"Geometric mean over all of these: {_over_loops(facts)} times as long as alone."
    if above:
        said += _worst_of({name: loops[name] for name in above})
    yield from (said, "")


def _worst_of(above: dict[str, Facts]) -> str:
    """The slowest loop and, if it may be slow by chance, the slowest loop that is not."""
    worst, *others = sorted(above, key=lambda name: -above[name]["ratio"])
    said = f" The worst is {_named(worst, above)}"
    if not _may_be_noise(above[worst]):
        return f"{said}."
    said += ": its interval covers 1, so it may be noise."
    sure = next((name for name in others if not _may_be_noise(above[name])), None)
    return said if sure is None else f"{said} The worst whose interval does not is {_named(sure, above)}."


def _named(name: str, paces: dict[str, Facts]) -> str:
    return f"`{name}` with {paces[name]['ratio']:.3f} +- {paces[name]['spread']:.3f}"


def _may_be_noise(pace: Facts) -> bool:
    """Whether 1 is within twice the standard error or, in an older record, within the interquartile range."""
    return bool(pace["ratio"] - (2 * pace["error"] if "error" in pace else pace["spread"] / 2) <= 1)


def _details(facts: Facts) -> Iterator[str]:
    """Each failure and difference in words."""
    for name, ways in facts["by_loop"].items():
        for way, run in ways.items():
            for line in [run["failed"]] if "failed" in run else [*run["different"], *run["broken"]]:
                yield f"- `{name}`, {way}: {line}"
    for way, count in facts["reading"].get("stale", {}).items():
        yield f"- {count} reads by `{way}` were stale"
    yield ""


def _figure(value: int | None) -> str:
    return "failed" if value is None else str(value)


def _mib(size: float | None) -> str:
    return "failed" if size is None else mib(size)


NOTES = (
    "Differences: every variable, metric, effect and the next draw of every random stream at the end, to the last bit "
    "(`vae`: 1e-5), after moves by hand among random mappings and after a whole search that keeps to the devices "
    "(`beat_untouched=False`), over two CPU devices of one process without oneDNN, where both sides round alike; a "
    "loop that is placed although it should be left alone, or the other way round, counts, too.",
    "",
    "Step times: two processes, one wrapped and one alone, take blocks of steps in turn once the search has ended; "
    "the median over pairs of blocks of the ratio of their medians, with its interquartile range. Ratios far below 1 "
    "are of loops that run eagerly alone, or are traced again at each step, and are placed as one graph.",
    "",
    "Growth: a line through the memory of the process after each move of a live step to a new random mapping, and "
    "after each time that a step was wrapped, placed and closed. Reads and growth are found while loops are compared; "
    "nothing else runs while step times are taken.",
)
