"""The models on hardware that they have not seen: from ops on one core to the same program on all cores."""

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
    """Each network that was measured `there` is predicted from `rows` of the others, which are from another device.

    by_yardsticks: errors where the device is known by its yardsticks. unscaled: where its ops are taken to take as long
    as on the device of the rows. Ops inside a step, of at least SMALL_S; nothing where there are none.
    """
    device = hardware_of(there)
    if len(device) != 1 or not hardware_of(rows):
        return {}
    (kind, machine), hardware = next(iter(device.items()))
    by_network: dict[str, Facts] = {}
    for network in sorted({row.network for row in there} - {YARDSTICKS}):
        asked = [r for r in there if r.network == network and r.source == "step" and r.median_s >= SMALL_S]
        others = [row for row in rows if row.network != network]
        if asked and {row.network for row in others} != {YARDSTICKS}:
            ways: dict[str, Hardware | None] = {"by_yardsticks": hardware, "unscaled": None}
            errors = {way: _errors(others, kind, known, asked) for way, known in ways.items()}
            by_network[network] = {"ops": len(asked), **errors}
    return {"elsewhere": {"machine": machine, "networks": by_network}} if by_network else {}


def _errors(
    rows: Sequence[OperatorRow], kind: str, known: Hardware | None, asked: Sequence[OperatorRow]
) -> dict[str, float]:
    """mean, median: of the absolute relative errors. whole: signed, of the sum of all seconds."""
    models = OperatorTimes.of(rows, kind).models
    found = (models if known is None else models.on(known)).predict([row.operator for row in asked])
    off = [abs(one.seconds / row.median_s - 1) for one, row in zip(found, asked, strict=True)]
    whole = sum(one.seconds for one in found) / sum(row.median_s for row in asked) - 1
    return {"mean": mean(off), "median": median(off), "whole": whole}
