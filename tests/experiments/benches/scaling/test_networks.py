"""The bench's networks: one step of two replicas is one step of one, and each replica has a device of its own."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.benches.scaling.design import SPACES, Config, Range
from experiments.benches.scaling.networks import placement, training
from placer.graph.topology import Device, Link, Topology
from placer.trace.capture import capture

pytestmark = pytest.mark.slow

TWO = Topology((Device("a", "cpu"), Device("b", "cpu")), (Link("*", "*", 1e-4, 1e9),))


def smallest(kind, devices, chunks=1, **settings):
    low = {name: axis.low if isinstance(axis, Range) else axis[0] for name, axis in SPACES[kind].items()}
    return Config(kind, {**low, "batch": 6, **settings}, devices, chunks)


@pytest.mark.parametrize("kind", list(SPACES))
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_replicas_that_share_a_batch_train_as_one(kind, optimizer):
    one, two = (training(smallest(kind, n, optimizer=optimizer, batch=7)) for n in (1, 2))
    whole = [np.concatenate(part) for part in (two.example_inputs[::2], two.example_inputs[1::2])]
    losses = [[float(one.step(*whole)), float(two.step(*two.example_inputs))] for _ in range(3)]
    np.testing.assert_allclose([a for a, _ in losses], [b for _, b in losses], rtol=1e-4)
    assert losses[0][0] != losses[2][0]


def test_chunks_train_as_the_whole_share_does():
    whole, chunked = (training(smallest("mlp", 2, chunks, batch=7)) for chunks in (1, 3))
    given = chunked.example_inputs
    assert [len(x) for x in given[::2]] == [2, 1, 1, 1, 1, 1]
    joined = [np.concatenate(part) for part in (given[0:6:2], given[1:6:2], given[6::2], given[7::2])]
    losses = [[float(whole.step(*joined)), float(chunked.step(*given))] for _ in range(3)]
    np.testing.assert_allclose([a for a, _ in losses], [b for _, b in losses], rtol=1e-4)


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_chunk_waits_for_the_gradients_of_the_one_before(chunks):
    made = training(smallest("mlp", 1, chunks))
    graph = capture(made.step, made.example_inputs, "mlp").graph
    after = set()
    for v in graph.order:
        if any(graph.ops[e.src].phase == "backward" or e.src in after for e in graph.in_edges[v]):
            after.add(v)
    products = [v for v, op in enumerate(graph.ops) if op.type == "MatMul" and op.phase == "forward"]
    assert len(products) == 3 * chunks
    assert len(after & set(products)) == 3 * (chunks - 1)


def test_each_replica_has_a_device_and_variables_stay_together():
    made = training(smallest("cnn", 2))
    graph = capture(made.step, made.example_inputs, "cnn").graph
    mapping = placement(graph, TWO)
    heavy = [v for v, op in enumerate(graph.ops) if "Conv2D" in op.type]
    of = {("replica_1/" in graph.ops[v].name): set() for v in heavy}
    for v in heavy:
        of["replica_1/" in graph.ops[v].name].add(mapping.devices[v])
    assert of == {False: {0}, True: {1}}
    assert {mapping.devices[v] for v, op in enumerate(graph.ops) if op.memory_bytes} == {0}
