"""The caller's variables stay true wherever a step trained them."""

from __future__ import annotations

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.execute import variable_copies
from placer.execute.variable_copies import Places, Transfers, variables_of
from placer.train.variables.replicas import Replicas, Use

SHAPE = (3, 2)


@pytest.fixture
def replicas():
    made = Replicas()
    yield made
    made.close()


@pytest.fixture
def here_and_there(two_cpus):
    return [two_cpus.tf_name(0), two_cpus.tf_name(1)]


def variables(count=2):
    return [tf.Variable(tf.fill(SHAPE, float(i))) for i in range(count)]


def adopted(replicas, where, written=(0,)):
    """Two variables, and their replicas on one device."""
    mine = variables()
    replicas.adopt(mine)
    return mine, replicas.use(mine, [where] * 2, set(written))


def train(replicas, use: Use):
    """A step that adds 1 to what it writes, on the replicas of `use`."""
    replicas.before(use)
    for i in use.written:
        use.replicas[i].assign_add(tf.ones(SHAPE))
    replicas.after(use)


def test_what_a_step_wrote_elsewhere_is_read_here(replicas, here_and_there):
    mine, use = adopted(replicas, here_and_there[1])
    for _ in range(3):
        train(replicas, use)
    assert (mine[0].numpy() == 3.0).all() and (mine[1].numpy() == 1.0).all()
    train(replicas, use)
    assert (np.asarray(mine[0] + 0.0) == 4.0).all()


def test_what_the_caller_writes_the_next_step_sees(replicas, here_and_there):
    mine, use = adopted(replicas, here_and_there[1])
    train(replicas, use)
    mine[0].assign(tf.fill(SHAPE, 10.0))
    train(replicas, use)
    mine[0].assign_add(tf.ones(SHAPE))
    train(replicas, use)
    assert (mine[0].numpy() == 13.0).all()


def test_the_truth_moves_with_the_step_from_device_to_device(replicas, here_and_there):
    mine, there = adopted(replicas, here_and_there[1], written=(0, 1))
    here = replicas.use(mine, [here_and_there[0]] * 2, {0, 1})
    mixed = replicas.use(mine, here_and_there, {0, 1})
    for use in (there, here, mixed, there, mixed, here):
        train(replicas, use)
    assert [v.numpy()[0, 0] for v in mine] == [6.0, 7.0]


def test_a_replica_on_the_variables_own_device_is_the_variable(replicas, here_and_there):
    mine = variables()
    replicas.adopt(mine)
    assert replicas.use(mine, [mine[0].device] * 2, set()).replicas == mine


def test_functions_traced_before_read_and_write_the_truth(replicas, here_and_there):
    mine = variables()
    look = tf.function(lambda: mine[0] + 0.0)
    double = tf.function(lambda: mine[0].assign(2.0 * mine[0]))
    look(), double()
    mine[0].assign(tf.zeros(SHAPE))
    replicas.adopt(mine)
    use = replicas.use(mine, [here_and_there[1]] * 2, {0})
    train(replicas, use)
    assert (look().numpy() == 1.0).all()
    train(replicas, use)
    double()
    train(replicas, use)
    assert (look().numpy() == 5.0).all()


def test_a_read_only_function_leaves_the_replicas_true(replicas, here_and_there, monkeypatch):
    mine = variables()
    look = tf.function(lambda: mine[0] + 0.0)
    replicas.adopt(mine)
    use = replicas.use(mine, [here_and_there[1]] * 2, {0})
    train(replicas, use)
    look()
    monkeypatch.setattr(Transfers, "__call__", lambda self, pairs: pytest.fail(f"{len(pairs)} fetched"))
    replicas.before(use)


