"""Logical devices: what a spec asks for, what TensorFlow is told, and when it is too late; then two for real."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from placer import tf_internals
from placer.devices import logical
from placer.devices.host.cores import usable_cores
from placer.devices.host.machine import cores_of_cpu
from placer.devices.logical import least_free_mib, share_mib, split
from placer.devices.opening import open_devices
from placer.devices.specs import LogicalDevices, check_spec, logical_devices
from placer.errors import BadInputError

NONSENSE = "gpus cpus gpus: gpus:0 gpus:two gpus:65 gpus:-1 gpus:1,gpus:2 gpus:2@0 gpus:2@ gpus:2@1.5 gpus:2@4G"
H200 = "NVIDIA H200, Disabled"
TABLE = f"0, GPU-aaaa-1, 140000, {H200}\n1, GPU-bbbb-2, 120000, {H200}\n2, GPU-cccc-3, 100000, {H200}\n"
UNLIKE = f"0, GPU-aaaa-1, 9000, NVIDIA T4, [N/A]\n1, GPU-bbbb-2, 120000, {H200}\n"


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ("gpus:2", LogicalDevices("gpus:2", "GPU", 2)),
        ("gpus:4@1024", LogicalDevices("gpus:4@1024", "GPU", 4, 1024)),
        ("cpus:3", LogicalDevices("cpus:3", "CPU", 3)),
        ("workers:2", None),
        ("gpus.local:2222", None),
    ],
)
def test_a_spec_says_what_is_divided(spec, asked):
    assert logical_devices(spec) == asked


@pytest.mark.parametrize(
    "spec",
    [*NONSENSE.split(), "cpus:0", "cpus:2@9", "gpus:" + "9" * 5000, "workers:two", "workers:" + "9" * 5000],
)
def test_nonsense_is_refused_in_one_line(spec):
    with pytest.raises(BadInputError) as refused:
        check_spec(spec)
    assert "\n" not in str(refused.value) and ("write" in str(refused.value) or "give" in str(refused.value))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("worker:2", "did you mean workers:2?"),
        ("wrokers:4", "did you mean workers:4?"),
        ("gpu:1", "did you mean gpus:1?"),
        ("host:2222,cpus:2", "cannot stand in a list of host:port; give cpus:2 alone"),
        ("localhost:99999", "ports end at 65535"),
    ],
)
def test_a_misspelt_kind_of_devices_is_no_host(spec, said):
    with pytest.raises(BadInputError) as refused:
        check_spec(spec)
    assert said in str(refused.value)


@pytest.mark.parametrize("spec", ["worker:5000", "gpu:2222,other:2222", "workers.example.org:1", "array:8"])
def test_a_host_may_be_called_nearly_as_a_kind_of_devices(spec):
    check_spec(spec)


@pytest.mark.parametrize(
    ("visible", "free"),
    [
        (None, 100000),
        ("0,1", 120000),
        ("0", 140000),
        ("GPU-bb", 120000),
        ("0,-1,2", 140000),
        ("", None),
        ("-1", None),
        ("MIG-1", None),
    ],
)
def test_the_least_free_memory_of_the_gpus_that_are_visible(visible, free):
    assert least_free_mib(TABLE, visible) == free


@pytest.mark.parametrize(
    ("visible", "by_bus", "free"),
    [
        (None, False, 9000),
        ("1", True, 120_000),
        ("1", False, 9000),  # which CUDA calls 1 is not known: to it, the fastest is 0
        ("GPU-bbbb", False, 120_000),
        ("", False, None),
    ],
)
def test_the_index_of_a_gpu_beside_unlike_ones_means_it_only_where_cuda_counts_so(visible, by_bus, free):
    assert least_free_mib(UNLIKE, visible, by_bus=by_bus) == free


def test_memory_of_a_gpu_that_is_divided_by_mig_is_not_that_of_the_slice_that_is_opened():
    table = TABLE.replace("120000, NVIDIA H200, Disabled", "120000, NVIDIA H200, Enabled")
    assert least_free_mib(table, None) is least_free_mib(table, "1") is None
    assert least_free_mib(table, "0") == 140_000


NOT_TOLD = ["", "No devices were found\n", f"0, GPU-aaaa, [N/A], {H200}\n", f"{TABLE}3, GPU-dd, [N/A], {H200}\n"]


@pytest.mark.parametrize("table", NOT_TOLD)
def test_memory_that_is_not_told_is_not_guessed(table):
    assert least_free_mib(table, None) is None


@pytest.mark.parametrize("free", [1000, 8000, 24_000, 143_000])
@pytest.mark.parametrize("count", [1, 2, 4, 64])
def test_shares_are_equal_and_leave_headroom(free, count):
    left = free - count * share_mib(free, count)
    assert free / 4 + count >= left >= min(2048, free / 4)


class Config:
    """TensorFlow's configuration of a machine with GPUs, as far as splitting looks: what it was told, and its rules."""

    def __init__(self, gpus):
        self.devices = {"GPU": [f"GPU:{i}" for i in range(gpus)], "CPU": ["CPU:0"]}
        self.parts, self.growth = {}, {}
        self.experimental = self
        self.LogicalDeviceConfiguration = lambda memory_limit: SimpleNamespace(memory_limit=memory_limit)
        self.set_up = False

    def get_visible_devices(self, kind):
        return self.devices[kind]

    def get_logical_device_configuration(self, device):
        return self.parts.get(device)

    def set_logical_device_configuration(self, device, parts):
        assert not self.set_up
        self.parts[device] = parts

    def get_memory_growth(self, device):
        return self.growth.get(device)

    def set_memory_growth(self, device, enable):
        assert device not in self.parts, "TensorFlow raises ValueError"
        if self.set_up:
            raise RuntimeError
        self.growth[device] = enable

    def get_device_details(self, device):
        return {"device_name": f"Card {device[-1]}"}

    def limits(self):
        return {device: [part.memory_limit for part in parts] for device, parts in self.parts.items()}


