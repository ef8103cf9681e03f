"""What limits a step's speed, in one sentence, by ratios of its SPOC numbers."""

from __future__ import annotations

from surrogate.features.spoc import Spoc

# FLOPs of an op that computes about as long as TensorFlow takes to launch it, on the machine of BENCHMARKS.md.
LAUNCH_OPERATIONS = 4e5
LAUNCH_S = 1e-5
MEMORY_BOUND = 4.0  # FLOPs per byte below which memory is what a CPU or GPU waits for
WIDE = 1.3  # breadth from which a second device has something to do
NARROW = 0.4  # share of the ops on one chain from which a graph is called narrow where its work is not known


def reading(step: Spoc, forward: Spoc | None = None) -> str:
    """The sentence for a graph. forward: its forward part, whose branches count because those of gradients mislead:
    the gradient of every weight is beside the chain, but so near to it that it seldom pays to move it.
    """
    shape = _shape(step, forward or step)
    if _launch_bound(step):
        return f"{shape}: launch- and latency-bound, {_each(step)}; bigger batches will help, more devices will not."
    if (forward or step).breadth is None:
        return f"{shape}: without costs or shapes its work is not known; profile it, or name the model itself."
    if _breadth(forward or step) >= WIDE:
        worth = f"{_breadth(forward or step):.1f}"
        return (
            f"{shape}: branches hold {worth} times the work of the longest chain; up to that many devices can share it."
        )
    if step.intensity is not None and step.intensity < MEMORY_BOUND:
        rate = f"{step.intensity:.1f} operations a byte"
        return f"{shape}: memory-bound, {rate}; fused ops and faster memory will help, more devices little."
    return (
        f"{shape}: compute-bound in one chain, {_each(step)}; a faster device or split ops will help, placing little."
    )


def _shape(step: Spoc, forward: Spoc) -> str:
    length = f"{forward.hops:,} hops"
    if forward.breadth is None:
        return f"deep and narrow ({length})" if forward.narrowness >= NARROW else f"of unknown breadth ({length})"
    return f"wide ({length})" if forward.breadth >= WIDE else f"deep and narrow ({length})"


def _breadth(spoc: Spoc) -> float:
    return spoc.breadth or 1.0


def _launch_bound(step: Spoc) -> bool:
    if step.work_s is not None:
        return step.work_s / step.ops < LAUNCH_S
    return step.operations_per_op is not None and step.operations_per_op < LAUNCH_OPERATIONS


def _each(step: Spoc) -> str:
    if step.work_s is not None:
        return f"{step.ops:,} ops of {step.work_s / step.ops * 1e6:,.0f} us each"
    return f"{step.ops:,} ops of {(step.operations_per_op or 0.0) / 1e3:,.0f} kFLOP each"
