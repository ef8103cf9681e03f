"""Runs a command whose calls of the kernel are refused as a sandbox refuses them: denied.py NAME COMMAND..."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2  # linux/prctl.h, linux/seccomp.h
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # linux/filter.h
NUMBER_AT, THIRD_ARGUMENT_AT = 0, 32
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1  # with EPERM
SO_BINDTODEVICE = 25
# By what is refused: the call's number by machine, and the third argument with which alone it is refused.
CALLS: dict[str, tuple[dict[str, int], int | None]] = {
    "affinity": ({"x86_64": 203, "aarch64": 122}, None),  # sched_setaffinity
    "bind-to-device": ({"x86_64": 54, "aarch64": 208}, SO_BINDTODEVICE),  # setsockopt
}


def deny(name: str) -> None:
    """Have the kernel refuse these calls of this process from now on, and of those that it becomes."""
    numbers, argument = CALLS[name]
    tests = [(LOAD, 0, 0, NUMBER_AT), (JUMP_IF_EQUAL, 0, 1 if argument is None else 3, numbers[platform.machine()])]
    if argument is not None:
        tests += [(LOAD, 0, 0, THIRD_ARGUMENT_AT), (JUMP_IF_EQUAL, 0, 1, argument)]
    code = b"".join(struct.pack("HBBI", *row) for row in (*tests, (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)))
    program = ctypes.create_string_buffer(code)
    pointer = ctypes.create_string_buffer(struct.pack("HP", len(code) // 8, ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(PR_SET_SECCOMP, FILTER, pointer, 0, 0) != 0:
        sys.exit(f"no filter may be set here ({os.strerror(ctypes.get_errno())})")


if __name__ == "__main__":
    deny(sys.argv[1])
    os.execv(sys.argv[2], sys.argv[2:])
