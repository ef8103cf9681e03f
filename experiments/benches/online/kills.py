"""Kills of workers with SIGKILL at random moments of a training, which must go on with the undisturbed losses.

The undisturbed losses are known because the training is repeated afterwards from its state before the first kill:

    search ──▶ start ──✗──────✗────✗──────▶ losses
                 └──────────────────────────▶ losses undisturbed
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import asdict, dataclass

import psutil

from experiments.benches.bench import Facts, say
from experiments.benches.online.training import Training
from placer.errors import one_line

NOTICE_CALLS = 200  # after a kill, within which the training must notice it
GAP = 40  # steps at most from one recovery to the next kill
PAUSE_S = 0.05  # between steps while a worker starts again, so that there are not thousands of steps
BACK_LIMIT_S = 90.0


@dataclass
class Kill:
    """One kill of a worker."""

    at: int  # steps from the start to the kill
    worker: int
    noticed: bool = False  # whether the training reported a lost device
    back_s: float | None = None  # until all devices were back


def kill_facts(model: str, workers: int, budget: int = 4, seed: int = 0, kills: int = 10) -> Facts:
    """Run a training. Returns its losses with kills and without, its kills, and what ended it early, if anything."""
    rng, killed, ended, undisturbed = random.Random(seed), list[Kill](), "", list[float]()
    with Training(model, f"workers:{workers}", budget) as training:
        training.until_steady()
        start = training.moment()
        try:
            while len(killed) < kills:
                training.steps(rng.randrange(GAP))
                killed.append(_kill(training, start.at, rng.random(), rng.randrange(workers)))
                say(f"kill {len(killed)}: {killed[-1]}")
            training.steps(GAP)
            losses = training.losses[start.at :]
            undisturbed = training.again(start, len(losses))
        except Exception as error:  # every effect of a kill on the training is a result here
            ended = one_line(f"{type(error).__name__}: {error}")
            say(ended)
            losses = training.losses[start.at :]
        said = {kind: training.said(kind) for kind in ("lost", "back", "error", "moved")}
    return {
        "seed": seed, "losses": losses, "undisturbed": undisturbed, "kills": [asdict(kill) for kill in killed],
        "ended": ended, "steady_at": start.at, "journal": said,
    }  # fmt: skip


def _kill(training: Training, start: int, late: float, victim: int) -> Kill:
    """Kill a worker within the next few steps, then train until all devices are back. Raises TimeoutError if never.

    A device that no op runs on may die unnoticed; then the next kill takes another device.
    """
    step_s, session = training.step(), training.live.session
    running = worker_processes()
    task = sorted(running)[victim % len(running)]
    kill = Kill(len(training.losses) - start, task)
    begin, losses = training.clock(), len(session.recovery.losses)
    timer = threading.Timer(3 * late * step_s, running[task].kill)
    timer.start()
    for _ in range(NOTICE_CALLS):
        training.step()
        if len(session.recovery.losses) > losses:
            break
    timer.join()
    kill.noticed = len(session.recovery.losses) > losses
    while kill.noticed and session.missing:
        if training.clock() - begin > BACK_LIMIT_S:
            raise TimeoutError(f"worker:{task} was not back after {BACK_LIMIT_S:.0f} s")
        training.step()
        time.sleep(PAUSE_S)
    kill.back_s = training.clock() - begin if kill.noticed else None
    return kill


def worker_processes() -> dict[int, psutil.Process]:
    """The running workers of this process, by their task numbers."""
    found = {}
    for process in psutil.Process().children():
        if process.status() != psutil.STATUS_ZOMBIE and "placer.devices.workers.worker" in (line := process.cmdline()):
            found[int(line[line.index("--task") + 1])] = process
    return found
