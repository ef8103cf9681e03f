"""The placed step: it computes what the untouched step computes, where the mapping says, and keeps its state."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import weakref
from functools import partial
from threading import Thread

import numpy as np
import pytest
import tensorflow as tf

from placer import tf_internals
from placer.execute import rewrite, send_recv
from placer.execute.rewrite import PlacedStep, PlacementError, Template
from placer.graph.coarsen import coarsen
from placer.trace.capture import capture

STEPS = 4


@pytest.fixture(scope="module")
def setting(two_cpus, make_step):
    step, inputs = make_step()
    captured = capture(step, inputs, "small")
    reference, again = make_step()
    untouched = tf.function(reference)
    losses = [untouched(*again).numpy() for _ in range(2 * STEPS)]
    return captured, Template(captured), captured.flat_inputs(inputs), losses, inputs


def random_devices(captured, two_cpus, seed):
    """A random mapping of units, as TensorFlow's names per op."""
    chance = random.Random(seed)
    coarse = coarsen(captured.graph, 40, two_cpus.topology)
    place = {}
    for unit in coarse.graph.colocated:
        place.update(dict.fromkeys(unit, chance.randrange(2)))
    devices = [0] * len(captured.graph)
    for g, members in enumerate(coarse.members):
        for op in members:
            devices[op] = place[g]
    return [two_cpus.tf_name(d) for d in devices]


@pytest.mark.parametrize("seed", range(4))
def test_losses_are_bit_identical_under_any_mapping(setting, two_cpus, seed):
    captured, template, inputs, losses, _ = setting
    placed = PlacedStep(template, random_devices(captured, two_cpus, seed))
    assert [placed.run_flat(inputs)[0].numpy() for _ in range(STEPS)] == losses[:STEPS]
    placed.close()


def test_a_run_order_may_name_all_ops_of_the_graph(setting, two_cpus):
    """Variables among them, which a placed step takes as arguments."""
    captured, template, inputs, losses, _ = setting
    order = [captured.graph.ops[v].name for v in captured.graph.order]
    assert captured.variables.keys() <= set(order)
    placed = PlacedStep(template, random_devices(captured, two_cpus, 0), order=order)
    assert [placed.run_flat(inputs)[0].numpy() for _ in range(STEPS)] == pytest.approx(losses[:STEPS], rel=1e-5)
    placed.close()


def test_a_switch_loses_no_update(setting, two_cpus):
    captured, template, inputs, losses, _ = setting
    step = PlacedStep(template, random_devices(captured, two_cpus, 0))
    seen = []
    for number in range(2 * STEPS):
        seen.append(step.run_flat(inputs)[0].numpy())
        switched = PlacedStep(template, random_devices(captured, two_cpus, number + 1), step.variables)
        step.close()
        step = switched
    assert seen == losses


def test_variables_live_where_the_mapping_says_and_stay_if_they_may(setting, two_cpus):
    captured, template, _, _, _ = setting
    names = [two_cpus.tf_name(1)] * len(captured.graph)
    placed = PlacedStep(template, names)
    assert {v.device for v in placed.variables.values()} == {two_cpus.tf_name(1)}
    again = PlacedStep(template, names, placed.variables)
    assert all(again.variables[name] is v for name, v in placed.variables.items())


def test_the_callers_variables_are_not_trained(setting, two_cpus):
    captured, template, inputs, _, _ = setting
    before = {name: v.numpy() for name, v in captured.variables.items()}
    PlacedStep(template, [two_cpus.tf_name(0)] * len(captured.graph)).run_flat(inputs)
    for name, variable in captured.variables.items():
        np.testing.assert_array_equal(variable.numpy(), before[name])


def test_called_like_the_step_it_returns_what_the_step_returns(setting, two_cpus):
    captured, template, _, losses, inputs = setting
    placed = PlacedStep(template, [two_cpus.tf_name(0)] * len(captured.graph))
    loss = placed(*inputs)
    assert loss.shape == ()
    assert loss.numpy() == losses[0]


def test_it_takes_keyword_arguments_as_the_step_does(two_cpus):
    weight = tf.Variable(2.0)

    def step(x, *, scale, shift):
        weight.assign_add(tf.reduce_sum(x))
        return weight * scale - shift

    x, scale, shift = tf.ones([3]), tf.constant(10.0), tf.constant(1.0)
    captured = capture(step, (x,), "keywords", kwargs={"shift": shift, "scale": scale})
    placed = PlacedStep(Template(captured), [two_cpus.tf_name(0)] * len(captured.graph))
    assert placed(x, shift=shift, scale=scale).numpy() == 49.0
    assert placed(x, scale=scale, shift=shift + 1.0).numpy() == 78.0


