"""Watches operators that change an array in place eagerly, but make another tensor in a traced step."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from placer import tf_internals
from placer.trace.eager.patching import replaced
from placer.trace.eager.tensor_reads import caller_of, is_users, name_of

IN_PLACE = {
    "__iadd__": "+=", "__isub__": "-=", "__imul__": "*=", "__itruediv__": "/=", "__ifloordiv__": "//=",
    "__imod__": "%=", "__ipow__": "**=", "__imatmul__": "@=", "__iand__": "&=", "__ior__": "|=", "__ixor__": "^=",
    "__ilshift__": "<<=", "__irshift__": ">>=",
}  # fmt: skip
MAKERS = ((tf, "cast"), (tf.dtypes, "cast"), (tf, "convert_to_tensor"))


@contextmanager
def watched_array_changes(note: Callable[[str], None], eager: Mapping[int, type]) -> Iterator[None]:
    """Call `note` with the reason, in words, when the user's own code changes in place, in this thread and block, an
    argument that is an array eagerly, or a view of one. eager: the id of a tensor that stands for an argument -> the
    type of the value that the user's step gets there eagerly. The caller holds the lock `patching`.
    """
    thread, kind = threading.get_ident(), tf_internals.graphs.symbolic_tensor()
    arrays = {one for one, of in eager.items() if issubclass(of, np.ndarray)}

    def changes(operator: str) -> Callable[[Any, Any], Any]:
        def change(tensor: Any, _: Any) -> Any:
            frame = caller_of(sys._getframe(1))
            if threading.get_ident() == thread and is_users(frame) and _is_part(tensor, arrays):
                note(
                    f"it changes an array that it is given (`{operator}` in {name_of(frame)}), which a placed step "
                    "would not; make a new one (x = x * 2), or pass a tensor"
                )
            return NotImplemented  # so that Python takes the operator that makes another tensor

        return change

    def making_its_own(function: Callable[..., Any]) -> Callable[..., Any]:
        """Have `function` make a new tensor in a trace, too. Eagerly it makes one of an array, but in a trace it
        returns the tensor that stands for the array.
        """

        def made(*args: Any, **kwargs: Any) -> Any:
            found = function(*args, **kwargs)
            return tf.identity(found) if id(found) in arrays else found

        return tf.autograph.experimental.do_not_convert(made)  # type: ignore[no-any-return]

    if not arrays:
        yield
        return
    operators = [(kind, name, changes(operator)) for name, operator in IN_PLACE.items()]
    makers = [(module, name, making_its_own(getattr(module, name))) for module, name in MAKERS]
    with replaced([*operators, *makers]):
        yield


def _is_part(tensor: Any, arrays: set[int]) -> bool:
    """Whether a tensor stands for one of these arrays, or for a view of one."""
    while id(tensor) not in arrays:
        if tensor.op.type != "StridedSlice":  # x[:2]; no trace accepts other ways to make a view
            return False
        tensor = tensor.op.inputs[0]
    return True
