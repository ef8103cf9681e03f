"""`placer spoc`: counts that equal Keras's and those of papers, graph files without TensorFlow, and readings."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import keras
import pytest

from experiments import zoo
from experiments.benches.spoc.build import build
from experiments.benches.spoc.networks import Network
from experiments.jobs.spoc import graph_facts, model_facts, parameters, spoc_command
from experiments.jobs.spoc_reading import reading
from experiments.report.spoc import show_spoc
from experiments.zoo.applications import SIDES
from placer.errors import BadInputError
from placer.graph.graph_files import read_graph
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.trace.capture import capture
from surrogate.features.spoc import spoc

GRAPH = Path(__file__).parents[2] / "data" / "gnmt.json"
SMALL = [
    Network("test", "MobileNet", 64, 2, (("alpha", 0.25),)),
    Network("test", "branches", 16, 2, (("filters", 4), ("branches", 3), ("depth", 2))),
    Network("test", "separable_chain", 16, 2, (("filters", 4), ("depth", 2))),
    Network("test", "cells", 16, 2, (("seed", 3), ("filters", 4), ("cells", 4))),
    Network("test", "dense_chain", 1, 2, (("width", 8), ("depth", 3))),
]


def inference(training):
    return capture(lambda x: training.model(x, training=False), training.example_inputs[:1], "inference", trains=False)


@pytest.mark.some(2)
@pytest.mark.slow
@pytest.mark.parametrize("network", SMALL, ids=lambda network: network.kind)
def test_parameters_are_keras_count_in_training_and_in_inference(network):
    training = build(network)
    for captured in (capture(training.step, training.example_inputs, "step"), inference(training)):
        counted = parameters(captured, training.model)
        assert (counted.total, counted.unread) == (training.model.count_params(), 0)
        assert parameters(captured).total == counted.total  # the graph tells them without the model


def test_optimizer_slots_are_no_parameters():
    training = zoo.load("mnist_softmax")
    model = training.model
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    captured = capture(model, training.example_inputs, "adam")
    assert sum(op.memory_bytes for op in captured.graph.ops) >= 3 * 4 * model.count_params()
    assert parameters(captured).total == parameters(captured, model).total == model.count_params()


def test_variables_that_the_step_never_reads_are_counted_beside():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Normalization(), keras.layers.Dense(3)])
    captured = capture(lambda x: model(x, training=False), (keras.ops.ones((2, 4)),), "inference", trains=False)
    counted = parameters(captured, model)
    assert counted.total == model.count_params() and counted.read == 4 * 3 + 3 and counted.unread == 4 + 4 + 1


@pytest.mark.parametrize(("kind", "published"), [("MobileNet", 569e6), ("VGG16", 15.3e9)])
def test_multiply_adds_are_those_of_the_papers(kind, published):
    """Howard et al. 2017, table 8; He et al. 2016, section 4.1. Convolutions do not depend on the number of classes."""
    model = getattr(keras.applications, kind)(weights=None, include_top=False, input_shape=(224, 224, 3))
    x = keras.ops.zeros((1, 224, 224, 3))
    graph = capture(lambda x: model(x, training=False), (x,), kind, trains=False).graph
    assert spoc(graph).multiply_adds == pytest.approx(published, rel=0.02)


def test_a_training_step_multiplies_three_times_as_much_as_its_forward_part():
    """The gradients of weights and of inputs cost a forward pass each, but for the first layer's input."""
    network = Network("test", "conv_chain", 16, 2, (("filters", 8), ("depth", 6)))
    training = build(network)
    facts = graph_facts("chain", capture(training.step, training.example_inputs, "chain").graph)
    first = facts["forward"]["multiply_adds"], spoc(inference(training).graph).multiply_adds
    assert first[0] == first[1]
    assert 2.7 * first[0] < facts["step"]["multiply_adds"] < 3 * first[0]
    assert facts["forward"]["span"] < facts["step"]["span"] and facts["forward"]["hops"] < facts["step"]["hops"]