def test_an_op_that_ran_elsewhere_is_an_error(setting, two_cpus):
    captured, template, inputs, _, _ = setting
    placed = PlacedStep(template, [two_cpus.tf_name(0)] * len(captured.graph))
    name = captured.graph.ops[-1].name
    placed.device_of[name] = two_cpus.tf_name(1)  # the function says cpu:0, the mapping now says cpu:1
    with pytest.raises(PlacementError, match="did not run where they were mapped"):
        placed.run_flat(inputs)


@pytest.mark.parametrize("before", [True, False])
def test_what_another_thread_runs_meanwhile_neither_refuses_a_mapping_nor_proves_it(setting, two_cpus, before):
    """The other function has the same ops, all on another device, and first runs while the check is open."""
    captured, template, inputs, _, _ = setting
    here, there = two_cpus.tf_name(0), two_cpus.tf_name(1)
    right = Crowded(template, [here] * len(captured.graph), inputs, there, before)
    right.run_flat(inputs)
    wrong = Crowded(template, [here] * len(captured.graph), inputs, there, before)
    wrong.device_of = dict.fromkeys(wrong.device_of, there)  # the function says cpu:0, the mapping now says cpu:1
    with pytest.raises(PlacementError, match=r"CPU:1 was asked for, \S+CPU:0 ran it"):
        wrong.run_flat(inputs)
    for step in (right, wrong):
        step.close()


class Crowded(PlacedStep):
    """While it runs, another thread runs the same ops for the first time, all on device `there`."""

    def __init__(self, template, devices, inputs, there, before):
        super().__init__(template, devices)
        self.other = PlacedStep(template, [there] * len(devices), proven=True)
        self.inputs, self.before = inputs, before

    def close(self):
        super().close()
        self.other.close()

    def _call(self, inputs):
        if self.before:
            self.run_other()
        outputs = super()._call(inputs)
        if not self.before:
            self.run_other()
        return outputs

    def run_other(self):
        thread = Thread(target=self.other.run_flat, args=(self.inputs,))
        thread.start()
        thread.join()


def test_a_cut_tensor_crosses_through_one_relay_at_the_end(setting, two_cpus):
    captured, template, _, _, _ = setting
    devices = random_devices(captured, two_cpus, 1)
    where = {op.name: d for op, d in zip(captured.graph.ops, devices, strict=True)}
    nodes = list(template.placed("probe", where).node_def)
    relays = [node for node in nodes if node.name.endswith("_relay")]
    assert relays
    assert nodes[-len(relays) :] == relays
    assert len({(r.input[0], r.device) for r in relays}) == len(relays)


def test_constants_are_copied_not_sent(setting, two_cpus):
    captured, template, _, _, _ = setting
    devices = random_devices(captured, two_cpus, 2)
    where = {op.name: d for op, d in zip(captured.graph.ops, devices, strict=True)}
    nodes = {node.name: node for node in template.placed("probe", where).node_def}
    for node in nodes.values():
        for text in node.input:
            source = nodes.get(text.lstrip("^").partition(":")[0])
            if source is not None and source.op == "Const":
                assert source.device == node.device


def test_close_forgets_the_function_and_the_variables(setting, two_cpus):
    captured, template, inputs, _, _ = setting
    placed = PlacedStep(template, [two_cpus.tf_name(0)] * len(captured.graph))
    placed.run_flat(inputs)
    held = [weakref.ref(variable) for variable in placed.variables.values()]
    assert tf_internals.functions.has_function(placed.function_name)
    placed.close()
    placed.close()
    assert not tf_internals.functions.has_function(placed.function_name)
    gc.collect()
    assert held and not [variable for variable in held if variable() is not None]


def test_a_loop_runs_whole_on_its_device_and_a_function_is_inlined(two_cpus, make_loop_step):
    captured = capture(make_loop_step(), (tf.constant(3.0),), "loop")
    names = [two_cpus.tf_name(int(op.type in ("While", "StatelessWhile"))) for op in captured.graph.ops]
    placed = PlacedStep(Template(captured), names)
    untouched = make_loop_step()
    seen = [placed.run_flat([tf.constant(3.0)])[0].numpy() for _ in range(3)]
    assert seen == [untouched(tf.constant(3.0)).numpy() for _ in range(3)]