@pytest.fixture
def machine(monkeypatch):
    """Two GPUs that nobody has set up yet; nvidia-smi answers."""
    config = Config(gpus=2)
    fake = SimpleNamespace(config=config, test=SimpleNamespace(is_built_with_gpu_support=lambda: True))
    monkeypatch.setattr(logical, "tf", fake)
    monkeypatch.setattr(tf_internals.devices, "devices_are_set_up", lambda: config.set_up)
    monkeypatch.setattr(logical.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=TABLE))
    monkeypatch.delenv(logical.VISIBLE, raising=False)
    monkeypatch.setenv(logical.GROWTH, "before")  # put back, whatever a test makes of it
    monkeypatch.delenv(logical.GROWTH)
    return config


@pytest.mark.parametrize("spec", [None, "workers:2", "host:2222", "gpus:1"])
def test_gpus_left_whole_take_memory_as_they_need_it(machine, spec):
    split(spec)
    assert (machine.parts, machine.growth) == ({}, {"GPU:0": True, "GPU:1": True})
    machine.set_up = True
    split(spec)


def test_what_the_program_said_about_memory_stands(machine):
    machine.growth["GPU:1"] = False
    split()
    assert machine.growth == {"GPU:1": False}
    machine.growth.clear()
    machine.set_up = True
    split()
    assert machine.growth == {}


def test_every_gpu_is_divided_alike_and_once(machine):
    split("gpus:2@1000")
    assert machine.limits() == {"GPU:0": [1000, 1000], "GPU:1": [1000, 1000]}
    assert machine.growth == {}
    machine.set_up = True
    split("gpus:2@1000")
    split("gpus:2")
    for other in ("gpus:4", "gpus:2@999", "gpus:1"):
        with pytest.raises(BadInputError, match="divided in another way"):
            split(other)


def test_without_a_size_each_gets_an_equal_share_of_what_is_free(machine):
    split("gpus:4")
    (share,) = {limit for limits in machine.limits().values() for limit in limits}
    assert share == share_mib(100000, 4)
    machine.set_up = True
    split("gpus:4")


