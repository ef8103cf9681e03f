"""Chance for compiled chains: each has a state of its own, so that what it draws does not depend on threads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surrogate.jit import inner

RngState = NDArray[np.uint64]
"""[1] the state; never 0."""

A, B, C, TOP = np.uint64(12), np.uint64(25), np.uint64(27), np.uint64(11)
TIMES = np.uint64(2685821657736338717)
UNIT = 2.0**-53


@inner
def chance(rng_state: RngState) -> float:
    """Uniform in [0, 1): xorshift64* (Vigna 2016)."""
    x = rng_state[0]
    x ^= x >> A
    x ^= x << B
    x ^= x >> C
    rng_state[0] = x
    return float((x * TIMES) >> TOP) * UNIT


@inner
def below(rng_state: RngState, n: int) -> int:
    """A whole number from 0 to n - 1."""
    return int(chance(rng_state) * n)


def rng_states(rng: np.random.Generator, chains: int) -> NDArray[np.uint64]:
    """[chains, 1] a random state for each of so many chains."""
    return rng.integers(1, 2**63, (chains, 1), np.uint64)
