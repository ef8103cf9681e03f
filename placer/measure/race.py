"""A race of placed steps by successive halving (Jamieson & Talwalkar 2016), beside the anchor and the incumbent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from placer.execute.outputs import attempted
from placer.execute.rewrite import PlacedStep
from placer.measure.in_turn import InTurn
from placer.measure.settings import RunnerSettings
from placer.result import Failed, heats

GPU_WARM_UP_S = 0.3  # first steps on an idle H100 took twice as long as later ones (docs/decisions/037-first-gpu.md)
MOST_WARM_UP = 500  # steps


@dataclass(eq=False)
class RacedStep:
    """One placed step in a race: seconds of the switch to it and of each step, and why it failed if it did."""

    step: PlacedStep
    switch_s: float
    seconds: list[float] = field(default_factory=list)
    failed: Failed | None = None


@dataclass(frozen=True)
class Race:
    """A race: all steps run in turn, the slower half drops out, the faster half goes on, and only the winner takes all
    repeats.

    in_turn: times steps. peers: the anchor and the incumbent, if there are any; they are stepped with the entries to
    the end. incumbent_s: step time of the incumbent when it was measured; 0 = nothing was measured.
    has_gpu: whether there is a GPU, which may be idle and then slow at first.
    """

    in_turn: InTurn
    settings: RunnerSettings
    peers: Sequence[RacedStep]
    incumbent_s: float = 0.0
    has_gpu: bool = False

    def run(self, entries: Sequence[RacedStep]) -> None:
        """Step the entries and the peers, and note the seconds in each of them. Ends when a peer fails."""
        live = list(entries)
        for _ in range(self.settings.warm_up):
            live = [entry for entry in live if self._stepped(entry) and not self._is_dropped(entry)]
        if self.has_gpu and not self.peers:  # the first mapping, to whose time all others are scaled
            live = [entry for entry in live if self._woken(entry)]
        for entry in live:
            entry.seconds.clear()
        for until in heats(len(live), self.settings.repeats):
            while live and len(live[0].seconds) < until:
                if not all(self._stepped(peer) for peer in self.peers):
                    return
                live = [entry for entry in live if self._stepped(entry) and not self._is_hopeless(entry)]
            live = sorted(live, key=lambda entry: median(entry.seconds))[: (len(live) + 1) // 2]

    def _stepped(self, entry: RacedStep) -> bool:
        """Run one more step; returns False if it failed."""
        took_s: float | Failed = attempted(lambda: self.in_turn.one_step_s(entry.step))
        if isinstance(took_s, Failed):
            entry.failed = took_s
            return False
        entry.seconds.append(took_s)
        return True

    def _woken(self, entry: RacedStep) -> bool:
        """Step the entry until a GPU that was idle has reached its speed; returns False if a step failed."""
        while sum(entry.seconds) < GPU_WARM_UP_S and len(entry.seconds) < MOST_WARM_UP:
            if not self._stepped(entry):
                return False
        return True

    def _is_dropped(self, entry: RacedStep) -> bool:
        """Whether the entry's first warm-up step already rules it out (RunnerSettings.drop_at_once and drop_from_s)."""
        most = self.settings.drop_at_once
        if most is None or self.incumbent_s == 0:
            return False
        return entry.seconds[0] > max(most * self.incumbent_s, self.settings.drop_from_s)

    def _is_hopeless(self, entry: RacedStep) -> bool:
        """Whether the entry is clearly worse than the incumbent (RunnerSettings.hopeless and give_up_after)."""
        if not self.peers:
            return False
        mine, theirs = entry.seconds, self.peers[-1].seconds
        if mine[-1] > self.settings.hopeless * median(theirs) and len(mine) > 1:
            return True
        return len(mine) >= self.settings.give_up_after and min(mine) > max(theirs)
