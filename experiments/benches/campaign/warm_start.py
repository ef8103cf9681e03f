"""What a warm start saves: measurements until a search is near the best, with what another campaign found and without.

Two networks that are alike make a pair. A clock stands in for devices: the simulator, with costs that differ from the
profile op by op, because such errors remain after measurements have calibrated devices and links. The error of an op is
the same in both networks of a pair, as the error of a kernel would be.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from math import exp
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from experiments.benches.bench import Facts
from experiments.benches.campaign.networks import ALIKE, FIRST, MACHINE, Network
from experiments.campaign.cells import Case
from experiments.campaign.open_case import Calibration
from experiments.campaign.predicted import PredictedCase
from experiments.campaign.run import Campaign
from experiments.campaign.spec import read_spec
from experiments.campaign.store import CampaignStore
from placer.graph.graph_files import write_graph, write_topology
from placer.graph.op_graph import OpGraph
from placer.result import Measured, Result
from search.problem.problem import Placement, Problem

# One searcher uses the simulator and the clock, one learns a predictor, and one uses the clock alone.
SEARCHERS, SEEDS, MEASUREMENTS = ("hybrid", "htf-mpr", "bayes-et"), (0, 1), 10
NEAR = 1.05  # times the best of all searches of the cold campaign
OFF = 0.3  # standard deviation of log(cost of an op on the clock / drawn cost)


class Clocked(PredictedCase):
    """A case whose clock has other costs than the profile, and a drift of 1 % that depends on the placement alone."""

    clocked = True

    def __init__(self, case: Case, truth: OpGraph) -> None:
        super().__init__(case)
        known = self.problem(None)
        self.truth = Problem(truth, known.topology, known.objective, known.schedule)

    def evaluate(self, placement: Placement, calibration: Calibration) -> Result:
        """The step time of `placement` by the clock."""
        step_s = self.truth.predict(placement) * exp(random.Random(str(placement)).gauss(0, 0.01))
        return Measured(step_s, spread_s=0.02 * step_s, repeats=12)


def warm_start_facts(searchers: tuple[str, ...] = SEARCHERS, seeds: tuple[int, ...] = SEEDS) -> Facts:
    """Run the campaign of the first network, then a cold and a warm campaign of each network that is like it."""
    with TemporaryDirectory(prefix="placer-warm-start-") as folder:
        write_topology(Path(folder, "topology.json"), MACHINE)
        first = Path(folder, "first.sqlite")
        _searched(FIRST, first, searchers, seeds)
        rows = [row for name in ALIKE for row in _pair(name, first, searchers, seeds)]
    return summary(rows)


def summary(rows: list[Facts]) -> Facts:
    """The figures over all searches, and medians over the searches of each searcher.

    `warm_start_ratio`: measurements of all warm searches divided by those of all cold ones; a search that never came
    near the best counts as one more than it had. `warm_start_at_once`: the share of cold searches that were near the
    best with their first measurement, so that a warm start cannot save anything.
    """
    by_searcher = {
        searcher: {
            "cold": median(row["cold"] for row in rows if row["searcher"] == searcher),
            "warm": median(row["warm"] for row in rows if row["searcher"] == searcher),
        }
        for searcher in dict.fromkeys(row["searcher"] for row in rows)
    }
    return {
        "warm_start_ratio": sum(row["warm"] for row in rows) / sum(row["cold"] for row in rows),
        "warm_start_measurements": MEASUREMENTS,
        "warm_start_at_once": sum(row["cold"] == 1 for row in rows) / len(rows),
        "warm_start_by_searcher": by_searcher,
        "warm_start_rows": rows,
    }


def _pair(name: str, first: Path, searchers: tuple[str, ...], seeds: tuple[int, ...]) -> Iterator[Facts]:
    """Yield how many measurements each search of the network ALIKE[name] took, cold and warm."""
    cold, warm = (
        _searched(ALIKE[name], first.with_name(f"{name} {how}.sqlite"), searchers, seeds, stores)
        for how, stores in (("cold", ()), ("warm", (first,)))
    )
    best_s = min(min(steps) for steps in cold.values())
    for searcher, seed in cold:
        counts = [_count(steps[searcher, seed], NEAR * best_s) for steps in (cold, warm)]
        yield {
            "pair": name, "searcher": searcher, "seed": seed, "cold": counts[0], "warm": counts[1],
            "first_carried": warm[searcher, seed][0] / best_s,
        }  # fmt: skip


def _searched(
    network: Network, store: Path, searchers: tuple[str, ...], seeds: tuple[int, ...], warm: tuple[Path, ...] = ()
) -> dict[tuple[str, int], list[float]]:
    """Run a campaign. Returns {(searcher, seed): the step times that the search measured, in order}."""
    path = store.with_suffix(".toml")
    write_graph(store.with_name("graph.json"), network.graph())
    path.write_text(
        f'format = "placer.campaign/1"\nsearchers = {json.dumps(searchers)}\nseeds = {json.dumps(seeds)}\n'
        f"measurements = {MEASUREMENTS}\n"
        '[[predicted]]\ngraphs = ["graph.json"]\ntopologies = ["topology.json"]\n'
    )
    truth = network.graph(OFF)
    spec = read_spec(path, warm)
    with CampaignStore(store) as opened:
        Campaign(spec, opened, opener=lambda case, *_: Clocked(case, truth)).run()
        return {
            (held.searcher, held.seed): [
                trial.result.step_s for trial in held.trials if isinstance(trial.result, Measured)
            ]
            for held in opened.held()
        }


def _count(steps_s: list[float], goal_s: float) -> int:
    """Measurements until one reaches the goal; one more than there are if none does."""
    return next((n for n, step_s in enumerate(steps_s, 1) if step_s <= goal_s), len(steps_s) + 1)
