"""The models on hardware that they have not seen: fitted to ops on one core, they predict ops on all cores."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median

from experiments.benches.bench import Facts
from placer.profile.operators.dataset import YARDSTICKS, OperatorRow
from surrogate.operators.hardware import Hardware, hardware_of
from surrogate.operators.models import SMALL_S
from surrogate.operators.predicted_costs import OperatorTimes

DEVICES = "cpus:1"  # this process, with all cores
NETWORKS = ("alexnet", "mobilenet_v3", "towers", "transformer", "two_tower")


def elsewhere_facts(rows: Sequence[OperatorRow], there: Sequence[OperatorRow]) -> Facts:
    """Predict each network that was measured `there` from `rows`, which are from another device. Ops inside a step that
    take at least SMALL_S count; networks without such ops are left out, and the facts are empty without networks.

    known: errors if the network's ops are among the rows. left_out: errors without the network's rows. by_peaks: errors
    if ops among the rows are assumed to be faster by the same factor as the largest matrix product.
    """
    device = hardware_of(there)
    here = hardware_of(rows)
    if len(device) != 1 or len(here) != 1:
        return {}
    (kind, machine), hardware = next(iter(device.items()))
    peaks = _largest_s(hardware) / _largest_s(next(iter(here.values())))
    times = OperatorTimes.of(rows, kind, hardware)
    measured = OperatorTimes.of(rows, kind)
    by_network: dict[str, Facts] = {}
    for network in sorted({row.network for row in there} - {YARDSTICKS}):
        asked = [r for r in there if r.network == network and r.source == "step" and r.median_s >= SMALL_S]
        others = [row for row in rows if row.network != network]
        if asked and {row.network for row in others} != {YARDSTICKS}:
            by_network[network] = {
                "ops": len(asked),
                "known": _errors(times, asked),
                "left_out": _errors(OperatorTimes.of(others, kind, hardware), asked),
                "by_peaks": _errors(measured, asked, peaks),
            }
    return {"elsewhere": {"machine": machine, "peaks": peaks, "networks": by_network}} if by_network else {}


def _largest_s(hardware: Hardware) -> float:
    return hardware.single.products[-1][1]


def _errors(times: OperatorTimes, asked: Sequence[OperatorRow], factor: float = 1.0) -> dict[str, float]:
    """The errors of predicted seconds, which are multiplied by `factor`. mean, median: of the absolute relative errors.
    whole: the signed error of the sum of all seconds.
    """
    found_s = [factor * found.seconds for found in times.predict([row.operator for row in asked])]
    off = [abs(seconds / row.median_s - 1) for seconds, row in zip(found_s, asked, strict=True)]
    whole = sum(found_s) / sum(row.median_s for row in asked) - 1
    return {"mean": mean(off), "median": median(off), "whole": whole}
