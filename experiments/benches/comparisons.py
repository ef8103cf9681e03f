"""The runs that search-quality and sample-efficiency share: `placer compare` on each network."""

from __future__ import annotations

import sys

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.kept_runs import kept
from experiments.benches.process import command_facts
from experiments.benches.seeds import QUICK, SEEDS, seeds_of
from search.defaults import DEFAULT_SEARCHER
from search.session.registry import SEARCHERS

MEASUREMENTS = 20  # of every searcher
LONGER = 50  # of the longer search after each comparison, so that all gaps are to a best known that is as good
LEFT_OUT = ("single", "exact")  # single devices are measured anyway; `exact` needs minutes to prove what it asks
LIMIT_S = 10_800.0  # for one comparison
MINUTES = 90.0  # after which no searcher asks for more; in 30, nasnet_mobile measured only 11 or 12 mappings


def comparisons(options: BenchOptions) -> dict[str, dict[int, Facts]]:
    """Return {network: {seed: the facts of `placer compare --json`, or {"failed": line}}}."""
    found: dict[str, dict[int, Facts]] = {}
    for name in options.models or zoo.names():
        found[name] = {}
        for seed in seeds_of(name):
            found[name][seed] = compared(name, options, seed)
            print(f"{name}, seed {seed}: {_outcome(found[name][seed])}", file=sys.stderr)
    return found


def terms(options: BenchOptions) -> Facts:
    """The conditions under which searchers are compared, for the record."""
    measurements = options.measurements or MEASUREMENTS
    return {
        "races_apart": True,
        "searcher": DEFAULT_SEARCHER,
        "measurements": measurements,
        "peer_measurements": measurements,
        "longer": LONGER,
        "seeds": list(SEEDS),
        "workers": options.workers,
    }


def compared(model: str, options: BenchOptions, seed: int = SEEDS[0]) -> Facts:
    """Compare searchers on one network, in its own process, so that no comparison inherits another's state."""
    settings = {
        "model": model,
        "workers": options.workers,
        "measurements": options.measurements or MEASUREMENTS,
        "longer": LONGER,
        "minutes": MINUTES,
        "searchers": [name for name in SEARCHERS if name not in LEFT_OUT],
        "default": DEFAULT_SEARCHER,
        "seed": seed,
    }
    name = model if seed == SEEDS[0] else f"{model}-seed-{seed}"
    return kept(options, name, settings, lambda: compare_in_process(settings))


def compare_in_process(settings: Facts) -> Facts:
    """Run `placer compare MODEL` with these settings. Returns {"failed": line} also if a signal ended it early."""
    numbers = ("workers", "measurements", "longer", "minutes", "seed")
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
        return (
            "The mappings that a searcher asks for together race among themselves; one that another searcher asked for "
            "before keeps what it had in that one's race ([why](docs/decisions/040-races-apart.md))."
        )
    return (
        "The mappings of all searchers raced together, and one that lost to another searcher's was stopped early, so "
        "that the gaps after 5 and 10 measurements are too large, except for the leading searcher "
        "([why](docs/decisions/040-races-apart.md))."
    )


def how_seeded(facts: Facts) -> str:
    """A sentence on the seeds of a record."""
    seeds = facts.get("seeds", [])
    if len(seeds) < 2:
        return "Each searcher ran with one seed."
    several = ", ".join(f"`{name}`" for name in QUICK if name in facts["by_model"])
    return (
        f"Seeds: {', '.join(map(str, seeds))} on the networks on which a comparison is quick ({several}), which count "
        f"by their mean; {seeds[0]} on the others."
    )


def best_known(facts: Facts) -> str:
    """Sentences on the mappings among which the best known of a network is chosen."""
    several = len(facts.get("seeds", [])) > 1
    those = (
        f"The best known of a network{', with each seed its own,' if several else ''} is the fastest of all mappings "
        "that were stepped side by side at the end: the choices of all searchers"
    )
    longer = {name: row["longer"] for name, row in facts["by_model"].items() if row.get("longer")}
    if not longer:
        return f"{those}, and the next fastest of all."
    won = [f"`{name}`" for name, row in longer.items() if row["step_s"] == facts["by_model"][name]["best_known_s"]]
    short = [f"`{name}` ({row['measured']})" for name, row in longer.items() if row["measured"] < facts["longer"]]
    return (
        f"{those}, the next fastest of all, and what one more search found (`genetic` with another seed and "
        f"{facts['longer']} measurements), from which no searcher learnt. That search found the best known of "
        f"{len(won)} of {len(longer)} networks{_listed(won)}{', with the first seed' if several else ''}."
        + (f" It measured less on {', '.join(short)}: the minutes were up, or it asked nothing more." if short else "")
    )


def _listed(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def not_compared(facts: Facts) -> str:
    """A sentence on the networks of the zoo that are missing in a record; empty if it has all."""
    missing = [f"`{name}`" for name in zoo.names() if name not in facts["by_model"]]
    if not missing:
        return ""
    return (
        f" Not compared on {', '.join(missing)}: where every searcher has this budget, most networks take ten minutes "
        "or more, and these were not asked for (`--model`)."
    )
