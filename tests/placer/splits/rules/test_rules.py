"""Every rule, for every way that it offers: an op in parts does what the whole op does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placer.splits.rules import table
from placer.splits.rules.way import Cut, Joined, Way, axis_name
from tests.placer.splits.rules import cases_images, cases_moving, cases_plain, cases_resources  # noqa: F401  # they register
from tests.placer.splits.rules.checker import Case, Checker, Fixed, difference, run
from tests.placer.splits.rules.draw import GENERATORS, MOST, Draw

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def test_every_rule_has_a_generator() -> None:
    assert set(GENERATORS) == set(table.RULES)


@pytest.mark.parametrize("kind", sorted(table.RULES))
def test_parts_do_what_the_whole_does(kind: str) -> None:
    _check(kind, 2 if _has_company(kind) else 6)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", sorted(table.RULES))
def test_parts_do_what_the_whole_does_for_many_shapes(kind: str) -> None:
    _check(kind, 4 if _has_company(kind) else 12)


def _has_company(kind: str) -> bool:
    """Whether many types share the rule, so that fewer shapes of each are enough."""
    return list(table.RULES.values()).count(table.RULES[kind]) > 10


def _check(kind: str, examples: int) -> None:
    """The same examples every time, because with others a sum might come close to 0 one day."""
    offered = []

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=CHECKS)
    @given(st.data())
    def check(data: Any) -> None:
        checker = Checker(GENERATORS[kind](Draw(data.draw), kind))
        ways = checker.ways
        offered.extend(ways)
        if ways:
            name = data.draw(st.sampled_from(sorted(ways)))
            checker.check(name, data.draw(_bounds(ways[name])))

    check()
    assert offered, "the rule offered no way to divide anything"


@st.composite
def _bounds(draw: Any, way: Way) -> list[int]:
    """Of uneven parts, each with what it needs at least."""
    parts = draw(st.integers(2, min(way.extent // way.least, MOST)))
    spare = way.extent - parts * way.least
    cuts = sorted(draw(st.lists(st.integers(0, spare), min_size=parts - 1, max_size=parts - 1)))
    return [0, *(cut + (i + 1) * way.least for i, cut in enumerate(cuts)), way.extent]


@pytest.mark.some(1)
@pytest.mark.parametrize("unknown", ["first axis", "all axes", "rank"])
def test_no_rule_stumbles_over_shapes_that_are_not_known(unknown: str) -> None:
    for kind in table.RULES:
        Checker(_any_case(kind), unknown).ways  # noqa: B018  # does not raise


def _any_case(kind: str) -> Case:
    found: list[Case] = []

    @settings(max_examples=1, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
    @given(st.data())
    def draw(data: Any) -> None:
        found.append(GENERATORS[kind](Draw(data.draw), kind))

    draw()
    return found[0]


def test_uneven_means_cannot_be_summed_unweighted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker finds a rule that is wrong."""

    def unweighted(op: Any) -> dict[str, Way]:
        return {"axis0": Way((Cut(0), None), (Joined("sum"),), 3)}

    monkeypatch.setitem(table.RULES, "Mean", unweighted)
    checker = Checker(Case("Mean", [np.array([1.0, 2.0, 6.0], np.float32), Fixed(np.int32(0))]))
    with pytest.raises(AssertionError, match=r"axis0 in 2 parts: output 0: 3\.0 became 5\.0"):
        checker.check("axis0", [0, 1, 3])


@pytest.mark.parametrize(
    ("wrong", "bounds"),
    [
        (Way((Cut(0), None), (Cut(0),), 3), [0, 1, 3]),  # the reduced axis put together as a kept one
        (Way((Cut(0), None), (Joined("max"),), 3), [0, 2, 3]),
        (Way((Cut(0), None), (None,), 3), [0, 2, 3]),
    ],
)
def test_wrong_ways_are_found(monkeypatch: pytest.MonkeyPatch, wrong: Way, bounds: list[int]) -> None:
    monkeypatch.setitem(table.RULES, "Mean", lambda op: {"axis0": wrong})
    checker = Checker(Case("Mean", [np.arange(9, dtype=np.float32).reshape(3, 3) ** 2, Fixed(np.int32(0))]))
    with pytest.raises(AssertionError, match="became"):
        checker.check("axis0", bounds)


def _ways(kind: str, *inputs: Any, **attributes: Any) -> dict[str, Way]:
    return Checker(Case(kind, inputs, attributes)).ways


