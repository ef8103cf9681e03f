"""Pins: what they limit, and each way in which they cannot be kept, said in one line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import BadInputError, short
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.pin_matching import Found, found_in, matches
from placer.graph.pins import Pin, parse_pin, pinned
from placer.graph.topology import Device, Topology

BOTH = {"cpu": 2.0, "gpu": 1.0}
TOPOLOGY = Topology((Device("gpu:0", "gpu"), Device("gpu:1", "gpu"), Device("cpu:0", "cpu")))
GRAPH = OpGraph(
    "tower",
    (
        Op("embedding/table", "VarHandleOp", BOTH, colocate="table"),
        Op("embedding/lookup", "ResourceGather", BOTH, colocate="table"),
        Op("dense/matmul", "MatMul", BOTH),
        Op("dense/summary", "StringJoin", {"cpu": 1.0}),
        Op("dense/logits", "MatMul", BOTH, devices=("gpu",)),
    ),
    (Edge(0, 1, 8), Edge(1, 2, 8), Edge(2, 3, 8), Edge(2, 4, 8)),
)


def runs_on(graph, name):
    op = graph.ops[graph.index[name]]
    return [device.name for device in TOPOLOGY.devices if op.runs_on(device)]


def test_a_pin_on_an_op_limits_its_parts_and_no_op_that_is_only_named_like_one():
    ops = (
        Op("dense/part_0", "MatMul", BOTH, part=0, part_of="dense"),
        Op("dense/part_1", "MatMul", BOTH, part=1, part_of="dense"),
        Op("dense/part_2", "MatMul", BOTH, part=0),
        Op("dense/part_3", "MatMul", BOTH),
    )
    graph = pinned(OpGraph("tower", ops, ()), [parse_pin("dense=cpu")], TOPOLOGY)
    assert runs_on(graph, "dense/part_0") == runs_on(graph, "dense/part_1") == ["cpu:0"]
    assert graph.ops[2:] == ops[2:]


def test_a_pin_limits_what_matches_as_a_whole_and_what_is_colocated_with_it():
    graph = pinned(GRAPH, [parse_pin("embedding/look.*=cpu")], TOPOLOGY)
    assert runs_on(graph, "embedding/lookup") == runs_on(graph, "embedding/table") == ["cpu:0"]
    assert graph.ops[2:] == GRAPH.ops[2:]
    assert graph.fingerprint == GRAPH.fingerprint


def test_pins_by_kind_and_by_name_meet_in_what_both_allow():
    graph = pinned(GRAPH, [Pin("dense/.*t.*", "gpu"), Pin("dense/matmul", "gpu:1")], TOPOLOGY)
    assert runs_on(graph, "dense/matmul") == ["gpu:1"]
    assert runs_on(graph, "dense/logits") == ["gpu:0", "gpu:1"]


def test_no_pins_change_nothing():
    assert pinned(GRAPH, [], TOPOLOGY) is GRAPH


def test_the_last_equals_sign_parts_pattern_and_device():
    assert parse_pin("(?=a)a.* = cpu:0") == Pin("(?=a)a.*", "cpu:0")
    assert str(parse_pin("a=b=c")) == "a=b=c"


@settings(max_examples=50, deadline=None)  # each starts a process
@given(
    pins=st.lists(
        st.tuples(st.sampled_from([op.name for op in GRAPH.ops]), st.sampled_from(("gpu", "cpu", "gpu:0", "gpu:1"))),
        max_size=3,
    )
)
def test_every_op_runs_where_it_could_and_where_all_its_pins_say_or_the_pins_are_refused(pins):
    wanted = {op.name: runs_on(GRAPH, op.name) for op in GRAPH.ops}
    for name, device in pins:
        for twin in ("embedding/table", "embedding/lookup") if "embedding" in name else (name,):
            wanted[twin] = [d for d in wanted[twin] if device in (d, d.split(":")[0])]
    try:
        graph = pinned(GRAPH, [Pin(*pin) for pin in pins], TOPOLOGY)
    except BadInputError as error:
        assert not all(wanted.values())
        assert "\n" not in str(error)
    else:
        assert {name: runs_on(graph, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("pins", "says"),
    [
        (["dense"], "--pin 'dense': give PATTERN=DEVICE"),
        (["=cpu"], "give PATTERN=DEVICE"),
        (["dense.*="], "give PATTERN=DEVICE"),
        (["dense[=cpu"], "'dense[' is no regular expression (unterminated character set at position 5)"),
        (["a{99999999999}=cpu"], "no regular expression"),
        (["embedding=cpu"], "it is found in 'embedding/table', so write '.*' where more may stand"),
        (["dense/matmull=cpu"], "did you mean 'dense/matmul'?"),
        ([".*dense_1.*=cpu"], "; parts of names that come close are dense."),
        (["xyz=cpu"], "; names have the parts embedding, table, lookup, dense, matmul, summary, logits."),
        (["dense.*=tpu"], "'tpu' is no device here; the topology has the devices gpu:0, gpu:1, cpu:0 and the kinds"),
        (["dense/summary=gpu"], "op 'dense/summary' (StringJoin) cannot run on gpu:0, gpu:1: it has no cost there; it"),
        (["dense/logits=cpu"], "cannot run on cpu:0: its devices are gpu; it can run on gpu:0, gpu:1"),
        (
            ["dense/mat.*=gpu:0", ".*matmul=cpu"],
            "--pin 'dense/mat.*=gpu:0' and --pin '.*matmul=cpu' contradict each other",
        ),
        (
            [".*table=gpu:0", ".*lookup=gpu:1"],
            "op 'embedding/table' and op 'embedding/lookup', which must share a device,",
        ),
    ],
)
def test_a_pin_that_cannot_be_kept_is_refused_in_one_line(pins, says):
    with pytest.raises(BadInputError) as refused:
        pinned(GRAPH, [parse_pin(pin) for pin in pins], TOPOLOGY)
    assert says in str(refused.value)
    assert all(pin in str(refused.value) for pin in pins)
    assert "\n" not in str(refused.value)


def test_a_device_that_is_called_like_the_kind_of_another_is_no_pin():
    topology = Topology((Device("gpu", "a100"), Device("b", "gpu")))
    graph = OpGraph("g", (Op("x", cost_s={"gpu": 2.0, "b": 1.0}),), ())
    with pytest.raises(BadInputError, match="'gpu' is the name of a device and the kind of 'b'"):
        pinned(graph, [Pin("x", "a100")], topology)
    assert pinned(graph, [Pin("x", "b")], topology).ops[0].devices == ("b",)


def test_what_is_colocated_and_cannot_follow_is_named():
    ops = (Op("a", cost_s=BOTH, colocate="c"), Op("b", "Cast", {"gpu": 1.0}, colocate="c"))
    with pytest.raises(BadInputError, match=r"--pin 'a=cpu': op 'b' .Cast., colocated with 'a', cannot run on cpu:0"):
        pinned(OpGraph("pair", ops, ()), [Pin("a", "cpu")], TOPOLOGY)


def test_a_pattern_that_python_warns_of_is_only_a_pattern():
    graph = pinned(OpGraph("one", (Op("[b", cost_s=BOTH),), ()), [parse_pin("[[a]b=cpu")], TOPOLOGY)
    assert runs_on(graph, "[b") == ["cpu:0"]


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(?:a*)*b"])
def test_a_pattern_that_takes_for_ever_is_refused(pattern):
    graph = OpGraph("long", (Op("a" * 20_000 + "!", cost_s=BOTH),), ())
    with pytest.raises(BadInputError, match="takes more than 5 s") as refused:
        pinned(graph, [Pin("a.*", "gpu"), Pin(pattern, "cpu")], TOPOLOGY)
    assert "\n" not in str(refused.value)
    assert short(f"{pattern}=cpu") in str(refused.value)


@pytest.mark.slow
def test_many_patterns_may_take_longer_together_than_one_may():
    slow, names = "(a|b|ab)*c", ["ab" * 17]  # some hundredths of a second, and of a busy core some tenths
    assert matches([slow] * 60, names, limit_s=2) == [Found([], None)] * 60


@given(
    patterns=st.lists(st.sampled_from(["a", "a.*", ".*b", "(a|b)+", "x", "[ab]{2}", ""]), max_size=3),
    names=st.lists(st.text("ab\u00e4\n\ud800", max_size=4), max_size=4),
)
@settings(max_examples=20, deadline=None)
def test_in_the_other_process_the_same_matches(patterns, names):
    assert matches(patterns, names) == list(found_in(patterns, names))
