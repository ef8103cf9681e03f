"""Traces of GPUs, built by hand: whose kernels they are, how long they ran, and what was copied where."""

from __future__ import annotations

import itertools
import warnings

import pytest

from placer.graph.topology import Device
from placer.profile import traced_session
from placer.profile.gpu_trace import owner, union_s
from placer.profile.operators import timing
from placer.profile.step_trace import traced_step
from placer.profile.traced_session import warn_of_lost_kernels

TASK = "/job:localhost/replica:0/task:0/device:"
NAMES = {f"{TASK}GPU:0": "gpu:0", f"{TASK}GPU:1": "gpu:1", f"{TASK}CPU:0": "cpu:0"}
BEGIN_US = 1_760_000_000_000_000
LAUNCH_US = 4


class Trace:
    """StepStats as TensorFlow 2.21 fills them, times in microseconds from the step's begin."""

    def __init__(self) -> None:
        import tensorflow as tf

        self.stats = tf.compat.v1.RunMetadata().step_stats
        self.tracks = {}
        self.op("cpu:0", "begin", "NoOp", 0, 0)

    def row(self, device, **fields):
        if device not in self.tracks:
            self.tracks[device] = self.stats.dev_stats.add(device=device)
        return self.tracks[device].node_stats.add(**fields)

    def op(self, device, name, kind, start_us, end_us=None):
        """An executor's row: the launch, for an op on a GPU."""
        length_us = LAUNCH_US if end_us is None else end_us - start_us
        self.row(
            next(tf_name for tf_name, ours in NAMES.items() if ours == device),
            node_name=name, timeline_label=f"{name} = {kind}(x, y)", all_start_nanos=(BEGIN_US + start_us) * 1000,
            all_start_micros=BEGIN_US + start_us, op_end_rel_nanos=length_us * 1000, op_end_rel_micros=length_us,
            all_end_rel_micros=length_us + 1, all_end_rel_nanos=length_us * 1000 + 1000,
        )  # fmt: skip
        return self

    def kernel(self, name, start_us, end_us, stream=7):
        for track in (f"stream:{stream}", "stream:all"):
            self.work(track, name, f"volta_sgemm regs:32 {name}", start_us, end_us)
        return self

    def copy(self, kind, name, start_us, end_us, size=3072, stream=9):
        label = f"Memcpy{kind} kind_src:pinned kind_dst:device size:{size} dest:0 async:1"
        for track in (f"stream:{stream}<Memcpy{kind}>", "memcpy"):
            self.work(track, name, label, start_us, end_us)
        return self

    def memset(self, name, start_us, end_us):
        self.work("stream:", name, name, start_us, end_us)
        return self

    def sync(self, start_us, end_us):
        self.work("sync", "cuStreamSynchronize", "ThreadId 12", start_us, end_us)
        return self

    def work(self, track, name, label, start_us, end_us):
        self.row(
            f"/device:GPU:0/{track}", node_name=name, timeline_label=label, all_start_micros=BEGIN_US + start_us,
            op_end_rel_micros=end_us - start_us, all_end_rel_micros=end_us - start_us,
        )  # fmt: skip

    @property
    def step(self):
        return traced_step(self.stats, NAMES)

    def traced(self, name):
        (op,) = (op for op in self.step.ops if op.name == name)
        return op

    def transfers(self):
        return [(t.name.partition(" ")[0], t.name.split()[1], t.device) for t in self.step.transfers]


def us(seconds):
    """In microseconds; what TensorFlow cuts off is put at half of one, per kernel."""
    return pytest.approx(seconds * 1e-6, abs=1.6e-6)


def test_an_op_on_a_gpu_takes_as_long_as_its_kernels():
    """conv |.kkk.kkkk...|  stream 7
    |...kkk......|  stream 8, overlapping both
    """
    trace = Trace().op("gpu:0", "net/conv", "Conv2D", 2)
    trace.kernel("net/conv:Conv2D", 100, 400).kernel("net/conv:Conv2D", 500, 900).kernel("net/conv:Conv2D", 300, 600, 8)
    conv = trace.traced("net/conv")
    assert (conv.type, conv.device) == ("Conv2D", "gpu:0")
    assert (conv.start_s, conv.end_s) == (us(100), us(900))
    assert conv.kernel_s == us(800)
    assert conv.launch_s == us(LAUNCH_US)
    assert trace.step.cost_s()["net/conv"] == conv.kernel_s
    assert trace.step.kernel_s == us(1000)