def test_a_staged_batch_trains_all_variables_as_before(two_cpus, make_step, monkeypatch):
    """CPUs stand for GPUs. Fresh batches, and the smaller argument goes directly."""
    monkeypatch.setattr(rewrite, "stage", partial(send_recv.stage, kind="CPU"))
    step, inputs = make_step()
    captured = capture(step, inputs, "staged")
    sizes = sorted(tf_internals.variables.bytes_of(tensor) for tensor in captured.flat_inputs(inputs))
    assert sizes[0] < sizes[-1]
    template = Template(captured, two_cpus.host, sizes[-1])
    devices = random_devices(captured, two_cpus, 3)
    placed_def = template.placed("looked_at", dict(zip([op.name for op in captured.graph.ops], devices, strict=True)))
    copies = [node for node in placed_def.node_def if node.op == "DeepCopy"]
    assert [(node.device, len(node.input)) for node in copies] == [(two_cpus.host, 1)]

    other, _ = make_step()
    alone = capture(other, inputs, "direct")
    untouched = tf.function(other)
    placed = PlacedStep(template, devices)
    for number in range(STEPS):
        batch = [x + tf.cast(number, x.dtype) if x.dtype.is_floating else x for x in captured.flat_inputs(inputs)]
        theirs = untouched(*tf.nest.pack_sequence_as(inputs, batch))
        assert placed.run_flat(batch)[0].numpy() == theirs.numpy()
    for ours, theirs in zip(placed.variables.values(), alone.variables.values(), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=theirs.name)
    placed.close()


@pytest.mark.parametrize(("host", "stages_from"), [("", 1), ("/job:localhost/replica:0/task:0/device:CPU:0", None)])
def test_nothing_is_staged_where_it_does_not_pay_or_no_host_is_known(setting, host, stages_from):
    assert Template(setting[0], host, stages_from).staged == {}


def test_what_lies_on_a_gpu_already_is_not_staged(setting, two_cpus):
    captured = setting[0]
    numbers = range(len(captured.input_names))
    whole = Template(captured, two_cpus.host, 1).staged
    assert len(whole) == len(numbers)
    assert [len(Template(captured, two_cpus.host, 1, {i}).staged) for i in numbers] == [len(whole) - 1] * len(whole)


XLA = """
import os
os.environ["TF_XLA_FLAGS"] = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit --tf_xla_min_cluster_size=2"
import tensorflow as tf
from placer.devices.opening import open_devices
from placer.execute.rewrite import PlacedStep, Template
from placer.trace.capture import capture

devices, weight = open_devices("cpus:2"), tf.Variable(tf.ones([64, 64]))

def step(x):
    loss = tf.reduce_sum(tf.tanh(x @ weight) ** 2)
    weight.assign_sub(0.1 * tf.tanh(weight + loss))
    return loss

captured = capture(step, (tf.ones([4, 64]),), "step", needs_loss=False)
names = [devices.tf_name(v % 2 if op.colocate is None else 0) for v, op in enumerate(captured.graph.ops)]
placed = PlacedStep(Template(captured), names)
placed.run_flat(captured.flat_inputs((tf.ones([4, 64]),)))
nodes = Template(captured).function_def.node_def
assert nodes and all("_XlaCompile" in node.attr and not node.attr["_XlaCompile"].b for node in nodes)
print("placed")
"""


@pytest.mark.nightly
def test_where_xla_clusters_of_itself_no_op_of_a_placed_step_is_hidden_in_a_cluster():
    """`PlacedStep` refuses a step of whose ops TensorFlow does not say where they ran."""
    ran = subprocess.run([sys.executable, "-c", XLA], capture_output=True, text=True, timeout=900)
    assert ran.stdout.endswith("placed\n"), ran.stdout + ran.stderr[-3000:]


def test_text_and_batches_of_unknown_size_are_not_staged(two_cpus):
    weight = tf.Variable(1.0)

    def step(words, x):
        weight.assign_add(tf.reduce_sum(x) + tf.cast(tf.strings.length(words[0]), tf.float32))
        return weight.read_value()

    known = capture(step, (tf.constant(["a", "b"]), tf.ones([8])), "known")
    assert list(Template(known, two_cpus.host, 1).staged.values()) == [tf.float32.as_datatype_enum]
    assert Template(known, two_cpus.host, 33).staged == {}
