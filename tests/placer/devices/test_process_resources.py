"""What joining workers would take from a program is found before it is taken."""

from __future__ import annotations

import gc
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

from placer import tf_internals
from placer.devices import process_resources
from placer.devices.process_resources import dropped_by_joining
from placer.train.connection import Connection
from search.online.journal import Journal


@pytest.fixture(autouse=True)
def only_those_of_the_test():
    """Other tests may have left some, and a seed: `gc.get_referrers`, by which all are found, does not see what is
    frozen.
    """
    tf.random.set_seed(None)
    gc.freeze()


def table(anonymous=False):
    pairs = tf.lookup.KeyValueTensorInitializer(["a"], [1])
    return tf.lookup.StaticHashTable(pairs, 0, experimental_is_anonymous=anonymous)


def augmented():
    level = tf.Variable(0.5)
    return tf.data.Dataset.range(3).map(lambda i: tf.cast(i, tf.float32) * level)


HELD = {
    "a lookup table (StaticHashTable)": table,
    "a lookup table (MutableHashTable)": lambda: tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0),
    "a lookup table": lambda: tf.data.Dataset.from_tensors(["a"]).map(keras.layers.StringLookup(vocabulary=["a"])),
    "a summary writer": None,
    "a variable's handle in a function of a tf.data pipeline": lambda: augmented(),
    "a queue (FIFOQueue)": lambda: tf.queue.FIFOQueue(2, [tf.float32]),
}


@pytest.mark.parametrize("what", HELD)
def test_what_is_found_by_name_is_named(what, tmp_path):
    assert dropped_by_joining() is None
    make = HELD[what] or (lambda: tf.summary.create_file_writer(str(tmp_path)))
    held = make()
    assert held is not None and (dropped_by_joining() or "").startswith(what)


def test_what_outlasts_joining_is_not_named(tmp_path):
    held = [table(anonymous=True), tf.Variable(1.0), tf.random.Generator.from_seed(1)]
    held += [tf.data.Dataset.range(3).map(lambda i: i), tf.summary.create_noop_writer()]
    held += [tf.summary.create_file_writer(str(tmp_path / "closed")), Journal(tmp_path / "ours")]
    held[-2].close()
    held[-1].scalar(0, "step_s", 0.1)
    assert held and dropped_by_joining() is None
    assert set(tf_internals.resources.named_resource_kinds()) == set(process_resources.IN_WORDS)


def test_a_tape_whose_gradient_is_still_to_be_taken_keeps_workers_from_being_joined_and_left():
    weight = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        loss = weight * weight
    for done in ("joined", "left"):
        assert "a tf.GradientTape whose gradient was not taken yet" in (process_resources.refusal(done) or "")
    assert "record it anew" in process_resources.remedy(process_resources.TAPE)
    assert float(tape.gradient(loss, weight)) == 4.0 and dropped_by_joining() is None


def test_a_tape_that_only_garbage_holds_keeps_nobody_from_joining():
    weight, connection, held = tf.Variable(2.0), Connection("workers:2", False), []
    with tf.GradientTape() as tape:
        weight * weight
    held += [tape, held]  # a cycle, as AutoGraph makes of what a step's functions share
    del tape
    assert process_resources.TAPE in (connection.refusal("joined") or "")
    del held
    assert connection.refusal("joined") is None


def noisy(**seed):
    """A tf.function that draws, and was called."""

    @tf.function
    def noise(x):
        return x + tf.random.normal([2], **seed)

    noise(tf.ones([2]))
    return noise


@pytest.mark.parametrize("seed", [{}, {"seed": 5}])
def test_a_function_that_draws_from_a_seed_keeps_workers_from_being_joined_and_not_from_being_left(seed):
    tf.random.set_seed(None if seed else 3)
    try:
        held = noisy(**seed)
    finally:
        tf.random.set_seed(None)
    assert held is not None and dropped_by_joining() == process_resources.SEEDED
    assert "would begin these anew when workers are joined" in (process_resources.refusal("joined") or "")
    assert dropped_by_joining(left=True) is None and process_resources.refusal("left") is None
    assert process_resources.remedy(process_resources.SEEDED).endswith("which it now draws from the beginning")


