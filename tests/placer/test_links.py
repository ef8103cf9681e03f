"""Links: the straight line through the probes, and a real measurement between two devices."""

from __future__ import annotations

import pytest

from placer.links import _line, measure_links


def test_line_finds_intercept_and_slope():
    sizes = [64.0, 65536.0, 1048576.0]
    intercept, slope = _line(sizes, [1e-4 + 5e-10 * size for size in sizes])
    assert intercept == pytest.approx(1e-4)
    assert slope == pytest.approx(5e-10)


def test_line_is_never_below_zero():
    assert min(_line([1.0, 2.0, 3.0], [3e-3, 2e-3, 1e-3])) >= 0


def test_links_go_both_ways_between_every_pair(two_cpus):
    names = two_cpus.topology.names
    links = measure_links(names, [two_cpus.tf_name(d) for d in range(2)])
    assert [(link.src, link.dst) for link in links] == [("cpu:0", "cpu:1"), ("cpu:1", "cpu:0")]
    assert all(link.latency_s > 0 and link.bandwidth_bytes_per_s > 0 for link in links)
