"""Yardsticks on a real device: all of them have times, by themselves and side by side."""

from placer.profile.operators.dataset import YARDSTICKS
from placer.profile.operators.yardsticks import PRODUCTS, SUMS, yardsticks


def test_a_device_has_times_of_every_product_and_every_sum(two_cpus):
    (profile,) = yardsticks(two_cpus, [0])
    profile.run_pass(2)
    rows = profile.rows()
    for source in ("step", "single"):
        sizes = {(r.operator.type, r.operator.inputs[0].shape[0]) for r in rows if r.source == source and r.median_s}
        assert sizes >= {*(("MatMul", n) for n in PRODUCTS), *(("AddV2", n) for n in SUMS)}
    assert {row.network for row in rows} == {YARDSTICKS}
