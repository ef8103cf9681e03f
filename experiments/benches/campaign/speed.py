"""What a campaign over files gains by Ray: the same searches on all cores of this machine and in one process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from experiments.benches.bench import Facts
from experiments.benches.simulator_speed import layered, machine
from experiments.campaign.ray.parallel_searches import ParallelSearches
from experiments.campaign.run import Campaign
from experiments.campaign.spec import Spec, read_spec
from experiments.campaign.store import CampaignStore
from placer.graph.graph_files import write_graph, write_topology
from placer.result import quartiles

OPS, EDGES, WIDTH = 60, 150, 6
# Searchers that take tenths of a second to ask, in short searches, so that no search runs alone for long at the end.
SEARCHERS, SEEDS, MEASUREMENTS = ("genetic", "local"), tuple(range(6)), 4
REPEATS = 5


def speed_facts(repeats: int = REPEATS) -> Facts:
    """Predicted measurements per second, over Ray and without it. The time runs from the opening of the case until the
    last measurement is stored; Ray and the processes in which it searches are started before.
    """
    from placer.devices.ray.connection import connect

    with TemporaryDirectory(prefix="placer-campaign-") as folder, connect("local"):
        import ray

        write_graph(Path(folder) / "graph.json", layered(OPS, EDGES, WIDTH))
        write_topology(Path(folder) / "topology.json", machine())
        for search in (_one_process, _over_ray):
            search(_spec(Path(folder), f"warm-{search.__name__}", 1))
        taken = [_pair(Path(folder), repeat) for repeat in range(repeats)]
        cpus = ray.cluster_resources()["CPU"]
    alone, over = ([pair[k] for pair in taken] for k in range(2))
    ratios = [before_s / after_s for before_s, after_s in taken]
    low, _, high = quartiles(ratios)
    count = MEASUREMENTS * len(SEARCHERS) * len(SEEDS)
    return {
        "ray_speedup": median(ratios),
        "ray_speedup_spread": high - low,
        "ray_cpus": cpus,
        "ray_repeats": repeats,
        "ray_measurements": count,
        "ray_per_s": count / median(over),
        "one_process_per_s": count / median(alone),
    }


def _pair(folder: Path, repeat: int) -> tuple[float, float]:
    """Seconds in one process and over Ray, run right after each other. Which runs first changes with `repeat`."""
    runs: list[Callable[[Spec], None]] = [_one_process, _over_ray]
    seconds = {}
    for run in runs if repeat % 2 == 0 else reversed(runs):
        spec = _spec(folder, f"{run.__name__}-{repeat}", MEASUREMENTS)
        begin_s = time.perf_counter()
        run(spec)
        seconds[run.__name__] = time.perf_counter() - begin_s
    return seconds[_one_process.__name__], seconds[_over_ray.__name__]


def _one_process(spec: Spec) -> None:
    with CampaignStore(spec.store) as store:
        Campaign(spec, store).run()


def _over_ray(spec: Spec) -> None:
    with CampaignStore(spec.store) as store:
        Campaign(spec, store, search_files=ParallelSearches(spec, store).run).run()


def _spec(folder: Path, name: str, measurements: int) -> Spec:
    path = folder / f"{name}.toml"
    path.write_text(
        f'format = "placer.campaign/1"\nsearchers = {json.dumps(SEARCHERS)}\nseeds = {json.dumps(SEEDS)}\n'
        f'measurements = {measurements}\n[[predicted]]\ngraphs = ["graph.json"]\ntopologies = ["topology.json"]\n'
    )
    return read_spec(path)