def test_where_the_driver_cannot_be_asked_the_size_must_be_given(machine, monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(logical.subprocess, "run", missing)
    with pytest.raises(BadInputError, match="as in gpus:2@4096"):
        split("gpus:2")
    assert machine.parts == {}
    split("gpus:2@7")


def test_too_late_is_said_with_what_to_call(machine):
    machine.set_up = True
    with pytest.raises(BadInputError, match=r"call placer.split\('gpus:2'\) first thing"):
        split("gpus:2")
    assert machine.parts == {}


def test_beside_a_divided_cpu_growth_is_set_where_tensorflow_heeds_it(machine):
    split("cpus:2")
    assert machine.limits() == {"CPU:0": [None, None]}
    assert logical.os.environ[logical.GROWTH] == "true"


def test_each_logical_gpu_is_called_as_the_card_it_is_on(machine):
    assert logical.gpu_names() == ["Card 0", "Card 1"]
    split("gpus:2@1000")
    assert logical.gpu_names() == ["Card 0", "Card 0", "Card 1", "Card 1"]


def test_no_gpu_is_said(machine):
    machine.devices["GPU"] = []
    with pytest.raises(BadInputError, match="TensorFlow sees no GPU here; write cpus:2"):
        split("gpus:2")
    split()


def test_this_process_is_two_cpus_and_stays_so(two_cpus):
    with open_devices("cpus:2", links=False) as opened:
        assert opened.tf_names == two_cpus.tf_names
        assert opened.topology.names == ("cpu:0", "cpu:1")
        assert opened.has_local and opened.same_bits
        assert {device.hardware for device in opened.topology.devices} == {cores_of_cpu(len(usable_cores()))}
        assert opened.without(["cpu:0"]).has_local
    with pytest.raises(BadInputError, match="divided in another way"):
        open_devices("cpus:3")
    with pytest.raises(BadInputError, match="write cpus:2"):
        open_devices("gpus:2")


# Devices are set up once in a process, so that these need processes of their own.
TOO_LATE = """
import tensorflow as tf
import placer
from placer import tf_internals
assert not tf_internals.devices.devices_are_set_up()
weight = tf.Variable(1.0)
assert tf_internals.devices.devices_are_set_up()
placer.autoplace(lambda: weight.assign_add(1.0), devices=None).close()
try:
    placer.autoplace(lambda: weight.assign_add(1.0), devices="cpus:2")
except placer.BadInputError as error:
    print(error)
"""
IN_TIME = """
import placer
placer.split("cpus:2")
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)
table = tf.Variable(tf.random.normal([50, 8]))
words = tf.Variable(tf.random.normal([50, 8]))
dense = keras.layers.Dense(64, activation="relu")
out = keras.layers.Dense(3)
out(dense(tf.zeros([2, 16])))
variables = [table, words, *dense.variables, *out.variables]
optimizer = keras.optimizers.Adam(0.01)
optimizer.build(variables)

@tf.function
def step(ids, y):
    "Two embedding tables with sparse gradients, and two layers."
    with tf.GradientTape() as tape:
        found = tf.concat([tf.gather(table, ids), tf.gather(words, ids)], 1)
        logits = out(dense(found))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    optimizer.apply(tape.gradient(loss, variables), variables)
    return loss

batch = tf.constant(np.arange(32) % 50), tf.constant(np.arange(32) % 3)

from placer.trace.capture import capture
from placer.graph.coarsen import coarsen
from placer.devices.opening import open_devices
from placer.graph.mapping import Mapping
from placer.result import Measured
from placer.profile.profiler import profile
from placer.profile.traced_session import trace_steps
from placer.measure.runner import Runner
from placer.measure.settings import RunnerSettings
from placer.measure.untouched import measure_untouched

captured = capture(step, batch)
inputs = captured.flat_inputs(batch)
references = measure_untouched(captured, inputs).references
devices = open_devices("cpus:2")
assert devices.has_local and len(devices.topology.links) == 2
graph = profile(captured, devices, inputs)
assert all(set(op.cost_s) == {"cpu:0", "cpu:1"} for op in graph.ops)
groups = coarsen(graph, 20, devices.topology)
runner = Runner(captured, devices, inputs, references, RunnerSettings(repeats=3))
n = len(groups.graph)
rng = np.random.default_rng(0)
for wanted in [[0] * n, [1] * n, *(rng.integers(0, 2, n).tolist() for _ in range(3))]:
    for unit in groups.graph.colocated:
        for g in unit:
            wanted[g] = wanted[unit[0]]
    fine = groups.expand(Mapping(groups.graph, devices.topology, tuple(wanted)))
    result = runner.measure(Mapping(captured.graph, devices.topology, tuple(fine)))
    assert isinstance(result, Measured), result
    (traced,) = trace_steps(captured, devices, fine, inputs, runs=1)
    assert {op.device for op in traced.ops} >= {f"cpu:{d}" for d in set(wanted)}
runner.close()
auto = placer.autoplace(step, devices="cpus:2", budget=4)
losses = []
while auto.mapping is None and len(losses) < 3000:
    losses.append(float(auto(*batch)))
assert auto.device_names == ("cpu:0", "cpu:1"), auto.report()
assert losses[-1] < losses[0]
auto.close()
print("placed")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "says"),
    [(TOO_LATE, "call placer.split('cpus:2') first thing"), pytest.param(IN_TIME, "placed", marks=pytest.mark.nightly)],
)
def test_a_program_that_divides_its_cpu(story, says):
    ran = subprocess.run([sys.executable, "-c", story], capture_output=True, text=True, timeout=900)
    assert says in ran.stdout, ran.stderr
