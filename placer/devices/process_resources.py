"""What of this process TensorFlow drops when workers are joined: everything that it finds by name but variables.

After joining, a table, a summary writer or a queue made before raises NotFoundError wherever it is used.
"""

from __future__ import annotations

import gc

from placer import tf_internals

IN_WORDS = {"table": "a lookup table", "writer": "a summary writer", "queue": "a queue"}


def dropped_by_joining() -> str | None:
    """In words, what this program holds that would be gone after workers are joined; None where there is nothing."""
    kinds = tf_internals.named_resource_kinds()
    for thing in gc.get_objects():
        for kind, types in kinds.items():
            if issubclass(type(thing), types) and not getattr(thing, "_is_anonymous", False):
                return f"{IN_WORDS[kind]} ({type(thing).__name__})"
    return None
