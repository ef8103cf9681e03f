"""What options become before a command begins."""

from experiments.cli.options import search_settings
from experiments.jobs.search.settings import SearchSettings
from placer.graph.memory_limits import MemoryLimits


def test_options_that_are_not_given_are_the_defaults_of_a_search():
    unlimited = MemoryLimits.parsed([])
    assert search_settings("towers", None, None, None, None, None) == SearchSettings("towers", max_memory=unlimited)


def test_options_become_settings():
    asked = search_settings("towers", 2, None, ["heft", "local"], ["a=cpu"], ["worker:0=1GiB"], seed=3, groups=24)
    assert asked == SearchSettings(
        "towers", "workers:2", searchers=("heft", "local"), pins=("a=cpu",), seed=3, groups=24,
        max_memory=MemoryLimits.parsed(["worker:0=1GiB"]),
    )  # fmt: skip