def test_a_kernel_shorter_than_its_launch_costs_the_launch():
    trace = Trace().op("gpu:0", "add", "AddV2", 2, 12).kernel("add:AddV2", 30, 33)
    assert trace.step.cost_s()["add"] == us(10)


def test_an_op_without_kernels_costs_its_launch():
    trace = Trace().op("gpu:0", "shape", "Shape", 2, 9).op("gpu:0", "a", "X", 9).kernel("a", 20, 30)
    assert trace.traced("shape").kernel_s is None
    assert trace.step.cost_s()["shape"] == us(7)


def test_logical_gpus_of_one_card_are_told_apart_by_who_ran_the_op():
    trace = Trace().op("gpu:0", "a", "X", 2).op("gpu:1", "b", "X", 3)
    trace.kernel("a:X", 100, 300).kernel("b:X", 200, 600, 17)
    assert trace.step.cost_s("gpu:0") == {"a": us(200)}
    assert trace.step.cost_s("gpu:1") == {"b": us(400)}


@pytest.mark.parametrize(
    ("name", "op"),
    [("net/a", "net/a"), ("net/a:MatMul", "net/a"), ("net/while/body/mul:Mul", "net/while"), ("b:X", None),
     ("void gemm<float, net/a>", None), ("", None), (":", None), ("net:X", None)],
)  # fmt: skip
def test_a_kernel_is_of_the_op_or_loop_that_its_name_begins_with(name, op):
    assert owner(name, {"net/a": "X", "net/while": "While"}) == op


def test_kernels_of_nobody_are_counted_by_themselves():
    trace = Trace().op("gpu:0", "a", "X", 2).kernel("a:X", 100, 400).kernel("redzone_checker", 400, 500)
    trace.memset("unknown", 600, 900)
    assert trace.step.unattributed_s == us(100)
    assert trace.step.kernel_s == us(400)
    assert trace.step.cost_s() == {"begin": 0, "a": us(300)}


def test_an_ops_own_copies_and_memsets_are_its_work():
    trace = Trace().op("gpu:0", "concat", "ConcatV2", 2).op("gpu:0", "grad", "Conv2DBackpropFilter", 8)
    trace.copy("D2D", "concat:ConcatV2", 50, 150).copy("D2D", "concat:ConcatV2", 150, 250)
    trace.memset("grad:Conv2DBackpropFilter", 300, 340).kernel("grad:Conv2DBackpropFilter", 340, 500)
    assert trace.step.cost_s() == {"begin": 0, "concat": us(200), "grad": us(200)}
    assert trace.step.transfers == ()


def test_copies_between_devices_are_transfers():
    trace = (
        Trace().op("cpu:0", "x", "Relu", 0, 5).op("cpu:0", "x/_1", "_Send", 5, 6).op("gpu:0", "x/_2", "_Recv", 1, 90)
    )
    trace.copy("H2D", "x/_2:_Recv", 10, 80, size=4096)
    trace.op("gpu:0", "y", "Relu", 95).kernel("y:Relu", 100, 120)
    trace.op("gpu:0", "y/_3", "_Send", 99).op("cpu:0", "y/_4", "_Recv", 1, 200).copy(
        "D2H", "edge_9_y", 130, 190, size=8
    )
    assert trace.transfers() == [("[4096B]", "edge_0_x", "gpu:0"), ("[8B]", "edge_0_y", "cpu:0")]
    assert trace.step.transfers[0].start_s == us(10)
    assert trace.step.transfers[0].end_s == us(80)
    assert trace.step.cost_s("gpu:0")["y"] == us(20)


def test_a_copy_went_to_the_logical_gpu_that_waited_for_it():
    """Both get x, the first at 50, the second at 90; who sends does not tell to whom."""
    trace = (
        Trace().op("cpu:0", "x", "Relu", 0, 5).op("gpu:0", "x/_1", "_Recv", 1, 52).op("gpu:1", "x/_2", "_Recv", 1, 92)
    )
    trace.copy("H2D", "x/_3:_Send", 10, 50).copy("H2D", "x/_4:_Send", 53, 90)
    assert [device for _, _, device in trace.transfers()] == ["gpu:0", "gpu:1"]


