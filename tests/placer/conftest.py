"""What tests of placed steps share: a live step driven by hand, its mapping changed as often as wanted."""

from __future__ import annotations

import random
from typing import Any

import pytest

from placer.result import Failed
from placer.train.device_session import DeviceSession
from placer.train.live_step import LiveStep
from placer.train.steps.modes import Placed

MAPPINGS = 4


class Hand:
    """A live step whose mapping the test chooses: `place` it once, then `move` it among four random mappings."""

    def __init__(self, step: Any, *, session: DeviceSession | None = None, devices: str | None = None) -> None:
        self.live = LiveStep(step, session or DeviceSession(devices, False), "step")
        self.random = random.Random(5)
        self.moves = 0
        self.placed: list[Placed] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.live.call(args, kwargs)[0]

    def place(self, *, first: bool = True) -> None:
        """Join the devices and put everything on one."""
        self.live.capture()
        self.live.session.prepare()
        self.live.join()
        self.move(lambda classes: dict.fromkeys(classes, 0 if first else 1))

    def move(self, choose: Any = None, plan: int = 0) -> None:
        """Place the step, divided by a plan, by a random mapping, or by the one that `choose` makes of the colocation
        classes.
        """
        graph, topology = self.live.captured(plan).graph, self.live.joined.topology
        classes = sorted({op.colocate or op.name for op in graph.ops})
        there = [topology.index[name] for name in self.live.session.devices.topology.names]
        if choose is None and not plan and len(self.placed) >= MAPPINGS:
            placed = self.random.choice([mode for mode in self.placed if mode is not self.live.mode])
        else:
            side = choose(classes) if choose else {name: self.random.choice(there) for name in classes}
            devices = [side[op.colocate or op.name] for op in graph.ops]
            placed = self.live.settle(self.live.build(devices, (), f"hand-{self.moves}", plan))
            assert not isinstance(placed, Failed), placed
            self.placed.append(placed)
        self.live.mode = placed
        assert self.live.mode is placed
        self.moves += 1

    @property
    def is_placed(self) -> bool:
        return isinstance(self.live.mode, Placed)

    def close(self) -> None:
        self.live.close()


@pytest.fixture(scope="session")
def live_hand() -> type[Hand]:
    """Makes a live step driven by hand."""
    return Hand
