"""An error that ends a search whose results are handed back anyway: its reason in words, and what is raised at last."""

from __future__ import annotations

from placer.errors import BadInputError, PlacerError


def why_lost(error: Exception) -> str:
    """Why nothing more was measured: a PlacerError's sentence, or what TensorFlow or Python says."""
    import tensorflow as tf

    from placer.trace.tracing import gist

    if isinstance(error, PlacerError):
        return str(error)
    if isinstance(error, tf.errors.OpError):
        return f"TensorFlow failed: {gist(error)}"
    return f"Placer failed ({': '.join(filter(None, (type(error).__name__, gist(error))))})."


def unforeseen(error: Exception) -> Exception | None:
    """The error itself if more is needed than its reason in words: the traceback of a bug, or the exit code of bad
    input. Else None.
    """
    import tensorflow as tf

    told = isinstance(error, PlacerError | tf.errors.OpError) and not isinstance(error, BadInputError)
    return None if told else error
