"""The bench `faults` as a page of BENCHMARKS.md."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.benches.bench import Facts
from experiments.benches.faults.fault import DEADLINE_S, GAP_S, LONG_PAUSE_S, OF_NETWORKS, SHORT_PAUSE_S, WORDS
from experiments.benches.faults.leavings import LIMIT_S
from experiments.benches.faults.trainings import OF_LOSSES
from experiments.report.text import markdown_table

QUESTION = "What is lost or left behind when processes are killed or frozen, and when files are damaged?"
PARTS = {
    "search": "`placer search`",
    "training": "training under `autoplace`",
    "outputs": "`plan`, `simulate`, `campaign`",
}
MOST_SHOWN = 20


def page_lines(facts: Facts) -> list[str]:
    """The headlines, a row for each fault and stage, a row for each kind of input, and what went wrong."""
    return [
        f"Real signals to real processes: `placer search {facts['model']}`, and `{facts['trained']}` trained under "
        f"`placer.autoplace`, each over {facts['workers']} worker processes of this machine, two of them at a time.",
        "",
        *markdown_table(("", "promised", "found", "details"), _headlines(facts), left=(0, 3)),
        "",
        *markdown_table(
            ("to", "what", "in", "injected", "survived", "lost", "left behind", "slowest"),
            map(_row, facts["by_stage"]), left=(0, 1, 2),
        ),
        "",
        *markdown_table(
            ("hostile input", "inputs", "refused", "mishandled", "seconds"),
            ([name, f"{row['inputs']:,}", f"{row['refused']:,}", str(row["mishandled"]), f"{row['seconds']:.0f}"]
             for name, row in facts["hostile"].items()),
        ),
        "",
        *_details(facts),
        *_notes(facts),
    ]  # fmt: skip


def headline(facts: Facts) -> str:
    """What was survived, lost, left behind and mishandled, and how many tests are flaky."""
    found = (
        f"{facts['survived']} of {facts['injected']} faults survived, {facts['state_lost']} states lost, "
        f"{facts['left_behind']} things left behind; {facts['mishandled']} of {facts['fuzzed']:,} hostile inputs "
        "mishandled"
    )
    suite = facts["suite_runs"]
    if suite is None:
        return found
    elsewhere = "" if _is_of_this_code(facts) else ", of another commit"
    return f"{found}; {facts['flakes']} flaky tests in {suite['runs']} runs{elsewhere}"


def _headlines(facts: Facts) -> Iterator[list[str]]:
    late = f"; {facts['late']} came too late, and are not counted" if facts["late"] else ""
    counts = sorted({row["injected"] for row in facts["by_stage"] if row["how"] in WORDS})
    outputs = sum(row["injected"] for row in facts["by_stage"] if row["how"] not in WORDS)
    each = f"{' or '.join(map(str, counts))} of each kind in each stage of the work, at random moments{late}"
    each += f"; {outputs} are outputs that cannot be written" if outputs else ""
    yield ["faults survived", "all", f"{facts['survived']} of {facts['injected']}", each]
    lost = "measurements, steps of a training, values of variables and results that were gone or changed"
    yield ["state lost", "0", str(facts["state_lost"]), lost]
    left = (
        f"processes, listening sockets and temporary files {LIMIT_S:.0f} s after the end; not counted: the source that "
        "TensorFlow's autograph writes, which stays where any program of TensorFlow's is killed, and the folder in "
        "which Python keeps it compiled"
    )
    yield ["left behind", "0", str(facts["left_behind"]), left]
    kinds = f"{len(facts['hostile'])} kinds: files, rows of stores, command lines"
    yield [f"mishandled of {facts['fuzzed']:,} hostile inputs", "0", str(facts["mishandled"]), kinds]
    if facts["suite_runs"] is None:
        yield ["flakes", "0", "not measured", "the test suite was not run again and again (`make soak`) at this commit"]
    else:
        yield ["flakes", "0", str(facts["flakes"]), _suite_runs(facts)]


def _is_of_this_code(facts: Facts) -> bool:
    """Whether the suite ran at the record's commit; in older records it may have run at an older one."""
    suite = facts["suite_runs"]
    return bool(suite.get("of_this_code") or suite.get("commit", facts.get("commit")) == facts.get("commit"))


