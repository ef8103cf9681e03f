"""The one thread beside the training in which a live step does what takes long."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from placer.train.variable_hooks import unwatched

T = TypeVar("T")


class BackgroundThread:
    """Runs work one after another. What work reads of variables is not reported to their watchers."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="placer")
        self._busy: list[Future[Any]] = []

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` after what was submitted before."""
        future = self._thread.submit(_unwatched, work)
        self._busy = [busy for busy in self._busy if not busy.done()] + [future]
        return future

    def finish(self) -> None:
        """Wait until all work is done."""
        wait(self._busy)
        self._busy.clear()

    def cancel(self) -> None:
        """Cancel work that has not begun, and wait for the rest."""
        for future in self._busy:
            future.cancel()
        self.finish()

    def close(self) -> None:
        """As `cancel`, and end the thread."""
        self.cancel()
        self._thread.shutdown(wait=True, cancel_futures=True)


def _unwatched(work: Callable[[], T]) -> T:
    with unwatched():
        return work()
