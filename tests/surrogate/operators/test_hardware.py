"""Yardsticks: what a device takes for them tells apart devices of several speeds, and one model serves them all."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from placer.profile.operators.dataset import YARDSTICKS, Operator, OperatorRow, Tensor
from surrogate.operators.features import traffic, work
from surrogate.operators.hardware import REFERENCE, Hardware, Speed, hardware_of
from surrogate.operators.models import OperatorModels, OpTime, fit_models
from surrogate.operators.predicted_costs import MEASURED, SCALED, SPREADS, OperatorTimes

SHAPES = [(m, k, n) for m in (8, 32, 128, 512) for k in (16, 64, 256) for n in (32, 128, 512)]
UNSEEN = [(64, 48, 64), (200, 200, 200), (1024, 256, 128)]


@dataclass(frozen=True)
class Machine:
    """A device whose ops take launch + max(flops / peak, bytes / bandwidth)."""

    name: str
    launch_s: float
    peak: float
    bandwidth: float

    def true_s(self, op: Operator) -> float:
        return self.launch_s + max(work(op) / self.peak, traffic(op) / self.bandwidth)

    def row(self, op: Operator, network: str = "net", source: str = "step") -> OperatorRow:
        seconds = self.true_s(op)
        return OperatorRow(op, "worker:0", "cpu", self.name, 8, network, "forward", source, seconds, seconds, 0.0, 20)

    @property
    def yardsticks(self) -> list[OperatorRow]:
        ops = [*(matmul(n, n, n) for n in (16, 64, 256, 1024)), *(added(2**i) for i in (8, 12, 16, 20, 23))]
        return [self.row(op, YARDSTICKS, source) for op in ops for source in ("step", "single")]

    @property
    def rows(self) -> list[OperatorRow]:
        ops = [*(matmul(*shape) for shape in SHAPES), *(added(3 * 2**i) for i in range(6, 22))]
        return [self.row(op) for op in ops]


def matmul(m: int, k: int, n: int) -> Operator:
    inputs = (Tensor((m, k), "float32"), Tensor((k, n), "float32"))
    return Operator("MatMul", inputs, (Tensor((m, n), "float32"),), {}, 2.0 * m * k * n)


def added(n: int) -> Operator:
    return Operator("AddV2", (Tensor((n,), "float32"),) * 2, (Tensor((n,), "float32"),), {}, float(n))


SLOW, MIDDLE = Machine("slow", 8e-6, 20e9, 5e9), Machine("middle", 5e-6, 50e9, 10e9)
FAST = Machine("fast", 2e-6, 400e9, 30e9)


def known(machine: Machine) -> Hardware:
    return hardware_of(machine.yardsticks)["cpu", machine.name]


def error(models: OperatorModels, machine: Machine) -> float:
    """Mean absolute relative error on shapes that were not fitted."""
    ops = [*(matmul(*shape) for shape in UNSEEN), *(added(n) for n in (5000, 300_000, 2_000_000))]
    found = models.predict(ops)
    return float(np.mean([abs(f.seconds / machine.true_s(op) - 1) for f, op in zip(found, ops, strict=True)]))


def test_work_counts_by_what_a_device_takes_for_as_much() -> None:
    curve = Speed(products=((1e3, 1e-5), (1e6, 1e-3)), sums=((1e2, 2e-6), (1e8, 2e-2)))
    taken = curve.flops(np.array([0.0, 1e3, math.sqrt(1e9), 1e6, 1e9])) / 100e9
    assert taken == pytest.approx([1e-5, 1e-5, 1e-4, 1e-3, 1.0])
    assert curve.traffic_bytes(np.array([1e2, 1e8])) / 10e9 == pytest.approx([2e-6, 2e-2])
    assert Speed().flops(np.array([5.0])) == [5.0] and Speed().features(np.ones(2), np.ones(2)).shape == (2, 0)


def test_a_larger_yardstick_that_was_faster_by_chance_counts_as_the_smaller_one() -> None:
    rows = [replace(row, median_s=1e-9) if row.operator == matmul(64, 64, 64) else row for row in SLOW.yardsticks]
    sizes, seconds = zip(*hardware_of(rows)["cpu", "slow"].step.products, strict=True)
    assert list(sizes) == sorted(sizes) and list(seconds) == sorted(seconds)


def test_without_products_or_sums_nothing_is_known() -> None:
    assert hardware_of([row for row in SLOW.yardsticks if row.operator.type == "MatMul"]) == {}
    assert hardware_of([row for row in SLOW.yardsticks if row.source == "single"]) == {}
    assert hardware_of(SLOW.rows) == {}


@pytest.mark.parametrize("learned", [(SLOW,), (SLOW, MIDDLE)])
def test_ops_are_timed_on_a_device_of_which_only_yardsticks_are_known(learned: tuple[Machine, ...]) -> None:
    rows = [row for machine in learned for row in (*machine.rows, *machine.yardsticks)]
    models = fit_models(rows, "cpu", fixed=("boosting on roofline", "neighbours on roofline"))
    assert error(models.on(known(FAST)), FAST) < 0.25
    assert error(models, FAST) > 1.0
    assert models.networks == ("net",)


def test_one_model_serves_two_machines_as_well_as_each_its_own() -> None:
    both = fit_models([*SLOW.rows, *SLOW.yardsticks, *FAST.rows, *FAST.yardsticks], "cpu", fixed=("roofline",))
    for machine in (SLOW, FAST):
        assert error(both.on(known(machine)), machine) < 0.15


def test_machines_are_not_told_apart_where_one_has_no_yardsticks() -> None:
    models = fit_models([*SLOW.rows, *SLOW.yardsticks, *FAST.rows], "cpu", fixed=("roofline",))
    assert models.hardware == REFERENCE
    assert fit_models([*SLOW.rows, *SLOW.yardsticks], "cpu", fixed=("roofline",)).hardware == known(SLOW)


def test_what_was_measured_elsewhere_counts_as_much_as_it_is_predicted_to_differ() -> None:
    rows = [*SLOW.rows, *SLOW.yardsticks]
    op, other = matmul(*SHAPES[-1]), matmul(*UNSEEN[1])
    assert OperatorTimes.of(rows, "cpu").predict([op])[0] == OpTime(SLOW.true_s(op), SPREADS[MEASURED], MEASURED)
    here = OperatorTimes.of(rows, "cpu", known(FAST)).predict([op, other])
    assert [found.source == SCALED for found in here] == [True, False]
    for one, found in zip((op, other), here, strict=True):
        assert found.seconds == pytest.approx(FAST.true_s(one), rel=0.25)
    odd = [replace(row, median_s=3 * row.median_s) if row.operator == op else row for row in rows]
    (found,) = OperatorTimes.of(odd, "cpu", known(FAST)).predict([op])
    assert found.seconds > 1.5 * here[0].seconds
