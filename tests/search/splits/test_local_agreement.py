"""What mappings of a step whose parts normalize by statistics of their own are compared with, offline and live."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from experiments.jobs.search.main_job import run_search
from experiments.jobs.search.settings import SearchSettings
from experiments.report.result_files import write_results
from experiments.report.search_tables import summary_lines
from placer.errors import BadInputError
from placer.execute.local_agreement import LocalAgreement
from placer.graph.mapping import Mapping
from placer.measure.runner import Runner
from placer.measure.untouched import measure_untouched
from placer.result import Failed
from placer.splits.local_statistics import with_local_statistics
from placer.splits.plan_files import read_plan, regions_of
from placer.splits.step import split_step
from placer.splits.step_graph import StepGraph
from search.online.autoplace import autoplace, place
from tests.search.online.giving_way import give_way
from tests.search.splits.test_batch_norm import Fused, as_keras_writes_it
from tests.search.splits.test_candidates import plan_of
from tests.search.splits.test_local_statistics import Training, assert_same

BOUNDS = (0, 3, 7)
LOCAL_SAID = "each with its own statistics in batch normalisation (which changes the mathematics)"


@pytest.fixture(scope="module")
def training():
    return Training(as_keras_writes_it)


@pytest.fixture(scope="module")
def local_plan(training):
    graph = StepGraph(training.captured.graph_def)
    return with_local_statistics(graph, plan_of(training.captured, "batch", 2))[0]


@pytest.fixture(scope="module")
def references(training):
    return measure_untouched(training.captured, training.batch).references


def measured(training, plan, references, two_cpus, change=lambda captured: captured):
    """(what a runner says of the step divided by a plan and changed, what it compared)"""
    captured = change(split_step(training.captured, plan).captured)
    with closing(Runner(captured, two_cpus, training.batch, references)) as runner:
        mapping = Mapping(captured.graph, two_cpus.topology, tuple(op.part or 0 for op in captured.graph.ops))
        return runner.ready(mapping), runner.check.agreement


@pytest.mark.slow
def test_a_mapping_does_what_the_divided_step_does_on_one_device(training, local_plan, references, two_cpus):
    ready, held = measured(training, local_plan, references, two_cpus)
    assert not isinstance(ready, Failed) and isinstance(held, LocalAgreement)
    said = re.search(r"Step 2 returned ([\d.]+), and ([\d.]+) with the whole batch's\.$", held.in_words)
    assert "changes the mathematics" in held.in_words and said
    own, whole = map(float, said.groups())
    expected = training.by_replicas(BOUNDS)[0][1]
    assert own == pytest.approx(expected, rel=1e-4)
    assert whole == pytest.approx(float(references[0].returned[1][0]), rel=1e-4)
    assert own != pytest.approx(whole, rel=1e-4)
    ready[0].close()


def with_another_epsilon(captured):
    """The step with a constant changed, and still compared with what was divided."""
    graph_def = type(captured.graph_def)()
    graph_def.CopyFrom(captured.graph_def)
    changed = 0
    for node in graph_def.node:
        if node.op == "Const" and "lr" not in node.name:
            values = node.attr["value"].tensor.float_val
            if len(values) == 1 and values[0] == pytest.approx(1e-3):
                values[0], changed = 0.5, changed + 1
    assert changed
    return replace(captured, graph_def=graph_def)


def test_a_division_that_does_something_else_is_found_by_its_twin(training, local_plan, references, two_cpus):
    def change(captured):
        twin = captured.with_whole_statistics()
        return replace(captured, with_whole_statistics=lambda: with_another_epsilon(twin))

    ready, _ = measured(training, local_plan, references, two_cpus, change)
    assert isinstance(ready, Failed) and ready.reason == "loss" and "untouched" in ready.detail


@pytest.mark.slow
def test_a_mapping_that_does_something_else_is_found(training, local_plan, references, two_cpus):
    captured = split_step(training.captured, local_plan).captured
    with closing(Runner(captured, two_cpus, training.batch, references)) as runner:
        devices = tuple(op.part or 0 for op in captured.graph.ops)
        step, _ = runner.prepare(Mapping(captured.graph, two_cpus.topology, devices))
        step.close()
        _, first = runner.check.agreement, runner.check.agreement._alone
        moved = {name: value + np.float32(0.01) for name, value in first.references[0].after.items()}
        first.references = [replace(first.references[0], after=moved)]
        first._first = first._agreed = first._shaken = None
        ready = runner.ready(Mapping(captured.graph, two_cpus.topology, devices))
    assert isinstance(ready, Failed) and ready.reason == "loss"


def written(training, plan, path):
    ops = split_step(training.captured, plan).captured.graph.ops
    splits = [{"way": region.way, "parts": region.parts, "ops": region.ops} for region in regions_of(plan)]
    sides = {op.name: f"cpu:{0 if op.colocate else op.part or 0}" for op in ops}
    path.write_text(json.dumps({"format": "placer.mapping/2", "assignment": sides, "splits": splits}))
    return path


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.parametrize("norm", [as_keras_writes_it, Fused], ids=["decomposed", "fused"])
def test_a_file_makes_a_training_of_replicas(norm, tmp_path):
    """The first steps run untouched, with the statistics of the whole batch; from then on parts have their own."""
    training = Training(norm)
    graph = StepGraph(training.captured.graph_def)
    path = written(
        training, with_local_statistics(graph, plan_of(training.captured, "batch", 2))[0], tmp_path / "m.json"
    )
    with place(training.step, path) as placed:
        while placed.mapping is None:
            placed(*training.example)
        placed.sync()
        begun = {name: variable.numpy() for name, variable in training.captured.variables.items()}
        losses = [[placed(*training.example).numpy()] for _ in range(3)]
        assert placed.splits is not None and LOCAL_SAID in placed.splits and LOCAL_SAID in placed.report()
        assert sum(LOCAL_SAID in entry.sentence for entry in placed.journal.entries) == 1
        placed.sync()
        after = {name: variable.numpy() for name, variable in training.captured.variables.items()}
    training.start = begun
    for name, variable in training.captured.variables.items():
        variable.assign(begun[name])
    assert_same(training, (np.ravel(losses), after), training.by_replicas(BOUNDS))


MODEL = """
import keras
import tensorflow as tf


