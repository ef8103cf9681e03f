"""Keeps what a live search measures in a store, for later searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from placer.errors import PlacerError
from placer.result import Measured
from search.online.interfaces import LiveStepLike
from search.online.trials.trials import Say
from search.online.trials.tried import LiveTrial

if TYPE_CHECKING:
    from placer.measure.store import Store


class KeptResults:
    """Keeps results until the store cannot be written any more; the search goes on without it."""

    def __init__(self, store: Store | None, live: LiveStepLike, say: Say) -> None:
        self.store, self.live, self._say = store, live, say

    def add(self, trial: LiveTrial, tried: Sequence[LiveTrial]) -> None:
        """Store a mapping's result relative to the first of `tried` that was measured to the end. Stores nothing before
        there is such a trial.
        """
        ran = ((t, t.result) for t in tried if isinstance(t.result, Measured))
        anchor = next(((t, result.step_s) for t, result in ran if not result.stopped_early), None)
        if self.store is None or self.live.graph is None or anchor is None:
            return
        first, first_s = anchor
        beside = self.live.mapping(first.op_devices, first.plan) if first.op_devices else None
        found = self.live.mapping(trial.op_devices, trial.plan), trial.result, first_s, trial.name
        try:
            self.store.add(*found, anchor=self.store.anchor_key(beside))
        except PlacerError as error:  # for example, the disk is full
            self.store = None
            self._say("unkept", f"{error} The search goes on without it.")
