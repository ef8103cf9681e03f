"""What is due every so many steps, of which a script may be sent only some: others are of another signature, or are not
looked at.
"""

from __future__ import annotations


class Every:
    """Says when a multiple of `steps` is passed, so that none is missed whichever steps are seen."""

    def __init__(self, steps: int, seen: int = 0) -> None:
        """seen: the latest step."""
        self.steps, self._seen = steps, seen

    def passed(self, step: int) -> bool:
        """Whether that was so since the last call, up to this step."""
        before, self._seen = self._seen, step
        return step // self.steps > before // self.steps

    def left(self, step: int) -> int:
        """How many steps later it is so next."""
        return self.steps - step % self.steps
