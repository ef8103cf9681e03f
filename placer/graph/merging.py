"""How things are merged into fewer: who stands for whom, and who unites with whom in one round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class UnionFind(Generic[T]):
    """Disjoint sets that only ever grow together; each is named by one of its members, its root."""

    def __init__(self) -> None:
        self._parent: dict[T, T] = {}

    def root(self, member: T) -> T:
        """The root of the set of `member`, which is in a set of its own before its first join."""
        parent = self._parent
        above = parent.setdefault(member, member)
        while above != member:
            parent[member] = above = parent[above]  # halves the way for the next who asks
            member, above = above, parent[above]
        return member

    def join(self, kept: T, other: T) -> None:
        """One set of two; its root is that of `kept`."""
        self._parent[self.root(other)] = self.root(kept)

    def roots(self) -> dict[T, T]:
        """Member -> root, for all members that were ever named."""
        return {member: self.root(member) for member in list(self._parent)}


def matching(pairs: Iterable[tuple[int, int]], may_unite: Callable[[int, int], bool]) -> Iterator[tuple[int, int]]:
    """Of `pairs`, the best first, those that unite in one round, each vertex in one of them at most.

    Heavy-edge matching (Karypis & Kumar 1998, section 3.1), where the order of the pairs is by the weight of the edges.
    """
    taken: set[int] = set()
    for a, b in pairs:
        if a not in taken and b not in taken and may_unite(a, b):
            taken |= {a, b}
            yield a, b
