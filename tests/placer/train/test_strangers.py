"""Calls as strangers write them: arrays, steps within steps, arguments of any kind. All train as they do unwrapped."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.train.device_session import DeviceSession

ONE = tf.constant(1.0)
ARRAY = np.full([4], 255.0, np.float32)


@pytest.fixture
def live_hand(live_hand):
    """The same, closed at the end."""
    made = []

    def make(*args, **kwargs):
        made.append(live_hand(*args, **kwargs))
        return made[-1]

    yield make
    for hand in made:
        hand.close()


def test_a_plain_step_that_asks_whether_it_was_given_an_array_is_given_one(two_cpus, live_hand):
    weight = tf.Variable(0.0)

    def step(x):
        if isinstance(x, np.ndarray):
            x = tf.constant(x / 255.0, tf.float32)
        weight.assign_sub(tf.reduce_mean(x))
        return weight.read_value()

    hand = live_hand(step)
    for i in range(4):
        hand(ARRAY)
        assert weight.numpy() == -(i + 1)
    hand(tf.constant(ARRAY))
    assert weight.numpy() == -4 - 255


def test_a_step_that_changes_the_array_that_it_is_given_is_left_alone(two_cpus, live_hand):
    weight, batch = tf.Variable(0.0), np.full([4], 16.0, np.float32)

    def step(x):
        x /= 2.0
        weight.assign_sub(tf.reduce_mean(x))
        return weight.read_value()

    hand = live_hand(step)
    for expected in (-8.0, -12.0, -14.0, -15.0, -15.5):
        hand(batch)
        assert weight.numpy() == expected
    assert "changes an array" in hand.live.left_alone


def whole(x):
    return x


def first_two(x):
    return x[:2]


@pytest.mark.parametrize("view", [whole, first_two])
def test_a_step_that_changes_its_array_only_later_changes_it(two_cpus, live_hand, view):
    def run(wrap):
        weight, config, scale = tf.Variable(1.0), {"decay": False}, np.full([4], 16.0, np.float32)

        def step(x, scale):
            if config["decay"]:
                part = view(scale)
                part *= 0.5
            weight.assign_sub(0.001 * tf.reduce_sum(x * scale) * weight)
            return weight.read_value()

        call = wrap(step)
        for i in range(12):
            config["decay"] = i >= 8
            call(tf.ones([4]), scale)
            if i == 4 and call is not step:
                call.place()
        return weight.numpy(), scale.tolist(), call

    alone, expected, _ = run(lambda step: step)
    found, scale, hand = run(live_hand)
    np.testing.assert_allclose(found, alone, rtol=1e-6)
    assert scale == expected
    assert "changes an array that it is given (`*=` in step)" in hand.live.left_alone


def test_a_step_that_makes_other_tensors_of_its_array_is_placed(two_cpus, live_hand):
    weight, batch, expected = tf.Variable(0.0), np.full([4], 16.0, np.float32), 0.0

    def step(x):
        total = tf.reduce_sum(x)
        total /= 4.0
        x = x * 2.0
        x += 1.0
        weight.assign_add(total + x[0])
        return weight.read_value()

    hand = live_hand(step)
    for i in range(8):
        hand(batch)
        expected += 16.0 + 33.0
        assert weight.numpy() == expected
        if i == 4:
            hand.place()
    assert hand.live.left_alone is None and hand.moves


def cast(x):
    return tf.cast(x, tf.float32)


def converted(x):
    return tf.convert_to_tensor(x)


def reshaped(x):
    return tf.reshape(x, [-1, 2])


@pytest.mark.parametrize("own", [cast, converted, reshaped])
def test_a_step_that_changes_a_tensor_made_of_its_array_is_placed(two_cpus, live_hand, own):
    weight, batch, expected = tf.Variable(0.0), np.full([4], 16.0, np.float32), 0.0

    def step(x):
        x = own(x)
        x /= 2.0
        weight.assign_add(tf.reduce_mean(x))
        return weight.read_value()

    hand = live_hand(step)
    for i in range(8):
        hand(batch)
        expected += 8.0
        assert weight.numpy() == expected and (batch == 16.0).all()
        if i == 4:
            hand.place()
    assert hand.live.left_alone is None and hand.moves


def test_an_array_of_not_a_number_is_no_changed_one(two_cpus, live_hand):
    weight = tf.Variable(0.0)

    def step(x):
        weight.assign_sub(tf.reduce_mean(tf.where(tf.math.is_nan(x), 1.0, x)))
        return weight.read_value()

    hand = live_hand(step)
    for _ in range(4):
        hand(np.array([np.nan, 3.0], np.float32))
    assert hand.live.left_alone is None
    hand.place(first=False)
    hand(np.array([np.nan, 3.0], np.float32))
    assert weight.numpy() == -10.0


def test_an_array_is_made_a_tensor_only_by_calls_that_take_tensors(two_cpus, live_hand, monkeypatch):
    weight, made, convert = tf.Variable(0.0), [], tf.convert_to_tensor

    @tf.function
    def step(x):
        weight.assign_sub(tf.reduce_mean(x))
        return weight.read_value()

    hand = live_hand(step)
    for _ in range(4):
        hand(ARRAY)
    monkeypatch.setattr(tf, "convert_to_tensor", lambda *given: made.append(given) or convert(*given))
    hand(ARRAY)
    assert not made
    hand.place(first=False)
    made.clear()
    hand(ARRAY)
    assert len(made) == 1 and weight.numpy() == -6 * 255.0


@pytest.mark.parametrize("wrap", [tf.function, lambda step: step], ids=["tf.function", "plain"])
def test_an_iterator_over_single_tensors_is_no_array(two_cpus, live_hand, wrap):
    weight, batches = tf.Variable(0.0), iter(tf.data.Dataset.from_tensors(tf.ones([4])).repeat())

    @wrap
    def step(iterator):
        weight.assign_sub(tf.reduce_mean(next(iterator)))
        return weight.read_value()

    hand = live_hand(step)
    for i in range(4):
        hand(batches)
        assert weight.numpy() == -(i + 1)
    hand.place(first=False)
    hand(batches)
    assert weight.numpy() == -5 and hand.live.left_alone is None


def test_an_array_beside_an_iterator_leaves_a_plain_step_alone(two_cpus, live_hand):
    weight, scale = tf.Variable(0.0), np.full([1], 16.0, np.float32)
    batches = iter(tf.data.Dataset.from_tensors(tf.ones([4])).repeat())

    def step(iterator, scale):
        weight.assign_sub(tf.reduce_mean(next(iterator)) * scale[0])
        return weight.read_value()

    hand = live_hand(step)
    for expected in (-8.0, -12.0, -14.0, -15.0, -15.5):
        scale /= 2.0
        hand(batches, scale)
        assert weight.numpy() == expected
    assert "beside an iterator" in hand.live.left_alone


def test_a_changed_array_is_seen_beside_numbers_and_ragged_tensors(two_cpus, live_hand):
    weight, batch = tf.Variable(0.0), np.full([2], 16.0, np.float32)
    ragged = tf.ragged.constant([[1.0], [1.0, 1.0]])

    def step(rows, rate, x):
        x /= 2.0
        weight.assign_sub(tf.reduce_mean(x) * rate * tf.reduce_max(rows))
        return weight.read_value()

    hand, expected, scale = live_hand(step), 0.0, 16.0
    for i in range(6):
        scale /= 2.0
        expected -= scale * (1.0 + i)
        hand(ragged, 1.0 + i, batch)
        assert weight.numpy() == expected
    assert hand.live.left_alone


def test_numpy_scalars_and_arrays_in_containers_are_given_as_they_are(two_cpus, live_hand):
    weight, kinds = tf.Variable(0.0), []

    def step(batch, scale):
        kinds.append((type(batch["x"]), type(scale)))
        weight.assign_sub(tf.reduce_mean(batch["x"]) * float(scale))
        return weight.read_value()

    hand = live_hand(step)
    for _ in range(4):
        hand({"x": ARRAY}, np.float32(0.5))
    assert weight.numpy() == -4 * 127.5
    assert set(kinds[:2]) == {(np.ndarray, np.float32)}


class Framed:
    """Can be read as an array, and is none, as a table of another library."""

    def __array__(self, dtype=None, copy=None):
        return np.ones([4], dtype or np.float32)


def test_what_could_be_read_as_an_array_leaves_a_plain_step_alone(two_cpus, live_hand):
    weight = tf.Variable(0.0)

    def step(x):
        weight.assign_sub(2.0 if isinstance(x, Framed) else 1.0)
        return weight.read_value()

    hand = live_hand(step)
    for i in range(4):
        hand(Framed())
        assert weight.numpy() == -2.0 * (i + 1)
    assert "Framed" in hand.live.left_alone


@pytest.mark.parametrize("inner_is_placed", [True, False])
def test_a_step_within_a_step_trains_once(two_cpus, live_hand, inner_is_placed):
    session, weight = DeviceSession(None, False), tf.Variable(10.0)

    @tf.function
    def sub(x):
        weight.assign_sub(x)
        return weight.read_value()

    inner = live_hand(sub, session=session)
    outer = live_hand(lambda x: inner(x), session=session)
    for _ in range(4):
        inner(ONE)
    if inner_is_placed:
        inner.place(first=False)
        inner(ONE)
    before = weight.numpy()
    for i in range(4):
        assert float(outer(ONE)) == weight.numpy() == before - 1.0 - i
    assert float(inner(ONE)) == weight.numpy() == before - 5.0


@pytest.mark.parametrize(
    "argument", [lambda: iter([ONE, ONE]), lambda: np.array([ONE, None]), lambda: {1: ONE, "a": ONE}]
)
def test_an_argument_that_no_trace_can_take_leaves_the_step_alone(two_cpus, live_hand, argument):
    weight = tf.Variable(10.0)

    def step(given):
        weight.assign_sub(ONE)
        return given

    hand = live_hand(step)
    for i in range(4):
        given = argument()
        assert hand(given) is given
        assert weight.numpy() == 9.0 - i
    assert hand.live.left_alone


def test_a_variable_that_begins_with_the_first_batch_does(two_cpus, live_hand):
    class Normalised(tf.Module):
        bias = None

        @tf.function
        def step(self, x):
            if self.bias is None:
                self.bias = tf.Variable(-tf.reduce_mean(x, 0))
            self.bias.assign_sub(0.1 * tf.reduce_mean(x + self.bias, 0))
            return tf.reduce_sum(self.bias)

    alone, wrapped = Normalised(), Normalised()
    hand = live_hand(wrapped.step)
    for i in range(5):
        batch = tf.fill([4, 2], 1.0 + i)
        assert float(hand(batch)) == float(alone.step(batch))
    assert wrapped.bias.numpy().tolist() == alone.bias.numpy().tolist()


def test_under_a_tape_a_function_is_given_tensors_for_arrays(two_cpus, live_hand):
    weight = tf.Variable(10.0)

    @tf.function
    def step(x):
        rows = x.shape.as_list()[0]
        weight.assign_sub(tf.reduce_sum(x) / rows)
        return weight.read_value()

    hand, batch = live_hand(step), np.ones([4, 2], np.float32)
    hand(batch)
    with pytest.warns(UserWarning, match="GradientTape"), tf.GradientTape():
        hand(batch)
    assert weight.numpy() == 6.0


def test_a_variable_among_the_arguments_is_named(two_cpus, live_hand):
    mine, other = tf.Variable(0.0), tf.Variable(0.0)
    hand = live_hand(tf.function(lambda x, v: v.assign_add(x)))
    for i in range(6):
        hand(ONE, (mine, other)[i % 2])
    assert (mine.numpy(), other.numpy()) == (3.0, 3.0)
    assert "takes a tf.Variable, or another resource, as an argument" in hand.live.left_alone


def test_two_signatures_of_a_step_that_calls_a_function_which_is_not_inlined_are_both_placed(two_cpus, live_hand):
    def made():
        weight = tf.Variable(tf.ones([4, 1]))

        @tf.function(
            input_signature=[tf.TensorSpec([None, 1]), tf.TensorSpec([])], experimental_attributes={"_noinline": True}
        )
        def mean(errors, count):
            return tf.reduce_sum(errors) / count

        def step(x):
            with tf.GradientTape() as tape:
                errors = (x @ weight) ** 2
            weight.assign_sub(0.01 * tape.gradient(errors, weight) / float(x.shape[0]))
            return mean(errors, tf.constant(float(x.shape[0])))

        return tf.function(step), weight

    (step, weight), (alone, expected) = made(), made()
    hand = live_hand(step)
    for i in range(12):
        if i == 4:
            hand.place()
        x = tf.random.stateless_normal([63 if i > 5 and i % 2 else 64, 4], [i, 1])
        assert hand(x).numpy() == alone(x).numpy()
        assert (weight.numpy() == expected.numpy()).all()
    assert [variant.following is not None for variant in hand.live.variants] == [False, True]


def test_arrays_of_another_type_than_a_step_declares_are_placed_as_it_takes_them(two_cpus, live_hand):
    def made():
        weight = tf.Variable(tf.ones([4, 1]))

        @tf.function(input_signature=[tf.TensorSpec([None, 4])])
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ weight) ** 2)
            weight.assign_sub(0.01 * tape.gradient(loss, weight))
            return loss

        return step, weight

    (step, weight), (alone, expected) = made(), made()
    hand, rng = live_hand(step), np.random.default_rng(0)
    for i in range(12):
        if i == 4:
            hand.place()
        x = rng.normal(size=(64, 4))
        assert hand(x).numpy() == alone(x).numpy()
        assert (weight.numpy() == expected.numpy()).all()
    assert hand.live.left_alone is None and hand.moves


def test_numbers_and_named_arrays_are_of_the_types_that_a_step_declares(two_cpus, live_hand):
    def made():
        weight = tf.Variable(tf.ones([4, 1]))

        @tf.function(
            input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.float32)]
        )
        def step(x, i, rate):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ weight) ** 2) + tf.cast(i % 3, tf.float32)
            weight.assign_sub(rate * tape.gradient(loss, weight))
            return loss

        return step, weight

    (step, weight), (alone, expected) = made(), made()
    hand, rng = live_hand(step), np.random.default_rng(0)
    for i in range(12):
        if i == 4:
            hand.place()
        x, rate = rng.normal(size=(64, 4)), np.interp(i, [0, 12], [0.02, 0.0])
        assert hand(x, rate=rate, i=i).numpy() == alone(x, rate=rate, i=i).numpy()
        assert (weight.numpy() == expected.numpy()).all()
    assert hand.live.left_alone is None and hand.moves
    assert len(hand.live.variants) == 1


def test_arrays_of_float64_are_named_where_no_trace_takes_them(two_cpus, live_hand):
    weight = tf.Variable(0.0)

    def step(x):
        weight.assign_add(tf.reduce_mean(x + tf.ones([4])))
        return weight.read_value()

    hand = live_hand(step)
    for i in range(5):
        hand(np.ones([4]))
        assert weight.numpy() == 2.0 * (i + 1)
    assert "pass an array of float32" in hand.live.left_alone


def asks_by_isinstance(x):
    return x / 255.0 if isinstance(x, np.ndarray) else x


def asks_by_type(x):
    return x / 255.0 if type(x) is np.ndarray else x


def asks_by_tensorflow(x):
    return x if tf.is_tensor(x) else x / 255.0


def asks_what_is_made_of_it(x):
    y = x * 2.0
    return y / 510.0 if isinstance(y, np.ndarray) else x


@tf.autograph.experimental.do_not_convert
def asks_unconverted(x):
    return x / 255.0 if not hasattr(x, "graph") else x


def asks_by_keras(x):
    return x if keras.ops.is_tensor(x) else x / 255.0


ASKING = (
    asks_by_isinstance,
    asks_by_type,
    asks_by_tensorflow,
    asks_what_is_made_of_it,
    asks_unconverted,
    asks_by_keras,
)


@pytest.mark.parametrize("scaled", ASKING)
def test_a_step_that_asks_for_the_type_of_an_array_is_left_alone(two_cpus, live_hand, scaled):
    """It draws random numbers without a seed, so that no trial can compare what it computes with its eager calls."""
    weight = tf.Variable(0.0)

    def step(x):
        weight.assign_sub(tf.reduce_mean(scaled(x)) + 0.0 * tf.random.uniform([]))
        return weight.read_value()

    hand = live_hand(step)
    for i in range(6):
        hand(ARRAY)
        assert weight.numpy() == -(i + 1)
        if hand.live.left_alone is None and hand.live.is_ready and i >= 2:
            hand.move() if hand.live.is_joined else hand.place()
    assert "it asks for the type of an argument (`" in hand.live.left_alone


class Scale(keras.layers.Layer):
    """AutoGraph converts nothing that Keras calls."""

    def call(self, x, n):
        late = isinstance(n, int) and n > 8
        return x * (2.0 if late or (np.isscalar(n) and n > 12) else 1.0)


def scaled_in_a_layer():
    layer = Scale()
    return lambda x, n: layer(x, n=n) * n


def scaled_in_the_step():
    def scaled(x, n):
        rate = n * 0.5
        return x * rate if isinstance(n, int) and isinstance(rate, float) else x

    return scaled


@pytest.mark.parametrize("asking", [scaled_in_the_step, scaled_in_a_layer])
@pytest.mark.parametrize("wrap", [lambda step: step, tf.function], ids=["plain", "tf.function"])
@pytest.mark.filterwarnings("ignore:.*untouched")
def test_a_step_that_asks_whether_a_number_is_one_trains_as_alone(two_cpus, live_hand, wrap, asking):
    def made():
        weight, scaled = tf.Variable(0.0), asking()

        def step(x, n):
            weight.assign_sub(tf.reduce_mean(scaled(x, n)))
            return weight.read_value()

        return wrap(step), weight

    (step, weight), (alone, expected) = made(), made()
    hand = live_hand(step)
    for i in range(16):
        x = tf.random.stateless_normal([4], [i, 1])
        hand(x, i)
        alone(x, i)
        assert weight.numpy() == expected.numpy()
        main = hand.live.variants.main
        if hand.live.left_alone is None and main.layout.numbers and hand.live.is_ready and not main.refused and i >= 8:
            hand.move() if hand.live.is_joined else hand.place()
    assert hand.moves == 0


def test_a_step_that_asks_for_other_types_is_placed(two_cpus, live_hand):
    weight = tf.Variable(0.0)

    def step(x, sign):
        x = x["batch"] if isinstance(x, dict) else tf.convert_to_tensor(x)
        if isinstance(weight, tf.Variable) and not isinstance(x, (tf.Variable, tf.SparseTensor)):
            weight.assign_sub(tf.reduce_mean(x) * (1.0 if isinstance(sign, str) else 0.0))
        return weight.read_value()

    hand = live_hand(step)
    for i in range(6):
        hand(ARRAY, "plus")
        assert weight.numpy() == -255.0 * (i + 1)
        if hand.live.is_ready and i >= 2:
            hand.move() if hand.live.is_joined else hand.place()
    assert hand.live.left_alone is None and hand.moves > 0


def test_a_step_that_returns_a_dict_whose_keys_have_no_order_returns_it(two_cpus, live_hand):
    weight = tf.Variable(0.0)

    def step(x):
        weight.assign_add(tf.reduce_sum(x))
        return {"loss": weight.read_value(), 0: x}

    hand = live_hand(step)
    for i in range(4):
        assert float(hand(ONE)["loss"]) == i + 1
    assert hand.live.left_alone is not None


def masked():
    return keras.Sequential([keras.layers.Embedding(9, 4, mask_zero=True), keras.layers.Dense(3)])


def test_a_mask_that_a_step_returns_with_a_tensor_is_there(two_cpus, live_hand):
    model, weight = masked(), tf.Variable(0.0)

    def step(x):
        logits = model(x)
        weight.assign_add(tf.reduce_mean(logits))
        return logits

    hand, ids = live_hand(step), [[1, 2, 0, 0], [3, 0, 0, 0], [4, 5, 6, 0]]
    for i in range(9):
        x = tf.constant([ids[i % 3]])
        assert hand(x)._keras_mask.numpy().tolist() == [[one > 0 for one in ids[i % 3]]]
        if i == 4:
            hand.place()
    assert hand.live.left_alone is None and hand.moves


def test_a_mask_that_a_branch_would_lose_leaves_a_step_alone(two_cpus, live_hand):
    model, other, weight = masked(), masked(), tf.Variable(0.0)

    def step(x):
        logits = model(x) if tf.reduce_sum(x) > 2 else other(x)
        weight.assign_add(tf.reduce_mean(logits))
        return logits

    other(tf.constant([[1, 2, 0, 0]]))
    hand = live_hand(step)
    for _ in range(5):
        assert hand(tf.constant([[1, 2, 0, 0]]))._keras_mask.numpy().tolist() == [[True, True, False, False]]
    assert "a Keras mask, which a branch or loop gives" in hand.live.left_alone


def test_a_mask_that_comes_with_an_argument_is_seen(two_cpus, live_hand):
    encoder, head, weight = masked(), keras.layers.GlobalAveragePooling1D(), tf.Variable(0.0)

    def step(h):
        weight.assign_add(tf.reduce_sum(head(h)))
        return weight.read_value()

    hand, x, expected = live_hand(step), tf.constant([[1, 2, 0, 0]]), 0.0
    for _ in range(4):
        hand(encoder(x))
        expected += float(tf.reduce_mean(encoder(x)[0, :2], 0).numpy().sum())
        np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-5)
    assert "it takes a tensor with a Keras mask" in hand.live.left_alone


@pytest.mark.parametrize("nested", [lambda x: x, lambda x: {"x": x}])
def test_an_attribute_of_an_argument_is_seen(two_cpus, live_hand, nested):
    total = tf.Variable(0.0)

    def step(given):
        x = tf.nest.flatten(given)[0]
        total.assign_add(tf.reduce_sum(x) * getattr(x, "weight", 1.0))
        return total.read_value()

    hand = live_hand(step)
    for i in range(8):
        x = tf.ones([2])
        if i >= 6:
            x.weight = 0.5
        hand(nested(x))
        if i == 4:
            hand.place()
    assert total.numpy() == 6 * 2 + 2
    assert hand.moves and "it takes a tensor with an attribute of the program's (`weight`)" in hand.live.left_alone


def test_an_attribute_of_what_a_step_returns_leaves_it_alone(two_cpus, live_hand):
    total = tf.Variable(0.0)

    def step(x):
        total.assign_add(tf.reduce_sum(x))
        found = total.read_value()
        found.count = 2
        return found

    hand = live_hand(step)
    assert [hand(tf.ones([2])).count for _ in range(6)] == [2] * 6
    assert "it returns a tensor with an attribute of the program's (`count`)" in hand.live.left_alone


@pytest.mark.parametrize("asks", [False, True])
def test_one_tensor_as_two_arguments_is_one_where_a_step_asks(two_cpus, live_hand, asks):
    total = tf.Variable(0.0)

    def reconstructs(x, target=None):
        target = x if target is None else target
        total.assign_add(tf.reduce_sum(x + target))
        return total.read_value()

    def compares(x, target):
        total.assign_add(tf.reduce_sum(x) if target is x else tf.reduce_sum(x + target))
        return total.read_value()

    hand, x = live_hand(compares if asks else reconstructs), tf.ones([2])
    for i in range(8):
        hand(x, x + 0.0 if asks and i < 6 else x)
        if i == 4:
            hand.place()
    assert total.numpy() == (6 * 4 + 2 * 2 if asks else 8 * 4) and hand.moves
    assert ("it takes one tensor as two arguments" in (hand.live.left_alone or "")) == asks


@pytest.mark.parametrize(
    ("make", "summed"),
    [
        (lambda: np.ones([2], np.float32), tf.reduce_sum),
        (lambda: tf.RaggedTensor.from_row_lengths([1.0, 1.0], [1, 1]), lambda x: tf.reduce_sum(x.flat_values)),
    ],
)
def test_an_array_and_a_ragged_tensor_are_one_as_two_arguments_too(two_cpus, live_hand, make, summed):
    total, x = tf.Variable(0.0), make()

    def step(x, target):
        total.assign_add(2.0 * summed(x) if target is x else summed(x) + 3.0 * summed(target))
        return total.read_value()

    hand = live_hand(step)
    for i in range(8):
        hand(x, make() if i < 6 else x)
        if i == 4:
            hand.place()
    assert total.numpy() == 6 * 8 + 2 * 4 and hand.moves
    assert "it takes one tensor as two arguments" in hand.live.left_alone


class Autoencoder:
    def __init__(self):
        self.total, self.kind, self.other = tf.Variable(0.0), "mean", "sum"
        self.layers = [tf.Variable(1.0), tf.Variable(2.0)]

    def step(self, x, target):
        sentinel = None
        if None is x or x is sentinel or True is target or self.kind is self.other:
            return self.total.read_value()
        for layer in self.layers:
            x = x * layer if layer is self.layers[-1] else x + layer
        self.total.assign_add(tf.reduce_sum(x - target))
        return self.total.read_value()


def test_one_tensor_as_two_arguments_is_placed_where_a_step_asks_for_other_things(two_cpus, live_hand):
    auto = Autoencoder()
    hand, x = live_hand(auto.step), tf.ones([2])
    for i in range(8):
        assert float(hand(x, x)) == 6.0 * (i + 1)
        if i == 4:
            hand.place()
    assert hand.moves and hand.live.left_alone is None


LAST = tf.constant([1.0, 2.0])


@pytest.mark.parametrize("held", ["attribute", "global", "closure", "array"])
def test_a_tensor_that_the_step_has_already_is_known_where_it_asks(two_cpus, live_hand, held):
    anchor = np.array([1.0, 2.0], np.float32) if held == "array" else LAST

    class Trainer:
        def __init__(self):
            self.total, self.anchor = tf.Variable(0.0), anchor

        def by_attribute(self, x):
            self.total.assign_add(tf.reduce_sum(x) * (2.0 if x is self.anchor else 1.0))
            return self.total.read_value()

        def by_global(self, x):
            self.total.assign_add(tf.reduce_sum(x) * (2.0 if LAST is x else 1.0))
            return self.total.read_value()

        def by_closure(self, x):
            self.total.assign_add(tf.reduce_sum(x) * (2.0 if x is anchor else 1.0))
            return self.total.read_value()

    trainer = Trainer()
    hand = live_hand(getattr(trainer, f"by_{'closure' if held == 'array' else held}"))
    for i in range(8):
        hand(anchor + 0.0 if i < 6 else anchor)
        if i == 4:
            hand.place()
    assert trainer.total.numpy() == 6 * 3 + 2 * 6 and hand.moves
    assert "a tensor that it also reads of Python's state" in hand.live.left_alone
