"""Merging things into fewer: disjoint sets (union-find), and matchings of the pairs that unite in one round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")
STALLED = 0.02  # of the vertices: a round that unites fewer pairs has met a hub


class UnionFind(Generic[T]):
    """Disjoint sets that can be joined but not split; each is named by one of its members, its root."""

    def __init__(self) -> None:
        self._parent: dict[T, T] = {}

    def root(self, member: T) -> T:
        """The root of the set of `member`, which is in a set of its own before its first join."""
        parent = self._parent
        above = parent.setdefault(member, member)
        while above != member:
            parent[member] = above = parent[above]  # halves the way for later calls
            member, above = above, parent[above]
        return member

    def join(self, kept: T, other: T) -> None:
        """Join the sets of two members; the root of the joined set is that of `kept`."""
        self._parent[self.root(other)] = self.root(kept)

    def roots(self) -> dict[T, T]:
        """Member -> root, for all members that were ever named."""
        return {member: self.root(member) for member in list(self._parent)}


def matching(pairs: Iterable[tuple[int, int]], may_unite: Callable[[int, int], bool]) -> Iterator[tuple[int, int]]:
    """The pairs that unite in one round; each vertex is in at most one of them. pairs: the best first.

    This is heavy-edge matching (Karypis & Kumar 1998, section 3.1) if the pairs are ordered by edge weight.
    """
    taken: set[int] = set()
    for a, b in pairs:
        if a not in taken and b not in taken and may_unite(a, b):
            taken.add(a)
            taken.add(b)
            yield a, b


def has_stalled(pairs: Sequence[tuple[int, int]], united: Collection[tuple[int, int]]) -> bool:
    """Whether a round over `pairs` united so few of them that going on would take nearly one round per vertex."""
    return len(united) < STALLED * len(set(chain.from_iterable(pairs)))


def two_hop(
    pairs: Iterable[tuple[int, int]],
    united: Iterable[tuple[int, int]],
    least: int = 2,
    kind: Callable[[int], Hashable] = lambda vertex: None,
) -> Iterator[tuple[int, int]]:
    """Pairs of vertices that did not unite and have the same best neighbour, their hub.

    A hub unites with one neighbour a round. Two-hop matching (LaSalle et al. 2015) halves the number of vertices left
    around it. pairs: the best first. united: the pairs that `matching` chose. least: hubs with fewer vertices left are
    skipped. kind: only vertices of the same kind are paired.
    """
    seen = {end for pair in united for end in pair}
    around: dict[int, list[int]] = defaultdict(list)
    for pair in pairs:
        for one, hub in (pair, pair[::-1]):
            if one not in seen:
                seen.add(one)
                around[hub].append(one)
    for left in around.values():
        if len(left) < least:
            continue
        of_kind: dict[Hashable, list[int]] = defaultdict(list)
        for vertex in left:
            of_kind[kind(vertex)].append(vertex)
        for alike in of_kind.values():
            yield from ((min(pair), max(pair)) for pair in zip(alike[::2], alike[1::2], strict=False))