def test_branches_show_as_breadth():
    chain, branches = (
        spoc(
            inference(build(Network("test", "branches", 16, 4, (("filters", 8), ("branches", n), ("depth", 3))))).graph
        )
        for n in (1, 4)
    )
    assert chain.breadth == pytest.approx(1.0, abs=0.05)
    assert 3.3 < branches.breadth <= 4
    assert branches.span == pytest.approx(chain.span, abs=5)


@pytest.mark.nightly
def test_a_keras_name_is_a_model_like_any_other():
    facts = model_facts("keras:MobileNetV2@64")
    model = keras.applications.MobileNetV2(weights=None, input_shape=(64, 64, 3))
    assert facts["step"]["parameters"] == model.count_params()
    assert facts["batch"] == 1
    assert model_facts("keras:MobileNetV2@64", batch=4)["step"]["operations"] > 2 * facts["step"]["operations"]


def test_every_classifier_of_keras_has_a_size():
    of_keras = {name for name in dir(keras.applications) if name[0].isupper()}
    assert set(SIDES) == of_keras


def test_a_graph_file_gives_what_it_has_and_tells_what_it_lacks():
    (entry,), _ = spoc_command([str(GRAPH)])
    graph, step = read_graph(GRAPH), entry["step"]
    assert step["ops"] == len(graph) and step["held_bytes"] == sum(op.memory_bytes for op in graph.ops)
    assert step["work_s"] == pytest.approx(sum(op.cost_s["gpu"] for op in graph.ops))
    assert 1 <= step["work_s"] / step["chain_s"] == step["breadth"]
    assert step["operations"] is step["span"] is step["parameters"] is None
    assert len(entry["missing"]) == 3


def test_the_table_shows_names_as_they_are_and_a_sentence_for_each(capsys):
    graph = OpGraph("[red]", (Op("a", cost_s={"cpu": 1.0}),), ())
    show_spoc([graph_facts("[red]", graph), graph_facts("other", graph)])
    shown = capsys.readouterr().out
    assert shown.count("[red]") == 1 and "compute-bound" in shown and "not known from this graph" in shown


def work(name, **counts):
    ops = tuple(Op(f"{name}{i}", "MatMul", cost_s={"cpu": 1.0}, depth=4, **counts) for i in range(6))
    return OpGraph(name, tuple(replace(op, cost_s={}, devices=("cpu",)) for op in ops), ())


def joined(graph, pairs, edge_bytes=8):
    return spoc(OpGraph(graph.name, graph.ops, tuple(Edge(u, v, edge_bytes) for u, v in pairs)))


CHAIN = [(i, i + 1) for i in range(5)]


def test_the_reading_follows_from_the_numbers():
    small, large = work("small", flops=1e3), work("large", flops=1e9)
    assert "deep and narrow" in reading(joined(small, CHAIN)) and "bigger batches" in reading(joined(small, CHAIN))
    assert "more devices gain at most about 1.00x by its longest chain, if no op is split." in reading(
        joined(small, CHAIN)
    )
    assert "and more devices, too" in reading(joined(small, [(0, 1), (2, 3), (4, 5)]))
    assert "compute-bound" in reading(joined(large, CHAIN))
    assert "memory-bound" in reading(joined(large, CHAIN, edge_bytes=10**9))
    assert "bigger batches" not in reading(joined(large, CHAIN, edge_bytes=10**9))
    held = OpGraph("held", tuple(replace(op, memory_bytes=3 * 10**8) for op in large.ops), large.edges)
    assert "by its weights" in reading(joined(held, CHAIN, edge_bytes=10**9))
    assert "wide" in reading(joined(large, [(0, 1), (2, 3), (4, 5)])) and "3.0" in reading(
        joined(large, [(0, 1), (2, 3), (4, 5)])
    )
    assert "work is not known" in reading(joined(work("bare"), CHAIN))
    assert "compute-bound" in reading(joined(large, [(0, 1)]), forward=joined(large, CHAIN))
    assert "a second device" in reading(joined(large, [(0, 1)]), forward=joined(large, CHAIN))
    assert "will help; more devices gain at most about 1.00x" in reading(joined(large, CHAIN))


