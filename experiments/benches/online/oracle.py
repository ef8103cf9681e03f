"""A whole run of autoplace, from its first call, against an oracle that has the best mapping from the start."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from experiments.benches.bench import Facts, say
from experiments.benches.online.training import Held, Training, fastest, raced, untouched_s

EVERY = 200  # calls between two looks at the references
EACH = 5  # steps of each reference at a look


class References:
    """Mappings held beside the run, with their bare step times at several of its calls, because the machine drifts."""

    def __init__(self) -> None:
        self.held: list[Held] = []
        self.at: list[int] = []
        self.took: list[dict[str, float]] = []

    def look(self, training: Training, call: int) -> None:
        """Time some steps of the single devices, of the incumbents at earlier looks, and of the incumbent."""
        if not self.held:
            self.held = training.hold_singles()
        if training.placed.op_devices not in [held.built.op_devices for held in self.held]:
            self.held.append(training.hold_placed())
        took = raced(self.held, rounds=1, each=EACH)
        self.at.append(call)
        self.took.append({label(held): median(took[held]) for held in self.held})

    def seconds(self, name: str) -> list[float]:
        """The step time of a mapping at each look. Looks before it was known have the time of its first look."""
        found = [took.get(name) for took in self.took]
        first = next(s for s in found if s is not None)
        return [first if s is None else s for s in found]

    def best(self, held: Sequence[Held]) -> Held:
        """The mapping with the lowest median over all looks."""
        return min(held, key=lambda one: median(self.seconds(label(one))))


def oracle_facts(model: str, workers: int, budget: int = 16, calls: int = 2000, limit_s: float = 900.0) -> Facts:
    """Make `calls` calls with looks at the references, then a second search, whose best may be the better oracle."""
    references, untouched = References(), untouched_s(model)
    with Training(model, f"workers:{workers}", budget) as training:
        call_s: list[float] = []
        begin, steady_at, known = training.clock(), None, training.auto.controller.mode
        while len(call_s) < calls and training.clock() - begin < limit_s:
            call_s.append(training.step())
            if not training.is_steady:
                continue
            steady_at = steady_at or len(call_s)
            if training.auto.controller.mode is not known or len(call_s) % EVERY == 0:
                known = training.auto.controller.mode
                references.look(training, len(call_s))
        if steady_at is None:
            return {"failed": f"the search did not end within {len(call_s)} calls, {sum(call_s):.0f} s"}
        references.look(training, len(call_s))
        say(f"{len(call_s)} calls in {sum(call_s):.0f} s, steady from {steady_at} on")
        run_s = training.clock() - begin
        facts = _judged(training, references, call_s) | {"untouched_before_s": untouched}
        return {"model": model, **facts, "steady_at": steady_at, "run_s": run_s, "ended": training.said("end")}


def _judged(training: Training, references: References, call_s: Sequence[float]) -> Facts:
    singles = [held for held in references.held if held.name in training.live.joined.topology.names]
    own = references.best(references.held)
    better, better_s, own_s = _better(training, own)
    factor = min(better_s / own_s, 1.0)
    oracle = [s * factor for s in references.seconds(label(own))]
    single = references.seconds(label(references.best(singles)))
    total_s = sum(call_s)
    return {
        "calls": len(call_s),
        "total_s": total_s,
        "vs_oracle": worth(call_s, references.at, oracle) / len(call_s),
        "vs_oracle_plain": total_s / (len(call_s) * median(oracle)),
        "vs_single": worth(call_s, references.at, single) / len(call_s),
        "oracle_s": median(oracle),
        "oracle_by": better.name if factor < 1.0 else own.name,
        "second_search": better_s / own_s,
        "single_s": median(single),
        "last_s": median(call_s[-EVERY:]),
        "references": [{"call": at, **took} for at, took in zip(references.at, references.took, strict=True)],
        "mappings_measured": len(training.auto.tried),
        "moved": training.said("moved"),
    }


def _better(training: Training, own: Held) -> tuple[Held, float, float]:
    """The best mapping of a second search, its step time, and the run's own best's, measured side by side."""
    found = training.searched(seed=1)[:2]
    took = raced([own, *found], rounds=4, each=EACH)
    better, better_s = fastest({held: took[held] for held in found} or {own: took[own]})
    return better, better_s, median(took[own])


def worth(call_s: Sequence[float], at: Sequence[int], reference_s: Sequence[float]) -> float:
    """The time of all calls in steps of the reference: each call divided by the reference's step time at that moment.

    at: the calls after which the reference was measured. Its step time is interpolated between them, and constant
    before the first.
    """
    then = np.interp(np.arange(1, len(call_s) + 1), at, reference_s)
    return float(np.sum(np.asarray(call_s) / then))


def label(held: Held) -> str:
    """A name that differs between mappings of the same searcher."""
    return f"{held.name} {hash(held.built.op_devices) & 0xFFFF:04x}"
