"""The process of a planner: answers calls to its plan, one after the other, until its parent has ended.

Run as `python -m search.online.replan.planner_server`; started by search/online/replan/planner_client.py. Calls come as
pickles on stdin, (method, arguments), of which the first makes the plan; answers go out as pickles on stdout, `Answer`.
The process runs at a low priority, because the training needs the cores, and never imports TensorFlow.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
from functools import partial
from typing import IO, Any

from placer.devices.host.parent import when_parent_ends
from placer.errors import PlacerError, one_line
from search.online.replan.proposal import NoRoomError

# At the lowest priority a plan took 53 s instead of 3 beside two busy workers, and meanwhile no better mapping ran.
NICENESS = 5
BEGIN = "begin"

Call = tuple[str, tuple[Any, ...]]
Answer = tuple[bool, Any]
"""(True, value), or (False, (the kind of the error, what went wrong in a line))."""


def main() -> None:
    """Serve stdin until it closes or the parent ends; other children of the parent may hold stdin open after that.
    Everything that is printed goes to stderr, because stdout carries the answers.
    """
    when_parent_ends(partial(os._exit, 0))
    os.nice(NICENESS)
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(calls, answers)
    os._exit(0)


def serve(calls: IO[bytes], answers: IO[bytes]) -> None:
    """Answer every call of `calls` in order. When `calls` ends, the process ends, even in the middle of a search."""
    waiting: queue.SimpleQueue[Call] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(calls, waiting), daemon=True).start()
    server = CallServer()
    while True:
        answer = server.answer(*waiting.get())
        pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


class CallServer:
    """Keeps the plan and answers calls to it; a call that fails is answered with one line."""

    def __init__(self) -> None:
        self.plan: Any = None
        self.broken = "no plan was begun."

    def answer(self, method: str, arguments: tuple[Any, ...]) -> Answer:
        """Return what a method of the plan returns, or why it failed."""
        try:
            if method == BEGIN:
                self._begin(*arguments)
                return True, None
            if self.plan is None:
                return False, (PlacerError, self.broken)
            return True, self._called(method, arguments)
        except PlacerError as error:
            kind = NoRoomError if isinstance(error, NoRoomError) else PlacerError
            return self._failed(method, one_line(str(error)), kind)
        except Exception as error:  # whatever happens here, the training goes on
            return self._failed(method, one_line(f"planning failed in {method}: {type(error).__name__}: {error}"))

    def _begin(self, *arguments: Any) -> None:
        from search.online.replan.replanner import (
            Replanner,  # slow to import; a failure is answered with one line like any other
        )

        self.plan = Replanner(*arguments)

    def _called(self, method: str, arguments: tuple[Any, ...]) -> Any:
        value = getattr(self.plan, method)
        return value(*arguments) if callable(value) else value

    def _failed(self, method: str, line: str, kind: type[PlacerError] = PlacerError) -> Answer:
        if method == BEGIN:
            self.broken = line
        return False, (kind, line)


def _receive(calls: IO[bytes], waiting: queue.SimpleQueue[Call]) -> None:
    while True:
        try:
            waiting.put(pickle.load(calls))
        except EOFError:
            os._exit(0)


if __name__ == "__main__":
    main()
    sys.exit(0)
