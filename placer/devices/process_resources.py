"""Finds what this process would lose when workers are joined: resources that TensorFlow finds by name, and op state.

After joining, a table, a summary writer or a queue made before raises NotFoundError wherever it is used. Variables get
new handles (placer/train/variables/hooks.py), but functions of tf.data pipelines keep using the old ones. An op that
draws random numbers from a seed starts from the beginning again; leaving workers does not cause that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placer import tf_internals
from placer.devices.shared_datasets import kept_by_shared_dataset
from placer.errors import BadInputError, short
from placer.instances import instances_of

if TYPE_CHECKING:
    from placer.trace.capture import Captured

IN_WORDS = {
    "table": "a lookup table",
    "loaded": "a resource of a loaded SavedModel, such as a table",
    "writer": "a summary writer",
    "queue": "a queue",
}
PIPELINE = "a variable's handle in a function of a tf.data pipeline (an augmentation layer's, say)"
SEEDED = "a tf.function that draws random numbers from a seed, its own or that of tf.random.set_seed"
TAPE = "a tf.GradientTape whose gradient was not taken yet, or that is persistent"
SHARED = {
    "cache": "the cache of a dataset of which it makes several pipelines",
    "order": "the order of a shuffled dataset of which it makes several pipelines",
    "draws": "the random numbers of a dataset (tf.data.Dataset.random, sample_from_datasets) of which it makes several "
    "pipelines",
}
MENDS = {
    TAPE: "take the gradient, or delete the tape, before the step is called",
    SHARED["cache"]: "cache to a file, or make one pipeline before the training and keep no dataset within it",
    SHARED["draws"]: "make one pipeline of it before the training, or set rerandomize_each_iteration=False",
    SHARED["order"]: "give shuffle both a seed and reshuffle_each_iteration=False, or make one pipeline of it",
}
USERS = ("LookupTable", "Queue", "Summary")  # substrings of the types of ops that use a named resource


def dropped_by_joining(*, left: bool = False) -> str | None:
    """Describe something of this program that TensorFlow drops when workers are joined; None if there is nothing.
    left: workers are left, not joined.
    """
    if any(map(_is_used, tf_internals.resources.dataset_captures())):
        return PIPELINE
    if any(map(tf_internals.variables.has_recorded, instances_of([tf.GradientTape]))):
        return TAPE
    if (named := _named()) is not None:
        return named
    if (kept := kept_by_shared_dataset()) is not None or left:
        return kept and SHARED[kept]
    return SEEDED if any(map(tf_internals.settings.draws_from_seeds, tf_internals.graphs.called_graphs())) else None


def _is_used(handle: Any) -> bool:
    """Whether a handle is the current one of a variable, not a stale one that nothing can use any more."""
    return (
        tf_internals.variables.is_handle_of_variable(handle) and tf_internals.variables.current_handle(handle) is handle
    )


def refusal(done: str) -> str | None:
    """Why workers must not be joined or left now; None if they may be. done: "joined" or "left"."""
    dropped = dropped_by_joining(left=done == "left")
    if dropped == SEEDED:
        return (
            f"this program holds {SEEDED}, and TensorFlow would begin these anew when workers are {done}; use a "
            "tf.random.Generator, a keras.random.SeedGenerator or stateless ops, or set no seed"
        )
    mend = f"; {MENDS[dropped]}" if dropped in MENDS else ""
    return dropped and f"this program holds {dropped}, which TensorFlow drops when workers are {done}{mend}"


def remedy(dropped: str) -> str:
    """What to do now that TensorFlow has dropped something. dropped: what `dropped_by_joining` named before."""
    if dropped == PIPELINE:
        return "a tf.data pipeline of this program goes on with the former value of a variable; make the pipeline anew"
    if dropped == SEEDED:
        return f"this program holds {SEEDED}, which it now draws from the beginning"
    if dropped == TAPE:
        return f"this program holds {TAPE}: it gives no gradients by variables any more; record it anew"
    if dropped in MENDS:
        return f"TensorFlow has dropped {dropped}: pipelines that are made of it from now on begin anew"
    return f"TensorFlow has dropped {dropped} of this program, whose use is an error from now on; make it anew"


def _named() -> str | None:
    kinds = tf_internals.resources.named_resource_kinds()
    for kind, types in kinds.items():
        for thing in instances_of(types):
            if tf_internals.resources.is_found_by_name(thing):
                return f"{IN_WORDS[kind]} ({type(thing).__name__})"
    return None


def check_kept(captured: Captured) -> None:
    """Raises BadInputError if an op of the step uses something that joining workers would drop."""
    host = (captured.nodes[name] for name in sorted(captured.host_ops))
    user = next((node for node in host if any(part in node.op for part in USERS)), None)
    dropped = _named() if user is not None else None
    if user is not None and dropped is not None:
        raise BadInputError(
            f"{captured.name}: op {short(user.name)} ({user.op}) uses {dropped}, which TensorFlow drops when workers "
            "are joined; take it out of the step (look up before it, and pass what was found), or search with "
            "--devices cpus:2, which joins none."
        )
