"""Says when something is due that recurs after a number of steps. A script sees only some steps: others are of another
signature, or are not sent to it.
"""

from __future__ import annotations


class Every:
    """Says whether the steps have passed a multiple of `steps`. None is missed, whichever steps are seen."""

    def __init__(self, steps: int, seen: int = 0) -> None:
        """seen: number of the latest step."""
        self.steps, self._seen = steps, seen

    def passed(self, step: int) -> bool:
        """Whether a multiple of `steps` was passed since the last call, up to and including this step."""
        before, self._seen = self._seen, step
        return step // self.steps > before // self.steps

    def left(self, step: int) -> int:
        """Return in how many steps the next multiple of `steps` comes."""
        return self.steps - step % self.steps
