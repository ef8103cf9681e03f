"""What a campaign keeps when it is killed: SIGKILL at random moments, against the same campaign left alone."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from experiments.benches.bench import Facts
from experiments.benches.simulator_speed import layered, machine
from experiments.campaign.run import Campaign
from experiments.campaign.spec import Spec, read_spec
from experiments.campaign.store import CampaignStore, StoredTrial
from placer.errors import PlacerError
from placer.graph.graph_files import write_graph, write_topology
from placer.result import quartiles

OPS, EDGES, WIDTH = 60, 150, 6
# Searchers that ask quickly compared with the start of a process, so that kills fall into all parts of a run.
SEARCHERS, SEEDS, MEASUREMENTS = ("genetic", "local", "random"), (0, 1), 40
ALL = MEASUREMENTS * len(SEARCHERS) * len(SEEDS)

Rows = dict[tuple[str, int], tuple[Any, Any]]
"""(cell, number) of each measurement -> its placement and its result."""


def kill_facts(kills: int) -> Facts:
    """Compare a campaign that is killed `kills` times with the same campaign left alone."""
    with TemporaryDirectory(prefix="placer-campaign-") as folder:
        whole, killed = (_spec(Path(folder), name) for name in ("whole", "killed"))
        store_s = _undisturbed(whole)
        wanted = _rows(whole.store)
        begin_s = time.perf_counter()
        seen, sent, lost = _killed(killed, kills, random.Random(0))
        found = _rows(killed.store)
        low, _, high = quartiles(store_s)
        return {
            "kills": sent,
            "lost": lost + len(seen.keys() - found.keys()),
            "duplicated": _duplicated(found),
            "asks_identical": found == wanted,
            "store_ms": 1e3 * median(store_s),
            "store_spread_ms": 1e3 * (high - low),
            "measurements": len(wanted),
            "at_kills": len(seen),
            "killed_s": time.perf_counter() - begin_s,
        }


def _spec(folder: Path, name: str) -> Spec:
    """The campaign, with a store of its own."""
    write_graph(folder / "graph.json", layered(OPS, EDGES, WIDTH))
    write_topology(folder / "topology.json", machine())
    path = folder / f"{name}.toml"
    path.write_text(
        f'format = "placer.campaign/1"\nsearchers = {json.dumps(SEARCHERS)}\nseeds = {json.dumps(SEEDS)}\n'
        f"measurements = {MEASUREMENTS}\n"
        '[[predicted]]\ngraphs = ["graph.json"]\ntopologies = ["topology.json"]\n'
    )
    return read_spec(path)


def _undisturbed(spec: Spec) -> list[float]:
    """Run the campaign in this process. Returns the seconds that it took to store each measurement."""
    with _TimedStore(spec.store) as store:
        Campaign(spec, store).run()
        return store.seconds


class _TimedStore(CampaignStore):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.seconds: list[float] = []

    def keep(self, cell: str, trial: StoredTrial, state: dict[str, Any]) -> None:
        begin_s = time.perf_counter()
        super().keep(cell, trial, state)
        self.seconds.append(time.perf_counter() - begin_s)


def _killed(spec: Spec, kills: int, rng: random.Random) -> tuple[Rows, int, int]:
    """Run the campaign, kill it `kills` times, and then run it to its end.

    Returns what was stored at the last kill, how many kills found the campaign running, and how many stored
    measurements were missing or changed at a later kill. How much is stored between two kills is random, but bounded,
    so that all kills happen before the end. Raises PlacerError if a kill leaves a store that cannot be read.
    """
    seen: Rows = {}
    sent = lost = 0
    for kill in range(kills):
        goal = min(len(seen) + rng.randrange(2 * ALL // (kills + 1) + 1), ALL * (kill + 1) // (kills + 1))
        sent += _killed_once(spec, goal, rng)
        found = _rows(spec.store) if goal or _count(spec.store) else {}  # it may have died before it had made a store
        lost += sum(found.get(key) != value for key, value in seen.items())
        seen = found
    subprocess.run(_command(spec), check=True, capture_output=True)
    return seen, sent, lost


def _killed_once(spec: Spec, goal: int, rng: random.Random) -> int:
    """Run until about `goal` measurements are stored in all, then kill. Returns 1 if the process still ran, else 0."""
    process = subprocess.Popen(_command(spec), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and _count(spec.store) < goal:
        time.sleep(rng.uniform(0, 0.02))
    time.sleep(rng.uniform(0, 0.1))
    running = process.poll() is None
    process.kill()
    process.wait()
    return int(running)


def _command(spec: Spec) -> list[str]:
    return [sys.executable, "-m", "placer", "campaign", "run", str(spec.path), "--quiet"]


def _count(path: Path) -> int:
    """How many measurements are stored; 0 while there is no store that can be read, as when it is just being made."""
    with suppress(PlacerError):
        return len(_rows(path))
    return 0


def _rows(path: Path) -> Rows:
    """All stored measurements. Raises PlacerError if the store cannot be read."""
    with CampaignStore(path, reads=True) as store:
        return {(held.key, t.n): (t.placement, t.result) for held in store.held() for t in held.trials}


def _duplicated(rows: Rows) -> int:
    """The number of measurements whose placement the same cell had measured before."""
    counts = Counter((cell, placement) for (cell, _), (placement, _) in rows.items())
    return sum(count - 1 for count in counts.values())
