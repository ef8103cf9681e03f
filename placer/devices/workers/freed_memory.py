"""The coordinating process tells workers whether to keep the memory that they free, or to give it back to the kernel.

Workers keep it, because this makes steps faster (`KEEP_MEMORY` in `workers`). When a worker is left, it frees all that
was made there, and gives that memory back: otherwise it would stay in heap arenas of threads that have ended.

TensorFlow has no op for this, but it has an op that writes a file. So a worker holds a pipe open under a fixed file
number, and obeys each byte that is written there.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

WORDS_FD = 198
WORDS_PATH = f"/proc/self/fd/{WORDS_FD}"
KEEP, GIVE_BACK = "k", "g"
M_TRIM_THRESHOLD = -1  # of mallopt: bytes that may lie free at the end of an arena before they are given back
USUAL_BYTES, NEVER, MOST_BYTES = 128 << 10, -1, (1 << 31) - 1
SETTING = "MALLOC_TRIM_THRESHOLD_"


def heed() -> None:
    """Obey the commands KEEP and GIVE_BACK written to the pipe, from now on. Call it once, before the server starts.
    Has no effect with a C library other than glibc, or if the process may not use a file number as high as WORDS_FD.
    """
    read, write = os.pipe()
    try:
        os.dup2(write, WORDS_FD)
    except OSError:
        os.close(read)
        return
    finally:
        os.close(write)
    library = ctypes.CDLL(None)
    is_glibc = hasattr(library, "mallopt") and hasattr(library, "malloc_trim")
    threading.Thread(target=_heed, args=(read, library if is_glibc else None), name="placer-words", daemon=True).start()


def _heed(words: int, library: Any) -> None:
    while word := os.read(words, 1):
        if library is None:
            continue
        if word == GIVE_BACK.encode():
            library.mallopt(M_TRIM_THRESHOLD, USUAL_BYTES)
        else:
            library.malloc_trim(0)  # gives back free memory between blocks in use
            library.mallopt(M_TRIM_THRESHOLD, _kept_bytes())


def _kept_bytes() -> int:
    """The threshold with which this process was started; NEVER if mallopt could not take it."""
    text = os.environ.get(SETTING, "")
    return int(text) if text.isdecimal() and int(text) <= MOST_BYTES else NEVER
