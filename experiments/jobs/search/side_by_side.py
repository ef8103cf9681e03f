"""Placed steps side by side: prepared, stepped in turn in the same minutes, and closed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from placer.devices.host.suspends import duration
from placer.errors import PlacerError
from placer.graph.mapping import Mapping
from placer.measure.settings import LEAST_TURNS
from placer.number_format import ms
from placer.result import Failed, Measured, Result, summary

if TYPE_CHECKING:  # TensorFlow is loaded when a search starts, not for --help
    from experiments.jobs.search.job import Job
    from placer.execute.rewrite import PlacedStep
    from placer.measure.timing import Step

ROUNDS = 3  # in which steps are measured if the devices cannot hold them together
Steps = dict[Mapping, "PlacedStep"]
"""Placed steps by their mapping of the groups."""


@dataclass(frozen=True)
class SideBySide:
    """Step times that may be compared, by mapping of the groups. failed: the mappings that do not run, and why."""

    measured: dict[Mapping, Measured]
    untouched: Measured | None = None
    failed: dict[Mapping, Failed] = field(default_factory=dict)

    def scaled(self, factor: float) -> SideBySide:
        """The same results with all times multiplied by `factor`."""
        untouched = None if self.untouched is None else self.untouched.scaled(factor)
        return replace(self, measured={m: r.scaled(factor) for m, r in self.measured.items()}, untouched=untouched)


@contextmanager
def prepared(job: Job, mappings: Iterable[Mapping]) -> Iterator[tuple[Steps, dict[Mapping, Failed]]]:
    """Placed steps of mappings of the groups, closed at the end of the block; and the mappings that do not run, with
    the reason: only an earlier session ran them, a device is lost, or memory is full beside the other steps.
    """
    with ExitStack() as stack:
        steps, failed = {}, {}
        for mapping in mappings:
            ready = job.runner.ready(job.op_mapping(mapping))
            if isinstance(ready, Failed):
                failed[mapping] = ready
            else:
                stack.callback(ready[0].close)
                steps[mapping] = ready[0]
        yield steps, failed


def in_turn(job: Job, steps: Steps, repeats: int, *, untouched: bool = False, limit_s: float = inf) -> SideBySide:
    """Step all in turn with the runner's anchor, `repeats` times each, none stopped early, and scale all times to the
    anchor's first step time (see placer.measure.runner.Runner).

    untouched: whether the untouched step is stepped with them if this process has the devices for it. limit_s: as for
    InTurn.compare. Raises PlacerError if there is no anchor.
    """
    if job.runner.anchor is None:
        raise PlacerError(f"no single device can run {job.settings.model}, so nothing can be compared with one.")
    timed = [job.runner.anchor, *steps.values()]
    results, default = stepped(job, timed, repeats, untouched=untouched, limit_s=limit_s)
    scale = job.runner.anchor_s / results.pop(0).step_s
    return SideBySide(dict(zip(steps, results, strict=True)), default).scaled(scale)


def stepped(
    job: Job,
    steps: Sequence[PlacedStep],
    repeats: int,
    *,
    untouched: bool,
    fewest: int | None = None,
    kept: Collection[PlacedStep] = (),
    limit_s: float = inf,
) -> tuple[list[Measured], Measured | None]:
    """Step all in turn. Return their times as measured, and the untouched step's (None if it was not stepped).

    steps: of the job, or of the same step with ops divided. fewest, kept, limit_s: as for InTurn.compare, which never
    leaves out the untouched step.
    """
    from placer.measure.untouched import UntouchedStep

    with ExitStack() as stack:
        timed: list[Step] = [*steps]
        if untouched and job.devices.has_local:
            timed.append(stack.enter_context(closing(UntouchedStep(job.captured))))
        _report_turns(job, repeats, limit_s)
        stay: list[Step] = [*kept, *timed[len(steps) :]]
        results = job.runner.in_turn.compare(
            timed, repeats, fewest=fewest, kept=stay, limit_s=limit_s, after_turn=job.progress.turn
        )
    return results[: len(steps)], results[len(steps)] if len(timed) > len(steps) else None


def apart(
    steps: Sequence[tuple[Job, Mapping]], repeats: int, *, untouched: bool, limit_s: float = inf, turn_s: float = 0.0
) -> tuple[list[Result], Measured | None]:
    """Step mappings that the devices cannot hold together. In each of ROUNDS rounds, one mapping after another is
    prepared, stepped and taken down. Return their results and the untouched step's, as `stepped` does.

    steps: mappings, each with the job whose groups it maps; the steps that the jobs' runners keep are taken down.
    repeats: of each mapping, over all rounds. limit_s: seconds after which no further round begins, once each mapping
    was stepped LEAST_TURNS times. turn_s: seconds in which all are stepped once, as known, from which follow how often
    they may be stepped in each round, and for how long, which is reported; 0 = not known.
    """
    from placer.measure.untouched import UntouchedStep

    job = steps[0][0]
    each = _each_apart(job, repeats, limit_s, turn_s)
    if turn_s:
        announce(job, turn_s, ROUNDS * each, limit_s, ROUNDS)
    seconds: list[list[float] | Failed] = [[] for _ in steps]
    default_s: list[float] = []
    for owner in {id(owner): owner for owner, _ in steps}.values():
        owner.runner.take_down()
    begin_s = job.clock()
    _report_turns(job, ROUNDS * len(steps), limit_s)
    for number in range(ROUNDS):
        if number * each >= LEAST_TURNS and job.clock() - begin_s > limit_s:
            break
        job.runner.join_anew_if_due()
        for i, (owner, mapping) in enumerate(steps):
            seconds[i] = _with_more(seconds[i], owner, mapping, each)
            job.progress.turn()
        if untouched and job.devices.has_local:
            with closing(UntouchedStep(job.captured)) as default:
                default_s += job.runner.in_turn.seconds_of(default, each)
    found = [so_far if isinstance(so_far, Failed) else summary(so_far) for so_far in seconds]
    return found, summary(default_s) if default_s else None


def _each_apart(job: Job, repeats: int, limit_s: float, turn_s: float) -> int:
    """How often each mapping is stepped in each of ROUNDS rounds: as often as `limit_s` has room for after the steps to
    warm up, up to `repeats` in all rounds, but LEAST_TURNS at least.
    """
    most, least = -(-repeats // ROUNDS), -(-LEAST_TURNS // ROUNDS)
    if limit_s == inf or turn_s == 0:
        return most
    room = int(limit_s / (ROUNDS * turn_s)) - job.runner.settings.warm_up
    return min(most, max(least, room))


def _with_more(so_far: list[float] | Failed, job: Job, mapping: Mapping, repeats: int) -> list[float] | Failed:
    """A mapping's seconds so far and those of `repeats` more steps; why it does not run if it does not."""
    if isinstance(so_far, Failed):
        return so_far
    ready = job.runner.ready(job.op_mapping(mapping))
    if isinstance(ready, Failed):
        return ready
    with closing(ready[0]) as step:
        return [*so_far, *job.runner.in_turn.seconds_of(step, repeats)]


