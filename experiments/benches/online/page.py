"""The bench `online` as a page of BENCHMARKS.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from experiments.benches.bench import Facts, ms
from experiments.benches.online.judge import spread

OVERHEAD = ["overhead of a call", "1 %"]  # what, and what is promised
ORACLE = ["whole run against the oracle", "1.05"]


def page(facts: Facts) -> list[str]:
    """One table of what was promised, and how each figure came about."""
    rows = [
        *_networks(facts, "overhead", OVERHEAD, _overhead), *_networks(facts, "oracle", ORACLE, _oracle),
        *_recoveries(facts), *_steady(facts), *_kills(facts),
    ]  # fmt: skip
    return [
        f"`placer.autoplace` on {facts['workers']} one-core worker processes, in real time; each part in a process of "
        f"its own; searches measured at most {facts['budget']} mappings, fewer for the small networks. NAME@N is the "
        "network with batches of N.",
        "",
        "| | promised | network | found | details |",
        "| --- | ---: | --- | ---: | --- |",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        *_notes(),
    ]


def _networks(
    facts: Facts, part: str, failed: list[str], rows: Callable[[str, Facts], list[list[str]]]
) -> Iterator[list[str]]:
    """The rows of each network that has such a part. failed: the first columns where it failed."""
    for name, row in facts["by_model"].items():
        found = row[part]
        if found is not None:
            yield from [[*failed, f"`{name}`", "failed", found["failed"]]] if "failed" in found else rows(name, found)


def _overhead(name: str, found: Facts) -> list[list[str]]:
    details = (
        f"{ms(found['call_s'])} a call, {ms(found['bare_s'])} bare; {found['steps']} of each; by all seconds "
        f"{found['overhead_total']:+.1%}"
    )
    return [[*OVERHEAD, f"`{name}`", f"{found['overhead']:+.1%} +- {found['overhead_error']:.1%}", details]]


def _oracle(name: str, found: Facts) -> list[list[str]]:
    run = (
        f"{found['calls']} calls in {found['total_s']:.0f} s; the oracle's step {ms(found['oracle_s'])} (by "
        f"{found['oracle_by']}), the last calls {ms(found['last_s'])}; search over after {found['steady_at']} calls"
    )
    single = f"its step {ms(found['single_s'])}; untouched, all cores, at first {ms(found['untouched_s'])}"
    return [
        [*ORACLE, f"`{name}`", f"{found['vs_oracle']:.3f}", run],
        ["against the best single device", "1.00", f"`{name}`", f"{found['vs_single']:.3f}", single],
    ]


def _recoveries(facts: Facts) -> list[list[str]]:
    found, rows = facts["recovery"], []
    if "failed" in found:
        return [["steps until recovery", "30", "", "failed", found["failed"]]]
    for event, words in (("landed", "after a CPU hog landed"), ("left", "after it left")):
        steps = facts[f"recovery_steps_{event}"]
        shares = ", ".join(f"{row[event]['ended_share']:.2f}" for row in found["rounds"])
        details = (
            f"each: {spread([row[event]['steps'] for row in found['rounds']])}, of {found['steps_watched']} watched; "
            f"speed at the end, by the optimum's: {shares}"
        )
        figure = "never" if steps is None else f"{steps:.0f}"
        rows.append([f"steps until 95 % of the optimum {words}", "30", f"`{found['model']}`", figure, details])
    return rows


def _steady(facts: Facts) -> list[list[str]]:
    found = facts["steady"]
    if "failed" in found:
        return [["false alarms", "0", "", "failed", found["failed"]]]
    rows = []
    for name, words in (("plain", "in quiet"), ("jitter", f"beside {found['jitter_said']}")):
        s = found[name]
        details = (
            f"{s['alarms']} alarms that moved nothing; {ms(s['step_s'])} +- {ms(s['spread_s'])} a step, slowest "
            f"{ms(s['slowest_s'])}"
        )
        what = f"moves in {s['steps']} steady steps, {words}"
        rows.append([what, "0", f"`{found['model']}`", str(s["moves"]), details])
    return rows


def _kills(facts: Facts) -> list[list[str]]:
    runs = facts["kill_runs"]
    failed = [row for row in runs if row.get("ended")]
    back = sorted(s for row in runs for s in row["back_s"])
    middle = f"; all devices back after {back[len(back) // 2]:.1f} s in the middle" if back else ""
    worst = max((row["worst"] for row in runs), default=0.0)
    same, steps = sum(row["same_bits"] for row in runs), sum(row["steps"] for row in runs)
    details = f"{len(runs)} runs{middle}; {same} of {steps} losses are the undisturbed ones bit for bit"
    if same < steps:
        details += f", the others within {worst:.0e}"
    unnoticed = sum(row.get("unnoticed", 0) for row in runs)
    if unnoticed:
        details += f"; {unnoticed} kills were of a device that no op ran on, and went unnoticed"
    if failed:
        details += f"; {len(failed)} runs ended early, first: {failed[0]['ended']}"
    return [["SIGKILLs of a worker survived", "all", "", f"{facts['kills_survived']} of {facts['kills']}", details]]


def _notes() -> list[str]:
    return [
        "Overhead: calls and bare steps of the very same placed function on the same variables, outputs fetched, in "
        "blocks in turn; the median over pairs of blocks, with its standard error. *By all seconds* holds snapshots "
        "and stragglers, too.",
        "",
        "Oracle: the fastest of the mappings that the run ended on, the single devices, and the best of a second "
        "search after the run. Machines drift, so these were stepped every 200 calls beside the run, on scratch "
        "variables, and each call is counted in the oracle's steps of its time; calls before the end of the search by "
        "the first such look. The oracle needs no workers started, and it is known only as well as two searches know.",
        "",
        "Recovery: running medians of five steps, confirmed by the next five, so 5 is the least there is. The optimum "
        "is the best, side by side, of where the run ended up, the mapping of before, and, under the hog, of a fresh "
        "profile and search with the whole budget. The hog is a busy loop on worker 1's core in a session of its own.",
        "",
        "Kills: at random moments within random steps, one after another when all devices were back. Afterwards the "
        "same steps are taken again without kills, from the variables of before the first. A kill is survived where "
        "the training went on, with all devices back if an op ran on the one killed, and every loss until the next "
        "kill is the undisturbed one within 1e-5.",
    ]
