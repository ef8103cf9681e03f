"""A session keeps its anchor although a mapping that needs its memory fails: a real runner with made-up steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from experiments.campaign.measured import session
from experiments.campaign.measured.session import Known, Session
from experiments.campaign.open_case import AwayError
from experiments.jobs.search.side_by_side import SideBySide
from placer.graph.mapping import Mapping
from placer.measure.runner import NoForesight, Runner
from placer.measure.settings import RunnerSettings
from placer.result import Failed, Measured
from placer.trace.capture import capture
from tests.clock import Clock
from tests.placer.measure.fake_steps import FakeStep, forever

STORED_S = 4.0  # the anchor's step time in the case's first session; it takes 2 s now
FULL = tf.errors.ResourceExhaustedError(None, None, "OOM on /job:localhost/replica:0/task:0/device:CPU:1")
WRONG = tf.errors.InternalError(None, None, "of whatever")
LOST = tf.errors.UnavailableError(None, None, "worker 1 is gone")


class NoRoomForTwo(NoForesight):
    """The devices hold one placed step at a time, of 1 and 3 bytes."""

    def hold(self, op_mappings: Sequence[Mapping]) -> bool:
        return len(op_mappings) <= 1

    def peaks(self, op_mapping: Mapping) -> Sequence[float]:
        return 1.0, 3.0


class Steps:
    """Sets made-up steps up: `errors` says which mappings fail, by their device indices, and the others take 2 s."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.errors: dict[tuple[int, ...], Exception] = {}
        self.tried: list[tuple[int, ...]] = []

    def prepare(self, op_mapping: Mapping) -> tuple[FakeStep, float]:
        self.tried.append(op_mapping.devices)
        if op_mapping.devices in self.errors:
            raise self.errors[op_mapping.devices]
        return FakeStep(self.clock, forever(2.0)), 0.5


class Opened(SimpleNamespace):
    """A session with the anchor on the first device, its steps, and the devices of two mappings of both devices."""

    session: Session
    steps: Steps
    anchor: tuple[int, ...]
    large: tuple[int, ...]
    other: tuple[int, ...]

    def measure(self, devices: tuple[int, ...]) -> Any:
        return self.session.measure(devices, None, ())


@pytest.fixture(scope="module")
def captured(make_step: Callable[[], Any]) -> Any:
    step, inputs = make_step()
    captured = capture(step, inputs, "small")
    return captured, captured.flat_inputs(inputs)


@pytest.fixture
def opened(captured: Any, two_cpus: Any, monkeypatch: pytest.MonkeyPatch) -> Opened:
    (step, inputs), clock = captured, Clock()
    runner = Runner(step, two_cpus, inputs, [], RunnerSettings(repeats=5), clock, NoRoomForTwo())
    steps, count = Steps(clock), len(step.graph)
    monkeypatch.setattr(runner, "prepare", steps.prepare)
    held: Any = Session.__new__(Session)
    held.job = SimpleNamespace(runner=runner)
    held.profiled = SimpleNamespace(
        calibrated=lambda _: SimpleNamespace(warned=lambda _: None), units=SimpleNamespace(devices=lambda p: p)
    )
    held._mapping = held._op_mapping = lambda devices: Mapping(step.graph, two_cpus.topology, devices)
    anchor = (0,) * count
    held.known = Known(b"", [(anchor, Measured(STORED_S))])
    held._anchor()
    other = tuple([int(i in step.graph.colocated[0]) for i in range(count)])
    return Opened(session=held, steps=steps, anchor=anchor, large=(1,) * count, other=other)


@pytest.mark.parametrize(
    ("error", "failed"),
    [(FULL, Failed("memory", device="cpu:1", wanted_bytes=3.0)), (WRONG, Failed("error", "of whatever"))],
)
def test_a_mapping_that_takes_the_anchors_place_and_fails_is_told_as_its_own_failure(
    opened: Opened, error: Exception, failed: Failed
) -> None:
    opened.steps.errors = {opened.large: error}
    found = opened.measure(opened.large)
    assert (found.reason, found.device, found.wanted_bytes) == (failed.reason, failed.device, failed.wanted_bytes)
    runner = opened.session.job.runner
    assert [mapping.devices for mapping in runner.kept] == [opened.anchor] and runner.anchor_s == STORED_S
    assert opened.measure(opened.other).step_s == STORED_S  # in the anchor's time then


def test_where_the_anchor_fails_too_the_failure_says_nothing_about_the_mapping(opened: Opened) -> None:
    opened.steps.errors = {opened.large: FULL, opened.anchor: WRONG}
    with pytest.raises(AwayError, match="fastest single device does not run the step any more: of whatever"):
        opened.measure(opened.large)


def test_after_a_lost_device_the_anchor_is_measured_by_the_next_session(opened: Opened) -> None:
    opened.steps.errors = {opened.large: LOST}
    tried = len(opened.steps.tried)
    assert opened.measure(opened.large).reason == "device"
    assert opened.steps.tried[tried:] == [opened.large]


def test_an_end_that_took_the_anchor_down_leaves_none_of_the_next_mappings_without_it(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mappings that the devices cannot hold together are stepped apart, without the anchor."""
    full, runner = Failed("memory", "full"), opened.session.job.runner
    large, anchor = (opened.session._mapping(devices) for devices in (opened.large, opened.anchor))
    ended = SideBySide({anchor: Measured(2.0)}, failed={large: full})

    def side_by_side(*given: Any, **options: Any) -> SideBySide:
        assert runner.anchor is not None
        runner.take_down()
        return ended

    monkeypatch.setattr(session, "side_by_side", side_by_side)
    assert opened.session.final(opened.large, opened.anchor, None, ()) is full
    assert runner.kept == [anchor]
    ended = SideBySide({anchor: Measured(2.0), large: Measured(1.0)})
    for _ in range(2):
        assert isinstance(opened.session.final(opened.large, opened.anchor, None, ()), dict)
    tried = len(opened.steps.tried)
    opened.measure(opened.other)
    assert opened.steps.tried[tried:] == [opened.anchor, opened.other]
    opened.steps.errors = {opened.anchor: WRONG}
    runner.take_down()
    with pytest.raises(AwayError):
        opened.session.final(opened.large, opened.anchor, None, ())
