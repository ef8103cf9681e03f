"""One sentence on what limits a step's speed, by ratios of its SPOC numbers.

`placer bench spoc` measures whether the promises of the sentences hold (experiments/benches/spoc/advice.py).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from surrogate.features.spoc import Spoc

# FLOPs of an op that computes about as long as TensorFlow takes to launch it, on the machine of BENCHMARKS.md: the time
# of an op divided by the time of a FLOP in the fit of `placer bench spoc` to training steps. Among the bench's 401
# networks are 105 pairs that differ in the batch only. This value is right about 89 of them; 4e5, a guess, about 76.
LAUNCH_OPERATIONS = 1.2e6
LAUNCH_S = 1e-5
MEMORY_BOUND = 4.0  # FLOPs per byte below which memory is what a CPU or GPU waits for
HEAVY_WEIGHTS = 0.15  # bytes held per byte of traffic; a step reads and writes its weights about six times
WIDE = 1.3  # breadth from which a second device has something to do
NARROW = 0.4  # share of the ops on one chain from which a graph is called narrow if its work is not known


class Limit(StrEnum):
    """The limit of a step's speed."""

    LAUNCH = "launch-bound"
    WIDE_LAUNCH = "launch-bound and wide"
    UNKNOWN = "unknown"
    WIDE = "wide"
    WEIGHTS = "bound by its weights"
    MEMORY = "memory-bound"
    COMPUTE = "compute-bound"


def limit_of(step: Spoc, forward: Spoc | None = None) -> Limit:
    """The limit of a step's speed. forward: its forward part, whose branches are counted, because branches of gradients
    mislead: the gradient of every weight is beside the chain, but so near to it that moving it seldom pays.
    """
    if _launch_bound(step):  # each of two devices launches its own ops: NASNetMobile gains by a second device
        return Limit.WIDE_LAUNCH if _breadth(forward or step) >= WIDE else Limit.LAUNCH
    if (forward or step).breadth is None:
        return Limit.UNKNOWN
    if _breadth(forward or step) >= WIDE:
        return Limit.WIDE
    if step.intensity is not None and step.intensity < MEMORY_BOUND:
        return Limit.WEIGHTS if (step.weight_share or 0.0) >= HEAVY_WEIGHTS else Limit.MEMORY
    return Limit.COMPUTE


def reading(step: Spoc, forward: Spoc | None = None) -> str:
    """The sentence for a graph. forward: as for `limit_of`."""
    return f"{_shape(step, forward or step)}: {SENTENCES[limit_of(step, forward)](step, forward or step)}"


SENTENCES: dict[Limit, Callable[[Spoc, Spoc], str]] = {
    Limit.LAUNCH: lambda step, _: (
        f"launch- and latency-bound, {_each(step)}; bigger batches will help; {_devices(step)}."
    ),
    Limit.WIDE_LAUNCH: lambda step, forward: (
        f"launch- and latency-bound, {_each(step)}, in branches that hold {_breadth(forward):.1f} times the work of "
        "the longest chain; bigger batches will help, and more devices, too."
    ),
    Limit.UNKNOWN: lambda *_: "without costs or shapes its work is not known; profile it, or name the model itself.",
    Limit.WIDE: lambda _, forward: (
        f"branches hold {_breadth(forward):.1f} times the work of the longest chain; "
        "up to that many devices can share it."
    ),
    Limit.WEIGHTS: lambda step, _: (
        f"memory-bound by its weights, {_rate(step)}; bigger batches and faster memory will help; {_devices(step)}."
    ),
    Limit.MEMORY: lambda step, _: (
        f"memory-bound, {_rate(step)}; fused ops and faster memory will help; {_devices(step)}."
    ),
    # The median of five networks in bench `spoc`: a core for each op, instead of one for all, makes training steps 1.5
    # times as fast, and inference 1.06 times as fast.
    Limit.COMPUTE: lambda step, forward: (
        f"compute-bound in one chain, {_each(step)}; a faster device or split ops will help"
        + (f"; {_devices(step)}." if forward is step else ", and a second device, which can take gradients of weights.")
    ),
}


def _shape(step: Spoc, forward: Spoc) -> str:
    length = f"{forward.hops:,} hops"
    if forward.breadth is None:
        return f"deep and narrow ({length})" if forward.narrowness >= NARROW else f"of unknown breadth ({length})"
    return f"wide ({length})" if forward.breadth >= WIDE else f"deep and narrow ({length})"


def _breadth(spoc: Spoc) -> float:
    return spoc.breadth or 1.0


def _devices(step: Spoc) -> str:
    """A clause with the most that more devices can gain (Brent 1974). It is no promise.

    It is a bound by costs. Without costs, FLOPs stand in for them, and it is about the bound: of the networks that
    `placer bench spoc` tries with a core per op and nothing to send, a few gained more (BENCHMARKS.md, spoc).
    """
    if step.breadth is None:
        return "what more devices gain is not known"
    about = "" if step.work_s and step.chain_s else "about "
    return f"more devices gain at most {about}{step.breadth:.2f}x by its longest chain, if no op is split"


def _rate(step: Spoc) -> str:
    return f"{step.intensity or 0.0:.1f} operations a byte"


def _launch_bound(step: Spoc) -> bool:
    if step.work_s is not None:
        return step.work_s / step.ops < LAUNCH_S
    return step.operations_per_op is not None and step.operations_per_op < LAUNCH_OPERATIONS


def _each(step: Spoc) -> str:
    if step.work_s is not None:
        return f"{step.ops:,} ops of {step.work_s / step.ops * 1e6:,.0f} us each"
    return f"{step.ops:,} ops of {(step.operations_per_op or 0.0) / 1e3:,.0f} kFLOP each"
