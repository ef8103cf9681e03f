"""What a plan is worth: of several mappings that are best by groups, the best op by op that fits into memory."""

from types import SimpleNamespace

import pytest

from search.splits import choose
from search.splits.choose import Judge

SINGLE = 40


def worth(monkeypatch, asked, lacks_memory=lambda mapping: False):
    """Of mappings that are numbers: the nearer to 20, the faster. There is one single device."""
    asking = SimpleNamespace(ask=lambda count: list(asked))
    monkeypatch.setattr(choose, "SearchSession", lambda *args, **kwargs: asking)
    problem = SimpleNamespace(singles=lambda: [SINGLE], mapping=lambda placement: placement)
    profiled = SimpleNamespace(
        problem=problem, step_s=lambda mapping: 1.0 + abs(mapping - 20), lacks_memory=lacks_memory
    )
    return Judge(None, profiled, 192, 0).whole_s()


def test_the_best_op_by_op_counts_wherever_it_stands_among_those_asked(monkeypatch):
    assert worth(monkeypatch, range(48)) == pytest.approx(1.0)


def test_a_mapping_that_lacks_memory_promises_nothing(monkeypatch):
    assert worth(monkeypatch, range(48), lambda mapping: mapping > 12) == pytest.approx(9.0)


def test_where_a_searcher_has_nothing_to_ask_a_single_device_is_promised(monkeypatch):
    assert worth(monkeypatch, []) == pytest.approx(21.0)


def test_where_nothing_fits_nothing_is_promised(monkeypatch):
    assert worth(monkeypatch, range(48), lambda mapping: True) == float("inf")
