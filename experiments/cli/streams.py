"""stdout and stderr of the command line: one that cannot be written means one line, or silence, not a traceback."""

from __future__ import annotations

import io
import signal
import sys
from typing import TYPE_CHECKING, TextIO

from placer.errors import PlacerError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ClosedError(PlacerError):
    """Nobody reads stdout any more, as under `| head`. There is nothing to say of it."""

    exit_code = 128 + signal.SIGPIPE


class _Stdout(io.FileIO):
    """Raises PlacerErrors, which no library takes for one of its own; what comes after the first is dropped."""

    is_lost = False

    def write(self, data: ReadableBuffer, /) -> int:
        size = memoryview(data).nbytes
        if self.is_lost or not size:  # a library that writes nothing only asks whether it may
            return size
        try:
            return super().write(data)
        except BrokenPipeError:
            self.is_lost = True
            raise ClosedError from None
        except OSError as error:
            self.is_lost = True
            raise PlacerError(f"stdout: cannot be written ({error.strerror}); what was to be shown is lost.") from None


class _Stderr(io.FileIO):
    """Drops what cannot be written, because no work is to end for a message."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def guard_streams() -> None:
    """From now on stdout and stderr fail as this module says, and escape the letters that their encoding lacks.

    Streams that are not the process's own, as under a test, are left alone.
    """
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        sys.stdout = _over(_Stdout, sys.stdout)
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        sys.stderr = _over(_Stderr, sys.stderr)


def _over(kind: type[io.FileIO], stream: TextIO) -> io.TextIOWrapper:
    """A stream like `stream`, on the same file."""
    raw = kind(stream.fileno(), "w", closefd=False)
    unbuffered = bool(getattr(stream, "write_through", False))
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=bool(stream.line_buffering),
        write_through=unbuffered,
    )


def flush_stdout() -> None:
    """Write what is still buffered, so that it fails here and not at the interpreter's end. Raises PlacerError."""
    if sys.stdout is not None:
        sys.stdout.flush()
