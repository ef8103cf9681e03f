"""What `placer profile` keeps of its profiles: rows in the store after each of them, and the export at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from experiments.jobs.interrupt import SIGNALS, Signals
from placer.errors import tell, tell_all, tried
from placer.measure.store import Store
from placer.profile.operators.dataset import OperatorRow, export

if TYPE_CHECKING:  # TensorFlow is loaded when profiling starts, not for --help
    from placer.profile.operators.operator_profile import OperatorProfile

KEEPING = "keeping what was measured"


class Kept(NamedTuple):
    """The rows of a run, all rows of their machines in the store, and the errors of writing."""

    rows: list[OperatorRow]
    known: list[OperatorRow]
    lost: list[Exception]


class KeptProfiles:
    """Keeps the rows of profiles in a store, and writes the export.

    All times of a profile are corrected together, so that its rows change with each pass: they replace the ones that
    this run stored before. While it stores, signals are only noted; a second Ctrl-C ends everything, as always.
    """

    def __init__(self, store: Path | None, target: Path | None, signals: Signals) -> None:
        self.store, self.target, self.signals = store, target, signals
        self._stored: dict[OperatorProfile, list[OperatorRow]] = {}
        self._said: set[str] = set()

    def keep(self, profile: OperatorProfile) -> None:
        """Store what a profile has measured so far. If that fails, this is told once, and the next call tries again.
        Raises KeyboardInterrupt if a signal came meanwhile.
        """
        with self.signals.noting(SIGNALS, KEEPING):
            for error in tried(lambda: self._replace({profile: profile.rows()})):
                if str(error) not in self._said:
                    self._said.add(str(error))
                    tell(error)
        self._end_if_asked()

    def finish(self, profiles: Sequence[OperatorProfile]) -> Kept:
        """Store what is not yet stored of the profiles, and write the export. Raises KeyboardInterrupt if a signal came
        meanwhile, after telling the errors of writing.
        """
        with self.signals.noting(SIGNALS, KEEPING):
            kept = self._keep_all(profiles)
            if self.signals.pressed():
                tell_all(kept.lost)
        self._end_if_asked()
        return kept

    def keep_despite(self, profiles: Sequence[OperatorProfile]) -> None:
        """As `finish`, but for use amid an error: errors of writing are told and not raised. Does nothing after a
        second Ctrl-C.
        """
        if self.signals.insists:
            return
        if self.signals.pressed():
            print(f"{KEEPING}; Ctrl-C stops at once", file=sys.stderr)
        with self.signals.noting(SIGNALS, KEEPING):
            tell_all(self._keep_all(profiles).lost)

    def _keep_all(self, profiles: Sequence[OperatorProfile]) -> Kept:
        rows_of = {profile: profile.rows() for profile in profiles}
        rows = [row for profile_rows in rows_of.values() for row in profile_rows]
        known: list[OperatorRow] = []

        def store() -> None:
            self._replace(rows_of)  # before anything else that may fail or take long
            known.extend(self._read(rows))

        def put() -> None:
            if self.target is not None and rows:
                export(known or rows, self.target)

        lost = tried(store, put)
        return Kept(rows, known or rows, lost)

    def _replace(self, rows_of: dict[OperatorProfile, list[OperatorRow]]) -> None:
        """Store these rows of profiles instead of those that were stored before, all or none."""
        new = {profile: rows for profile, rows in rows_of.items() if rows != self._stored.get(profile, [])}
        if self.store is None or not new:
            return
        with Store(self.store) as kept:
            former = [row for profile in new for row in self._stored.get(profile, ())]
            kept.add_operators([row for rows in new.values() for row in rows], instead_of=former)
            self._stored |= new

    def _read(self, rows: Sequence[OperatorRow]) -> list[OperatorRow]:
        """All rows of these rows' machines in the store."""
        if self.store is None or not rows:
            return []
        with Store(self.store) as kept:
            return [row for name in sorted({row.machine for row in rows}) for row in kept.operators(name)]

    def _end_if_asked(self) -> None:
        if self.signals.pressed():
            raise KeyboardInterrupt
