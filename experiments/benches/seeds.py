"""The seeds of benches that search: the first for every network, all for networks on which a search is quick."""

from __future__ import annotations

SEEDS = (0, 1, 2)
QUICK = ("mnist_softmax", "moe", "seq2seq_lstm", "towers")


def seeds_of(network: str) -> tuple[int, ...]:
    """The seeds with which a network is searched."""
    return SEEDS if network in QUICK else SEEDS[:1]
