"""What of this process TensorFlow drops when workers are joined: everything that it finds by name.

After joining, a table, a summary writer or a queue made before raises NotFoundError wherever it is used. Variables are
given other handles (placer/train/variables/hooks.py), but functions of tf.data pipelines go on with the former ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placer import tf_internals
from placer.errors import BadInputError, short
from placer.instances import instances_of

if TYPE_CHECKING:
    from placer.trace.capture import Captured

IN_WORDS = {"table": "a lookup table", "writer": "a summary writer", "queue": "a queue"}
PIPELINE = "a variable's handle in a function of a tf.data pipeline (an augmentation layer's, say)"
USERS = ("LookupTable", "Queue", "Summary")  # parts of the types of ops that use one


def dropped_by_joining() -> str | None:
    """In words, what this program holds that would be gone after workers are joined; None where there is nothing."""
    return PIPELINE if any(map(_is_used, tf_internals.dataset_captures())) else _named()


def _is_used(handle: Any) -> bool:
    """Whether a handle is one of a variable, and not one that the variable has lost, with which nothing more can go."""
    return tf_internals.is_handle_of_variable(handle) and tf_internals.current_handle(handle) is handle


def refusal(done: str) -> str | None:
    """Why workers must not be joined, or left (`done`), now; None where they may be."""
    dropped = dropped_by_joining()
    return dropped and f"this program holds {dropped}, which TensorFlow drops when workers are {done}"


def remedy(dropped: str) -> str:
    """What to do now that it is dropped. dropped: what `dropped_by_joining` said before."""
    if dropped == PIPELINE:
        return "a tf.data pipeline of this program goes on with the former value of a variable; make the pipeline anew"
    return f"TensorFlow has dropped {dropped} of this program, whose use is an error from now on; make it anew"


def _named() -> str | None:
    kinds = tf_internals.named_resource_kinds()
    for kind, types in kinds.items():
        for thing in instances_of(types):
            if tf_internals.is_found_by_name(thing):
                return f"{IN_WORDS[kind]} ({type(thing).__name__})"
    return None


def check_kept(captured: Captured) -> None:
    """Raises BadInputError where an op of the step uses what joining workers would take from it."""
    host = (captured.nodes[name] for name in sorted(captured.host_ops))
    user = next((node for node in host if any(part in node.op for part in USERS)), None)
    dropped = _named() if user is not None else None
    if user is not None and dropped is not None:
        raise BadInputError(
            f"{captured.name}: op {short(user.name)} ({user.op}) uses {dropped}, which TensorFlow drops when workers "
            "are joined; take it out of the step (look up before it, and pass what was found), or search with "
            "--devices cpus:2, which joins none."
        )
