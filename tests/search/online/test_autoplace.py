"""The one line around a training step: it trains as the step alone does, whatever goes on behind it."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.devices.host.suspends import Suspends
from placer.errors import BadInputError, PlacerError
from placer.graph.mapping import Mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Topology
from placer.measure.store import Store
from placer.result import Measured
from placer.splits.plan import SplitPlan
from placer.splits.plan_files import read_plan, regions_of
from placer.splits.step import split_step
from placer.splits.step_graph import StepGraph
from placer.trace.capture import capture
from placer.train.device_session import DeviceSession
from placer.train.recovery import Loss
from placer.train.steps import variants
from placer.train.steps.modes import UNTOUCHED
from search.online import controller
from search.online.auto_step import AutoStep
from search.online.autoplace import autoplace, place
from search.online.interfaces import Steps
from search.online.phases.split_search import ChosenPlan, chosen
from search.online.settings import OnlineSettings
from search.splits import choose
from search.splits.candidates import plan_by
from search.splits.propagate import Rates
from tests.search.online.giving_way import give_way

Made = tuple[Callable[..., Any], tuple[Any, ...]]


@pytest.fixture(autouse=True)
def given_back() -> Iterator[None]:
    yield
    if DeviceSession._open:  # after many tests, collecting takes seconds
        gc.collect()
    assert not DeviceSession._open


def test_a_method_that_is_wrapped_in_its_class_is_refused_in_one_line() -> None:
    class Trainer:
        @autoplace
        @tf.function
        def step(self, x: tf.Tensor) -> tf.Tensor:
            return x

    with pytest.raises(BadInputError, match=r"self.step = placer.autoplace\(self.step\)"):
        Trainer().step(tf.constant(1.0))
    Trainer.step.close()


def test_a_bound_method_that_is_wrapped_in_a_class_is_called_as_it_is() -> None:
    class Adding:
        @tf.function
        def add(self, x: tf.Tensor) -> tf.Tensor:
            return x + 1.0

    step = autoplace(Adding().add)

    class Trainer:
        add = step

    assert hasattr(Trainer(), "add")
    step.close()


def losses(step: Callable[..., Any], inputs: tuple[Any, ...], count: int) -> list[float]:
    return [float(step(*inputs)) for _ in range(count)]


def searched(step: AutoStep, inputs: tuple[Any, ...]) -> list[float]:
    """The losses until the search has ended."""
    found: list[float] = []
    while step.phase != "steady":
        found += losses(step, inputs, 1)
        assert step.phase != "left alone", step.report()
        give_way(len(found))
    return found


def starts(step: AutoStep) -> int:
    """How often it went over to another signature."""
    return sum(entry.kind == "start" for entry in step.journal.entries)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("within", "ends"),
    [
        pytest.param("capture", "Ctrl-C", marks=pytest.mark.slow),
        ("profile", "Ctrl-C"),
        pytest.param("profile", "a loss", marks=pytest.mark.slow),
    ],
)
def test_a_search_that_is_interrupted_goes_on_with_the_next_call(
    make_step: Callable[[], Made], monkeypatch: pytest.MonkeyPatch, within: str, ends: str
) -> None:
    """By Ctrl-C while it waits, or by what work raises of whose loss a reader in another thread has seen to."""
    step, inputs = make_step()
    with autoplace(tf.function(step), budget=1, seed=0) as placed:
        work, met = getattr(placed._live, within), []

        def interrupted() -> Any:
            if met:
                return work()
            met.append(placed.steps)
            if ends == "Ctrl-C":
                raise KeyboardInterrupt
            placed._session.recovery.losses.append(Loss((), 0, 0, 0.0))
            raise tf.errors.UnavailableError(None, None, "Connection reset by peer")

        monkeypatch.setattr(placed._live, within, interrupted)
        if ends == "Ctrl-C":
            with pytest.raises(KeyboardInterrupt):
                searched(placed, inputs)
        searched(placed, inputs)
        assert met and placed.left_alone is None and placed.tried, placed.report()


@pytest.mark.slow
def test_a_whole_search_trains_as_the_step_alone(make_step: Callable[[], Made], tmp_path: Path) -> None:
    step, inputs = make_step()
    with autoplace(step, budget=3, store=tmp_path / "found.db", log_dir=tmp_path) as placed:
        found = [*searched(placed, inputs), *losses(placed, inputs, 5)]
        measured, said = [tried for tried in placed.tried if tried.op_devices], placed.report()
        kept = placed.journal.entries
        page = placed.report_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == page
    record = json.loads(page.partition('id="record">')[2].partition("</script>")[0])
    assert record["events"]["sentence"] == [entry.sentence for entry in kept]
    times = {trial.result.step_s for trial in placed.tried if isinstance(trial.result, Measured)}
    assert {step_s for step_s in record["rows"]["step_s"] if step_s is not None} == times
    assert 2 <= len(measured) <= 3 + 2  # the single devices, and the budget
    assert "cpu:0" in said and "cpu:1" in said
    alone, _ = make_step()
    np.testing.assert_allclose(found, losses(tf.function(alone), inputs, len(found)), rtol=1e-3, atol=1e-4)
    hasty = sum(isinstance(trial.result, Measured) and trial.result.stopped_early for trial in measured)
    with Store(tmp_path / "found.db") as store:  # what was stopped early before all others has nothing to compare with
        assert len(measured) - hasty <= len(store) <= len(measured)
    lines = [json.loads(line) for line in (tmp_path / "placer.jsonl").read_text().splitlines()]
    assert [line["sentence"] for line in lines] == [entry.sentence for entry in kept]


@pytest.mark.slow
def test_a_program_that_goes_over_to_larger_batches_has_these_searched(
    make_step: Callable[[], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variants, "RECENT", 30)
    step, inputs = make_step()
    larger = tf.random.stateless_normal([18, 16], [3, 4]), tf.constant([0, 1, 2] * 6)
    with autoplace(step, budget=2) as placed:
        found = searched(placed, inputs)
        count = len(found)
        while starts(placed) == 0:
            found += losses(placed, larger, 1)
            time.sleep(0.005)  # it does not go over before the probes of the load are built
            give_way(len(found) - count)
        found += [*searched(placed, larger), *losses(placed, larger, 5), *losses(placed, inputs, 5)]
        assert sum(entry.kind == "end" for entry in placed.journal.entries) == 2
        assert [tried for tried in placed.tried if tried.op_devices]
    alone = tf.function(make_step()[0])
    given = [inputs] * count + [larger] * (len(found) - count - 5) + [inputs] * 5
    np.testing.assert_allclose(found, [float(alone(*batch)) for batch in given], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_step_that_looks_up_in_a_table_is_placed() -> None:
    """A session, in which steps are profiled, does not find the table."""
    words = [f"word{i}" for i in range(12)]
    numbers = tf.lookup.KeyValueTensorInitializer(tf.constant(words), tf.range(12))
    table = tf.lookup.StaticHashTable(numbers, 12)

    def made() -> tuple[Callable[..., Any], list[tf.Variable]]:
        rows, weight = tf.Variable(tf.ones([13, 8]) / 8.0), tf.Variable(tf.ones([8, 1]))

        @tf.function
        def step(asked: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.gather(rows, table.lookup(asked)) @ weight - y) ** 2)
            for variable, gradient in zip((rows, weight), tape.gradient(loss, (rows, weight)), strict=True):
                variable.assign_sub(0.05 * tf.convert_to_tensor(gradient))
            return loss

        return step, [rows, weight]

    def batch(i: int) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.constant([words[i % 12], words[i % 5], "none"]), tf.random.stateless_normal([3, 1], [i, 2])

    step, variables = made()
    found: list[float] = []
    with autoplace(step, budget=2, beat_untouched=False) as placed:
        while placed.phase != "steady":
            found.append(float(placed(*batch(len(found)))))
            give_way(len(found))
        assert not any(entry.kind == "error" for entry in placed.journal.entries), placed.report()
        assert [tried for tried in placed.tried if tried.op_devices]
    alone, wanted = made()
    np.testing.assert_allclose(found, [float(alone(*batch(i))) for i in range(len(found))], rtol=1e-3, atol=1e-5)
    for variable, value in zip(variables, wanted, strict=True):
        np.testing.assert_allclose(variable, value, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_the_signature_of_most_calls_is_searched_where_that_of_the_first_never_comes_again(
    make_step: Callable[[], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variants, "RECENT", 40)
    step, (x, y) = make_step()
    some, most, others = [(tf.repeat(x[:1], size, 0), tf.repeat(y[:1], size, 0)) for size in (8, 16, 24)]
    with autoplace(tf.function(step, reduce_retracing=True), budget=2) as placed:
        losses(placed, some, 20)
        while not placed._live.variants.is_settled:  # by the thread that captures
            losses(placed, some, 1)
            give_way(placed.steps)
        before = placed.steps
        while placed.steps < before + 200 or starts(placed) == 0:  # it does not go over before the capture has ended
            placed(*(others if placed.steps % 3 == 0 else most))
            give_way(placed.steps)
        assert starts(placed) == 1, placed.report()


@pytest.mark.slow
def test_a_step_that_keeps_a_string_is_placed() -> None:
    def made() -> tuple[Callable[..., Any], tf.Variable, tf.Variable]:
        weight, last = tf.Variable(0.5), tf.Variable("none")

        @tf.function
        def step(x: tf.Tensor, name: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x * weight - 1.0) ** 2)
            weight.assign_sub(0.01 * tape.gradient(loss, weight))
            last.assign(tf.strings.join([name, tf.strings.substr(last, 0, 1)]))
            return loss

        return step, weight, last

    def batch(i: int) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.random.stateless_normal([4], [i, 3]), tf.constant(f"{i}\0")

    step, weight, last = made()
    found: list[float] = []
    with autoplace(step, budget=2, beat_untouched=False) as placed:
        while placed.phase != "steady":
            found.append(float(placed(*batch(len(found)))))
            give_way(len(found))
        assert [tried for tried in placed.tried if tried.op_devices]
    alone, weight_alone, last_alone = made()
    np.testing.assert_allclose(found, [float(alone(*batch(i))) for i in range(len(found))], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(weight, weight_alone, rtol=1e-3, atol=1e-5)
    assert last.numpy() == last_alone.numpy() != b"none"


@pytest.mark.slow
def test_batches_of_too_many_shapes_are_pointed_out_once(
    make_step: Callable[[], Made], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(variants, "RECENT", 40)
    step, (x, y) = make_step()
    sizes = range(1, 23)
    padded = [(tf.repeat(x[:1], size, 0), tf.repeat(y[:1], size, 0)) for size in sizes]
    with autoplace(tf.function(step, reduce_retracing=True), budget=2) as placed:
        for i in range(120):
            placed(*padded[i % len(padded)])
        said = [entry.sentence for entry in placed.journal.entries if entry.kind == "scattered"]
    assert len(said) == 1 and "of the last 40 calls are of the signature" in said[0] and "to a few lengths" in said[0]
    assert said[0] in caplog.text


def test_lost_devices_are_looked_for_whatever_the_signature(
    make_step: Callable[[], Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, inputs = make_step()
    with place(step, split(step, inputs, tmp_path / "mapping.json")) as placed:
        losses(placed, inputs, 6)
        monkeypatch.setattr(controller, "SEEN_EVERY_S", 0.0)
        losses(placed, inputs, placed.settings.probe_every)  # the last that were not to be looked at are over
        looked: list[int] = []
        before = placed.steps
        monkeypatch.setattr(placed.controller.lost, "check", looked.append)
        losses(placed, tuple(tensor[:3] for tensor in inputs), 3)
        losses(placed, inputs, 1)
    assert looked == [before + i for i in (1, 2, 3, 4)]


def test_a_step_across_a_suspend_is_not_counted_and_one_line_says_so(
    make_step: Callable[[], Made], caplog: pytest.LogCaptureFixture
) -> None:
    step, inputs = make_step()
    sent: list[float] = []

    def script() -> Steps[None]:
        while True:
            sent.append((yield UNTOUCHED))

    now_s, asleep_s = 5.0, 0.0
    suspends = Suspends(lambda: now_s, lambda: now_s + asleep_s)
    with AutoStep(step, settings=OnlineSettings(search=False, adapt=False), suspends=suspends) as placed:
        placed._run._script = script()
        next(placed._run._script)
        losses(placed, inputs, 2)
        asleep_s = 7200.0
        found = losses(placed, inputs, 1)
        assert (len(sent), placed.steps) == (2, 3)
        losses(placed, inputs, 2)
        (entry,) = placed.journal.entries
    assert (len(sent), placed.steps) == (4, 5)
    assert found == losses(make_step()[0], inputs, 3)[2:]
    assert (entry.kind, entry.step, entry.numbers["seconds"]) == ("asleep", 3, 7200)
    assert caplog.text.count("this machine was suspended for 2.0 h; the step that it fell into is not counted.") == 1


@pytest.mark.slow
def test_a_store_that_can_be_written_no_more_ends_no_search(
    make_step: Callable[[], Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise PlacerError("the store cannot be written: database or disk is full; free some space.")

    monkeypatch.setattr(Store, "add", full)
    step, inputs = make_step()
    with autoplace(step, budget=2, store=tmp_path / "found.db") as placed:
        searched(placed, inputs)
        kinds = [entry.kind for entry in placed.journal.entries]
        assert (kinds.count("unkept"), kinds.count("end"), kinds.count("error")) == (1, 1, 0), placed.report()
        assert sum(isinstance(tried.result, Measured) for tried in placed.tried) > 1


def test_short_steady_steps_are_looked_at_in_groups_and_train_alike(
    make_step: Callable[[], Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Untouched and placed, with reads and writes between steps that nobody looks at."""
    (step, inputs), (alone, _) = make_step(), make_step()
    step, alone = tf.function(step), tf.function(alone)

    def halve(function: Any) -> None:
        for variable in function.get_concrete_function(*inputs).graph.trainable_variables:
            variable.assign(variable * 0.5)

    monkeypatch.setattr(controller, "SEEN_EVERY_S", 1e6)
    looked: list[int] = []
    with place(step, split(step, inputs, tmp_path / "mapping.json")) as placed:
        found = losses(placed, inputs, 30)
        monkeypatch.setattr(placed.controller.lost, "check", looked.append)
        mode, live = placed._live.mode, placed._live
        for chosen in (UNTOUCHED, mode, UNTOUCHED):
            placed.controller.trials.start_anew(chosen)
            live.mode = chosen
            found += losses(placed, inputs, 40)
            halve(step)
            found += losses(placed, inputs, 10)
    expected = losses(alone, inputs, 30)
    for _ in range(3):
        expected += losses(alone, inputs, 40)
        halve(alone)
        expected += losses(alone, inputs, 10)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert looked == [*range(40, 181, 10)]