def test_a_copy_within_the_card_goes_to_the_other_logical_gpu():
    trace = Trace().op("gpu:0", "y", "Relu", 5).kernel("y:Relu", 9, 20).op("gpu:1", "y/_2", "_Recv", 1, 60)
    trace.copy("D2D", "edge_7_y", 21, 55)
    assert trace.transfers() == [("[3072B]", "edge_0_y", "gpu:1")]
    assert "from gpu:0 to gpu:1" in trace.step.transfers[0].name


def test_a_copy_of_which_nobody_can_tell_where_it_went_is_left_out():
    trace = Trace().op("gpu:0", "a", "X", 2).op("gpu:1", "b", "X", 2).copy("H2D", "MemcpyH2D", 10, 20)
    assert trace.transfers() == []


def test_waiting_for_the_gpu_is_no_launching():
    trace = Trace().op("gpu:0", "where", "Where", 10, 910).sync(15, 905).kernel("where:Where", 20, 120)
    assert trace.traced("where").launch_s == us(10)
    assert trace.step.cost_s()["where"] == us(100)


def test_what_runs_in_a_loop_is_summed():
    trace = Trace().op("gpu:0", "body/mul", "Mul", 10).op("gpu:0", "body/mul", "Mul", 110)
    trace.kernel("body/mul:Mul", 20, 60).kernel("body/mul:Mul", 120, 160)
    mul = trace.traced("body/mul")
    assert (mul.kernel_s, mul.launch_s) == (us(80), us(2 * LAUNCH_US))


def test_without_a_gpu_in_the_topology_its_streams_say_nothing():
    trace = Trace().op("cpu:0", "a", "X", 2, 50).kernel("a:X", 100, 300)
    step = traced_step(trace.stats, {f"{TASK}CPU:0": "cpu:0"})
    assert step.cost_s() == {"begin": 0, "a": us(48)}
    assert step.kernel_s == 0


def test_without_kernel_times_the_launch_passes_for_them_and_that_is_told_once():
    trace = Trace().op("gpu:0", "a", "X", 2, 12)
    assert trace.step.cost_s()["a"] == us(10)
    traced_session._warn_once.cache_clear()
    with pytest.warns(UserWarning, match=r"no kernel times.*CUPTI.*install"):
        warn_of_lost_kernels([trace.step], Device("gpu:0", "gpu"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_lost_kernels([trace.step], Device("gpu:0", "gpu"))
        warn_of_lost_kernels([trace.step], Device("cpu:0", "cpu"))


def test_a_trace_that_attributes_too_little_is_told():
    good = Trace().op("gpu:0", "a", "X", 2).kernel("a:X", 10, 990).kernel("x", 990, 1000)
    warn_of_lost_kernels([good.step], Device("gpu:0", "gpu"))
    bad = Trace().op("gpu:0", "a", "X", 2).kernel("a:X", 10, 510).kernel("x", 510, 1010)
    with pytest.warns(UserWarning, match="gpu:0: 50% of its kernels"):
        warn_of_lost_kernels([bad.step], Device("gpu:0", "gpu"))


def test_probes_on_a_gpu_take_their_kernels_time():
    trace = (
        Trace()
        .op("gpu:0", "make_3", "Slice", 1)
        .op("gpu:0", "probe_0", "MatMul", 10)
        .op("gpu:0", "probe_1", "Relu", 20)
    )
    trace.kernel("make_3:Slice", 30, 90).kernel("probe_0:MatMul", 100, 400).kernel("probe_1:Relu", 400, 401)
    times = dict(timing._probe_times(trace.stats, f"{TASK}GPU:0"))
    assert times == {"probe_0": us(300), "probe_1": us(LAUNCH_US)}


@pytest.mark.parametrize("spans", list(itertools.permutations([(0, 2), (1, 3), (5, 6), (5.5, 5.7)])))
def test_a_union_does_not_depend_on_the_order(spans):
    assert union_s(spans) == 4
