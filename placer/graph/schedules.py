"""The names of the schedules: by which of them a free device takes one of the ops that could run."""

from __future__ import annotations

from placer.errors import BadInputError, short

RANK, DONF, FIFO = "rank", "donf", "fifo"
SCHEDULES = (RANK, DONF, FIFO)


def check_schedule(name: str) -> None:
    """Raises BadInputError for what is none of SCHEDULES."""
    if name not in SCHEDULES:
        raise BadInputError(f"the schedule {short(name)} is none of {', '.join(SCHEDULES)}.")
