"""How the measurements of a search are shared among its searchers, and a plan of splits that cannot be read."""

from __future__ import annotations

import json
import re

import pytest

from experiments.jobs.search.settings import SearchSettings
from placer.errors import BadInputError
from placer.graph.mapping_files import MAPPING_FORMAT


@pytest.mark.parametrize(
    ("searchers", "left", "shares"),
    [
        (("expert", "heft", "random", "local"), 20, {"expert": 2, "heft": 2, "random": 1, "local": 15}),
        (("heft",), 5, {"heft": 5}),
        (("local",), 5, {"local": 5}),
    ],
)
def test_baselines_get_a_part_and_the_searchers_the_rest(searchers, left, shares):
    assert SearchSettings("any", searchers=searchers).shares(left) == list(shares.items())


def test_a_schedule_that_is_none_is_refused_before_anything_is_traced():
    with pytest.raises(BadInputError, match=r"^the schedule 'lifo' is none of rank, donf, fifo\.$"):
        SearchSettings("any", schedule="lifo").check()


def test_a_file_without_a_plan_of_splits_is_refused_before_anything_is_traced(tmp_path):
    path = tmp_path / "mapping.json"
    with pytest.raises(BadInputError, match=r"mapping\.json"):
        SearchSettings("any", split=str(path)).check()
    path.write_text(json.dumps({"format": MAPPING_FORMAT, "assignment": {}}))
    with pytest.raises(BadInputError, match=r"\$.splits is missing"):
        SearchSettings("any", split=str(path)).check()


@pytest.mark.parametrize("split", ["pipeline:", "pipeline:1", "pipeline:-4", "pipeline:2.5", "pipeline:four"])
def test_numbers_of_micro_batches_that_are_none_are_refused_before_anything_is_traced(split):
    message = f"--split is {split!r}; give pipeline:M with M micro-batches, at least 2."
    with pytest.raises(BadInputError, match=f"^{re.escape(message)}$"):
        SearchSettings("any", split=split).check()


def test_a_number_of_micro_batches_names_no_file():
    settings = SearchSettings("any", split="pipeline:8")
    settings.check()
    assert settings.micro_batches == 8 and settings.plan is None


def test_a_split_that_is_none_says_what_it_may_be():
    with pytest.raises(
        BadInputError, match=r"--split 'nonsense' is neither auto, off nor pipeline:M, nor a mapping file"
    ):
        SearchSettings("towers", split="nonsense").check()
