"""Batches on disk: read by a training in turn, and copied to the devices that take part in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

import numpy as np

BATCHES = 8  # in the file, so that no batch is read twice in a row
LEAST_S = 1e-9
Array = np.ndarray[Any, Any]


class BatchFile:
    """A file of BATCHES batches, each the given arrays one behind the other, read in turn again and again.

    The kernel is asked to forget what was read, so that each batch comes from the disk, as in a data set that does not
    fit into memory. A file system in memory keeps the batches, and the measured rate shows that.
    """

    def __init__(self, path: Path, arrays: Sequence[Array]) -> None:
        self.batch_bytes = sum(array.nbytes for array in arrays)
        self._like = [(array.shape, array.dtype) for array in arrays]
        self._next = 0
        with path.open("wb") as file:
            for _ in range(BATCHES):
                for array in arrays:
                    file.write(array.tobytes())
            file.flush()
            os.fsync(file.fileno())
        self._file = path.open("rb", buffering=0)
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()

    def read(self) -> list[Array]:
        """The next batch."""
        self._file.seek(self._next * self.batch_bytes)
        self._next = (self._next + 1) % BATCHES
        arrays = []
        for shape, dtype in self._like:
            array = np.empty(shape, dtype)
            self._fill(array.reshape(-1).view(np.uint8).data)
            arrays.append(array)
        self._forget()
        return arrays

    def _fill(self, into: memoryview) -> None:
        while into:
            got = self._file.readinto(into)
            if not got:
                raise OSError(f"{self._file.name}: ends within a batch")
            into = into[got:]

    def _forget(self) -> None:
        with suppress(OSError):
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copied(arrays: Sequence[Any], device_names: Sequence[str]) -> list[Any]:
    """Copy each array to the TensorFlow device of the same position. Returns the tensors once all have arrived."""
    import tensorflow as tf

    tensors = []
    for array, name in zip(arrays, device_names, strict=True):
        with tf.device(name):
            tensors.append(tf.identity(array))
    for tensor, name in zip(tensors, device_names, strict=True):
        with tf.device(name):
            tf.raw_ops.Size(input=tensor).numpy()  # a copy returns before it has arrived; an op that reads it waits
    return tensors


def bytes_per_s(work: Callable[[], object], work_bytes: float, repeats: int, clock: Callable[[], float]) -> float:
    """The rate of `work`, which handles `work_bytes` each time: the median of `repeats`, after one that is dropped."""
    work()
    seconds = []
    for _ in range(repeats):
        begin_s = clock()
        work()
        seconds.append(clock() - begin_s)
    return work_bytes / max(median(seconds), LEAST_S)
