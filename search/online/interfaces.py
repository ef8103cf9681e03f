"""The interfaces that a controller needs of a live step, its devices and a planner. A controller builds and settles
modes; `AutoStep` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from placer.devices.load.load_reading import LoadReading, Pair
from placer.graph.mapping import Mapping
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.result import Failed
from placer.train.steps.modes import WHOLE, Built, Mode, Placed

if TYPE_CHECKING:
    from placer.splits.plan import SplitPlan
    from placer.trace.capture import Captured
    from search.online.replan.proposal import OpDevices, Proposal

T = TypeVar("T")
Steps = Generator[Mode, float, T]
"""A script: yields the mode of the next call, is sent the seconds that it took, and returns a T."""


Told = TypeVar("Told", covariant=True)


class Answer(Protocol[Told]):
    """The part of a Future that is used here, so that several can be awaited as one."""

    def done(self) -> bool: ...

    def result(self, timeout: float | None = None) -> Told: ...


class DevicesLike(Protocol):
    """The devices that are there; `placer.devices.cluster.Devices`."""

    @property
    def topology(self) -> Topology: ...

    @property
    def has_local(self) -> bool: ...


class SessionLike(Protocol):
    """The session that joins, loses and rejoins devices; `placer.train.device_session.DeviceSession`."""

    @property
    def devices(self) -> DevicesLike | None: ...

    @property
    def missing(self) -> tuple[str, ...]: ...

    def suspect(self) -> None: ...

    @property
    def generation(self) -> int: ...

    def prepare(self) -> None: ...

    @property
    def given_up(self) -> dict[str, str]: ...

    def back(self) -> tuple[str, ...]: ...

    def rejoin(self) -> str | None: ...

    @property
    def keeps_much(self) -> bool: ...

    def join_anew(self) -> str | None: ...


class Probes(Protocol):
    """Probes of how fast devices and links are now; `placer.devices.load.load_probes.LoadProbes`."""

    def take(self) -> LoadReading: ...

    def device(self, name: str) -> float: ...

    def link(self, pair: Pair) -> float: ...


class LiveStepLike(Protocol):
    """`placer.train.live_step.LiveStep`, as far as a controller uses it."""

    name: str

    @property
    def session(self) -> SessionLike: ...

    @property
    def mode(self) -> Mode: ...

    @property
    def left_alone(self) -> str | None: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def scattered(self) -> str | None: ...

    def leave_alone(self, why: str) -> None: ...

    @property
    def graph(self) -> OpGraph | None: ...

    @property
    def shares_cores(self) -> bool: ...

    @property
    def overlaps(self) -> bool: ...

    def background(self, work: Callable[[], T]) -> Future[T]: ...

    def capture(self) -> OpGraph: ...

    def join(self) -> Topology: ...

    def rest(self) -> str | None: ...

    def wake(self) -> None: ...

    def profile(self, plan: int = WHOLE) -> tuple[OpGraph, Topology]: ...

    def captured(self, plan: int = WHOLE) -> Captured: ...

    def divide(self, plan: SplitPlan) -> int: ...

    def divided_in_words(self, plan: int) -> str: ...

    def load_probes(self) -> Probes: ...

    def load_probes_again(self) -> Probes: ...

    def build(self, devices: Sequence[int], order: Sequence[str], name: str, plan: int = WHOLE) -> Built | Failed: ...

    def settle(self, built: Built | Failed) -> Placed | Failed: ...

    def release(self, keep: Sequence[Placed]) -> None: ...

    def is_current(self, placed: Placed) -> bool: ...

    def mapping(self, devices: tuple[int, ...], plan: int = WHOLE) -> Mapping: ...


class PlannerLike(Protocol):
    """Proposes what to measure; `search.online.replan.planner_client.Planner`. Answers are Futures, which are done in
    the order of calls.
    """

    def start(self) -> Future[None]: ...

    def close(self) -> None: ...

    def singles(self) -> Future[list[Proposal]]: ...

    def tell(self, measured: Sequence[tuple[OpDevices, Any]]) -> Future[None]: ...

    def propose(self, count: int, seconds: float | None = None) -> Future[list[Proposal]]: ...

    def ended(self) -> Future[str | None]: ...

    def predict(self, devices: OpDevices) -> Future[float]: ...

    def slowed(self, device_factor: Any, link_factor: Any) -> Future[None]: ...

    def only(self, names: Sequence[str]) -> Future[None]: ...
