"""The one thread beside the training, in which a live step does its slow work."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

from placer.train.variables.hooks import unwatched

T = TypeVar("T")
Job = tuple["Future[Any]", Callable[[], Any]]
AT_EXIT_S = 10.0  # how long the end of the program waits for work that has begun
_unfinished: set[Future[Any]] = set()  # of all threads


class BackgroundThread:
    """Runs submitted work, one item after another. Its reads of variables are not reported to watchers.

    The thread is a daemon, so that work that waits for a frozen device delays `close` by at most `limit_s`, and the end
    of the program by at most AT_EXIT_S.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._busy: list[Future[Any]] = []
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` after what was submitted before; after `close` it is cancelled at once."""
        future: Future[T] = Future()
        if self._is_closed:
            future.cancel()
            return future
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(self._jobs,), name="placer-build", daemon=True)
            self._thread.start()
        self._busy = [busy for busy in self._busy if not busy.done()] + [future]
        _unfinished.add(future)
        future.add_done_callback(_unfinished.discard)
        self._jobs.put((future, work))
        return future

    def finish(self, limit_s: float | None = None) -> bool:
        """Wait until all work is done, for at most `limit_s` (None = no limit); returns whether it is done."""
        self._busy = list(wait(self._busy, limit_s).not_done)
        return not self._busy

    def cancel(self, limit_s: float | None = None) -> bool:
        """Cancel work that has not begun, and wait for the rest as `finish` does."""
        for future in self._busy:
            future.cancel()
        return self.finish(limit_s)

    def close(self, limit_s: float | None = None) -> bool:
        """As `cancel`, and end the thread once its work is done."""
        self._is_closed = True
        self._jobs.put(None)
        return self.cancel(limit_s)


def _run(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        future, work = job
        del job
        if not future.set_running_or_notify_cancel():
            del future, work
            continue
        try:
            with unwatched():
                found = work()
        except BaseException as error:
            del work  # before others learn that the work is done: what it holds is free by then
            future.set_exception(error)
        else:
            del work
            future.set_result(found)
            del found
        del future


@atexit.register
def _finish() -> None:
    """Wait for work at the program's end. Otherwise Python would stop a thread within TensorFlow in a way that
    TensorFlow takes for a fault, and TensorFlow would end the program with SIGABRT.
    """
    waiting = tuple(_unfinished)
    for future in waiting:
        future.cancel()
    wait(waiting, AT_EXIT_S)
