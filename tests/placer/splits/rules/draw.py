"""Random inputs of ops: shapes and choices come from hypothesis, so that it can make them smaller; numbers do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.placer.splits.rules.checker import Case

Array = np.ndarray[Any, Any]
MOST = 5
"""The largest extent."""


class Draw:
    """What generators draw from."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw
        self.random = np.random.default_rng(draw(st.integers(0, 2**16)))

    def pick(self, *options: Any) -> Any:
        """One of some values."""
        return self._draw(st.sampled_from(options))

    def flag(self) -> bool:
        """True or false."""
        return bool(self._draw(st.booleans()))

    def number(self, least: int = 1, most: int = MOST) -> int:
        """An integer."""
        return int(self._draw(st.integers(least, most)))

    def shape(self, least: int = 1, most: int = 3, smallest: int = 1) -> list[int]:
        """A shape of `least` to `most` axes, often with equal extents, so that axes that are mixed up do not show."""
        rank = self.number(least, most)
        if self.flag():
            return [self.number(max(2, smallest))] * rank
        return [self.number(smallest) for _ in range(rank)]

    def numbers(self, shape: Any, dtype: Any = "float32") -> Array:
        """Numbers around 0, with duplicates where they are whole."""
        kind = np.dtype(dtype).kind
        if kind == "b":
            return np.asarray(self.random.integers(0, 2, shape), bool)
        if kind == "c":
            return np.asarray(self.random.normal(size=shape) + 1j * self.random.normal(size=shape)).astype(dtype)
        if kind in "iu":
            return np.asarray(self.random.integers(0 if kind == "u" else -4, 5, shape)).astype(dtype)
        return np.asarray(2 * self.random.normal(size=shape)).astype(dtype)

    def indices(self, shape: Any, below: int) -> Array:
        """Indices, with duplicates."""
        return np.asarray(self.random.integers(0, below, shape), np.int32)


Generator = Callable[[Draw, str], Case]
GENERATORS: dict[str, Generator] = {}
"""Op type -> what makes a case of it."""


def makes(*types: str) -> Callable[[Generator], Generator]:
    """Register a generator for some op types."""

    def register(generator: Generator) -> Generator:
        GENERATORS.update(dict.fromkeys(types, generator))
        return generator

    return register