def test_many_reads_fetch_all_at_once(replicas, here_and_there, monkeypatch):
    mine = variables(12)
    replicas.adopt(mine)
    use = replicas.use(mine, [here_and_there[1]] * 12, set(range(12)))
    train(replicas, use)
    fetched = []
    transfer = Transfers.__call__
    monkeypatch.setattr(Transfers, "__call__", lambda self, pairs: (fetched.append(len(pairs)), transfer(self, pairs)))
    assert [v.numpy()[0, 0] for v in mine] == [i + 1.0 for i in range(12)]
    assert fetched == [1, 1, 1, 9]


def test_reading_what_is_at_home_anyway_counts_as_no_reading(replicas, here_and_there, monkeypatch):
    """Such as a large frozen network that the program calls after each step."""
    mine = variables(60)
    replicas.adopt(mine)
    use = replicas.use(mine[:4], [here_and_there[1]] * 4, set(range(4)))
    fetched = []
    transfer = Transfers.__call__
    monkeypatch.setattr(Transfers, "__call__", lambda self, pairs: (fetched.append(len(pairs)), transfer(self, pairs)))
    for _ in range(3):
        train(replicas, use)
        del fetched[:]
        assert all(v.numpy() is not None for v in (*mine[4:], mine[0]))
        assert fetched == [1]


def test_what_is_read_after_each_step_is_fetched_at_once(replicas, here_and_there, monkeypatch):
    """The totals and counts of two metrics, say."""
    mine = variables(12)
    replicas.adopt(mine)
    use = replicas.use(mine, [here_and_there[1]] * 12, set(range(12)))
    fetched = []
    transfer = Transfers.__call__
    monkeypatch.setattr(Transfers, "__call__", lambda self, pairs: (fetched.append(len(pairs)), transfer(self, pairs)))
    for i in range(3):
        train(replicas, use)
        assert [v.numpy()[0, 0] for v in mine[:4]] == [j + i + 1.0 for j in range(4)]
    train(replicas, use)
    assert mine[5].numpy()[0, 0] == 9.0
    # All go to the device; then they are fetched one by one, all that are left, and those that are read at once.
    assert fetched == [12, 1, 1, 1, 9, 4, 4, 1]


def test_a_snapshot_survives_what_comes_after_and_is_restored(replicas, here_and_there):
    mine, use = adopted(replicas, here_and_there[1])
    train(replicas, use)
    kept = replicas.snapshot()
    train(replicas, use)
    replicas.restore(kept)
    assert (mine[0].numpy() == 1.0).all()
    use = replicas.use(mine, [here_and_there[1]] * 2, {0})
    train(replicas, use)
    assert (mine[0].numpy() == 2.0).all()


def test_the_callers_writes_are_told_once_with_their_values(replicas, here_and_there):
    mine, use = adopted(replicas, here_and_there[1])
    train(replicas, use)
    assert not replicas.writes()
    mine[1].assign(tf.fill(SHAPE, 7.0))
    told = replicas.writes()
    assert list(told) == [id(mine[1])] and (told[id(mine[1])].numpy() == 7.0).all()
    assert not replicas.writes()


def test_replicas_that_no_step_needs_are_freed_but_never_the_truth(replicas, here_and_there):
    mine, use = adopted(replicas, here_and_there[1])
    train(replicas, use)
    replicas.drop_unused([])
    assert (mine[0].numpy() == 1.0).all()
    replicas.drop_unused([])
    assert all(len(at) == 1 for at in replicas._at.values())


def test_of_several_true_replicas_that_no_step_needs_one_is_left(replicas, here_and_there):
    mine, first = adopted(replicas, here_and_there[1])
    second = replicas.use(mine, [in_halves(0, here_and_there)] * 2, set())
    train(replicas, first)
    replicas.before(second)
    replicas.after(second)
    replicas.drop_unused([])
    assert len(replicas._at[id(mine[0])]) == 2  # its own and one that is true
    assert (mine[0].numpy() == 1.0).all()


