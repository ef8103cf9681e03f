"""Makes valid files hostile: a seeded generator exchanges values in a parsed document, or changes bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**64), 10**400, 0.0, -0.0, 5e-324, 1e308, -1e308, 0.1,
    "", " ", "a", "*", "cpu", "gpu:0", "\0", "\n", "\u202e", "\U0001f600", "\udc80", "x" * 5_000, "[red]", ":smile:",
    "../../etc/passwd", "(a+)+$", "NaN", "1e3", [], {}, [[]], [None], [0] * 50, {"": None}, {"format": "x"},
)  # fmt: skip
TEXTS = (
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"0x1",
    b"\xff",
    b"\xef\xbb\xbf",
    b"[" * 3_000,
    b'"\\ud800"',
    b"//",
)
MOST = 3  # changes of one file


def mutated(data: bytes, rng: random.Random) -> bytes:
    """`data`, which is JSON, with up to MOST changes: of values, or of bytes."""
    if rng.random() < 0.7:
        document = json.loads(data)
        for _ in range(rng.randint(1, MOST)):
            document = exchanged(document, rng)
        return json.dumps(document).encode()
    return garbled(data, rng)


def garbled(data: bytes, rng: random.Random) -> bytes:
    """`data`, whatever it is, with up to MOST changes of bytes."""
    for _ in range(rng.randint(1, MOST)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((0, 1, 1, 5, 50)))
        data = rng.choice(BYTES)(data, at, end, rng)
    return data


BYTES: tuple[Callable[[bytes, int, int, random.Random], bytes], ...] = (
    lambda data, at, end, rng: data[:at] + data[end:],
    lambda data, at, end, rng: data[:at] + rng.randbytes(end - at) + data[end:],
    lambda data, at, end, rng: data[:at] + rng.choice(TEXTS) + data[end:],
    lambda data, at, end, rng: data[:at] + 2 * data[at:end] + data[end:],
    lambda data, at, end, rng: data[:at],
)


def exchanged(document: Any, rng: random.Random) -> Any:
    """The document with one of its values exchanged, doubled or removed."""
    place = [(holder, key) for holder, key in _places(document) if rng.random() < 0.5 or key == "format"]
    if not place:
        return deepcopy(rng.choice(NASTY))
    holder, key = rng.choice(place)
    change = rng.random()
    if change < 0.6:
        holder[key] = deepcopy(rng.choice(NASTY))
    elif change < 0.75:
        del holder[key]
    elif isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), deepcopy(holder[key]))
    else:
        holder[rng.choice(("unknown", "cost_s", "name", str(key).upper()))] = deepcopy(holder[key])
    return document


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every place of a value in lists and objects: (list or object, index or key)."""
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        holder = waiting.pop()
        keys = holder.keys() if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        found += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys]
    return found
