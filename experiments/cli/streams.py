"""stdout and stderr of the command line: if one cannot be written, there is one line or silence, but no traceback."""

from __future__ import annotations

import ctypes
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from typing import TYPE_CHECKING, TextIO

from placer.errors import PlacerError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ClosedError(PlacerError):
    """The reader of stdout has closed it, as under `| head`. Nothing is printed about it."""

    exit_code = 128 + signal.SIGPIPE


class _Stdout(io.FileIO):
    """Raises PlacerErrors, which libraries do not take for their own; output after the first error is dropped."""

    is_lost = False

    def write(self, data: ReadableBuffer, /) -> int:
        size = memoryview(data).nbytes
        if self.is_lost or not size:  # a library that writes nothing only tests whether it can
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
    """Drops what cannot be written, because a message must not end the work."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def guard_streams() -> None:
    """From now on, let stdout and stderr fail as this module says, and escape the letters that their encoding lacks.
    What is written to a stream that was closed before the process began is dropped.

    Streams that are not the process's own, as under a test, are left alone.
    """
    sys.stdout = _guarded(sys.stdout, sys.__stdout__, _Stdout, 1)
    sys.stderr = _guarded(sys.stderr, sys.__stderr__, _Stderr, 2)


def _guarded(stream: TextIO | None, own: TextIO | None, kind: type[io.FileIO], descriptor: int) -> TextIO:
    if stream is None:
        return _nowhere(descriptor)
    return _over(kind, stream) if stream is own else stream


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """What is printed in the block goes to stderr: by Python, and where stdout is the process's own, also by what
    writes to its file descriptor, such as a library in C or a program that is started.
    """
    with _descriptor_to_stderr() if _is_own(sys.stdout) else nullcontext(), redirect_stdout(sys.stderr):
        yield


@contextmanager
def _descriptor_to_stderr() -> Iterator[None]:
    flush_c = ctypes.CDLL(None).fflush  # libraries in C keep what they print in buffers of their own
    stdout = os.dup(1)
    flush_stdout()
    _flush_own()
    flush_c(None)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        _flush_own()
        flush_c(None)
        os.dup2(stdout, 1)
        os.close(stdout)


def _flush_own() -> None:
    """Write what code has printed to `sys.__stdout__`, which has a buffer of its own."""
    if sys.__stdout__ is not None:
        with suppress(OSError, ValueError):
            sys.__stdout__.flush()


def _is_own(stream: TextIO) -> bool:
    try:
        return stream.fileno() == 1
    except (OSError, ValueError):
        return False


def _nowhere(descriptor: int) -> TextIO:
    """A stream that drops all. Its file descriptor is taken, too, so that no file that is opened later has it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != descriptor and not _is_open(descriptor):
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
        nowhere = descriptor
    os.set_inheritable(nowhere, True)  # processes that this one starts have it, too
    return io.TextIOWrapper(io.FileIO(nowhere, "w", closefd=False), encoding="utf-8", errors="backslashreplace")


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


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