def test_once_closed_the_step_goes_on_untouched(make_step: Callable[[], Made], tmp_path: Path) -> None:
    step, inputs = make_step()
    placed = place(step, split(step, inputs, tmp_path / "mapping.json"))
    found = losses(placed, inputs, 5)
    assert placed.mapping is not None
    placed.close()
    placed.close()
    found += losses(placed, inputs, 5)
    assert placed.mapping is None
    np.testing.assert_allclose(found, losses(*make_step(), 10), rtol=1e-5)


def test_a_close_that_ctrl_c_cut_short_can_be_called_again(
    make_step: Callable[[], Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    step, inputs = make_step()
    placed = place(step, split(step, inputs, tmp_path / "mapping.json"))
    found = losses(placed, inputs, 5)
    with monkeypatch.context() as patch:
        patch.setattr(DeviceSession, "end_thread", interrupted)
        with pytest.raises(KeyboardInterrupt):
            placed.close()
    placed.close()
    assert not DeviceSession._open
    found += losses(placed, inputs, 5)
    np.testing.assert_allclose(found, losses(*make_step(), 10), rtol=1e-5)


def split(step: Callable[..., Any], inputs: tuple[Any, ...], path: Path) -> Path:
    """A mapping file with every other colocation class on the second device."""
    graph = capture(step, inputs, "step").graph
    sides = {graph.ops[v].name: f"cpu:{i % 2}" for i, unit in enumerate(graph.colocated) for v in unit}
    path.write_text(json.dumps({"format": "placer.mapping/1", "assignment": sides}))
    return path


def divided(step: Callable[..., Any], inputs: tuple[Any, ...], path: Path, policy: str) -> Path:
    """A mapping file of the step with ops divided in two, the second parts on the second device."""
    captured = capture(step, inputs, "step")
    graph = StepGraph(captured.graph_def)
    rates = Rates(dict.fromkeys(graph.nodes, 1e-3), 1e-12, 0.0)
    plan = plan_by(policy, graph, {op.name: op.phase for op in captured.graph.ops}, rates, 2)
    ops = split_step(captured, plan, graph).captured.graph.ops
    units = {op.name for op in ops if op.colocate is not None}
    sides = {op.name: f"cpu:{0 if op.name in units else op.part or 0}" for op in ops}
    splits = [{"way": region.way, "parts": region.parts, "ops": region.ops} for region in regions_of(plan)]
    path.write_text(json.dumps({"format": "placer.mapping/2", "assignment": sides, "splits": splits}))
    return path


@pytest.mark.parametrize("policy", ["batch", "columns"])
def test_a_mapping_of_a_divided_step_divides_the_training(
    make_step: Callable[[], Made], tmp_path: Path, policy: str
) -> None:
    keras.utils.clear_session(free_memory=False)
    step, inputs = make_step()
    path = divided(step, inputs, tmp_path / "mapping.json", policy)
    with place(step, path) as placed:
        found = losses(placed, inputs, 12)
        assert placed.mapping is not None and len(set(placed.mapping.devices)) == 2
        assert any("/part_1" in name for name in placed.mapping.assignment)
    np.testing.assert_allclose(found, losses(*make_step(), 12), rtol=1e-5)


def test_a_mapping_is_saved_with_its_splits_and_runs_again(make_step: Callable[[], Made], tmp_path: Path) -> None:
    keras.utils.clear_session(free_memory=False)
    step, inputs = make_step()
    path = divided(step, inputs, tmp_path / "mapping.json", "columns")
    with place(step, path) as placed:
        with pytest.raises(PlacerError, match="runs untouched"):
            placed.save(tmp_path / "none.json")
        found = losses(placed, inputs, 6)
        placed.save(tmp_path / "saved.json")
        said, mapping = placed.report(), placed.mapping
        assert placed.splits is not None and placed.splits in said and "into 2 parts" in placed.splits
    assert read_plan(tmp_path / "saved.json") == read_plan(path)
    keras.utils.clear_session(free_memory=False)
    step, inputs = make_step()
    with place(step, tmp_path / "saved.json") as placed:
        assert losses(placed, inputs, 6) == found
        assert placed.mapping is not None and mapping is not None
        assert placed.mapping.assignment == mapping.assignment


@pytest.mark.slow
def test_a_search_with_divided_ops_trains_as_the_step_alone(
    make_step: Callable[[], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "WORTH", float("inf"))  # so small a step gains nothing
    step, inputs = make_step()
    with autoplace(step, budget=4, split="auto") as placed:
        found = [*searched(placed, inputs), *losses(placed, inputs, 5)]
        tried = [trial for trial in placed.tried if trial.op_devices]
        said = [entry.sentence for entry in placed.journal.entries if entry.kind == "plan"]
    assert {trial.plan for trial in tried} == {0, 1}
    assert all(isinstance(trial.result, Measured) for trial in tried), tried
    assert sum("are divided into 2 parts" in line for line in said) == 1
    alone = tf.function(make_step()[0])  # which takes a search's many steps again in little time
    np.testing.assert_allclose(found, losses(alone, inputs, len(found)), rtol=1e-3, atol=1e-4)


def test_a_plan_that_is_given_is_the_one_that_is_tried(make_step: Callable[[], Made], tmp_path: Path) -> None:
    step, inputs = make_step()
    path = divided(step, inputs, tmp_path / "mapping.json", "columns")
    given: list[SplitPlan] = []
    live: Any = SimpleNamespace(divide=lambda plan: given.append(plan) or 7)
    device = Device("cpu:0", "cpu")
    assert chosen(live, OnlineSettings(split=str(path)), Topology((device,))) == (7, None)
    assert given == [read_plan(path)]


def test_a_training_says_where_local_statistics_change_nothing(make_step: Callable[[], Made], tmp_path: Path) -> None:
    step, inputs = make_step()
    path = divided(step, inputs, tmp_path / "mapping.json", "columns")
    captured = capture(step, inputs, "step")
    live: Any = SimpleNamespace(divide=lambda plan: 7, captured=lambda: captured)
    settings = OnlineSettings(split=str(path), split_batchnorm="local")
    found = chosen(live, settings, Topology((Device("cpu:0", "cpu"),)))
    assert isinstance(found, ChosenPlan) and found.number == 7
    assert found.note is not None and "local statistics change nothing" in found.note


@pytest.mark.parametrize(
    ("error", "is_said"),
    [
        (ValueError("AddN of bool"), True),
        (PlacerError("no room"), False),
        (tf.errors.UnavailableError(None, None, ""), False),
    ],
)
def test_a_failure_to_divide_leaves_ops_whole(error: Exception, is_said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asked for the plan. What Placer refuses in words and lost devices are dealt with elsewhere."""

    def best(self: Any, parts: int) -> Any:
        raise error

    monkeypatch.setattr(choose.Judge, "__init__", lambda *_, **__: None)
    monkeypatch.setattr(choose.Judge, "best", best)
    device = Device("cpu:0", "cpu")
    graph = OpGraph("chain", (Op("a", cost_s={"cpu": 1.0}), Op("b", cost_s={"cpu": 1.0})), (Edge(0, 1, 4),))
    live: Any = SimpleNamespace(graph=graph, captured=lambda: None)
    with nullcontext() if is_said else pytest.raises(type(error)):
        why = chosen(live, OnlineSettings(split="auto"), Topology((device,)))
        assert why == "ops stay whole, because dividing them failed (ValueError: AddN of bool)."


def test_a_file_without_splits_is_refused_at_the_door(make_step: Callable[[], Made], tmp_path: Path) -> None:
    step, inputs = make_step()
    path = split(step, inputs, tmp_path / "mapping.json")
    with pytest.raises(BadInputError, match=r"\$\.splits is missing"):
        autoplace(step, split=path)
    with pytest.raises(BadInputError, match=r"none\.json"):
        autoplace(step, split=tmp_path / "none.json")


def test_a_plan_for_another_step_ends_the_placing_in_one_line(make_step: Callable[[], Made], tmp_path: Path) -> None:
    keras.utils.clear_session(free_memory=False)
    step, inputs = make_step()
    path = divided(step, inputs, tmp_path / "mapping.json", "columns")
    weight = tf.Variable(2.0)
    with place(tf.function(lambda x, y: weight.assign_add(tf.reduce_sum(x))), path) as placed:
        with (
            pytest.warns(UserWarning, match="goes on as it is") as warned,
            pytest.raises(BadInputError, match="it is for another graph"),
        ):
            losses(placed, inputs, 6)
        assert [Path(warning.filename) for warning in warned] == [Path(losses.__code__.co_filename)]
        losses(placed, inputs, 1)
        assert placed.mapping is None


def test_a_mapping_given_is_the_one_that_runs(make_step: Callable[[], Made], tmp_path: Path) -> None:
    keras.utils.clear_session(free_memory=False)  # what it calls optimizers is in the names of ops
    step, inputs = make_step()
    path = split(step, inputs, tmp_path / "mapping.json")
    asked = json.loads(path.read_text())["assignment"]
    with place(step, path) as placed:
        found = losses(placed, inputs, 6)
        mapping = placed.mapping
    assert isinstance(mapping, Mapping) and mapping.assignment == asked
    keras.utils.clear_session(free_memory=False)
    step, inputs = make_step()
    with place(step, mapping) as placed:
        assert losses(placed, inputs, 6) == found
        assert placed.mapping is not None and placed.mapping.assignment == asked


def test_a_mapping_runs_in_the_order_that_its_file_says(make_step: Callable[[], Made], tmp_path: Path) -> None:
    keras.utils.clear_session(free_memory=False)
    step, inputs = make_step()
    graph = capture(step, inputs, "step").graph
    path = split(step, inputs, tmp_path / "mapping.json")
    order = [graph.ops[v].name for v in graph.order]  # variables, too, which are arguments
    path.write_text(json.dumps(json.loads(path.read_text()) | {"order": order}))
    with place(step, path) as placed:
        found = losses(placed, inputs, 6)
        placed.save(tmp_path / "saved.json")
    assert json.loads((tmp_path / "saved.json").read_text())["order"] == order
    np.testing.assert_allclose(found, losses(*make_step(), 6), rtol=1e-5)


def test_an_order_that_the_step_cannot_run_in_ends_the_placing_in_one_line(
    make_step: Callable[[], Made], tmp_path: Path
) -> None:
    keras.utils.clear_session(free_memory=False)
    step, inputs = make_step()
    graph = capture(step, inputs, "step").graph
    path = split(step, inputs, tmp_path / "mapping.json")
    order = [graph.ops[v].name for v in reversed(graph.order)]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"order": order}))
    with place(step, path) as placed:
        with pytest.warns(UserWarning, match="goes on as it is"), pytest.raises(BadInputError, match="which it needs"):
            losses(placed, inputs, 6)
        losses(placed, inputs, 1)
        assert placed.mapping is None


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"devices": "foo"}, "workers:N"),
        ({"devices": "workers:x"}, "no number of workers"),
        ({"devices": "workers:0"}, "at least 1"),
        ({"devices": "workers:999"}, "may use"),
        ({"devices": 2}, "devices is a int"),
        ({"budget": 0}, "budget is 0"),
        ({"searcher": "oracle"}, "there is no searcher 'oracle'; choose one of bayes-et, "),
        ({"sync_every": 0}, "sync_every is 0"),
        ({"split": "auto", "split_batchnorm": "none"}, "split_batchnorm is 'none'; give 'exact' or 'local'"),
        ({"split_batchnorm": "local"}, "divides nothing by itself; give split='auto'"),
        ({"max_memory": {"cpu:0": "lots"}}, r"max_memory\['cpu:0'\]: 'lots' is no size; write 10GiB"),
        ({"max_memory": {"worker:0": 0}, "devices": "workers:1"}, "leaves no memory; give at least one byte"),
        (
            {"max_memory": {"cpu:0": 5}, "devices": "workers:1"},
            "max_memory: cpu:0 is no device here; the devices are",
        ),
        ({"max_memory": ["1GiB"]}, "max_memory is a list"),
        ({"split": "pipeline:4"}, "split is 'pipeline:4', which is neither 'off' nor 'auto' nor a mapping file"),
    ],
)
def test_what_cannot_be_is_refused_at_the_door(how: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        autoplace(lambda x: x, **how)


@pytest.mark.slow
def test_a_searcher_that_was_chosen_trains_as_the_step_alone(make_step: Callable[[], Made]) -> None:
    step, inputs = make_step()
    with autoplace(step, budget=6, searcher="bayes-et") as placed:
        found = [*searched(placed, inputs), *losses(placed, inputs, 5)]
        by = [trial.name for trial in placed.tried if trial.op_devices]
    assert set(by) == {"single", "bayes-et"} and len(by) == 6
    alone, _ = make_step()
    np.testing.assert_allclose(found, losses(tf.function(alone), inputs, len(found)), rtol=1e-3, atol=1e-4)


def test_a_mapping_that_is_no_file_is_refused_at_the_door(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"nope\.json"):
        place(lambda x: x, tmp_path / "nope.json")
    with pytest.raises(BadInputError, match="no training step"):
        autoplace(3)  # type: ignore[arg-type]


def test_splits_that_contradict_themselves_are_refused_before_devices_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "mapping.json"
    splits = [{"way": way, "parts": 2, "ops": ["MatMul"]} for way in ("batch", "columns")]
    path.write_text(json.dumps({"format": "placer.mapping/2", "assignment": {}, "splits": splits}))
    with pytest.raises(BadInputError, match=r"MatMul.*two ways"):
        place(lambda x: x, path)


LOST = """
import os, signal, sys
import numpy as np
import tensorflow as tf
import placer
from placer.train import joined_step, live_step
from tests.conftest import small_step

profile, killed = joined_step.profile, []

def profiled(captured, devices, *args, **how):
    if not killed:
        killed.append(devices.workers.processes[1].pid)
        os.kill(killed[0], signal.SIGKILL)
    return profile(captured, devices, *args, **how)

joined_step.profile, live_step.PROFILE_LIMIT_S = profiled, 20.0
undisturbed, inputs = small_step()
undisturbed = tf.function(undisturbed)
expected = [float(undisturbed(*inputs)) for _ in range(5000)]  # compiled before workers are joined
step, inputs = small_step()
with placer.autoplace(step, devices="workers:2", budget=2, beat_untouched=False) as placed:
    found = []
    while placed.phase != "steady" or placed.mapping is None:
        found.append(float(placed(*inputs)))
        assert placed.phase != "left alone" and len(found) < 200_000, placed.report()
    said = [entry.kind for entry in placed.journal.entries]
    names = placed.device_names
assert killed and said.index("lost") < said.index("plan") < said.index("end"), said
assert names == ("worker:0", "worker:1"), names
np.testing.assert_allclose(found[:5000], expected[:len(found)], rtol=1e-3, atol=1e-4)
"""


@pytest.mark.nightly
@pytest.mark.workers
def test_a_worker_lost_while_the_step_is_profiled_delays_the_search() -> None:
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]


JOINED_ANEW = """
import numpy as np
import tensorflow as tf
import placer
from placer.devices.workers import leftovers

def made():
    kept, weight = tf.Variable(tf.ones([8, 8])), tf.Variable(tf.eye(8))
    bias = tf.Variable(tf.zeros([8]))
    optimizer_slot = tf.Variable(tf.zeros([8, 8]))
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(tf.matmul(x, weight) + bias) - tf.matmul(x, kept) / 8) ** 2)
        of_weight, of_bias = tape.gradient(loss, [weight, bias])
        optimizer_slot.assign(0.9 * optimizer_slot + of_weight)
        weight.assign_sub(0.01 * optimizer_slot)
        bias.assign(bias - 0.01 * of_bias)
        return loss
    return step, [kept, weight, bias, optimizer_slot]

def batch(i):
    return tf.constant(np.random.default_rng(i).normal(size=(16, 8)), tf.float32)

MOST = 20_000
undisturbed, expected_variables = made()
expected, states = [], []
for i in range(MOST):
    expected.append(float(undisturbed(batch(i))))
    states.append([v.numpy() for v in expected_variables])
step, variables = made()
leftovers.MOST_OPS = -1  # at each look
with placer.autoplace(step, devices="workers:2", budget=4, beat_untouched=False) as placed:
    found, joined = [], 0
    while joined < 1 or len(found) < joined + 200:
        found.append(float(placed(batch(len(found)))))
        if not joined and sum(entry.kind == "joined" for entry in placed.journal.entries) > 1:
            joined = len(found)
        assert placed.phase != "left alone" and len(found) < MOST, placed.report()
    assert placed.mapping is not None
    said = [entry.kind for entry in placed.journal.entries]
assert said.index("end") < said.index("joined"), said
assert not {"lost", "back", "error"} & set(said), said
np.testing.assert_allclose(found, expected[:len(found)], rtol=1e-4, atol=1e-5)
for variable, value in zip(variables, states[len(found) - 1], strict=True):
    np.testing.assert_allclose(variable.numpy(), value, rtol=1e-4, atol=1e-5)
variables[1].assign(tf.zeros([8, 8]))
assert not variables[1].numpy().any()
"""


@pytest.mark.nightly
@pytest.mark.workers
def test_a_training_whose_workers_are_joined_anew_trains_as_the_step_alone() -> None:
    done = subprocess.run([sys.executable, "-c", JOINED_ANEW], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("given_up", [False, True])
def test_a_plain_step_whose_state_keeps_changing_is_left_alone_in_the_middle_of_its_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, given_up: bool
) -> None:
    """given_up: the search has ended by an error before, so that no script is left which would report it."""
    rates = [0.1]

    def made() -> Callable[[], Any]:
        weight = tf.Variable(2.0)

        def step() -> Any:
            with tf.GradientTape() as tape:
                loss = tf.square(weight)
            weight.assign_sub(rates[0] * tape.gradient(loss, weight))
            return loss

        return step

    def trained(step: Callable[[], Any]) -> list[float]:
        found = []
        for i in range(30):
            rates[0] = 0.1 if i < 10 else 0.1 / i
            found.append(float(step()))
        return found

    rates[0] = 0.1
    path = split(made(), (), tmp_path / "mapping.json")
    with place(made(), path) as placed:
        found = trained(forgetful(placed) if given_up else placed)
        assert placed.phase == "left alone" and placed.mapping is None
        said = [entry.sentence for entry in placed.journal.entries]
    assert sum("rates[0]" in sentence for sentence in said) == 1
    assert sum("rates[0]" in record.getMessage() for record in caplog.records) == 1
    np.testing.assert_allclose(found, trained(made()), rtol=1e-5)


def forgetful(placed: AutoStep) -> Callable[[], Any]:
    """The step, which loses its script once it is placed, as if the script had raised."""

    def step() -> Any:
        if placed.mapping is not None:
            placed._run._script = None
        return placed()

    return step
