"""What of this process TensorFlow drops when workers are joined: everything that it finds by name but variables.

After joining, a table, a summary writer or a queue made before raises NotFoundError wherever it is used.
"""

from __future__ import annotations

from placer import tf_internals
from placer.instances import instances_of

IN_WORDS = {"table": "a lookup table", "writer": "a summary writer", "queue": "a queue"}


def dropped_by_joining() -> str | None:
    """In words, what this program holds that would be gone after workers are joined; None where there is nothing."""
    kinds = tf_internals.named_resource_kinds()
    for kind, types in kinds.items():
        for thing in instances_of(types):
            if not tf_internals.is_anonymous(thing):
                return f"{IN_WORDS[kind]} ({type(thing).__name__})"
    return None
