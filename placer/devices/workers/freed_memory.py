"""Whether a worker keeps the memory that it frees, or gives it back to the kernel: this process says which.

Workers keep it, because steps are faster so (`KEEP_MEMORY` in `workers`). While a worker is left, and frees all that
was made there, it gives it back: otherwise it would lie in parts of the heap (arenas) of threads that are gone.

TensorFlow has no op for that, but has one that writes a file: a worker holds a pipe open under a fixed number, and
obeys each byte that is written there.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

WORDS_FD = 198
WORDS_PATH = f"/proc/self/fd/{WORDS_FD}"
KEEP, GIVE_BACK = "k", "g"
M_TRIM_THRESHOLD = -1  # of mallopt: bytes that lie free at the end of an arena before they are given back
USUAL_BYTES, NEVER, MOST_BYTES = 128 << 10, -1, (1 << 31) - 1
SETTING = "MALLOC_TRIM_THRESHOLD_"


def heed() -> None:
    """Obey the commands KEEP and GIVE_BACK written to the pipe, from now on. Call it once, before the server starts.
    Has no effect on a C library other than glibc, or where a process may not have so many files open.
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
            library.malloc_trim(0)  # what lies free between what is in use
            library.mallopt(M_TRIM_THRESHOLD, _kept_bytes())


def _kept_bytes() -> int:
    """What this process was started with."""
    text = os.environ.get(SETTING, "")
    return int(text) if text.isdecimal() and int(text) <= MOST_BYTES else NEVER
