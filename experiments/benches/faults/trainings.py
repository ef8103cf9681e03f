"""A training under autoplace with faults in each of its stages: its losses and variables are the undisturbed ones."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.benches.bench import Facts, say
from experiments.benches.faults.commands import Running
from experiments.benches.faults.fault import DEADLINE_S, IN_OWN_NETWORK, OF_NETWORKS, PARENT, PAUSE, Outcome
from experiments.benches.faults.leavings import Family
from experiments.benches.online.judge import wrong
from placer.errors import PlacerError

MODEL = "towers@2"
PROGRAM = ("-m", "experiments.benches.faults.live")
OF_LOSSES = 1e-2  # relative, for the loss of a step that was undone and taken elsewhere, where rounding differs
LIMIT_S, EACH_S = 300.0, 240.0  # for a training to begin and to end, and for each of its faults
PHASES = (1, 3, 2, 4)  # in which trainings are killed, numbered in the order in which a training reports them
PHASE_S = 1.0  # after the begin of a phase, within which the training is killed


def training_facts(workers: int, how: str, repeats: int, over: Callable[[], bool] = lambda: False) -> list[Facts]:
    """The outcome of each fault of one kind. over: whether to begin no other training."""
    with TemporaryDirectory(prefix="placer-faults-") as folder:
        if how == PARENT:
            return [outcome.facts() for outcome in _killed(workers, repeats, Path(folder), over)]
        return [] if over() else [outcome.facts() for outcome in _disturbed(workers, how, repeats, Path(folder))]


def _disturbed(workers: int, how: str, repeats: int, folder: Path) -> list[Outcome]:
    """Run one training with all its faults. Raises PlacerError if it ends without an answer."""
    settings = {"model": MODEL, "workers": workers, "how": how, "repeats": repeats}
    # A long pause needs the default deadline, and with it no pause is noticed.
    environment = {"PYTHONFAULTHANDLER": "1"} | ({} if how == PAUSE else {"PLACER_DEADLINE_S": str(DEADLINE_S)})
    family = Family(str(folder), folder / "tmp")
    program = (*IN_OWN_NETWORK, *PROGRAM) if how in OF_NETWORKS else PROGRAM
    with Running([*program, json.dumps(settings)], family, environment) as running:
        ended = running.ended(LIMIT_S + 4 * repeats * EACH_S)
        left = family.left()
    for line in ended.lines:
        if line.startswith("training: "):
            say(line)
    found: Facts | None = None
    with suppress(ValueError, IndexError):
        found = json.loads(ended.out.splitlines()[-1])
    if ended.code != 0 or found is None:
        dead = next((i for i, line in enumerate(ended.lines) if line.startswith("Fatal Python error")), -3)
        raise PlacerError(f"the training ended with {ended.code}: {' '.join(ended.lines[dead:][:12])[:900]}")
    outcomes = [outcome for stretch in found["stretches"] for outcome in stretch_outcomes(stretch)]
    outcomes[-1].left += left
    return outcomes


def stretch_outcomes(stretch: Facts) -> list[Outcome]:
    """The outcome of each fault of a stretch. Every loss up to the next fault and every variable at the end must equal
    the undisturbed one. If a stretch ended early, none of its faults counts as survived.
    """
    mine, losses, done = stretch["losses"], stretch["undisturbed"], stretch["faults"]
    ends = [*(fault["at"] for fault in done[1:]), len(mine)]
    found = []
    for fault, end in zip(done, ends, strict=True):
        outcome = Outcome(fault["how"], fault["stage"], injected=fault["injected"], seconds=fault["back_s"] or 0.0)
        if stretch["ended"]:
            outcome.problems.append(f"the training ended: {stretch['ended']}")
        elif differing := _differing(mine, losses, stretch["elsewhere"], fault["at"], end):
            outcome.lost = len(differing)
            at = differing[0]
            outcome.problems.append(f"{len(differing)} losses differ, first {mine[at]:g} from {losses[at]:g}")
        if fault["how"] == PAUSE and fault["noticed"] and fault["stage"] in ("steady", "snapshot"):
            outcome.problems.append("a worker that was only frozen for a while was taken for lost")
        found.append(outcome)
    if found and stretch["apart"] is not None:
        lines = variables_apart(**stretch["apart"])
        found[-1].problems += lines
        found[-1].lost += len(lines)
    if found and stretch["forgotten"]:
        found[-1].problems.append(f"{stretch['forgotten']} steps could not be repeated")
        found[-1].lost += stretch["forgotten"]
    return found


def _differing(
    mine: Sequence[float], losses: Sequence[float], elsewhere: Collection[int], begin: int, end: int
) -> list[int]:
    """Steps in [begin, end) whose loss differs from the undisturbed one. elsewhere: steps that were undone and taken in
    another place, whose loss may differ by OF_LOSSES.
    """
    far = set(wrong(mine, losses, begin, end, OF_LOSSES))
    return [i for i in wrong(mine, losses, begin, end, 0.0) if i in far or i not in elsewhere]


def variables_apart(trained: float, other: float, counts: int) -> list[str]:
    """A line for each kind of difference between the variables; see `experiments.benches.faults.live.Apart`."""
    lines = [] if trained == 0 else [f"trained variables differ by {trained:.1e} of their way"]
    lines += [] if other == 0 else [f"other variables differ by {other:.1e}"]
    return lines + ([f"{counts} counts differ"] if counts else [])


def _killed(workers: int, repeats: int, folder: Path, over: Callable[[], bool]) -> Iterator[Outcome]:
    """Yield the outcomes of trainings whose own processes are killed, in the phases PHASES in turn."""
    rng = random.Random(PARENT)
    for i in range(repeats):
        if over():
            return
        number, settings = PHASES[i % len(PHASES)], json.dumps({"model": MODEL, "workers": workers})
        family = Family(f"{folder}/{i}", folder / f"tmp-{i}")
        outcome = Outcome(PARENT, "any phase")
        with Running([*PROGRAM, settings], family) as running:
            outcome.injected = running.wait_for(partial(_is_phase, running, number), LIMIT_S)
            time.sleep(PHASE_S * rng.random())
            family.look()
            running.process.kill()
            outcome.code = running.process.wait()
            outcome.left = family.left()
        if not outcome.injected:
            outcome.problems.append(f"it ended before: {' '.join(line for _, line in running.lines[-2:])}")
        say(f"training, killed in phase {number}: {outcome.problems or outcome.left or 'survived'}")
        yield outcome


def _is_phase(running: Running, number: int, _: str) -> bool:
    """Whether `number` phases have begun."""
    return sum(line.startswith("phase: ") for _, line in running.lines) >= number
