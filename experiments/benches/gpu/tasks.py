"""The tasks of the bench `gpu`, the most important first, and how its minutes are shared out among them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments import zoo
from experiments.zoo.catalogue import NATIVE
from placer.errors import BadInputError

SEARCHERS = ("expert", "heft", "hybrid")
MINUTES = 10.0
RESERVE_S = 20.0  # of all seconds, for ending the last process and writing the facts
LEAST_S = 15.0  # with less time left, no task is begun
ENOUGH_S = 40.0  # in a run of MINUTES, the least for a large network, which takes long to trace and profile
GRACE_S = 20.0  # a task's process is ended this long after twice the task's share
PUBLISHED = ("vgg16", "alexnet", "mnist_softmax")  # HTF-MPR has figures of these
SPLIT = ("towers", "alexnet")
OTHERS = ("moe", "transformer", "inception_v3", "two_tower", "towers")
LAST = ("resnet50", "seq2seq_lstm", "mobilenet_v3", "nasnet_mobile")
OVERHEAD_MODEL = "alexnet"
TIGHT_MODEL = "two_tower"
LIMIT_MIB, TRIAL_LIMIT_MIB = 1024, 24  # memory of a GPU in the case of tight memory; of a logical CPU in a trial
TIGHT_BATCH, TRIAL_BATCH = 2048, 128


@dataclass(frozen=True)
class Hardware:
    """The devices on which the bench measures."""

    whole: str | None  # devices of the part `models`
    splits: tuple[str, ...]  # one card as several devices
    tight: str  # a device with little memory
    real: bool  # whether GPUs take part: networks have native size, and figures mean something

    @property
    def limit_mib(self) -> int:
        """The memory of the GPU in the case of tight memory."""
        return LIMIT_MIB if self.real else TRIAL_LIMIT_MIB

    def model(self, name: str) -> str:
        """The zoo's name of a network at the size that is measured."""
        return f"{name}@{NATIVE}" if self.real else name


@dataclass(frozen=True)
class Task:
    """One thing to measure."""

    part: str  # models, splits, tight or autoplace
    name: str  # of the network
    devices: str | None
    most_s: float  # in a run of MINUTES; less in a shorter one
    first: bool = False  # whether it may take `most_s` even if that leaves little for others

    @property
    def key(self) -> str:
        """The name of the file that keeps the task's facts."""
        return "-".join(("gpu", self.part, self.name, *([self.devices.replace(":", "-")] if self.devices else [])))

    @property
    def title(self) -> str:
        """The task in words."""
        what = {"tight": ", tight memory", "autoplace": " under autoplace", "splits": ", split"}.get(self.part, "")
        return f"{self.name}{what} on {self.devices or 'CPU + GPU'}"


@dataclass(frozen=True)
class Wanted:
    """What a process is asked to measure."""

    model: str
    measurements: int  # besides single devices
    seconds: float  # that the task should take
    batch: int | None = None  # None = the network's own
    limit_bytes: int | None = None  # memory of every device except the last, the CPU; None = what they have


def hardware_of(devices: str | None) -> Hardware:
    """The hardware that `--devices` asks for. Raises BadInputError."""
    if devices is None:
        return Hardware(None, ("gpus:2",), f"gpus:1@{LIMIT_MIB}", real=True)
    count = devices.removeprefix("cpus:")
    if devices == count or not count.isdecimal() or int(count) < 2:
        raise BadInputError(
            f"--devices {devices}: bench gpu measures on this machine's GPUs, or tries all parts without one; "
            "write cpus:N with N >= 2, or leave it out."
        )
    return Hardware(devices, (devices,), devices, real=False)


def check_model(name: str) -> None:
    """Raise BadInputError for a network that is not in the zoo."""
    if name not in zoo.names():
        raise BadInputError(f"--model {name!r} is none of {', '.join(zoo.names())}.")


def tasks_of(hardware: Hardware, models: Sequence[str] | None = None) -> list[Task]:
    """The tasks, the most important first. Tasks on the same devices follow each other if their importance allows it,
    because every new process takes seconds. models: only these networks.
    """
    overhead = OVERHEAD_MODEL if models is None or OVERHEAD_MODEL in models else models[0]
    planned = [
        Task("models", "vgg16", hardware.whole, 120.0, first=True),
        Task("models", "alexnet", hardware.whole, 60.0, first=True),
        Task("models", "mnist_softmax", hardware.whole, 30.0, first=True),
        Task("tight", TIGHT_MODEL, hardware.tight, 80.0, first=True),
        Task("autoplace", overhead, hardware.whole, 90.0, first=True),
        *(Task("models", name, hardware.whole, 90.0) for name in OTHERS),
        *(Task("splits", name, split, 60.0) for split in hardware.splits for name in SPLIT),
        *(Task("models", name, hardware.whole, 120.0) for name in LAST),
    ]
    return [task for task in planned if models is None or task.name in models]


def tables_mib(limit_mib: int) -> int:
    """Mebibytes of three tables together that do not fit into `limit_mib`, though each of them would."""
    return 3 * limit_mib // 2


class Budget:
    """The seconds of a run, counted from the creation of this object, and each task's share."""

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.begin_s, self.seconds = clock, clock(), 60.0 * minutes - RESERVE_S
        self.part = min(1.0, minutes / MINUTES)

    @property
    def spent_s(self) -> float:
        """Seconds that have passed."""
        return self.clock() - self.begin_s

    @property
    def left_s(self) -> float:
        """Seconds until all tasks must have ended."""
        return max(0.0, self.seconds - self.spent_s)

    def share_s(self, task: Task, tasks_left: int) -> float | None:
        """Seconds that a task should take; None if no time is left. tasks_left: how many are left, with this one."""
        if self.left_s < LEAST_S:
            return None
        fair_s = self.left_s if task.first else max(self.left_s / tasks_left, LEAST_S, self.part * ENOUGH_S)
        return min(max(self.part * task.most_s, LEAST_S), fair_s, self.left_s)

    def limit_s(self, share_s: float) -> float:
        """Seconds after which a task that should take `share_s` is ended."""
        return min(self.left_s, 2 * share_s + GRACE_S)
