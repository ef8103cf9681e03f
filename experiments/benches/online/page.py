"""The bench `online` as a page of BENCHMARKS.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.benches.bench import Facts, ms, ms_spread
from experiments.benches.online.judge import recovered
from experiments.benches.online.neighbours import HORIZON, LOADS
from experiments.report.text import markdown_table

OVERHEAD = ["overhead of a call", "1 %"]  # what, and what is promised
ORACLE = ["whole run against the oracle", "1.05"]
NAMES = {"hog": "CPU hog", "ramp": "growing hog", "memory": "memory traffic", "link": "slow links"}
LOAD_COLUMNS = (
    "network", "load", "step in quiet", "never adapts, a step", "autoplace at the end (speed by the optimum's)",
    "steps until 95 %", "anew, a step", f"{HORIZON} steps by those of never", "by those of anew",
    "left: steps until 95 %", "step (speed by the optimum's)",
)  # fmt: skip


def page_lines(facts: Facts) -> list[str]:
    """One table of what was promised, and how each figure came about."""
    rows = [*_networks(facts["by_model"]), *_recoveries(facts), *_steady(facts["steady"]), _kills(facts)]
    return [
        f"`placer.autoplace` on {facts['workers']} one-core worker processes, in real time; each part in a process of "
        f"its own; searches measured at most {facts['budget']} mappings, half as many where loads land, fewer for the "
        "small networks. NAME@N is the network with batches of N.",
        "",
        *markdown_table(("", "promised", "network", "found", "details"), rows, left=(0, 2, 4)),
        "",
        *_loads(facts),
        "",
        *NOTES,
    ]


def _networks(by_model: dict[str, Facts]) -> Iterator[list[str]]:
    """The overheads, then the runs against the oracle, of the networks that have them."""
    for name, row in by_model.items():
        if row["overhead"] is not None:
            yield _overhead(name, row["overhead"])
    for name, row in by_model.items():
        if row["oracle"] is not None:
            yield from _oracle(name, row["oracle"])


def _overhead(name: str, found: Facts) -> list[str]:
    if "failed" in found:
        return [*OVERHEAD, f"`{name}`", "failed", found["failed"]]
    details = (
        f"{ms(found['call_s'])} a call, {ms(found['bare_s'])} bare; {found['steps']} of each; by all seconds "
        f"{found['overhead_total']:+.1%}"
    )
    return [*OVERHEAD, f"`{name}`", f"{found['overhead']:+.1%} +- {found['overhead_error']:.1%}", details]


def _oracle(name: str, found: Facts) -> Iterator[list[str]]:
    if "failed" in found:
        yield [*ORACLE, f"`{name}`", "failed", found["failed"]]
        return
    run = (
        f"{found['calls']} calls in {found['total_s']:.0f} s; the oracle's step {ms(found['oracle_s'])} (by "
        f"{found['oracle_by']}), the last calls {ms(found['last_s'])}; search over after {found['steady_at']} calls"
    )
    single = f"its step {ms(found['single_s'])}"
    if "untouched_before_s" in found:  # an older record has it of calls beside which the workers started
        single += f"; untouched, all cores, before there were workers {ms(found['untouched_before_s'])}"
    yield [*ORACLE, f"`{name}`", f"{found['vs_oracle']:.3f}", run]
    yield ["against the best single device", "1.00", f"`{name}`", f"{found['vs_single']:.3f}", single]


def _recoveries(facts: Facts) -> Iterator[list[str]]:
    """The steps until recovery, in the middle over all networks, for each load and for all that left."""
    by_load = {load: [row for row in facts["loads"] if row["load"] == load] for load in LOADS}
    for load, rows in by_load.items():
        if rows:
            yield [f"steps until 95 % of the optimum, {NAMES[load]}", "30", *_steps(rows, "landed")]
    if facts["loads"]:
        yield ["steps until 95 % of the optimum, the load left", "30", *_steps(facts["loads"], "left")]


def _steps(rows: Sequence[Facts], event: str) -> tuple[str, str, str]:
    """(networks, the median of the steps, all of them), of loads that landed or left."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    each = ", ".join("failed" if event not in row else str(row[event]["steps"] or "never") for row in rows)
    watched = next((f", of {row['steps_watched']} watched" for row in rows if "steps_watched" in row), "")
    middle = recovered(rows, event)
    name = f"`{models[0]}`" if len(models) == 1 else f"{len(models)} networks"
    return name, "never" if middle is None else f"{middle:.0f}", f"each: {each}{watched}"


def _loads(facts: Facts) -> list[str]:
    """Every landing: what it did to the step, and what adapting was worth."""
    rows = [_load(row) for row in facts["loads"]]
    totals = [_total(facts["vs_never"], "of never adapting"), _total(facts["vs_anew"], "of searching anew")]
    return [
        *markdown_table(LOAD_COLUMNS, rows, left=(0, 1)),
        "",
        f"{HORIZON} steps under the load take, in the geometric mean over all landings, {' and '.join(totals)}.",
        *([] if all("first_s" in row.get("landed", {"first_s": 0.0}) for row in facts["loads"]) else ["", BEFORE]),
    ]


