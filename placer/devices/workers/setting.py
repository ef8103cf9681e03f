"""The user's own deadline, in the environment, for the coordinating process and its workers."""

from __future__ import annotations

import os

from placer.errors import BadInputError

SETTING = "PLACER_DEADLINE_S"


def setting() -> float | None:
    """The seconds in PLACER_DEADLINE_S; None if it is not set. Raises BadInputError unless positive and finite."""
    text = os.environ.get(SETTING)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise BadInputError(f"{SETTING} is {text!r}; give a number of seconds, such as 60.")
    return seconds