def _suite_runs(facts: Facts) -> str:
    suite = facts["suite_runs"]
    pythons = ", ".join(f"{count} on Python {version}" for version, count in suite["pythons"].items())
    runs = f"{suite['runs']} runs of `make test`, {suite['beside_hog']} beside a CPU hog"
    at = f", of commit {suite['commit']}" if "commit" in suite else ""
    at += "" if _is_of_this_code(facts) else ", which is not the commit of this record"
    return f"tests that failed in any of {runs}{at}; {pythons}"


def _row(row: Facts) -> list[str]:
    what = WORDS.get(row["how"], "files and streams that cannot be written")
    figures = (str(row[name]) for name in ("injected", "survived", "lost", "left"))
    return [PARTS[row["part"]], what, row["stage"], *figures, f"{row['slowest_s']:.0f} s"]


def _details(facts: Facts) -> Iterator[str]:
    """Lines on parts that failed, faults that were not survived, mishandled inputs, and what was not tried."""
    yield from (f"- `{name}` failed: {why}" for name, why in facts["failed"].items())
    for row in facts["not_survived"][:MOST_SHOWN]:
        why = "; ".join([*row["problems"], *row["left"]]) or f"{row['lost']} lost"
        yield f"- {row['part']}, {WORDS.get(row['how'], row['how'])}, {row['stage']}: {why}"
    for name, row in facts["hostile"].items():
        yield from (f"- {name}: `{line}`" for line in row["lines"][:3])
    if facts["skipped"]:
        yield f"- not tried on this machine: {', '.join(facts['skipped'])}"
    yield ""


def _notes(facts: Facts) -> Iterator[str]:
    """What counts as survived, in words."""
    yield from (OF_SEARCHES, "")
    if any(row["how"] in OF_NETWORKS for row in facts["by_stage"]):
        yield from (OF_CUTS, "")
    yield (
        "Stages of a training: between two moves, within a snapshot, while a mapping is built, and while it recovers "
        "from another loss. A fault there is survived where the training goes on with all workers, and every loss "
        "until the next fault is the one of the same steps taken again without faults, and at the end every variable, "
        "to the last bit. Steps in the training's own process, which it takes after both workers were lost, round "
        "otherwise than those on workers, so that each step is taken again where it was taken. Only the loss of a step "
        f"that was undone and then taken in the other place may differ, by {OF_LOSSES:g}."
    )
    yield from ("", OF_INPUTS)


OF_SEARCHES = (
    "Stages of a search are those that it names on stderr. A fault there is survived where the search ends in time, "
    "with the exit code of what happened (1 and one line for a lost worker, 130 for Ctrl-C, 143 for SIGTERM, 0 where a "
    "worker was only frozen or cut off for a while), with every measurement of before in its store, and, once a "
    "mapping had run, with the best one on stdout and in its file. A frozen worker counts as lost after "
    f"PLACER_DEADLINE_S, here {DEADLINE_S:.0f} s; one that is continued is frozen for {LONG_PAUSE_S:.0f} s under the "
    f"default deadline, then for {SHORT_PAUSE_S:.0f} s."
)
OF_CUTS = (
    "The network is cut in a network namespace, where the program and its workers are alone: what goes to the worker's "
    f"connections and comes from them is lost, for {GAP_S:.0f} s or until the worker is taken for lost."
)
OF_INPUTS = (
    "Hostile input: valid files, stores and command lines that a seeded generator changed (`experiments/fuzz`). "
    "Mishandled is what ends in a traceback, in more than one line, not within 30 s, or with 512 MiB of memory for one "
    "input."
)