def _load(row: Facts) -> list[str]:
    if "landed" not in row:
        return [f"`{row['model']}`", NAMES[row["load"]], f"failed: {row['failed']}", *[""] * (len(LOAD_COLUMNS) - 3)]
    landed, left = row["landed"], row["left"]
    return [
        f"`{row['model']}`",
        NAMES[row["load"]] + ("" if row["device"] is None else f" on worker:{row['device']}"),
        ms(row["calm_s"]),
        ms(landed["before_s"]),
        f"{ms(landed['ended_s'])} ({landed['ended_share']:.2f})",
        "never" if landed["steps"] is None else str(landed["steps"]),
        f"{ms(landed['anew_s'])} after {landed['search_s']:.0f} s",
        f"{landed['vs_never']:.2f}",
        f"{landed['vs_anew']:.2f}",
        "never" if left["steps"] is None else str(left["steps"]),
        f"{ms(left['ended_s'])} ({left['ended_share']:.2f})",
    ]


def _total(ratio: float | None, words: str) -> str:
    return f"an unknown share of the time {words}" if ratio is None else f"{ratio:.2f} times the time {words}"


def _steady(found: Facts) -> Iterator[list[str]]:
    if "failed" in found:
        yield ["false alarms", "0", "", "failed", found["failed"]]
        return
    for name, words in (("plain", "in quiet"), ("jitter", f"beside {found['jitter_said']}")):
        part = found[name]
        details = (
            f"{part['alarms']} alarms; {ms_spread(part['step_s'], part['spread_s'])} a step, "
            f"slowest {ms(part['slowest_s'])}"
        )
        what = f"moves in {part['steps']} steady steps, {words}"
        yield [what, "0", f"`{found['model']}`", str(part["moves"]), details]


def _kills(facts: Facts) -> list[str]:
    runs = facts["kill_runs"]
    back = sorted(s for row in runs for s in row["back_s"])
    middle = f"; all devices back after {back[len(back) // 2]:.1f} s in the middle" if back else ""
    same, steps = sum(row["same_bits"] for row in runs), sum(row["steps"] for row in runs)
    details = f"{len(runs)} runs{middle}; {same} of {steps} losses are the undisturbed ones bit for bit"
    if same < steps:
        details += f", the others within {max(row['worst'] for row in runs):.0e}"
    if unnoticed := sum(row.get("unnoticed", 0) for row in runs):
        details += f"; {unnoticed} kills were of a device that no op ran on, and went unnoticed"
    if failed := [row["ended"] for row in runs if row.get("ended")]:
        details += f"; {len(failed)} runs ended early, first: {failed[0]}"
    return ["SIGKILLs of a worker survived", "all", "", f"{facts['kills_survived']} of {facts['kills']}", details]


BEFORE = (
    "In this record, how fast the machine was is taken from the training's own last steps, not from bare steps, and a "
    "recovery is not confirmed by all later steps. Its steps until 95 % may be too few."
)
NOTES = (
    "Overhead: calls and bare steps of the very same placed function on the same variables, outputs fetched, in "
    "blocks in turn; the median over pairs of blocks, with its standard error. *By all seconds* includes snapshots "
    "and outliers.",
    "",
    "Oracle: the fastest of the mappings that the run ended on, the single devices, and the best of a second "
    "search after the run. Machines drift, so these were stepped every 200 calls beside the run, on scratch "
    "variables, and each call is counted in the oracle's steps of its time; calls before the end of the search by "
    "the first such look. The oracle starts no workers, and it is only as good as what two searches found.",
    "",
    f"Loads: {'; '.join(f'{NAMES[name]}: {load.said}' for name, load in LOADS.items())}. The network is slowed in a "
    "network namespace, where the workers are alone. Steps until 95 %: running medians of five steps, confirmed by the "
    "next five and by the median of all later steps, so 5 is the minimum; counted from when the load is whole and has "
    "been felt for a second. The optimum is the best, side by side, of "
    "where the run ended up, the mapping from before, and, under the load, of a fresh profile and search with the "
    "whole budget; how fast the machine was during the steps is taken from bare steps of the mapping from before, just "
    f"before them and in that comparison. *Never adapts* keeps the mapping from before for {HORIZON} steps; *anew* "
    "stands still while it profiles and searches from nothing, then takes the steps of what it found. Autoplace's are "
    "those that were watched, and then steps of where it ended up. Below 1, adapting is faster; where the load leaves "
    "the mapping from before the best one, 1.00 is the best there is.",
    "",
    "Kills: at random moments within random steps, one after another when all devices were back. Afterwards the "
    "same steps are taken again without kills, from the state before the first. A kill is survived where "
    "the training went on, with all devices back if an op ran on the one killed, and every loss until the next "
    "kill is the undisturbed one within 1e-5.",
)
