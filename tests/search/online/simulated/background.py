"""Work in the background, which is done when the clock says so."""

from collections import deque
from concurrent.futures import Future

from placer.errors import PlacerError


class Later(Future):
    """A Future that is done when the clock says so; waiting for it takes that long."""

    def __init__(self, line, due_s):
        super().__init__()
        self.line, self.due_s = line, due_s

    def done(self):
        self.line.work()
        return super().done()

    def result(self, timeout=None):
        self.line.clock.now_s = max(self.line.clock.now_s, self.due_s)
        self.line.work()
        return super().result(timeout)


class Line:
    """A thread or process that does one thing after the other."""

    def __init__(self, clock):
        self.clock, self.free_s, self.waiting = clock, 0.0, deque()

    def submit(self, seconds, work):
        self.free_s = max(self.free_s, self.clock.now_s) + seconds
        future = Later(self, self.free_s)
        self.waiting.append((future, work))
        return future

    @property
    def is_busy(self):
        return self.clock.now_s < self.free_s

    def work(self):
        while self.waiting and self.waiting[0][0].due_s <= self.clock.now_s:
            future, work = self.waiting.popleft()
            try:
                future.set_result(work())
            except PlacerError as error:
                future.set_exception(error)
