"""The process of a training under autoplace whose workers suffer faults in each of its stages.

Afterwards it repeats the same steps from the same state without a fault.

    search ──▶ start ──✗──────✗────✗──▶ losses, variables
                 └──────────────────────▶ losses, variables undisturbed

Its only argument is a JSON object with its settings. Its last line on stdout is the result, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import psutil

from experiments.benches.bench import Facts, say
from experiments.benches.faults.fault import KILL, Fault, faults, hit
from experiments.benches.faults.followed import FollowedTraining
from experiments.benches.online.kills import worker_processes
from experiments.benches.online.training import Moment, Training
from placer.errors import one_line
from placer.phase_names import STEADY

STAGES = ("steady", "snapshot", "switch")  # in these at least one worker is left
LAST_STAGES = ("recovery",)  # in which both workers are lost, so that steps run in the training's own process
SNAPSHOT_EVERY = 8  # steps, so that faults fall into snapshots
BUDGET = 4
GAP = 20  # steps after the last fault
MOST_CALLS = 400  # within which a stage must begin
BACK_S = 120.0  # within which all workers must be back once the fault is over; deadlines grow with the time of calls
CALM_S = 1.0  # how long all workers must have been there: a worker that is being killed may still answer
PAUSE_S = 0.05  # between steps while a worker starts again, so that there are not thousands of steps
FIRST_S = 0.2  # assumed length of a stage that was not seen before


@dataclass
class Done:
    """One fault of a training, and its effect."""

    how: str
    stage: str
    at: int  # steps from the start of the stretch to the fault
    injected: bool = False
    noticed: bool = False  # whether the training reported a lost device
    back_s: float | None = None  # seconds until all devices were back


class Trap:
    """A wrapper of a method that calls a function in another thread, at a chosen moment of the method's next call."""

    def __init__(self, owner: Any, name: str) -> None:
        self._whole: Callable[..., Any] = getattr(owner, name)
        self._lasts_s = FIRST_S
        self._do: Callable[[], object] | None = None
        self._at = 0.0
        self.thread: threading.Thread | None = None
        setattr(owner, name, self._called)

    def arm(self, do: Callable[[], object], at: float) -> None:
        """Call `do` during the next call, after the share `at` of the time that the last call took."""
        self._do, self._at, self.thread = do, at, None

    @property
    def is_sprung(self) -> bool:
        """Whether the call for which the trap was armed has begun."""
        return self._do is None

    def _called(self, *arguments: Any, **named: Any) -> Any:
        do = self._do
        if do is not None:
            self.thread = threading.Timer(self._at * self._lasts_s, do)
            self.thread.start()
            self._do = None
        begin_s = time.monotonic()
        try:
            return self._whole(*arguments, **named)
        finally:
            if do is None:  # a call that was disturbed says nothing about the others
                self._lasts_s = time.monotonic() - begin_s