def test_draws_without_a_seed_of_a_generator_and_within_a_pipeline_are_kept():
    @tf.function
    def scattered(i):
        return tf.cast(i, tf.float32) + tf.random.normal([2], seed=7)

    generator = tf.random.Generator.from_seed(1)
    drawn = tf.function(lambda: generator.normal([2]))
    drawn()
    pipelines = [tf.data.Dataset.range(3).map(f) for f in (scattered, lambda i: tf.random.uniform([], seed=5))]
    assert [noisy(), pipelines] and dropped_by_joining() is None


def test_a_pipeline_whose_function_could_not_be_traced_holds_nothing():
    level = tf.Variable(1.0)
    with pytest.raises(Exception, match="division by zero") as kept:
        tf.data.Dataset.range(3).map(lambda i: level * (1 / 0))
    assert kept.tb and dropped_by_joining() is None


PIPELINE = """
import time
import tensorflow as tf, placer
level, weight = tf.Variable(0.0), tf.Variable(1.0)
batches = tf.data.Dataset.from_tensors(tf.ones([4])).map(lambda x: x * level)
step = placer.autoplace(tf.function(lambda x: weight.assign_add(tf.reduce_sum(x))), devices="workers:2")
begin = time.monotonic()
for i in range(1, 100_000):
    level.assign(float(i))
    for x in batches:
        assert float(tf.reduce_sum(x)) == 4.0 * i
        step(x)
    if step.left_alone or time.monotonic() > begin + 600:
        break
    time.sleep(0.01)
print(step.left_alone)
step.close()
"""


@pytest.mark.workers
@pytest.mark.nightly
def test_a_pipeline_with_a_variable_of_its_own_keeps_workers_from_being_joined():
    ran = subprocess.run([sys.executable, "-c", PIPELINE], capture_output=True, text=True, timeout=900)
    assert "holds a variable's handle in a function of a tf.data pipeline" in ran.stdout, (
        ran.stdout + ran.stderr[-3000:]
    )


SEEDED = """
import sys, time
import tensorflow as tf, placer
tf.random.set_seed(1)
weight = tf.Variable(tf.ones([4]))
noise = tf.function(lambda x: x + tf.random.normal([4]))
step = tf.function(lambda x: weight.assign(0.9 * weight + 0.1 * tf.tanh(x)))
if wrapped := sys.argv[1] == "wrapped":
    step = placer.autoplace(step, devices="workers:2")
begin = time.monotonic()
for i in range(200):
    step(noise(tf.ones([4])))
    while wrapped and i == 190 and not step.left_alone and time.monotonic() < begin + 600:
        time.sleep(0.1)  # the search goes on beside the training
print(weight.numpy().tolist(), step.left_alone if wrapped else None, sep="|")
"""


@pytest.mark.workers
@pytest.mark.nightly
def test_a_program_that_draws_from_a_seed_goes_on_as_alone():
    found = []
    for how in ("alone", "wrapped"):
        ran = subprocess.run([sys.executable, "-c", SEEDED, how], capture_output=True, text=True, timeout=900)
        assert ran.returncode == 0, ran.stderr[-2000:]
        found.append(ran.stdout.strip().split("|"))
    assert found[0][0] == found[1][0] and "draws random numbers from a seed" in found[1][1]


