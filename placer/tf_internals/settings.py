"""What a program has set for all its steps: seeds, random generators, precision, callbacks of ops."""

from __future__ import annotations

import sys
import weakref
from functools import cache
from typing import Any

from tensorflow.python.eager import context as eager_context
from tensorflow.python.framework import config as framework_config
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework import ops as framework_ops
from tensorflow.python.ops import stateful_random_ops
from tensorflow.python.ops.numpy_ops import np_dtypes


def rewrites_precision() -> str | None:
    """The option of `tf.config.optimizer` that makes TensorFlow compute in short floats; None if none is set. This runs
    before each call, and `get_experimental_options` would take ten times as long.
    """
    options = eager_context.context()._optimizer_experimental_options
    return next((name for name in options if name.startswith("auto_mixed_precision") and options[name]), None)


def global_seed() -> int | None:
    """The seed that tf.random.set_seed was last given; None if it was never called."""
    seed: int | None = eager_context.global_seed()
    return seed


def global_generators() -> dict[str, Any]:
    """The existing random generators that the whole program shares: description -> the generator's variable."""
    found = {}
    if stateful_random_ops.global_generator is not None:
        found["tf.random.get_global_generator()"] = stateful_random_ops.global_generator.state
    shared = sys.modules.get("keras.src.backend.common.global_state")  # of this thread
    generator = None if shared is None else shared.get_global_attribute("global_seed_generator")
    if generator is not None:
        found["Keras's global SeedGenerator"] = generator.state.value
    return found


def is_deterministic() -> bool:
    """Whether tf.config.experimental.enable_op_determinism was called."""
    return bool(framework_config.is_op_determinism_enabled())


def op_callbacks() -> tuple[Any, ...]:
    """The callbacks for each op of this thread (of tf.debugging.enable_check_numerics and the like)."""
    return tuple(eager_context.context().op_callbacks)


def number_promotion() -> tuple[Any, ...]:
    """How TensorFlow's operators combine numbers of different types (experimental_enable_numpy_behavior)."""
    return framework_ops.get_dtype_conversion_mode(), np_dtypes.is_prefer_float32()


def draws_from_seeds(graph: Any) -> bool:
    """Whether an op of a function's graph draws random numbers from a state of its own that starts from a seed."""
    if (known := _seeded.get(graph)) is None or known[0] != graph.version:
        ops = [op for op in graph.get_operations() if _has_seed(op.type)]
        _seeded[graph] = known = graph.version, any(op.get_attr("seed") or op.get_attr("seed2") for op in ops)
    return known[1]


_seeded: weakref.WeakKeyDictionary[Any, tuple[int, bool]] = weakref.WeakKeyDictionary()


@cache
def _has_seed(op_type: str) -> bool:
    found = op_def_registry.get(op_type)
    return found is not None and found.is_stateful and {"seed", "seed2"} <= {attr.name for attr in found.attr}
