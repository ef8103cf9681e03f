"""The seeds of benches that search: every network with the first, and those on which a search is quick with all."""

from __future__ import annotations

SEEDS = (0, 1, 2)
QUICK = ("mnist_softmax", "moe", "seq2seq_lstm", "towers")


def seeds_of(network: str) -> tuple[int, ...]:
    """The seeds with which a network is searched."""
    return SEEDS if network in QUICK else SEEDS[:1]