def test_what_more_devices_gain_is_a_bound_where_costs_are_known():
    """By FLOPs, which say little of time, it is about that much."""
    ops = tuple(replace(op, cost_s={"cpu": 2e-6}) for op in work("small", flops=1e3).ops)
    said = reading(joined(OpGraph("timed", ops, ()), CHAIN))
    assert "more devices gain at most 1.00x by its longest chain, if no op is split." in said


def test_what_more_devices_gain_is_a_bound_by_the_whole_step():
    """Also where its forward part is one chain: what is beside that in the whole step can go elsewhere."""
    fork = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 5)]  # six ops, of which five are on the chain
    for flops, edge_bytes, held in ((1e3, 8, 0), (1e9, 10**9, 0), (1e9, 10**9, 3 * 10**8)):
        graph = work("graph", flops=flops)
        graph = OpGraph("graph", tuple(replace(op, memory_bytes=held) for op in graph.ops), ())
        said = reading(joined(graph, fork, edge_bytes), forward=joined(graph, CHAIN, edge_bytes))
        assert "more devices gain at most about 1.20x by its longest chain, if no op is split." in said
    none = reading(joined(work("none", flops=0.0), CHAIN))
    assert none.endswith("what more devices gain is not known.")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("keras:ResNet5", "did you mean 'ResNet50'"),
        ("keras:ResNet50@big", "the side of the images is 'big'"),
        ("keras:InceptionV3@32", "InceptionV3 at 32x32"),
        ("no_such_net", "no network 'no_such_net'"),
        ("x" * 300, "no network 'xxx"),
        ("missing.json", "missing.json: cannot be read"),
        ("missing.py:make", "no Python file 'missing.py'"),
    ],
)
def test_bad_input_is_refused(model, says):
    with pytest.raises(BadInputError) as refused:
        spoc_command([model])
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_a_model_that_cannot_be_traced_loses_no_other(tmp_path):
    (tmp_path / "broken.py").write_text("def make():\n    raise ValueError('no data')\n")
    entries, failures = spoc_command([f"{tmp_path / 'broken.py'}:make", str(GRAPH)])
    assert [entry["model"] for entry in entries] == [str(GRAPH)]
    (failure,) = failures
    assert "no data" in str(failure)


def test_a_batch_says_nothing_of_a_graph_file_and_a_colon_makes_none_a_model(tmp_path):
    with pytest.raises(BadInputError, match="whose batch is fixed"):
        spoc_command([str(GRAPH)], batch=64)
    (tmp_path / "10:30").mkdir()
    copy = tmp_path / "10:30" / "graph.json"
    copy.write_bytes(GRAPH.read_bytes())
    ((entry,), _) = spoc_command([str(copy)])
    assert entry["step"]["ops"] > 0


def test_a_bad_name_is_refused_before_anything_is_traced(monkeypatch):
    monkeypatch.setattr("experiments.jobs.spoc.model_facts", lambda *_: pytest.fail("traced"))
    with pytest.raises(BadInputError):
        spoc_command(["mnist_softmax", "no_such_net"])
    with pytest.raises(BadInputError, match="--batch is 0"):
        spoc_command(["mnist_softmax"], batch=0)


def test_graph_files_need_no_tensorflow():
    code = (
        "import sys; from experiments.cli.app import app\n"
        f"app(['spoc', {str(GRAPH)!r}, '--json'], standalone_mode=False)\n"
        "print([m for m in ('tensorflow', 'keras', 'numba', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    facts, loaded = done.stdout.strip().splitlines()
    assert json.loads(facts)["models"][0]["step"]["ops"] > 10
    assert loaded == "[]"