class Disturbed:
    """A training and the traps in it."""

    def __init__(self, training: FollowedTraining) -> None:
        session = training.live.session
        session.sync_every = SNAPSHOT_EVERY
        self.training, self.session = training, session
        self.traps = {
            "snapshot": Trap(session.log, "save"),
            "switch": Trap(training.live, "build"),
            "recovery": Trap(session, "_recover"),
        }
        self.done: list[Done] = []

    def stretch(self, planned: Sequence[Fault]) -> Facts:
        """Train with all these faults, one after another; then take the same steps without them."""
        training, self.done, ended = self.training, list[Done](), ""
        self.session.save()  # so no earlier step is repeated, maybe elsewhere: both ways begin with the same bits
        start, before = training.moment(), len(self.session.recovery.losses)
        try:
            for fault in planned:
                self._fault(fault, start.at)
                say(f"training: {self.done[-1]}")
            training.steps(GAP)
        except Exception as error:  # every effect of a fault on the training is a result here
            ended = one_line(f"{type(error).__name__}: {error}")
            say(ended)
        losses, after = training.losses[start.at :], training.moment()
        elsewhere = sorted(step - start.at for step in training.elsewhere if step >= start.at)
        undisturbed = training.again(start, len(losses)) if not ended else []
        forgotten = sum(loss.forgotten for loss in self.session.recovery.losses[before:])
        return {
            "losses": losses, "undisturbed": undisturbed, "ended": ended, "forgotten": forgotten,
            "elsewhere": elsewhere, "faults": [asdict(done) for done in self.done],
            "apart": None if ended else asdict(apart(start, after, training.moment())), "variables": len(after.values),
        }  # fmt: skip

    def _fault(self, fault: Fault, start: int) -> None:
        """Inject one fault in its stage, then train until all workers are there."""
        training, trap = self.training, self.traps.get(fault.stage)
        timer: threading.Thread | None
        training.steps(int(10 * fault.at))
        done = Done(fault.how, fault.stage, len(training.losses) - start)
        self.done.append(done)
        before = len(self.session.recovery.losses)

        def do() -> None:
            done.injected = hit(_workers(), fault)

        if trap is None:
            timer = threading.Timer(3 * fault.at * training.step(), do)
            timer.start()
        else:
            trap.arm(do, fault.at)
            if fault.stage in ("switch", "recovery"):  # losing a worker leads to these stages
                hit(_workers(), Fault(KILL, fault.stage, fault.at, 1.0 - fault.which))
            self._until(lambda: trap.is_sprung, done)
            timer = trap.thread
        self._settled(done, timer, before)

    def _until(self, is_it: Callable[[], bool], done: Done) -> None:
        """Train until `is_it` returns true. Raises TimeoutError if it does not within MOST_CALLS steps."""
        for _ in range(MOST_CALLS):
            if is_it():
                return
            self.training.step()
            if self.session.missing:
                time.sleep(PAUSE_S)
        if done.stage == "switch" and not self.session.missing:  # Placer builds no more mappings, so build one
            self._moved()
        if not is_it():
            raise TimeoutError(f"the stage {done.stage} did not begin within {MOST_CALLS} steps")

    def _moved(self) -> None:
        """Build the current mapping once more, as a search builds mappings to try them."""
        placed = self.training.placed
        built = self.training.live.background(
            lambda: self.training.live.build(placed.op_devices, placed.order, "again")
        ).result()
        self.training.live.settle(built)

    def _settled(self, done: Done, timer: threading.Thread | None, before: int) -> None:
        """Train until the fault is over and all workers are there. Raises TimeoutError if that takes too long."""
        begin_s = over_s = calm_s = time.monotonic()
        while (now_s := time.monotonic()) < calm_s + CALM_S:
            self.training.step()
            time.sleep(PAUSE_S)
            if timer is not None and timer.is_alive():
                over_s = calm_s = time.monotonic()
            elif self._is_disturbed():
                calm_s = time.monotonic()
            if now_s > over_s + BACK_S:
                raise TimeoutError(f"not all workers were back after {BACK_S:.0f} s")
        done.noticed = len(self.session.recovery.losses) > before
        done.back_s = calm_s - begin_s if done.noticed else None

    def _is_disturbed(self) -> bool:
        """Whether a worker is missing, lost without being noticed yet, or stopped."""
        return bool(self.session.missing or self.session.connection.lost() or any(map(_is_stopped, _workers())))


def _workers() -> list[psutil.Process]:
    """The running workers of this process."""
    with suppress(psutil.Error):  # a worker may end meanwhile
        return list(worker_processes().values())
    return []


def _is_stopped(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.status() == psutil.STATUS_STOPPED)
    return False


def live_facts(model: str, workers: int, how: str, repeats: int, seed: int = 0) -> Facts:
    """The stretches of one training, one for each fault. The program that starts this one sets PLACER_DEADLINE_S."""
    with FollowedTraining(model, f"workers:{workers}", BUDGET, seed) as training:
        training.until_steady()
        disturbed = Disturbed(training)
        training.steps(2 * SNAPSHOT_EVERY)
        stretches: list[Facts] = []
        for fault in (*faults(how, STAGES, repeats, seed), *faults(how, LAST_STAGES, repeats, seed)):
            stretches.append(disturbed.stretch([fault]))
            if stretches[-1]["ended"]:
                break
    return {"stretches": stretches}


@dataclass(frozen=True)
class Apart:
    """How far the variables of two trainings that began in the same state are apart at their ends.

    trained: of trained variables, divided by how far they moved since the start. other: of floats that are not trained,
    such as momenta, divided by their largest value. counts: how many variables of whole numbers differ, such as the
    optimizer's steps.
    """

    trained: float
    other: float
    counts: int


def apart(start: Moment, mine: Moment, theirs: Moment) -> Apart:
    """How far `mine` is from `theirs`; both began at `start`, and have the same variables."""
    trained, other, counts = 0.0, 0.0, 0
    for (variable, first), (_, a), (_, b) in zip(start.values, mine.values, theirs.values, strict=True):
        if not np.size(a):
            continue
        if not variable.dtype.is_floating:
            counts += not np.array_equal(a, b)
            continue
        first, a, b = (np.asarray(values, np.float64) for values in (first, a, b))
        scale = float(np.max(np.abs(b - first if variable.trainable else b)))
        found = float(np.max(np.abs(a - b)))
        ratio = found / scale if scale else float(found > 0)
        trained, other = (max(trained, ratio), other) if variable.trainable else (trained, max(other, ratio))
    return Apart(trained, other, counts)


def train_on(model: str, workers: int) -> None:
    """Train until this process is killed. Print a line to stderr when a phase of autoplace begins."""
    with Training(model, f"workers:{workers}", BUDGET) as training:
        phase = ""
        while True:
            training.step()
            if training.auto.phase != phase:
                phase = training.auto.phase
                say(f"phase: {phase}")
            time.sleep(PAUSE_S if phase != STEADY else 0.0)


def main() -> None:
    """Run the training that the settings describe."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    settings = json.loads(sys.argv[1])
    if settings.get("how") is None:
        train_on(settings["model"], settings["workers"])
    found = live_facts(**settings)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
