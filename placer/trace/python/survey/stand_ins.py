"""Steps that Placer has wrapped, as other code of the program meets them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from types import CodeType

from placer.trace.python.code.bytecode import reads_of
from placer.wrapped import Wrapped


def own_attribute_read(stand_ins: Sequence[tuple[str, Wrapped]], codes: Iterable[CodeType]) -> str | None:
    """An attribute that one of `codes` reads of a wrapped step and that is not the user's function's, such as the count
    of its steps ("train.steps"); None if there is none. stand_ins: (name under which code reaches it, step) of each.
    """
    paths = {path for code in codes for path in reads_of(code).paths} if stand_ins else ()
    pairs = {pair for path in paths for pair in pairwise((path.name, *path.attributes))}
    for name, found in stand_ins:
        own = (b for a, b in sorted(pairs) if a == name and found.keeps(b) and not b.startswith("__"))
        if (attribute := next(own, None)) is not None:
            return f"{name}.{attribute}"
    return None