LOSS = """
import os, signal, time, warnings
import tensorflow as tf, placer
from search.online.phases import retry_later
retry_later.MOST_REFUSED_SHARE = 1.0
level, weight = tf.Variable(1.0), tf.Variable(1.0)
step = placer.autoplace(
    tf.function(lambda x: weight.assign_add(tf.reduce_sum(x) + tf.reduce_max(x))), devices="workers:2", budget=2,
    beat_untouched=False,
)

def scaled():
    return tf.data.Dataset.from_tensors(tf.ones([4])).map(lambda x: x * level)

def first(batches):
    return float(next(iter(batches))[0])

def until(holds):
    begin = time.monotonic()
    while not holds():
        assert time.monotonic() < begin + 600, step.report()
        step(tf.ones([4]))
        time.sleep(0.001)

def said():
    return [entry.sentence for entry in step.journal.entries if entry.kind == "lost"]

until(lambda: step.phase == "steady")
session = step._session
before, replay = scaled(), session.log.replay

def interrupted():  # by Ctrl-C, while the training is recovered; the next call begins that anew
    session.log.replay = replay
    raise KeyboardInterrupt

session.log.replay = interrupted
os.kill(session.connection.workers.processes[1].pid, signal.SIGKILL)
try:
    until(said)
    raise AssertionError("no recovery was interrupted")
except KeyboardInterrupt:
    until(said)
assert "a tf.data pipeline of this program goes on with the former value of a variable" in said()[0], said()
level.assign(3.0)
made = scaled()
assert first(made) == 3.0
until(lambda: len(said()) > 1)
assert said()[1].startswith("worker:1 came back, but is not joined: this program holds"), said()
level.assign(4.0)
assert first(made) == 4.0 and session.missing == ("worker:1",)
del made
until(lambda: not session.missing)  # the pipeline of before has nothing more to lose
assert len(said()) == 2 and first(before) == 1.0, said()
made = scaled()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    step.close()
assert "make the pipeline anew" in str(told[0].message), told
print("told")
"""


@pytest.mark.nightly
@pytest.mark.workers
def test_a_pipeline_made_since_is_named_when_a_worker_is_lost_and_keeps_it_from_being_joined_again():
    ran = subprocess.run([sys.executable, "-c", LOSS], capture_output=True, text=True, timeout=900)
    assert ran.stdout == "told\n", ran.stdout + ran.stderr[-3000:]


PROGRAM = """
import tensorflow as tf, placer
table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0]), 0.0)
weight = tf.Variable(0.0)

@tf.function
def step(x):
    weight.assign_add(x)
    return weight.read_value()

with placer.autoplace(step, devices="workers:2", budget=2) as placed:
    for _ in range(1_000_000):  # as many as it takes until it would join workers
        placed(table.lookup(tf.constant("b")))
        if placed.left_alone:
            break
    print(placed.left_alone)
print(float(weight), float(table.lookup(tf.constant("a"))), placed.steps)
"""


@pytest.mark.slow
@pytest.mark.workers
def test_a_program_with_a_table_keeps_it():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    why, end = done.stdout.strip().splitlines()
    assert "a lookup table (StaticHashTable), which TensorFlow drops when workers are joined" in why
    weight, looked_up, steps = map(float, end.split())
    assert (weight, looked_up) == (2 * steps, 1.0)


def source():
    return tf.data.Dataset.range(8)


def both_parts(dataset):
    return dataset.take(5).batch(2), dataset.skip(5).batch(2)


FIXED = {"buffer_size": 8, "reshuffle_each_iteration": False}
LOSES = {
    "two parts of one order": ("order", lambda: both_parts(source().shuffle(**FIXED))),
    "a fixed order that is held": ("order", lambda: (held := source().shuffle(**FIXED), held.batch(2))),
    "a seed from which epochs go on": ("order", lambda: (held := source().shuffle(8, seed=1), held.batch(2))),
    "two parts of a cache": ("cache", lambda: both_parts(source().cache())),
    "a cache that is held": ("cache", lambda: (held := source().cache(), held.prefetch(1))),
    "one that is held after it": ("cache", lambda: (held := source().cache().map(lambda i: i), held.batch(2))),
    "a cache of which none is made just now": ("cache", lambda: (source().cache(),)),
    "an order of which none is made just now": ("order", lambda: (source().shuffle(**FIXED).map(lambda i: i),)),
    "a mixture that is held": (
        "draws",
        lambda: (
            held := tf.data.Dataset.sample_from_datasets([source(), source()], seed=1, rerandomize_each_iteration=True),
            held.batch(2),
        ),
    ),
    "parts of a structure": ("cache", lambda: (held := source().cache(), tf.data.Dataset.zip({"a": (held, source())}))),
}
KEEPS = {
    "one chain": lambda: source().map(lambda i: i + 1).cache().shuffle(8, seed=1).repeat(2).batch(2).prefetch(1),
    "one that ends in a cache": lambda: source().batch(2).cache(),
    "one whose batches are padded": lambda: source().padded_batch(2).shuffle(8, seed=1),
    "a cache in files": lambda: both_parts(source().cache("/nowhere/cache")),
    "orders that are anything": lambda: both_parts(source().shuffle(8)),
    "an order by a seed": lambda: both_parts(source().shuffle(**FIXED, seed=1)),
    "a mixture that is the same each time": lambda: both_parts(
        tf.data.Dataset.sample_from_datasets([source(), source()], seed=1)
    ),
    "what is held before it": lambda: (held := source().map(lambda i: i), held.cache().batch(2)),
    "one of several chains": lambda: (source().cache().batch(2), source().cache().batch(2)),
}


