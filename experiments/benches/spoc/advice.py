"""Whether the sentences of `placer spoc` (experiments/jobs/spoc_reading.py) are true. Pure, except for `ask`.

Three promises are measured, each on training steps: that a bigger batch helps, that more devices help, and that
splitting ops over cores helps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from experiments.benches.bench import Facts
from experiments.benches.spoc.device_kinds import ALL_CORES, CORE_PER_OP, ONE_CORE, DeviceKind
from experiments.benches.spoc.networks import Network, evenly
from experiments.benches.spoc.transfer import reference_s
from experiments.jobs.spoc_reading import LAUNCH_OPERATIONS, Limit, limit_of
from surrogate.features.spoc import Spoc

TIMES = 4  # the bigger batch has this many times the examples
FEWEST = 3  # networks of each sentence that are tried
SHARE = 20  # or one in this many of the measured networks, if that is more
HELPS = {"batch": 1.5, "devices": 1.3, "split": 1.3}
"""The gain from which a thing helps. batch: throughput of 4 times the batch divided by that of the batch, on all cores.
devices: throughput of a core per op divided by that of one core. split: of all cores divided by that of one core.
"""
CLAIMS: dict[Limit, dict[str, bool]] = {
    Limit.LAUNCH: {"batch": True},
    Limit.WIDE_LAUNCH: {"batch": True, "devices": True},
    Limit.WIDE: {"devices": True},
    Limit.WEIGHTS: {"batch": True},
    Limit.MEMORY: {"batch": False},
    Limit.COMPUTE: {"batch": False, "devices": True, "split": True},  # of training steps, like all measurements here
}
"""What each sentence claims; gains that it does not mention are measured, too. By naming other remedies, the sentences
on memory-bound and compute-bound steps claim that a bigger batch does not help.
"""
Ask = Callable[[Network, DeviceKind], Facts]
SKIPPED = ("skipped", "detail", "failed")  # the facts that are kept of a network that was not measured


def row_limit(row: Facts) -> Limit:
    """The sentence that a measured network gets."""
    return limit_of(Spoc(**row["step"]), None if row["forward"] is None else Spoc(**row["forward"]))


def sample(rows: Sequence[Facts], among: Sequence[Network]) -> list[tuple[Network, Limit]]:
    """A few networks for every sentence, evenly spread over the networks that are not heavy."""
    of = {network.name: network for network in among if not network.heavy}
    limits = {row["name"]: row_limit(row) for row in rows if row["name"] in of}
    count = max(FEWEST, len(rows) // SHARE)
    found = {limit: [of[name] for name, its in limits.items() if its == limit] for limit in CLAIMS}
    return [(n, limit) for limit, some in found.items() for n in evenly(some, min(count, len(some)))]


def bigger(network: Network) -> Network:
    """The same network at TIMES its batch."""
    return replace(network, batch=TIMES * network.batch)


def tried(network: Network, limit: Limit, rows: Mapping[str, Mapping[str, Facts]], ask: Ask) -> Facts:
    """Ask for a network's times at the bigger batch and with a core per op. Returns them beside those in `rows`, kind
    of device -> name -> row.
    """
    found = {"batch": ask(bigger(network), ALL_CORES), "devices": ask(network, CORE_PER_OP)}
    missing = next((row for row in found.values() if "skipped" in row), None)
    if missing is not None:
        return {"name": network.name, **{key: missing[key] for key in SKIPPED if key in missing}}
    keep = ("step_s", "inference_s", "reference_s")
    measured = {"batch": found["batch"], "devices": found["devices"], "all": rows[ALL_CORES.name][network.name],
                "one": rows[ONE_CORE.name][network.name]}  # fmt: skip
    bound = Spoc(**rows[ONE_CORE.name][network.name]["step"]).breadth
    return {"name": network.name, "limit": limit.value, "bound": bound} | {
        of: {key: row[key] for key in keep} for of, row in measured.items()
    }


def judged(found: Sequence[Facts]) -> Facts:
    """Gains of every network that was tried, and how often each sentence was right and wrong."""
    good = [row for row in found if "skipped" not in row]
    gains = _gains(good)
    return {
        "helps": HELPS,
        "times": TIMES,
        "networks": gains,
        "sentences": {
            limit.value: _sentence([g for g in gains if g["limit"] == limit.value], limit) for limit in CLAIMS
        },
        "skipped": [row for row in found if "skipped" in row],
    }


def _gains(rows: Sequence[Facts]) -> list[Facts]:
    """Ratios of times, scaled by the reference's pace, whose median on a kind of device stands for a quiet machine."""
    if not rows:
        return []
    usual = {of: reference_s([row[of] for row in rows]) for of in ("all", "one", "devices")}
    usual["batch"] = usual["all"]  # the same kind of device

    def seconds(row: Facts, of: str, target: str = "step") -> float:
        return float(row[of][f"{target}_s"] * usual[of] / row[of]["reference_s"])

    return [
        {
            "name": row["name"],
            "limit": row["limit"],
            "batch": TIMES * seconds(row, "all") / seconds(row, "batch"),
            "devices": seconds(row, "one") / seconds(row, "devices"),
            "bound": row["bound"],
            "devices_inference": seconds(row, "one", "inference") / seconds(row, "devices", "inference"),
            "split": seconds(row, "one") / seconds(row, "all"),
        }
        for row in rows
    ]


def _sentence(gains: Sequence[Facts], limit: Limit) -> Facts:
    """what -> {says, right, wrong, median}; says is None if the sentence does not mention it."""
    found = {}
    for what, least in HELPS.items():
        says = CLAIMS[limit].get(what)
        right = sum((gain[what] >= least) == says for gain in gains)
        found[what] = {
            "says": says,
            "right": None if says is None else right,
            "wrong": None if says is None else len(gains) - right,
            "median": median(gain[what] for gain in gains) if gains else None,
        }
    return found


def batch_pairs(rows: Sequence[Facts]) -> Facts:
    """Whether the rule for launch-bound steps predicts when a bigger batch helps.

    A pair is one network at two neighbouring batch sizes, the larger at least twice the smaller. Gains are scaled to
    TIMES the batch, as a power.

    rows: of all cores. `by_operations`: FLOPs per op at the smaller batch, and the gain.
    """
    of: dict[str, list[tuple[int, Facts]]] = {}
    for row in rows:
        found = re.fullmatch(r"(.*)-batch(\d+)", row["name"])
        if found is not None:
            of.setdefault(found[1], []).append((int(found[2]), row))
    pairs = [pair for some in of.values() for pair in _pairs(sorted(some, key=lambda each: each[0]))]
    says = [operations < LAUNCH_OPERATIONS for operations, _ in pairs]
    helps = [gain >= HELPS["batch"] for _, gain in pairs]
    return {
        "launch_operations": LAUNCH_OPERATIONS,
        "n": len(pairs),
        "says": sum(says),
        "says_right": sum(s and h for s, h in zip(says, helps, strict=True)),
        "denies_right": sum(not s and not h for s, h in zip(says, helps, strict=True)),
        "by_operations": sorted(pairs),
    }


def _pairs(some: Sequence[tuple[int, Facts]]) -> list[tuple[float, float]]:
    found = []
    for (few, row), (many, larger) in pairwise(some):
        if many >= 2 * few:
            per_example = [r["step_s"] / r["reference_s"] / n for n, r in ((few, row), (many, larger))]
            gain = (per_example[0] / per_example[1]) ** (math.log(TIMES) / math.log(many / few))
            found.append((row["step"]["operations"] / row["step"]["ops"], gain))
    return found
