"""Cells of files searched in parallel over Ray: this process hands them out, and only it writes the store."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, islice
from math import inf
from typing import Any

import placer
from experiments.campaign.cells import MINUTES_UP, Cell, Limits
from experiments.campaign.open_case import Ready
from experiments.campaign.progress import CampaignProgress
from experiments.campaign.ray.ahead import BATCH_S, Batch, Begun, Clock, Point, search_ahead
from experiments.campaign.spec import Spec
from experiments.campaign.store import CampaignStore, Held
from placer.errors import PlacerError, one_line, what_failed
from placer.result import Failed
from search.problem.problem import Placement
from search.problem.searcher import Stop, never

AHEAD = 2  # batches that a search may be ahead of the store
QUEUED = 2  # searches for each CPU of the cluster, so that no CPU waits for this process
ASK_S = 1.0  # between two questions how many CPUs the cluster has
POLL_S = 0.2  # between two checks for Ctrl-C
SILENCE_S = 20.0  # without a result until that is reported


@dataclass
class _Search:
    """A search that was handed out. case: Ray's reference to the open case. lost: the number of its processes that were
    lost since something was stored. ended: why it has nothing more to ask.
    """

    cell: Cell
    case: Any
    carried: Sequence[Placement]
    point: Point
    lost: int = 0
    ended: str | None = None


@dataclass
class ParallelSearches:
    """Searches cells over the Ray to which this process is connected: one on each CPU of the cluster."""

    spec: Spec
    store: CampaignStore
    progress: CampaignProgress = field(default_factory=CampaignProgress)
    over: Stop = never
    clock: Clock = time.perf_counter
    batch_s: float = BATCH_S  # of search between two messages
    _streams: dict[Any, _Search] = field(default_factory=dict, init=False)
    _room: int = field(default=0, init=False)  # for searches under way, by the last question
    _asked_s: float = field(default=-inf, init=False)

    def run(self, cells: Sequence[Cell], held: dict[str, Held], ready: Ready) -> None:
        """Search the cells, which are all of files, to their ends, or until `over()`. A search is at most AHEAD batches
        ahead of the store. If its process or node is lost, it begins again from what is stored.

        Raises what a search raises, and PlacerError if a cell loses its process `stop_after` times in a row.
        """
        if not cells:
            return
        waiting = _to_begin(cells, held, ready)
        heard_s = self.clock()
        self.progress.phase(f"searching in parallel on {_cpus():g} CPUs of the Ray cluster")
        try:
            while self._hand_out(waiting) and not self.over():
                if self._receive():
                    heard_s = self.clock()
                elif self.clock() - heard_s > SILENCE_S:
                    heard_s = inf
                    self.progress.phase(f"nothing came for {SILENCE_S:.0f} s; {_free()}")
        finally:
            self._cancel()

    def _hand_out(self, waiting: Iterator[_Search]) -> bool:
        """Begin searches while there is room for them; return whether any is under way."""
        if self.clock() - self._asked_s > ASK_S:
            self._asked_s, self._room = self.clock(), QUEUED * max(1, round(_cpus()))
        for search in islice(waiting, max(0, self._room - len(self._streams))):
            self._begin(search)
        return bool(self._streams)

    def _begin(self, search: _Search) -> None:
        import ray

        task = ray.remote(_searched).options(
            num_cpus=1, max_retries=0, num_returns="streaming", _generator_backpressure_num_objects=AHEAD
        )
        stream = task.remote(
            search.case, search.cell, search.carried, search.point, self.spec.limits, self.batch_s, placer.__version__
        )
        self._streams[stream] = search

    def _receive(self) -> bool:
        """Store what has arrived; return whether anything has."""
        import ray

        ready, _ = ray.wait(list(self._streams), timeout=POLL_S)
        for stream in ready:
            search = self._streams.pop(stream)
            try:
                item = ray.get(next(stream))
            except StopIteration:
                self._ended(search)
                continue
            except ray.exceptions.RayTaskError as error:
                raise _cause(error) from error
            except ray.exceptions.RayError as error:
                self._lost(search, error)
                continue
            self._streams[stream] = search  # the last now, so that every stream has its turn
            self._keep(search, item)
        return bool(ready)

    def _keep(self, search: _Search, item: Begun | Batch) -> None:
        cell = search.cell
        if isinstance(item, Begun):
            self.progress.cell(cell, len(search.point.trials), item.best_s, item.single_s)
            return
        if item.trials and item.state is not None:
            self.store.keep_all(cell.key, item.trials, item.state)
            search.point, search.lost = search.point.after(item), 0
        for trial, best_s in zip(item.trials, item.best_s, strict=True):
            self.progress.trial(cell, trial, best_s)
        if item.ended is not None:
            self.store.keep_end(cell.key, item.ended)
            search.ended = item.ended
            self.progress.ended(cell, item.ended, self.spec.measurements - len(search.point.trials))

    def _ended(self, search: _Search) -> None:
        """Reduce the total by the measurements for which a search has no minutes left."""
        left = self.spec.measurements - len(search.point.trials)
        if search.ended is None and left > 0:
            self.progress.ended(search.cell, MINUTES_UP, left)

    def _lost(self, search: _Search, error: Exception) -> None:
        """Begin a search again after its process was lost. Raises PlacerError after `stop_after` losses in a row."""
        cell, why = search.cell, one_line(what_failed(error))
        failed = Failed("error", f"its process is lost: {why}")
        search.lost += 1
        self.store.keep_failure(cell.case.key, cell.key, len(search.point.trials), failed)
        self.progress.failed(cell.key, failed.detail)
        if search.lost >= self.spec.stop_after:
            raise PlacerError(
                f"the search of {cell.key} lost its process {search.lost} times in a row, at last by: {why} What was "
                f"measured is in {self.store.path}; the same command goes on after it."
            )
        self._begin(search)

    def _cancel(self) -> None:
        """Cancel the searches that are still under way."""
        import ray

        for stream in self._streams:
            with suppress(Exception):  # the cluster may have ended
                ray.cancel(stream, force=True)
        self._streams.clear()


def _to_begin(cells: Sequence[Cell], held: dict[str, Held], ready: Ready) -> Iterator[_Search]:
    """Yield the searches of the cells. Each case is opened once and sent to each node once, as bytes: arrays from Ray's
    store are read-only, and numba would compile every kernel again for read-only arrays.
    """
    import ray

    for case, of_case in groupby(cells, key=lambda cell: cell.case):
        opened = ready(case)
        if opened is None:
            continue
        open_case, carried = opened
        sent = ray.put(pickle.dumps(open_case))
        for cell in of_case:
            yield _Search(cell, sent, carried, Point(held[cell.key].trials, held[cell.key].state))


def _searched(
    case: bytes,
    cell: Cell,
    carried: Sequence[Placement],
    point: Point,
    limits: Limits,
    batch_s: float,
    version: str,
) -> Iterator[Begun | Batch]:
    """Run a search in a process of the cluster, on the one core that it was given."""
    from threadpoolctl import threadpool_limits

    from surrogate.parallel import use_cores

    if version != placer.__version__:
        raise PlacerError(
            f"a node of the Ray cluster has Placer {placer.__version__}, this process {version}; install the same."
        )
    use_cores(1)
    with threadpool_limits(1):
        yield from search_ahead(cell, pickle.loads(case), carried, point, limits, batch_s)


def _cpus() -> float:
    import ray

    return float(ray.cluster_resources().get("CPU", 0))


def _free() -> str:
    """A clause that says how many CPUs are free."""
    import ray

    return f"{ray.available_resources().get('CPU', 0):g} of the Ray cluster's {_cpus():g} CPUs are free"


def _cause(error: Any) -> BaseException:
    """The error that a task raised. If a node without Placer cannot load the task, a short one replaces Ray's."""
    cause: BaseException = error.cause
    if "failed to import" in str(cause) or isinstance(cause, ImportError):
        return PlacerError("a node of the Ray cluster has no Placer; install this version on all nodes.")
    return cause
