"""The signature of a call: what makes two calls the same step, and in which order their tensors come."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.errors import BadInputError
from placer.trace.arrays import as_tensors
from placer.trace.declared import Declared
from placer.trace.signature import Layout, Signatures, flat_tensors


def key(*args, **kwargs):
    return Signatures().of(args, kwargs)[0]


X = tf.ones([4, 3])
Y = tf.zeros([4], tf.int32)
MODEL = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((X, Y), (X + 1.0, Y + 1)),
        ((X, Y), (X.numpy(), Y.numpy())),
        ((X, True), (X * 2.0, True)),
        ((X, MODEL), (X, MODEL)),
        (({"a": X, "b": (Y, None)},), ({"a": X + 1.0, "b": (Y, None)},)),
        ((tf.ragged.constant([[1.0], [2.0, 3.0]]),), (tf.ragged.constant([[1.0, 2.0], [3.0, 4.0]]),)),
        ((iter(tf.data.Dataset.range(3)),), (iter(tf.data.Dataset.range(5)),)),
        ((X, float("nan")), (X, float("nan"))),
        ((X, (1, 2)), (X, (1, 2))),
    ],
)
def test_calls_that_one_captured_step_serves_have_one_key(one, other):
    assert key(*one) == key(*other)
    assert hash(key(*one)) == hash(key(*other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((X, Y), (X[:2], Y[:2])),
        ((X, Y), (Y, X)),
        ((X, Y), (tf.cast(X, tf.float16), Y)),
        ((X, Y), ((X, Y),)),
        (((X, Y),), ([X, Y],)),
        (({"a": X, "b": Y},), ({"a": X, "c": Y},)),
        ((X, True), (X, False)),
        ((X, True), (X, 1)),
        ((X, 1), (X, 1.0)),
        ((X, "a"), (X, None)),
        ((X, {1}), (X, {1})),
        ((X, MODEL), (X, keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]))),
        ((X, tf.Variable(1.0)), (X, tf.Variable(1.0))),
        ((X, keras.Variable(1.0)), (X, keras.Variable(1.0))),
        ((tf.ragged.constant([[1.0], [2.0]]),), (tf.ragged.constant([[[1.0]], [[2.0]]]),)),
    ],
)
def test_calls_that_need_captures_of_their_own_have_two_keys(one, other):
    assert key(*one) != key(*other)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float64", "complex64", "S3", "U3"])
def test_an_array_has_the_key_of_its_tensor(dtype):
    array = np.ones([2, 3]).astype(dtype)
    for one in (array, array.T, array[:, 0], array[:0]):
        tensor = tf.convert_to_tensor(one)
        assert key(one) == key(tensor) and key({"a": one}, 0.5) == key({"a": tensor}, 0.5)
        np.testing.assert_array_equal(as_tensors(Signatures().of((one,))[1])[0], tensor)


def test_a_keyword_tells_calls_apart():
    assert key(X, training=True) != key(X, training=False)
    assert key(X, y=Y) == key(X, y=Y + 1)
    assert key(X, y=Y) != key(X, Y)


def test_the_tensors_come_in_the_order_in_which_a_step_is_captured():
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    args, kwargs = ({"b": Y, "a": [X, 3, None]}, ragged), {"weight": np.float32(2.0), "mode": "train"}
    flat = Signatures().of(args, kwargs)[1]
    assert [tuple(t.shape) for t in flat] == [(4, 3), (4,), (3,), (3,), ()]
    for seen, expected in zip(flat, flat_tensors(args, kwargs), strict=True):
        np.testing.assert_array_equal(seen, expected)
    layout = Layout.of(args, kwargs)
    assert [spec.dtype for spec in layout.specs] == [t.dtype for t in flat]
    again_args, again_kwargs = layout.filled(flat)
    assert again_args[0]["a"][1:] == [3, None]
    assert again_args[1].to_list() == ragged.to_list()
    assert again_kwargs["mode"] == "train"
    assert float(again_kwargs["weight"]) == 2.0


def test_a_dataclass_that_tensorflow_knows_is_taken_apart():
    @dataclasses.dataclass
    class Batch:
        x: object
        y: object
        name: str

        def __tf_flatten__(self):
            return (self.name,), (self.x, self.y)

        @classmethod
        def __tf_unflatten__(cls, metadata, parts):
            return cls(*parts, *metadata)

    assert len(flat_tensors((Batch(X, Y, "a"),))) == 2
    assert key(Batch(X, Y, "a")) == key(Batch(X + 1.0, Y, "a"))
    assert key(Batch(X, Y, "a")) != key(Batch(X, Y, "b"))
    (again,), _ = Layout.of((Batch(X, Y, "a"),)).filled([X, Y])
    assert again.name == "a"


def test_a_generator_is_refused():
    with pytest.raises(BadInputError, match=r"generator.*tf\.data"):
        Layout.of(((x for x in [X]),))


def test_what_is_no_tensor_is_refused_in_one_line():
    with pytest.raises(BadInputError, match="makes no tensor") as refused:
        Signatures().of((np.array([object()]),))
    assert "\n" not in str(refused.value)


def test_a_float64_of_numpys_is_a_float_to_a_plain_step_and_a_tensor_to_a_tf_function():
    plain, function, x = Signatures(plain=True), Signatures(), tf.ones([2])
    key, tensors = plain.of((x,), {"rate": np.float64(0.5)})
    assert key == plain.of((x,), {"rate": 0.5})[0] and len(tensors) == 1
    assert plain.layout((x,), {"rate": np.float64(0.5)}).filled(tensors)[1] == {"rate": 0.5}
    assert key != plain.of((x,), {"rate": np.float32(0.5)})[0]
    numbers = [plain.layout((x, np.float64(rate))).numbers for rate in (0.25, 0.125, 0.75, 0.1)]
    assert numbers == [(), (), (1,), (1,)]
    assert len(function.of((x, np.float64(0.5)))[1]) == 2


def test_arrays_are_tensors_of_the_types_that_a_tf_function_declares():
    step = tf.function(lambda x, y: x, input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None], tf.int32)])
    declared = Signatures(declared=Declared.by(step))
    key, tensors = declared.of((np.ones(2), np.ones(2, np.int64)))
    assert [tensor.dtype for tensor in tensors] == [tf.float32, tf.int32]
    assert key == declared.of((tf.ones([2]), tf.ones([2], tf.int32)))[0]
    assert [spec.dtype for spec in declared.layout((np.ones(2), np.ones(2, np.int64))).specs] == [tf.float32, tf.int32]
    with pytest.raises(BadInputError, match="makes no tensor"):
        declared.of((np.array(["a"]), np.ones(2, np.int32)))
    nested = tf.function(lambda x: x["a"], input_signature=[{"a": tf.TensorSpec([None])}])
    assert Declared.by(nested) is Declared.by(lambda x: x) is Declared.by(tf.function(lambda x: x)) is None


def test_numbers_and_named_arguments_are_what_a_tf_function_declares():
    class Trainer:
        @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.bool)])
        def step(self, x, count, flag):
            return x

    declared = Signatures(declared=Declared.by(Trainer().step))
    key, tensors = declared.of((np.ones(2), 3, True))
    assert [tensor.dtype for tensor in tensors] == [tf.float32, tf.int64, tf.bool]
    assert key == declared.of((np.ones(2),), {"flag": False, "count": np.int32(5)})[0]
    assert key != declared.of((np.ones(2),), {"flag": False})[0]  # TensorFlow refuses it
    with pytest.raises(BadInputError, match="makes no tensor"):
        declared.of((np.ones(2), 0.5, True))


def test_numbers_by_value_tell_apart_whatever_python_hashes_alike():
    signatures = Signatures()
    found = []
    for number in (-1, -2, 0, 1, 1.0):
        signatures.of((np.ones(2), number))
        found.append(signatures.by_value)
    assert len(set(found)) == len(found)