def test_a_replica_that_another_step_freed_is_made_again_with_the_true_value(replicas, here_and_there):
    mine, first = adopted(replicas, here_and_there[1])
    train(replicas, first)
    made = replicas.missing(mine, [here_and_there[1]] * 2)
    replicas.pull()
    replicas.drop_unused([])  # as a step does that goes to rest, between another's `missing` and `use`
    second = replicas.use(mine, [here_and_there[1]] * 2, {0}, made)
    assert not made and not {id(v) for v in second.replicas} & {id(v) for v in first.replicas}
    train(replicas, second)
    assert (mine[0].numpy() == 2.0).all()


def test_closing_leaves_true_variables_of_their_own_class(here_and_there):
    replicas = Replicas()
    mine = variables()
    plain = type(mine[0])
    replicas.adopt(mine)
    use = replicas.use(mine, [here_and_there[1]] * 2, {0})
    train(replicas, use)
    replicas.close()
    assert type(mine[0]) is plain and (mine[0].numpy() == 1.0).all()


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras with numpy 2
def test_keras_saves_and_loads_the_truth(replicas, here_and_there, tmp_path):
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2), keras.layers.BatchNormalization()])
    mine = [v.value for v in model.variables]
    replicas.adopt(mine)
    use = replicas.use(mine, [here_and_there[1]] * len(mine), set(range(len(mine))))
    before = [v.numpy() for v in mine]
    replicas.before(use)
    for replica in use.replicas:
        replica.assign_add(tf.ones_like(replica))
    replicas.after(use)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for a, b in zip(again.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b + 1)
    model.set_weights(before)
    replicas.before(use)
    for replica, b in zip(use.replicas, before, strict=True):
        np.testing.assert_array_equal(replica.numpy(), b)


def test_a_checkpoint_holds_the_truth_and_restores_it(replicas, here_and_there, tmp_path):
    mine, use = adopted(replicas, here_and_there[1])
    train(replicas, use)
    checkpoint = tf.train.Checkpoint(weights=mine)
    path = checkpoint.save(str(tmp_path / "c"))
    train(replicas, use)
    checkpoint.restore(path).assert_consumed()
    train(replicas, use)
    assert (mine[0].numpy() == 2.0).all()


def test_once_closed_nothing_keeps_variables_and_replicas_from_being_collected(replicas, here_and_there):
    mine, use = adopted(replicas, here_and_there[1])
    train(replicas, use)
    held = [weakref.ref(variable) for variable in (*mine, *use.replicas)]
    replicas.close()
    del mine, use
    gc.collect()
    assert [variable() for variable in held] == [None] * 4


def test_a_step_that_failed_half_way_is_rolled_back(replicas, here_and_there):
    here, there = here_and_there
    mine = variables()
    replicas.adopt(mine)
    train(replicas, replicas.use(mine, [there] * 2, {0}))  # to 1
    for where in ([there, there], [here, there], [here, here]):
        use = replicas.use(mine, where, {0, 1})
        kept = replicas.keep(use)
        assert len(kept) == where.count(here)  # copies only of what the step writes in place
        replicas.before(use)
        use.replicas[0].assign(tf.fill(SHAPE, 99.0))  # and then it fails
        replicas.after(use)
        replicas.roll_back(use, kept)
        assert [float(v.numpy()[0, 0]) for v in mine] == [1.0, 1.0]
        train(replicas, replicas.use(mine, [there] * 2, {0}))
        assert (mine[0].numpy() == 2.0).all()
        mine[0].assign(tf.fill(SHAPE, 1.0))


def test_closing_frees_all_replicas(replicas, here_and_there):
    mine, use = adopted(replicas, here_and_there[1])
    train(replicas, use)
    replicas.close()
    assert not replicas._at and not replicas._true and not replicas._home
    assert (mine[0].numpy() == 1.0).all()


# Divided variables.


def in_halves(axis, devices):
    return Places(tuple(devices), axis, (0, 1, SHAPE[axis]))


