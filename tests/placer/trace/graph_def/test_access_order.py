"""Ops on one variable keep the order in which the traced step has them, also where it leads through a constant."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import combinations

import pytest
import tensorflow as tf

from placer.errors import BadInputError
from placer.trace.capture import capture
from placer.trace.graph_def.access_order import CHECKS, HARMLESS, AccessOrder
from placer.trace.graph_def.node_def import source_of


def unordered(captured):
    """Pairs of ops on one variable, one of them a write, neither of which comes after the other."""
    nodes, before = captured.nodes, {}

    def come_before(name):
        if name not in before:
            sources = {source_of(text) for text in nodes[name].input}
            before[name] = sources.union(*map(come_before, sources))
        return before[name]

    def is_open(a, b):
        return not {nodes[a].op, nodes[b].op} <= HARMLESS and a not in come_before(b) and b not in come_before(a)

    found = []
    for handle in captured.variables:
        users = [n.name for n in nodes.values() if any(source_of(t) == handle for t in n.input if t[0] != "^")]
        found += [(a, b) for a, b in combinations(users, 2) if is_open(a, b)]
    return found


def gather():
    table, weight = tf.Variable(tf.zeros([4, 3])), tf.Variable(tf.ones([3]))

    def step(x):
        with tf.control_dependencies([table.assign_add(tf.ones([4, 3]) * tf.reduce_sum(x))]):
            row = tf.gather(table, [1, 2])
        weight.assign_add(tf.reduce_sum(row, 0))
        return tf.reduce_sum(row)

    return step, [table, weight]


def loop():
    value, weight = tf.Variable(0.0), tf.Variable(0.0)

    def step(x):
        with tf.control_dependencies([value.assign_add(tf.reduce_sum(x))]):
            total = tf.constant(0.0)
            for _ in tf.range(3):
                total += value
        weight.assign_add(total)
        return total

    return step, [value, weight]


def accumulation():
    """Of gradients, in the manner of TensorFlow 1."""
    weights = [tf.Variable(tf.ones([4, 3])), tf.Variable(tf.zeros([3]))]
    sums = [tf.Variable(tf.zeros_like(weight)) for weight in weights]

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x @ weights[0] + weights[1]) ** 2)
        added = [total.assign_add(g) for total, g in zip(sums, tape.gradient(loss, weights), strict=True)]
        with tf.control_dependencies(added):
            trained = [weight.assign_sub(0.001 * total) for weight, total in zip(weights, sums, strict=True)]
        with tf.control_dependencies(trained):
            for total in sums:
                total.assign(tf.zeros_like(total))
        return loss

    return step, [*weights, *sums]


@pytest.mark.parametrize("made", [gather, loop, accumulation])
def test_a_step_whose_order_leads_through_constants_trains_as_it_does_alone(two_cpus, live_hand, made):
    step, variables = made()
    alone, expected = made()
    hand, alone = live_hand(tf.function(step)), tf.function(alone)
    for i in range(9):
        if i == 3:
            hand.place()
        elif i > 3:
            hand.move()
        x = tf.random.stateless_normal([5, 4], [i, 1])
        assert hand(x).numpy() == alone(x).numpy()
        assert all((a.numpy() == b.numpy()).all() for a, b in zip(variables, expected, strict=True))
    assert hand.live.left_alone is None
    hand.close()


@pytest.mark.parametrize("made", [gather, loop, accumulation])
def test_a_captured_step_has_no_two_ops_on_one_variable_in_any_order(made):
    step, _ = made()
    assert not unordered(capture(tf.function(step), [tf.ones([5, 4])]))


@pytest.mark.parametrize("made", [gather, loop, accumulation])
def test_a_step_of_which_an_order_was_lost_is_refused(made, monkeypatch):
    monkeypatch.setattr(AccessOrder, "restore", lambda self: None)
    step, _ = made()
    with pytest.raises(BadInputError, match=r"nothing orders .* and .*, which use one variable"):
        capture(tf.function(step), [tf.ones([5, 4])])


def test_reads_in_loops_and_branches_may_come_in_any_order_with_others():
    weight, other = tf.Variable(2.0), tf.Variable(1.0)

    def step(x):
        total = tf.constant(0.0)
        for _ in tf.range(3):
            if x > 0:
                total += weight * x
            else:
                total -= weight
        other.assign_add(total)
        return total + weight + tf.cond(x > 1, lambda: weight * other, lambda: weight)

    captured_step = capture(tf.function(step), [tf.constant(1.0)])
    assert AccessOrder(captured_step.graph_def).first_open() is None
    loops = [op for op in captured_step.graph.ops if "While" in op.type]
    assert loops and not any("^" in text for text in captured_step.nodes[loops[0].name].input)


def test_a_branch_that_reads_may_come_in_any_order_where_an_inlined_call_hands_it_the_handle():
    """Through an Identity, which is what TensorFlow leaves of the call that a persistent tape makes of a branch."""
    weight, count, ran = tf.Variable(tf.ones([4, 4])), tf.Variable(0), tf.Variable(0.0)

    @tf.autograph.to_graph
    def read(x):
        if tf.reduce_sum(x) > 0:
            x = tf.tanh(x @ weight) + tf.cast(count, tf.float32)
        return x

    @tf.function(autograph=False)
    def step(x):
        ran.assign_add(1.0)
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_sum(read(x))
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        count.assign(count + 1)  # reads it, too, as Keras's optimizers do
        return loss

    assert AccessOrder(capture(step, [tf.ones([2, 4])]).graph_def).first_open() is None


def test_a_branch_that_writes_one_variable_may_come_in_any_order_with_reads_of_another():
    weight, slow, rate = tf.Variable(1.0), tf.Variable(1.0), tf.Variable(0.5)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = (weight * x - 1.0) ** 2
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        if x > 0.0:
            slow.assign(rate * slow + (1.0 - rate) * weight)
        return loss, rate * x, tf.identity(slow)

    captured = capture(step, [tf.constant(1.0)])
    assert AccessOrder(captured.graph_def).first_open() is None
    assert any(op.type == "If" for op in captured.graph.ops)


def test_only_what_lost_its_order_waits_anew():
    text = """
      node { name: "v" op: "VarHandleOp" }
      node { name: "u" op: "VarHandleOp" }
      node { name: "x" op: "Placeholder" }
      node { name: "write" op: "AssignVariableOp" input: "v" input: "x" }
      node { name: "other" op: "AssignVariableOp" input: "u" input: "x" }
      node { name: "wait" op: "Const" input: "^write" input: "^other" }
      node { name: "first" op: "ReadVariableOp" input: "v" input: "^wait" }
      node { name: "second" op: "ReadVariableOp" input: "v" input: "^first" }
      node { name: "free" op: "ReadVariableOp" input: "u" }
      node { name: "last" op: "AssignAddVariableOp" input: "v" input: "x" input: "^second" }
    """
    from google.protobuf import text_format

    graph_def = text_format.Parse(text, tf.compat.v1.GraphDef())
    nodes = {node.name: node for node in graph_def.node}
    order = AccessOrder(graph_def)
    del nodes["first"].input[1:], nodes["wait"].input[:]
    order.restore()
    assert list(nodes["first"].input) == ["v", "^write"]
    assert list(nodes["second"].input) == ["v", "^first"] and list(nodes["free"].input) == ["u"]
    assert list(nodes["last"].input) == ["v", "x", "^second"]


def asserted(loss):
    return tf.debugging.assert_less(loss, 1e3)


def finite(loss):
    return tf.debugging.check_numerics(loss, "bad")


def guarded(check):
    """A bad batch is to change nothing; what counts waits for the check through a constant alone."""
    count, weight, flag = tf.Variable(0.0), tf.Variable(tf.ones([4, 3])), tf.Variable(False)

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight) ** 2)
        gradient = tape.gradient(loss, weight)
        rate = 0.1 / (1.0 + count)
        with tf.control_dependencies([check(loss)]):
            count.assign_add(1.0)
            flag.assign(True)
            weight.assign_sub(rate * gradient)
        return loss

    return step, [count, weight, flag]


@pytest.mark.parametrize("check", [asserted, finite])
def test_writes_wait_for_the_check_that_guards_them(check):
    step, _ = guarded(check)
    captured = capture(tf.function(step), [tf.ones([5, 4])])
    nodes = captured.nodes

    def before(name, seen):
        for source in map(source_of, nodes[name].input):
            if source not in seen:
                seen.add(source)
                before(source, seen)
        return seen

    checks = {n.name for n in nodes.values() if n.op in (*CHECKS, "If", "StatelessIf")}
    writes = [n.name for n in nodes.values() if n.op.startswith("Assign")]
    assert checks and len(writes) == 3
    assert all(checks & before(write, set()) for write in writes)


@pytest.mark.parametrize("check", [asserted, finite])
def test_a_bad_batch_changes_nothing_as_it_does_alone(two_cpus, live_hand, check):
    step, variables = guarded(check)
    alone, expected = guarded(check)
    hand, alone = live_hand(tf.function(step)), tf.function(alone)
    for i in range(16):
        if i == 3:
            hand.place()
        elif i > 3:
            hand.move()
        x = tf.random.stateless_normal([5, 4], [i, 1]) * (float("inf") if i > 3 and i % 2 else 1.0)
        for run in (hand, alone):
            with pytest.raises(tf.errors.InvalidArgumentError) if i > 3 and i % 2 else nullcontext():
                run(x)
        assert all((a.numpy() == b.numpy()).all() for a, b in zip(variables, expected, strict=True)), i
    assert hand.live.left_alone is None and expected[0].numpy() == 10.0
    hand.close()


def checks_within_its_updates(weight, x):
    for _ in tf.range(2):
        tf.debugging.assert_less(tf.reduce_sum(x), 1e6)
        weight.assign_sub(0.1 * tf.ones([4, 3]))
    return tf.cond(
        tf.reduce_sum(x) > 0.0, lambda: weight.assign_add(tf.debugging.check_numerics(x[:4, :3], "")), lambda: x
    )


def checks_now_and_then_what_it_updated(weight, x):
    weight.assign_sub(tf.reduce_mean(x) * weight)
    if tf.reduce_sum(x) > 0.0:
        tf.debugging.assert_all_finite(weight, "")
    return x


@pytest.mark.parametrize("body", [checks_within_its_updates, checks_now_and_then_what_it_updated])
def test_a_branch_or_loop_that_checks_what_it_uses_is_no_reason_to_refuse(body):
    weight, body = tf.Variable(tf.ones([4, 3])), tf.autograph.to_graph(body)

    @tf.function(autograph=False)
    def step(x):
        weight.assign_add(tf.ones([4, 3]))
        return tf.reduce_sum(body(weight, x))

    assert AccessOrder(capture(step, [tf.ones([5, 4])]).graph_def).first_open() is None
