"""Random numbers for compiled chains. Each chain has its own state, so that its draws do not depend on threads."""

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
    """Draw a number uniform in [0, 1): xorshift64* (Vigna 2016)."""
    x = rng_state[0]
    x ^= x >> A
    x ^= x << B
    x ^= x >> C
    rng_state[0] = x
    return float((x * TIMES) >> TOP) * UNIT


@inner
def below(rng_state: RngState, n: int) -> int:
    """Draw a whole number from 0 to n - 1."""
    return int(chance(rng_state) * n)


def rng_states(rng: np.random.Generator, chains: int) -> NDArray[np.uint64]:
    """Draw a random state for each chain, [chains, 1]."""
    return rng.integers(1, 2**63, (chains, 1), np.uint64)