def train_parts(replicas, use):
    """A step that adds 1 to each part of what it writes, and to whole replicas."""
    replicas.before(use)
    for i in use.written:
        for part in variables_of(use.replicas[i]):
            part.assign_add(tf.ones_like(part))
    replicas.after(use)


def distinct():
    return [tf.Variable(tf.reshape(tf.range(6.0) + 10 * i, SHAPE)) for i in range(2)]


def test_the_truth_moves_between_whole_variables_and_any_parts(replicas, here_and_there):
    here, there = here_and_there
    mine = distinct()
    before = [v.numpy() for v in mine]
    replicas.adopt(mine)
    places = [
        in_halves(0, (here, there)), there, in_halves(1, (there, here)), in_halves(0, (there, there)),
        in_halves(0, (here, there)), here,
    ]  # fmt: skip
    uses = [replicas.use(mine, [place] * 2, {0}) for place in places]
    order = [0, 1, 2, 3, 4, 5, 2, 0, 3, 1, 4, 2]
    for i in order:
        train_parts(replicas, uses[i])
    np.testing.assert_array_equal(mine[0].numpy(), before[0] + len(order))
    np.testing.assert_array_equal(mine[1].numpy(), before[1])
    mine[0].assign_sub(tf.ones(SHAPE))
    train_parts(replicas, uses[2])
    np.testing.assert_array_equal((mine[0] + 0.0).numpy(), before[0] + len(order))
    assert uses[0].replicas[0] is uses[4].replicas[0]  # the same parts at the same places


def test_parts_go_straight_to_parts_that_are_cut_alike(replicas, here_and_there, monkeypatch):
    here, there = here_and_there
    mine = distinct()
    replicas.adopt(mine)
    first, second = (replicas.use(mine, [in_halves(0, at)] * 2, {0, 1}) for at in ((here, there), (there, here)))
    train_parts(replicas, first)
    replicas.pull()
    routes = []
    functions, made = replicas.transfers._functions, variable_copies._function_def
    monkeypatch.setattr(functions, "_made", lambda name, route: (routes.extend(route), made(name, route))[1])
    replicas.before(second)
    assert len(routes) == 2 and all(route.source.is_cut_like(route.target) for route in routes)
    assert not {node.op for node in made("one", routes).node_def} & {"ConcatV2", "SplitV"}


def test_parts_are_kept_undone_snapshot_and_freed_like_whole_replicas(replicas, here_and_there):
    mine = distinct()
    before = mine[0].numpy()
    replicas.adopt(mine)
    use = replicas.use(mine, [in_halves(1, here_and_there)] * 2, {0})
    train_parts(replicas, use)
    kept = replicas.keep(use)
    assert not kept
    train_parts(replicas, use)
    replicas.roll_back(use, kept)
    np.testing.assert_array_equal(mine[0].numpy(), before + 1)
    train_parts(replicas, use)
    snapshot = replicas.snapshot()
    train_parts(replicas, use)
    replicas.restore(snapshot)
    np.testing.assert_array_equal(mine[0].numpy(), before + 2)
    again = replicas.use(mine, [in_halves(1, here_and_there)] * 2, {0})
    assert again.replicas[0] is not use.replicas[0]
    train_parts(replicas, again)
    replicas.drop_unused([])
    np.testing.assert_array_equal(mine[0].numpy(), before + 3)
    replicas.drop_unused([])
    assert all(len(at) == 1 for at in replicas._at.values())


def test_what_is_disowned_is_true_and_nobodys(replicas, here_and_there):
    mine, use = adopted(replicas, here_and_there[1])
    train(replicas, use)
    replicas.disown(mine[:1])
    assert type(mine[0]) is type(tf.Variable(0.0)) and type(mine[1]) is not type(mine[0])
    assert (mine[0].numpy() == 1.0).all() and set(replicas.snapshot()) == {id(mine[1])}
    gone = weakref.ref(mine[0])
    del mine[0], use
    gc.collect()
    assert gone() is None