def announce(job: Job, turn_s: float, turns: int, limit_s: float, rounds: int = 1) -> None:
    """Report for how long steps will be measured in turn, once they are set up. turn_s: seconds of one turn of all.
    turns: the most, over all rounds. limit_s: as for InTurn.compare. rounds: in each of which all are set up anew.
    """
    warm_up_s = rounds * job.runner.settings.warm_up * turn_s
    least = rounds * -(-LEAST_TURNS // rounds)
    most_s = min(warm_up_s + turns * turn_s, max(limit_s, warm_up_s + least * turn_s))
    each = duration(turn_s) if turn_s >= 1 else ms(turn_s, 1)
    besides = f", besides setting up in each of {rounds} rounds" if rounds > 1 else ""
    job.progress.phase(f"measuring takes at most about {duration(most_s)}{besides}: up to {turns} turns of {each}")


def _report_turns(job: Job, turns: int, limit_s: float) -> None:
    begin_s = job.clock()
    job.progress.limit(lambda: begin_s + limit_s - job.clock())
    job.progress.turns(turns)


def side_by_side(
    job: Job,
    mappings: Sequence[Mapping],
    repeats: int,
    *,
    at_once: int | None = None,
    untouched: bool = False,
    limit_s: float = inf,
    known_s: Sequence[float] = (),
) -> SideBySide:
    """Prepare mappings of the groups and step them in turn with the anchor, as `in_turn` does.

    at_once: how many steps are prepared beside the anchor and the first mapping; None = all. If that takes several
    rounds, the anchor and the first mapping are in each round, all times are scaled to the times of these two in the
    first round, and the untouched step is in the first round only. If the devices cannot hold all mappings together,
    they are stepped `apart`, and nothing is scaled. limit_s: as for InTurn.compare, over all rounds. known_s: the
    seconds of each mapping's step as known; if they are given, it is reported how long measuring them may take.
    """
    if untouched and job.devices.has_local and known_s:
        known_s = [*known_s, job.untouched.step_s]
    if not job.prediction.hold([*job.runner.kept, *(job.op_mapping(mapping) for mapping in mappings)]):
        return _all_apart(job, mappings, repeats, untouched=untouched, limit_s=limit_s, turn_s=sum(known_s))
    failed: dict[Mapping, Failed] = {}
    others, rounds = mappings[1:], []
    size = at_once or len(others) or 1
    begins = range(0, len(others) or 1, size)
    if known_s:
        again_s = len(begins) * job.runner.anchor_s + (len(begins) - 1) * known_s[0]
        announce(job, sum(known_s) + again_s, repeats, limit_s)
    for i in begins:
        job.runner.join_anew_if_due()
        with prepared(job, [*mappings[:1], *others[i : i + size]]) as (steps, left_out):
            rounds.append(in_turn(job, steps, repeats, untouched=untouched and not i, limit_s=limit_s / len(begins)))
            failed |= left_out
    return _scaled_to_the_first(rounds, mappings[:1], job.runner.anchor_s, failed)


def _all_apart(
    job: Job, mappings: Sequence[Mapping], repeats: int, *, untouched: bool, limit_s: float, turn_s: float
) -> SideBySide:
    """Step mappings of one job `apart`; the arguments are those of `apart`."""
    pairs = [(job, mapping) for mapping in mappings]
    results, default = apart(pairs, repeats, untouched=untouched, limit_s=limit_s, turn_s=turn_s)
    of = dict(zip(mappings, results, strict=True))
    failed = {mapping: result for mapping, result in of.items() if isinstance(result, Failed)}
    return SideBySide({m: r for m, r in of.items() if isinstance(r, Measured)}, default, failed)


def _scaled_to_the_first(
    rounds: Sequence[SideBySide], shared: Sequence[Mapping], anchor_s: float, failed: dict[Mapping, Failed]
) -> SideBySide:
    """All rounds in one, by the times of the anchor and the `shared` mappings, which were in each round."""
    shared = [mapping for mapping in shared if all(mapping in found.measured for found in rounds)]
    shared_s = [anchor_s + sum(found.measured[mapping].step_s for mapping in shared) for found in rounds]
    measured: dict[Mapping, Measured] = {}
    for found, s in zip(rounds, shared_s, strict=True):
        measured = found.scaled(shared_s[0] / s).measured | measured
    failed = {mapping: why for mapping, why in failed.items() if mapping not in measured}
    return SideBySide(measured, rounds[0].untouched, failed)
