"""One line for each error that libraries raise when a step fails, or this machine lacks memory or a folder."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator

from placer.errors import what_failed

NO_FOLDER = "No usable temporary directory"
NO_MEMORY = ("can't start new thread", "failed to map segment", "cannot allocate memory", "std::bad_alloc")


def in_one_line(error: Exception) -> str | None:
    """One line about the error; None if it may be a bug in Placer, whose traceback is needed."""
    errors = getattr(sys.modules.get("tensorflow"), "errors", None)
    if errors is not None and isinstance(error, errors.OpError):
        return f"TensorFlow failed ({type(error).__name__}): {what_failed(error)}; run the step by itself to see where."
    short = next(filter(_lacks_memory, _chain(error)), None)
    if short is not None:
        return (
            f"this process may take no more memory ({type(short).__name__}: {what_failed(short)}); take a smaller "
            "--batch, or give it more (ulimit -v says what it may take)."
        )
    if any(isinstance(cause, FileNotFoundError) and NO_FOLDER in str(cause) for cause in _chain(error)):
        return (
            "there is no folder for temporary files that may be written (TMPDIR, /tmp, /var/tmp), and TensorFlow needs "
            "one; set TMPDIR to one."
        )
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _lacks_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    said = str(error).lower()
    return isinstance(error, RuntimeError | ImportError | OSError) and any(text in said for text in NO_MEMORY)
