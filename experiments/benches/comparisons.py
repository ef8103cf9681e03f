"""The runs that search-quality and sample-efficiency share: `placer compare` on each network."""

from __future__ import annotations

import sys

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.kept_runs import kept
from experiments.benches.process import command_facts
from search.offline.plan import DEFAULT_SEARCHER
from search.session.registry import SEARCHERS

MEASUREMENTS = 20  # of every searcher
LEFT_OUT = ("single", "exact")  # single devices are measured anyway; `exact` asks what it proves, for minutes
LIMIT_S = 5400.0  # for one network
MINUTES = 30.0  # after which no searcher asks any more; only networks that are slow to switch reach it


def comparisons(options: BenchOptions) -> dict[str, Facts]:
    """{network: what `placer compare --json` said of it}, or {"failed": line}."""
    found = {}
    for name in options.models or zoo.names():
        found[name] = compared(name, options)
        print(f"{name}: {_outcome(found[name])}", file=sys.stderr)
    return found


def compared(model: str, options: BenchOptions) -> Facts:
    """One network, in a process of its own, so that none inherits another's state."""
    settings = {
        "model": model,
        "workers": options.workers,
        "measurements": options.measurements or MEASUREMENTS,
        "minutes": MINUTES,
        "searchers": [name for name in SEARCHERS if name not in LEFT_OUT],
        "default": DEFAULT_SEARCHER,
        "seed": 0,
    }
    return kept(options, model, settings, lambda: compare_in_process(settings))


def compare_in_process(settings: Facts) -> Facts:
    """`placer compare MODEL` with these settings; {"failed": line} also where a signal ended it before its time."""
    numbers = ("workers", "measurements", "minutes", "seed")
    options = [word for name in numbers for word in (f"--{name.replace('_', '-')}", str(settings[name]))]
    searchers = [word for name in settings["searchers"] for word in ("--searcher", name)]
    found = command_facts("compare", settings["model"], *options, *searchers, seconds=LIMIT_S)
    return {"failed": "a signal ended it before its time"} if found.get("interrupted") else found


def _outcome(facts: Facts) -> str:
    if "failed" in facts:
        return str(facts["failed"])
    single = facts["best_single"]
    ratio = "" if single is None else f", {single['step_s'] / facts['best']['step_s']:.2f}x the best single device"
    return f"{facts['measured']} mappings measured in {facts['seconds']:.0f} s; best by {facts['best']['by']}{ratio}"


def how_raced(facts: Facts) -> str:
    """A sentence on the races of a comparison."""
    if facts.get("races_apart"):
        return "The mappings that a searcher asks for together race among themselves."
    return (
        "The mappings of all searchers raced together, and one that lost to another searcher's was stopped early, so "
        "that the gaps after 5 and 10 measurements are too large, except for the leading searcher "
        "([why](docs/decisions/040-races-apart.md))."
    )


def not_compared(facts: Facts) -> str:
    """A sentence on the networks of the zoo that a record has no comparison of; empty where it has all."""
    missing = [f"`{name}`" for name in zoo.names() if name not in facts["by_model"]]
    if not missing:
        return ""
    return (
        f" Not compared on {', '.join(missing)}: where every searcher has this budget, most networks take ten minutes "
        "or more, and these were not asked for (`--model`)."
    )
