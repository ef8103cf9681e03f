"""A TensorFlow whose insides have changed is noticed before a variable goes stale."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer import tf_internals
from placer.tf_version import SUPPORTED
from placer.train.variables import hooks, self_test


@pytest.fixture(autouse=True)
def anew():
    self_test.unwatchable.cache_clear()
    hook = tf_internals.calls._patched.hook
    yield
    tf_internals.calls.around_function_calls(hook)
    self_test.unwatchable.cache_clear()


@pytest.fixture(params=["alone", "beside an open step"])
def beside(request):
    """Whether a step is open elsewhere: an earlier test may have left one to the garbage collector."""
    variable = tf.Variable(1.0)
    if request.param != "alone":
        hooks.watch(variable, self_test._Seen())
    yield
    hooks.unwatch(variable)


def test_this_tensorflow_is_one_that_works():
    assert self_test.unwatchable() is None
    assert tf.__version__.startswith(SUPPORTED)


@pytest.mark.parametrize(
    ("hidden", "says"),
    [("handle", "an assignment was not seen"), ("_handle", "an op that reads was not seen"),
     ("_read_variable_op", "a function that reads")],
)  # fmt: skip
def test_a_way_around_the_hooks_is_named(hidden, says, monkeypatch, beside):
    """As if TensorFlow no longer took the way that a hook stands in."""
    if hidden == "_read_variable_op":
        tf_internals.calls.around_function_calls(None)  # an open step has set it
        monkeypatch.setattr(tf_internals.calls, "around_function_calls", lambda hook: None)
    else:
        monkeypatch.delattr(hooks._Watched, hidden)
        hooks._watched.cache_clear()
    found = self_test.unwatchable()
    assert found is not None and says in found and tf.__version__ in found
    hooks._watched.cache_clear()


def test_a_hook_that_raises_is_named(monkeypatch):
    def gone(_):
        raise AttributeError("_handle")

    monkeypatch.setattr(tf_internals.variables, "handle_of", gone)
    assert "raised AttributeError" in (self_test.unwatchable() or "")
