"""What a warm start saves: measurements until a search is near the best, with what another campaign found and without.

Pairs of networks that are alike, and a clock that stands in for devices: the simulator with other costs than those of
the profile, op by op, which is what is left of an error once measurements have calibrated devices and links. The error
of an op is the same in both networks of a pair, as that of a kernel would be.
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

# One that has the simulator and the clock, one that learns a predictor, one that has the clock alone.
SEARCHERS, SEEDS, MEASUREMENTS = ("hybrid", "htf-mpr", "bayes-et"), (0, 1), 10
NEAR = 1.05  # times the best of all searches of the cold campaign
OFF = 0.3  # standard deviation of the logarithm of what an op takes on the clock over what is profiled


class Clocked(PredictedCase):
    """A case whose clock knows other costs than the profile; drift of 1 %, which depends on the placement alone."""

    clocked = True

    def __init__(self, case: Case, truth: OpGraph) -> None:
        super().__init__(case)
        known = self.problem(None)
        self.truth = Problem(truth, known.topology, known.objective, known.schedule)

    def evaluate(self, placement: Placement, calibration: Calibration) -> Result:
        """Seconds by the clock."""
        step_s = self.truth.predict(placement) * exp(random.Random(str(placement)).gauss(0, 0.01))
        return Measured(step_s, spread_s=0.02 * step_s, repeats=12)


def warm_start_facts(searchers: tuple[str, ...] = SEARCHERS, seeds: tuple[int, ...] = SEEDS) -> Facts:
    """Each pair: the first network's campaign, then the second's, cold and warm."""
    with TemporaryDirectory(prefix="placer-warm-start-") as folder:
        write_topology(Path(folder, "topology.json"), MACHINE)
        first = Path(folder, "first.sqlite")
        _searched(FIRST, first, searchers, seeds)
        rows = [row for name in ALIKE for row in _pair(name, first, searchers, seeds)]
    return summary(rows)


def summary(rows: list[Facts]) -> Facts:
    """`warm_start_ratio`: measurements of all warm searches by those of all cold ones, where one that never came near
    the best counts as one more than it had. Medians over the searches of each searcher. `warm_start_at_once`: the share
    of cold searches that were near the best with their first measurement, where nothing can be saved.
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
    """How many measurements each search of an alike network took, cold and warm."""
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
    """Run a campaign; the seconds that each search, (searcher, seed), measured, in order."""
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
    """Measurements until the goal; one more than there are where it was not reached."""
    return next((n for n, step_s in enumerate(steps_s, 1) if step_s <= goal_s), len(steps_s) + 1)
