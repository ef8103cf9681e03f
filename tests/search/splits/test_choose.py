"""What a plan is worth: of several mappings that are best by groups, the best op by op."""

from types import SimpleNamespace

import pytest

from search.splits import choose
from search.splits.choose import Judge


def test_the_best_op_by_op_counts_wherever_it_stands_among_those_asked(monkeypatch):
    asking = SimpleNamespace(ask=lambda count: list(range(count)))
    monkeypatch.setattr(choose, "SearchSession", lambda *args, **kwargs: asking)
    profiled = SimpleNamespace(problem=None, step_s=lambda mapping: 1.0 + abs(mapping - 20))
    assert Judge(None, profiled, 192, 0).whole_s() == pytest.approx(1.0)


def test_where_a_searcher_has_nothing_to_ask_nothing_is_promised(monkeypatch):
    asking = SimpleNamespace(ask=lambda count: [])
    monkeypatch.setattr(choose, "SearchSession", lambda *args, **kwargs: asking)
    assert Judge(None, SimpleNamespace(problem=None), 192, 0).whole_s() == float("inf")
