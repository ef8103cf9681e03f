"""The bench `online` as a page of BENCHMARKS.md."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from experiments.benches.bench import Facts, ms, ms_spread
from experiments.benches.online.judge import BY_CLOCK, BY_MAPPING, steps_to_recover
from experiments.benches.online.loads_page import (
    WANTED,
    is_by_mapping,
    load_lines,
    load_notes,
    recoveries,
    recovery_rows,
)
from experiments.benches.online.neighbours import GROWS_S, LOADS
from experiments.benches.online.plot import PICTURE
from experiments.report.text import markdown_table, percent

QUESTION = "What does watching a training cost, and does the training recover when the load changes?"
OVERHEAD = ["overhead, by all seconds", "1 %"]  # what, and what is promised
ORACLE = ["time of the whole run, by the oracle's", "1.05"]


def headline(facts: Facts) -> str:
    """The worst overhead, the worst run, recoveries from loads, false moves, and kills survived."""
    overheads = [row["overhead"] or {} for row in facts["by_model"].values() if row["overhead"] is not None]
    total, medians = (_worst([row.get(key) for row in overheads]) for key in ("overhead_total", "overhead"))
    run, moves, loads = facts["vs_oracle"], facts["false_alarms"], facts["loads"]
    count = len(steps_to_recover(loads, "landed"))
    (there, soon), (_, clocked) = (recoveries(loads, "landed", by) for by in (BY_MAPPING, BY_CLOCK))
    by_clock = f"by the clock {clocked}" if is_by_mapping(loads) else "told by the clock"
    growing = [row for row in loads if LOADS[row["load"]].grows_s]
    _, soon_growing = recoveries(growing, "landed", BY_MAPPING)
    grown = f", {soon_growing} of them of loads that had grown for {GROWS_S:.0f} s before" if soon_growing else ""
    return (
        f"overhead {percent(total)}, by medians {percent(medians)} (wanted: 1%); "
        f"{'-' if run is None else f'{run:.2f}'} x the oracle (wanted: 1.05); {len(loads)} loads, of which {count} "
        f"left something to recover: {soon} within {WANTED} steps{grown} (wanted: all; {by_clock}), {there} in the "
        "steps watched; "
        f"{'-' if moves is None else moves} false moves; {facts['kills_survived']} of {facts['kills']} kills survived"
    )


def _worst(figures: list[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return max(known) if known and len(known) == len(figures) else None


def page_lines(facts: Facts) -> list[str]:
    """One table of what was promised, and how each figure was measured."""
    rows = [*_networks(facts["by_model"]), *recovery_rows(facts), *_steady(facts["steady"]), _kills(facts)]
    return [
        f"`placer.autoplace` on {facts['workers']} one-core worker processes, in real time; each part in a process of "
        f"its own; searches measured at most {facts['budget']} mappings, half as many where loads land, fewer for the "
        "small networks. The training is kept on the workers (`beat_untouched=False`): the untouched step on all cores "
        "is no candidate, neither of the search nor of the oracle. NAME@N is the network with batches of N.",
        "",
        *markdown_table(("", "promised", "network", "found", "details"), rows, left=(0, 2, 4)),
        "",
        *load_lines(facts),
        "",
        f"![Share of the best known speed, step by step after a load landed]({PICTURE})",
        "",
        *OF_RUNS,
        load_notes(facts),
        "",
        OF_KILLS,
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
        f"by medians {found['overhead']:+.1%} +- {found['overhead_error']:.1%}: {ms(found['call_s'])} a call, "
        f"{ms(found['bare_s'])} bare; {found['steps']} of each"
    )
    return [*OVERHEAD, f"`{name}`", f"{found['overhead_total']:+.1%}", details]


def _oracle(name: str, found: Facts) -> Iterator[list[str]]:
    if "failed" in found:
        yield [*ORACLE, f"`{name}`", "failed", found["failed"]]
        return
    run = (
        f"{found['calls']} calls in {found['total_s']:.0f} s; the oracle's step {ms(found['oracle_s'])} (by "
        f"{found['oracle_by']}), the last calls {ms(found['last_s'])}; search over after {found['steady_at']} calls"
    )
    single = f"its step {ms(found['single_s'])}"
    if "untouched_before_s" in found:  # older records timed calls during which the workers started
        single += f"; untouched, all cores, before there were workers {ms(found['untouched_before_s'])}"
    yield [*ORACLE, f"`{name}`", f"{found['vs_oracle']:.3f}", run]
    yield ["time of the whole run, by that on the best single device", "1.00", f"`{name}`",
           f"{found['vs_single']:.3f}", single]  # fmt: skip
    if "untouched_before_s" in found:
        share = found["total_s"] / found["calls"] / found["untouched_before_s"]
        yield ["the same, by that untouched on all cores", "", f"`{name}`", f"{share:.3f}", "timed before"]


def _steady(found: Facts) -> Iterator[list[str]]:
    if "failed" in found:
        yield ["false alarms", "0", "", "failed", found["failed"]]
        return
    for name, words in (("plain", "in quiet"), ("jitter", f"beside {found['jitter_said']}")):
        part = found[name]
        details = (
            f"alarms: {part['alarms']}; {ms_spread(part['step_s'], part['spread_s'])} a step, "
            f"slowest {ms(part['slowest_s'])}"
        )
        what = f"moves in {part['steps']} steady steps, {words}"
        yield [what, "0", f"`{found['model']}`", str(part["moves"]), details]


def _kills(facts: Facts) -> list[str]:
    runs = facts["kill_runs"]
    back = sorted(s for row in runs for s in row["back_s"])
    middle = f"; all devices back after {median(back):.1f} s in the median" if back else ""
    same, steps = sum(row["same_bits"] for row in runs), sum(row["steps"] for row in runs)
    details = f"{len(runs)} runs{middle}; {same} of {steps} losses are the undisturbed ones bit for bit"
    if same < steps:
        details += f", the others within {max(row['worst'] for row in runs):.0e}"
    if unnoticed := sum(row.get("unnoticed", 0) for row in runs):
        details += f"; {unnoticed} kills were of a device that no op ran on, and went unnoticed"
    if failed := [row["ended"] for row in runs if row.get("ended")]:
        details += f"; {len(failed)} runs ended early, first: {failed[0]}"
    return ["SIGKILLs of a worker survived", "all", "", f"{facts['kills_survived']} of {facts['kills']}", details]


OF_RUNS = (
    "Overhead: calls and bare steps of the very same placed function on the same variables, outputs fetched, in "
    "blocks in turn. By all seconds, snapshots and outliers count, as they do for a user. *By medians*: the median "
    "over pairs of blocks of the ratio of their medians, with its standard error.",
    "",
    "Oracle: the fastest of the mappings that the run ended on, the single devices, and the best of a second "
    "search after the run. Machines drift, so these were stepped every 200 calls beside the run, on scratch "
    "variables, and each call is divided by the best mapping's step time measured at about the same moment; calls "
    "before the end of the search by the first such look. The oracle starts no workers, and it is only as good as what "
    "two searches found.",
    "",
)
OF_KILLS = (
    "Kills: at random moments within random steps, one after another when all devices were back. Afterwards the "
    "same steps are taken again without kills, from the state before the first. A kill is survived where "
    "the training went on, with all devices back if an op ran on the one killed, and every loss until the next "
    "kill is the undisturbed one within 1e-5."
)