def make(batch=8):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((6, 6, 3)), keras.layers.Conv2D(8, 3, use_bias=False),
                              keras.layers.BatchNormalization(), keras.layers.GlobalAveragePooling2D(),
                              keras.layers.Dense(5)])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True)))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step, (tf.random.stateless_normal((batch, 6, 6, 3), [1, 2]), tf.zeros((batch,), tf.int32))
"""


@pytest.mark.slow
def test_a_search_says_what_is_different_and_its_file_keeps_it(two_cpus, tmp_path):
    (tmp_path / "net.py").write_text(MODEL)
    settings = SearchSettings(
        f"{tmp_path / 'net.py'}:make", measurements=4, groups=24, split="pipeline:2", split_batchnorm="local"
    )
    found = run_search(settings)
    assert all(row.measured for row in found.measured), [row.result for row in found.measured]
    (said,) = [line for line in summary_lines(found) if "changes the mathematics" in line]
    assert said.startswith("With --split-batchnorm local: each part") and "Step 2 returned" in said
    assert "\n" not in said and not any("need each other" in line for line in summary_lines(found))
    if found.plan is not None:  # whichever is faster is handed back
        write_results(found, tmp_path, None, None)
        assert read_plan(tmp_path / "mapping.json").is_local


@pytest.mark.slow
def test_where_nothing_is_normalized_the_search_says_that_nothing_changes(two_cpus):
    settings = SearchSettings("mnist_softmax", measurements=4, groups=24, split="pipeline:2", split_batchnorm="local")
    found = run_search(settings)
    assert any("No batch normalisation is divided by examples here" in line for line in summary_lines(found))
    assert not any("changes the mathematics" in line for line in summary_lines(found))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"split": "auto", "split_batchnorm": "sync"}, "--split-batchnorm is 'sync'; give exact or local."),
        ({"split_batchnorm": "local"}, "--split-batchnorm local divides nothing by itself; give --split auto, too"),
    ],
)
def test_what_cannot_be_is_refused(how, said):
    with pytest.raises(BadInputError, match=re.escape(said)):
        SearchSettings("mnist_softmax", **how).check()


@pytest.mark.slow
def test_a_live_search_takes_local_statistics_of_a_given_plan(training, tmp_path):
    path = written(training, plan_of(training.captured, "batch", 2), tmp_path / "m.json")
    with autoplace(training.step, budget=1, split=path, split_batchnorm="local") as placed:
        while not any(LOCAL_SAID in entry.sentence for entry in placed.journal.entries):
            placed(*training.example)
            give_way(placed.steps)
