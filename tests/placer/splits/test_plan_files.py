"""Plans of splits in mapping files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from placer.errors import BadInputError
from placer.graph.mapping_files import SPLIT_FORMAT
from placer.splits.plan import Division, PlanError, SplitPlan
from placer.splits.plan_files import SPLIT_AUTO, SPLIT_OFF, check_split, read_plan, regions_of

PLAN = SplitPlan({"x": Division("batch", 4), "y": Division("rows", 4), "z": Division("batch", 4)}, in_flight=3)


def _written(folder: Path, splits: Any, **more: Any) -> Path:
    path = folder / "mapping.json"
    path.write_text(json.dumps({"format": SPLIT_FORMAT, "assignment": {}, "splits": splits, **more}))
    return path


def _regions(plan: SplitPlan) -> list[dict[str, Any]]:
    return [{"way": region.way, "parts": region.parts, "ops": region.ops} for region in regions_of(plan)]


@pytest.mark.parametrize("in_flight", [None, 1, 3])
def test_a_plan_is_read_as_it_was_written(tmp_path: Path, in_flight: int | None) -> None:
    plan = SplitPlan(PLAN.divisions, in_flight)
    assert read_plan(_written(tmp_path, _regions(plan), **({"in_flight": in_flight} if in_flight else {}))) == plan
    assert plan.micro_batches == (4 if in_flight else None)


@pytest.mark.parametrize(
    ("splits", "in_flight", "says"),
    [
        ([], 2, "$.in_flight is of micro-batches, but $.splits divides no op; remove it."),
        (_regions(PLAN), 0, "in_flight"),
        (_regions(PLAN), 1.5, "in_flight"),
    ],
)
def test_micro_batches_that_cannot_be_are_refused(tmp_path: Path, splits: Any, in_flight: Any, says: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(says)):
        read_plan(_written(tmp_path, splits, in_flight=in_flight))


def test_micro_batches_of_different_numbers_are_refused() -> None:
    divisions = {"x": Division("batch", 4), "y": Division("batch", 2)}
    assert SplitPlan(divisions).micro_batches is None
    with pytest.raises(PlanError, match=r"^ops are divided into 2 and into 4 micro-batches; give one number\.$"):
        _ = SplitPlan(divisions, in_flight=1).micro_batches


@pytest.mark.parametrize(
    ("split", "batchnorm", "as_options", "says"),
    [
        (SPLIT_AUTO, "sync", True, "--split-batchnorm is 'sync'; give exact or local."),
        (SPLIT_AUTO, "sync", False, "split_batchnorm is 'sync'; give 'exact' or 'local'."),
        (
            SPLIT_OFF, "local", True,
            "--split-batchnorm local divides nothing by itself; give --split auto, too, or a file.",
        ),
        (
            SPLIT_OFF, "local", False,
            "split_batchnorm='local' divides nothing by itself; give split='auto', too, or a file.",
        ),
    ],
)  # fmt: skip
def test_statistics_that_cannot_be_are_refused_in_the_words_in_which_they_were_given(
    split: str, batchnorm: str, as_options: bool, says: str
) -> None:
    with pytest.raises(BadInputError, match=f"^{re.escape(says)}$"):
        check_split(split, batchnorm, as_options=as_options)


def test_statistics_of_each_part_go_with_a_plan() -> None:
    check_split(SPLIT_AUTO, "local", as_options=True)
    check_split(SPLIT_OFF, "exact", as_options=False)