def test_a_mean_of_whole_numbers_is_divided_along_kept_axes_only() -> None:
    value = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert set(_ways("Mean", value, Fixed(np.int32(1)), keep_dims=False)) == {"axis0"}
    assert set(_ways("Mean", value.astype(np.float32), Fixed(np.int32(1)), keep_dims=False)) == {"axis0", "axis1"}


def test_no_part_of_a_squeeze_loses_the_axis_that_is_divided() -> None:
    two, four = np.zeros([2, 1, 3], np.float32), np.zeros([4, 1, 2], np.float32)
    assert {name: way.least for name, way in _ways("Squeeze", four, axis=[]).items()} == {"axis0": 2}
    assert set(_ways("Squeeze", two, axis=[1])) == {"axis0", "axis1"}


def test_grouped_convolutions_are_divided_by_whole_groups() -> None:
    x, kernel = np.zeros([1, 4, 4, 6], np.float32), np.zeros([3, 3, 2, 12], np.float32)
    (way,) = _ways("Conv2D", x, kernel, strides=[1, 1, 1, 1], padding="SAME").values()
    assert (way.inputs, way.outputs, way.extent) == ((Cut(3, 2), Cut(3, 4)), (Cut(3, 4),), 3)


@pytest.mark.parametrize(
    ("before", "after", "ways"),
    [
        ([6, 2], [12], {axis_name(0): 6}),
        ([4, 3], [6, 2], {axis_name(0): 2}),
        ([2, 3, 4, 5], [6, 20], {axis_name(0): 2, axis_name(1): 4}),
        ([1, 3, 1, 4], [3, 4, 1], {axis_name(0): 3, axis_name(1): 4}),
        ([3, 4], [4, 3], {}),
        ([0, 3], [3, 0], {}),
    ],
)
def test_a_reshape_is_divided_along_the_major_part_of_each_group(
    before: list[int], after: list[int], ways: dict[str, int]
) -> None:
    found = _ways("Reshape", np.zeros(before, np.float32), Fixed(np.array(after, np.int32)))
    assert {name: way.extent for name, way in found.items()} == ways


def test_what_is_not_exact_or_not_known_has_no_way() -> None:
    x = np.zeros([4, 4], np.float32)
    assert not _ways("Reshape", x, np.array([16], np.int32))  # a shape that is fed
    assert not _ways("Sum", x, np.array([0], np.int32))
    assert not _ways("Fill", np.array([4], np.int32), np.float32(1))
    assert not _ways("Einsum", [x], equation="ii->i")
    assert not _ways("MatrixInverse", x)
    assert not _ways("LRN", np.zeros([1, 1, 1, 4], np.float32))
    half = [np.zeros([2, 2, 2, 4], np.float16), *[np.zeros([4], np.float32)] * 4]
    assert not _ways("FusedBatchNormV3", *half, is_training=True)
    assert set(_ways("FusedBatchNormV3", *half, is_training=False)) == {"batch", "channel"}


@pytest.mark.parametrize("name", ["rows", "columns", "inner"])
def test_a_matrix_product_in_parts_agrees_with_float64(name: str) -> None:
    random = np.random.default_rng(3)
    x, y = random.normal(size=(5, 7)), random.normal(size=(7, 4))
    case = Case("MatMul", [x.astype(np.float32), y.astype(np.float32)])
    assert difference(x @ y, _in_parts(case, name, 3)) < 1e-5


@pytest.mark.parametrize("name", ["axis0", "axis1", "axis2"])
def test_a_mean_in_parts_agrees_with_float64(name: str) -> None:
    x = np.random.default_rng(4).normal(size=(5, 4, 7)) + 10
    case = Case("Mean", [x.astype(np.float32), Fixed(np.array([0, 2], np.int32))])
    assert difference(x.mean((0, 2)), _in_parts(case, name, 3)) < 1e-5


@pytest.mark.parametrize("name", ["batch", "in", "out"])
def test_a_convolution_in_parts_agrees_with_float64(name: str) -> None:
    random = np.random.default_rng(5)
    x, kernel = random.normal(size=(3, 6, 5, 3)), random.normal(size=(2, 3, 3, 3))
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3), (1, 2))  # [batch, height, width, in, 2, 3]
    inputs = [x.astype(np.float32), kernel.astype(np.float32)]
    case = Case("Conv2D", inputs, {"strides": [1, 1, 1, 1], "padding": "VALID"})
    assert difference(np.einsum("nhwcij,ijco->nhwo", windows, kernel), _in_parts(case, name, 2)) < 1e-5


def _in_parts(case: Case, name: str, parts: int) -> Any:
    checker = Checker(case)
    return run([checker.divided(name, parts)[0]])[0].outputs[0]
