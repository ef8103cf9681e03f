"""Which mapping a measured search hands back at its end, by made-up step times."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from experiments.campaign.measured import session
from experiments.campaign.measured.session import Session, _final_facts
from experiments.jobs.search.side_by_side import SideBySide
from placer.graph.mapping import Mapping
from placer.graph.topology import Device, Link, Topology
from placer.result import Failed, Measured
from tests.experiments.campaign.conftest import towers

GRAPH = towers()
DEVICES = Topology((Device("worker:0", "cpu"), Device("worker:1", "cpu")), (Link("*", "*", 0.2, 100.0),))
SINGLE = Mapping(GRAPH, DEVICES, (0,) * len(GRAPH))
SPLIT = Mapping(GRAPH, DEVICES, (0,) * (len(GRAPH) - 1) + (1,))
UNTOUCHED = Measured(0.9, 0.1, 30)


def took(step_s: float) -> Measured:
    return Measured(step_s, spread_s=0.05, repeats=30)


@pytest.mark.parametrize(
    ("split_s", "single_s", "is_single"),
    [
        (0.999, 1.0, True),  # in doubt
        (0.5, 1.0, False),  # sure
        (2.0, 1.0, True),
        (0.999, None, False),  # the device alone runs no more
    ],
)
def test_a_mapping_is_handed_back_where_it_surely_beats_the_single_device(
    split_s: float, single_s: float | None, is_single: bool
) -> None:
    measured = {SPLIT: took(split_s)} | ({} if single_s is None else {SINGLE: took(single_s)})
    facts = _final_facts(SideBySide(measured, UNTOUCHED), SINGLE)
    best = SINGLE if is_single else SPLIT
    assert (facts["single"], facts["devices"]) == (is_single, list(best.devices))
    assert (facts["best_s"], facts["spread_s"], facts["repeats"]) == (measured[best].step_s, 0.05, 30)
    assert (facts["best_single_s"], facts["untouched_s"]) == (single_s, 0.9)
    assert facts["single_spread_s"] == (None if single_s is None else 0.05)


def test_without_a_single_device_the_fastest_mapping_is_handed_back() -> None:
    other = Mapping(GRAPH, DEVICES, (1, *SPLIT.devices[1:]))
    facts = _final_facts(SideBySide({SPLIT: took(1.0), other: took(0.999)}), None)
    assert facts["devices"] == list(other.devices) and not facts["single"]
    assert facts["best_single_s"] is facts["single_spread_s"] is facts["untouched_s"] is None


def test_a_best_mapping_that_does_not_run_at_the_end_is_a_failure_and_not_the_single_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacks, single = Failed("memory", "no room"), took(1.0)
    held = Session.__new__(Session)
    groups, runner = SimpleNamespace(graph=GRAPH), SimpleNamespace(anchor=SINGLE)
    held.job = SimpleNamespace(groups=groups, topology=DEVICES, runner=runner)  # type: ignore[assignment]
    held.profiled = SimpleNamespace(calibrated=lambda _: SimpleNamespace(warned=lambda _: None))  # type: ignore[assignment]

    def final(best: Mapping | None, found: SideBySide) -> object:
        monkeypatch.setattr(session, "side_by_side", lambda *given, **options: found)
        return held.final(best and best.devices, SINGLE.devices, None, ())

    assert final(SPLIT, SideBySide({SINGLE: single}, failed={SPLIT: lacks})) is lacks
    assert final(None, SideBySide({}, failed={SINGLE: lacks})) is lacks
    facts = final(SPLIT, SideBySide({SPLIT: took(0.5)}, failed={SINGLE: lacks}))
    assert isinstance(facts, dict) and facts["best_single_s"] is None
