"""The names of the schedules, the rules by which a free device chooses one of the ops that are ready to run."""

from __future__ import annotations

from placer.errors import BadInputError, short

RANK, DONF, FIFO = "rank", "donf", "fifo"
SCHEDULES = (RANK, DONF, FIFO)


def check_schedule(name: str) -> None:
    """Raises BadInputError unless `name` is one of SCHEDULES."""
    if name not in SCHEDULES:
        raise BadInputError(f"the schedule {short(name)} is none of {', '.join(SCHEDULES)}.")
