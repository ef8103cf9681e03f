"""Workers keep the memory that they free while they are joined, and give it back when they are left."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from placer.devices.workers import freed_memory
from placer.devices.workers.freed_memory import GIVE_BACK, KEEP, NEVER, USUAL_BYTES, WORDS_PATH

# A process of its own, because what a word says holds for all of it. Each thread has an arena, whose end is freed.
STORY = """
import ctypes, os, threading
from types import SimpleNamespace
from placer.devices.workers import freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

def held():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def made_and_freed():
    blocks = [libc.malloc(1 << 16) for _ in range(500)]
    for block in blocks:
        ctypes.memset(block, 1, 1 << 16)
    for block in reversed(blocks):
        libc.free(block)

def grown():
    "Bytes that this process holds more after a thread has made and freed 32 MB."
    before = held()
    thread = threading.Thread(target=made_and_freed)
    thread.start(), thread.join()
    return held() - before

obeyed = threading.Semaphore(0)

def mallopt(*setting):
    "The last that is done at a word."
    libc.mallopt(*setting)
    obeyed.release()

def say(word):
    with open(freed_memory.WORDS_PATH, "w") as file:
        file.write(word)
    assert obeyed.acquire(timeout=300), "nobody heeds the word"

library = SimpleNamespace(mallopt=mallopt, malloc_trim=libc.malloc_trim)
freed_memory.ctypes = SimpleNamespace(CDLL=lambda _: library)
freed_memory.heed()
kept = grown()
say(freed_memory.KEEP)
say(freed_memory.GIVE_BACK)
given = grown()
print(kept >> 20, given >> 20)
"""


def test_what_a_thread_frees_is_given_back_only_when_it_is_said():
    environment = {**os.environ, freed_memory.SETTING: "10000000000", "MALLOC_MMAP_THRESHOLD_": "33554432"}
    ran = subprocess.run([sys.executable, "-c", STORY], env=environment, capture_output=True, text=True, timeout=600)
    kept, given = map(int, ran.stdout.split())
    assert kept >= 25 and given <= 5, (kept, given, ran.stderr)


class Library:
    """The C library, as far as it is called."""

    def __init__(self):
        self.called = []

    def mallopt(self, parameter, value):
        self.called.append((parameter, value))

    def malloc_trim(self, pad):
        self.called.append(pad)


@pytest.mark.parametrize(
    ("setting", "kept"), [(None, NEVER), ("10000000000", NEVER), ("1000000", 1_000_000), ("much", NEVER)]
)
def test_a_worker_that_is_joined_again_keeps_as_much_as_it_was_started_to_keep(monkeypatch, setting, kept):
    monkeypatch.delenv(freed_memory.SETTING, raising=False)
    if setting is not None:
        monkeypatch.setenv(freed_memory.SETTING, setting)
    library = Library()
    read, write = os.pipe()
    os.write(write, (GIVE_BACK + KEEP).encode())
    os.close(write)
    freed_memory._heed(read, library)
    os.close(read)
    assert library.called == [(-1, USUAL_BYTES), 0, (-1, kept)]


def test_without_glibc_words_are_read_and_nothing_is_done():
    read, write = os.pipe()
    os.write(write, b"gk")
    os.close(write)
    freed_memory._heed(read, None)
    assert os.read(read, 1) == b""
    os.close(read)
    assert WORDS_PATH.startswith("/proc/self/fd/")
