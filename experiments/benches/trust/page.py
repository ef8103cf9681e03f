"""The bench `trust` as a page of BENCHMARKS.md."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.benches.bench import Facts, ms
from experiments.report.text import markdown_table

MIB = 2**20


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
        "worst step against untouched", "1.05", "failed" if worst is None else f"{worst:.3f}",
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
    return "failed" if size is None else f"{size / MIB:.1f} MiB"


NOTES = (
    "Differences: every variable, metric, effect and the next draw of every random stream at the end, to the last bit "
    "(`vae`: 1e-5), after moves by hand among random mappings and after a whole search that keeps to the devices "
    "(`beat_untouched=False`), over two CPU devices of one process without oneDNN, where both sides round alike; a "
    "loop that is placed although it should be left alone, or the other way round, counts, too.",
    "",
    "Step times: two processes, one wrapped and one alone, take blocks of steps in turn once the search has ended; the "
    "median over pairs of blocks of the ratio of their medians, with its interquartile range.",
    "",
    "Growth: a line through the memory of the process after each move of a live step to a new random mapping, and "
    "after each time that a step was wrapped, placed and closed. Reads and growth are found while loops are compared; "
    "nothing else runs while step times are taken.",
)