@pytest.mark.parametrize("what", LOSES)
@pytest.mark.parametrize("is_iterated", [False, True])
def test_a_dataset_of_which_several_pipelines_are_made_keeps_workers_from_being_joined_or_left(what, is_iterated):
    kept, make = LOSES[what]
    held = make()
    iterators = [iter(dataset) for dataset in held] if is_iterated and len(held) > 1 else []
    assert [next(iterator) for iterator in iterators] or not is_iterated or len(held) == 1
    assert dropped_by_joining() == dropped_by_joining(left=True) == process_resources.SHARED[kept]
    for done in ("joined", "left"):
        assert f"which TensorFlow drops when workers are {done}; " in (process_resources.refusal(done) or "")
    assert process_resources.remedy(process_resources.SHARED[kept]).endswith("begin anew")


@pytest.mark.parametrize("what", KEEPS)
def test_pipelines_that_are_iterated_as_they_are_do_not(what):
    held = KEEPS[what]()
    assert held is not None and dropped_by_joining() is None
    iterators = [iter(held)] if isinstance(held, tf.data.Dataset) else []
    assert [next(iterator) for iterator in iterators] or not iterators
    assert dropped_by_joining() is None


def test_a_pipeline_that_keras_fits_on_is_iterated_as_it_is():
    class Looks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            found.append(dropped_by_joining())

    found, model = [], keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    pairs = tf.data.Dataset.from_tensor_slices((tf.ones([8, 2]), tf.ones([8, 1])))
    pairs = pairs.cache().shuffle(8, seed=1).batch(4)
    model.fit(pairs, epochs=2, verbose=0, validation_data=pairs, shuffle=False, callbacks=[Looks()])
    assert len(found) == 4 and {*found} <= {None}


def test_a_cache_that_is_iterated_just_now_is_taken_for_a_whole_pipeline():
    held = source().cache()
    iterator = iter(held)
    assert next(iterator).numpy() == 0 and dropped_by_joining() is None


# As decision 042 says of TensorFlow; where a release keeps what datasets hold, nothing need be refused any more.
DROPPED = """
import sys
import tensorflow as tf
from placer.devices.opening import open_devices

def read(dataset):
    return [int(i) for batch in dataset for i in batch]

once = tf.data.Dataset.range(1000).shuffle(1000, reshuffle_each_iteration=False)
train, rest = once.take(500).batch(10), once.skip(500).batch(10)
drawn = tf.data.Dataset.range(9).map(lambda i: tf.random.uniform([], 0, 1 << 40, tf.int64)).cache()
whole = tf.data.Dataset.range(9).map(lambda i: tf.random.uniform([], 0, 1 << 40, tf.int64)).cache().batch(3)
first, cached, kept = read(train), read(drawn.batch(3)), read(whole)
assert read(drawn.batch(3)) == cached
with open_devices("workers:1", links=False, deadlines=True):
    print(bool({*first} & {*read(rest)}), read(drawn.batch(3)) == cached, read(whole) == kept, read(train) == first)
"""


@pytest.mark.workers
@pytest.mark.nightly
def test_tensorflow_drops_what_several_pipelines_share_and_keeps_what_one_has():
    ran = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=900)
    assert ran.stdout.split() == ["True", "False", "True", "True"], ran.stdout + ran.stderr[-3000:]
