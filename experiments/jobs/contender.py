"""A contender: one searcher at work on real measurements, and the prediction that it makes its proposals by."""

from __future__ import annotations

from experiments.jobs.finding import Row
from placer.graph.mapping import Mapping
from search.problem.searcher import Searcher, SearchExhausted
from search.session.prediction import Prediction
from search.session.registry import SEARCHERS, make_searcher

BATCH = 4  # mappings that are asked for, and raced, together


class Contender:
    """Asks the searcher called `name` for mappings, batch by batch.

    Before each batch the prediction is calibrated by `rows`, if the searcher makes use of it, and the searcher told of
    them: its own measurements, or those that it shares with others. Whoever measures adds to `rows`. The prediction
    handed in knows those that there are already.
    """

    def __init__(self, name: str, prediction: Prediction, rows: list[Row], seed: int) -> None:
        self.name = name
        self.prediction = prediction
        self.rows = rows
        self.seed = seed
        self.told = len(rows)  # what the prediction knows
        self.ended: str | None = None

    def asks(self, count: int) -> list[Mapping]:
        """Up to `count` new mappings; fewer where the searcher has nothing left, and `ended` says so."""
        if self.told != len(self.rows):
            if SEARCHERS[self.name].predicts:
                self.prediction = self.prediction.calibrated([(row.mapping, row.result) for row in self.rows])
            self.told = len(self.rows)
        searcher = self._informed()
        asked: list[Mapping] = []
        while len(asked) < count:
            try:
                asked.append(searcher.ask())
            except SearchExhausted as end:
                self.ended = str(end)
                break
        return asked

    def _informed(self) -> Searcher:
        """A searcher that predicts by the latest calibration and was told of everything measured."""
        searcher = make_searcher(self.name, self.prediction.problem, seed=self.seed + self.told)
        for row in self.rows:
            searcher.tell(row.mapping, row.result)
        return searcher
