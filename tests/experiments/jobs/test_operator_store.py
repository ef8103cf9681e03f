"""The store behind `--costs predicted`: what is refused, with the command that helps, and whose times count."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.cli.options import planned_files, predicting_from
from experiments.jobs.operator_store import OperatorStore
from experiments.jobs.search.settings import SearchSettings
from placer.devices.cluster import Devices
from placer.devices.host.machine import cores_of_cpu, cpu_model, timed_on
from placer.devices.workers.workers import Workers
from placer.errors import BadInputError, PlacerError
from placer.graph.topology import Device, Topology
from placer.measure.store import Store
from placer.profile.operators.dataset import YARDSTICKS, Operator, OperatorRow, Tensor
from placer.trace.capture import Captured, capture
from surrogate.operators.hardware import Hardware, hardware_of

ONE_CORE = timed_on(cores_of_cpu(1))
CPUS = Topology((Device("worker:0", "cpu"), Device("worker:1", "cpu")))


def matmul_row(m: int, machine: str, kind: str = "cpu", device: str = "worker:0", slow: float = 1.0) -> OperatorRow:
    inputs = (Tensor((m, 64), "float32"), Tensor((64, 64), "float32"))
    op = Operator("MatMul", inputs, (Tensor((m, 64), "float32"),), {}, 2.0 * m * 64 * 64)
    seconds = slow * (5e-6 + (op.flops or 0.0) / 1e10)
    return OperatorRow(op, device, kind, machine, m, "net", "forward", "step", seconds, seconds, 0.0, 20)


def rows(machine: str, **more: Any) -> list[OperatorRow]:
    return [matmul_row(m, machine, **more) for m in range(16, 400, 16)]


@pytest.fixture
def store(tmp_path: Path) -> Callable[[Sequence[OperatorRow]], OperatorStore]:
    """Fills a store and reads it, as for `--workers 2`."""

    def filled(content: Sequence[OperatorRow]) -> OperatorStore:
        with Store(tmp_path / "ops.sqlite") as kept:
            kept.add_operators(content)
        return OperatorStore.read(tmp_path / "ops.sqlite", "workers:2")

    return filled


@pytest.fixture(scope="module")
def captured(make_step: Callable[[], tuple[Any, tuple[Any, ...]]]) -> Captured:
    step, inputs = make_step()
    return capture(step, inputs, "small")


def workers(cores: int = 1) -> Devices:
    """Two workers with so many cores each; none runs."""
    at = {name: f"localhost:{5000 + i}" for i, name in enumerate(CPUS.names)}
    each = tuple(tuple(range(i * cores, (i + 1) * cores)) for i in range(2))
    return Devices(CPUS, dict.fromkeys(CPUS.names, ""), "", workers=Workers((5000, 5001), each), addresses=at)


def test_a_store_that_is_missing_or_empty_is_refused_with_the_command_that_fills_it(tmp_path: Path) -> None:
    path = tmp_path / "ops.sqlite"
    with pytest.raises(BadInputError, match=r"no such file; .*placer profile MODEL\.\.\. --workers 2 --store .*ops"):
        SearchSettings("towers", "workers:2", operators=path).check()
    assert not path.exists()
    Store(path).close()
    with pytest.raises(BadInputError, match=r"no times of ops; .*placer profile MODEL\.\.\. --devices gpus:2 --store"):
        OperatorStore.read(path, "gpus:2")
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    with pytest.raises(BadInputError, match="another program; name another with --operators"):
        OperatorStore.read(path)


def test_times_of_other_hardware_are_refused_with_both_named(
    store: Callable[..., OperatorStore], captured: Captured
) -> None:
    for elsewhere in ("far x86_64 96", timed_on(cpu_model()), timed_on(cores_of_cpu(2))):
        says = r"other hardware .* than worker:0 \(.*1 core .*\), .*--workers 2 --store"
        with pytest.raises(BadInputError, match=says):
            store(rows(elsewhere)).on_devices(captured, workers())
    assert store(rows(ONE_CORE)).on_devices(captured, workers()).graph.fingerprint == captured.graph.fingerprint


def test_on_other_hardware_yardsticks_say_how_fast_it_is(
    store: Callable[..., OperatorStore], captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def measured(devices: Devices, number: int) -> Hardware:
        asked.append(devices.machine_of(devices.topology.names[number]))
        return next(iter(hardware_of(marks("here", 0.5)).values()))

    monkeypatch.setattr("experiments.jobs.operator_store._measured", measured)
    kept = store([*rows("far"), *marks("far", 1.0)])
    found = kept.on_devices(captured, workers()).graph
    assert asked == [ONE_CORE]  # both workers are of one kind
    assert f"on a cpu (far), as fast as yardsticks are on {ONE_CORE} in" in (found.source or "")
    there = kept.on_topology(captured, CPUS).graph
    for here, far in zip(found.ops, there.ops, strict=True):
        assert far.type != "MatMul" or here.cost_s["worker:0"] == pytest.approx(far.cost_s["worker:0"] / 2, rel=0.2)
    with pytest.raises(BadInputError, match=r"other hardware \(old\) than .* does not say how fast that is"):
        store(rows("old")).on_devices(captured, workers())


@pytest.mark.slow
def test_yardsticks_are_measured_on_the_devices_at_hand(
    store: Callable[..., OperatorStore], captured: Captured, two_cpus: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = store([*rows("far"), *marks("far", 1.0)]).on_devices(captured, two_cpus).graph
    assert "as fast as yardsticks are on" in (found.source or "")
    assert sum(op.cost_s["cpu:0"] for op in found.ops if op.type == "MatMul") > 0
    monkeypatch.setattr("experiments.jobs.operator_store._measured", lambda devices, number: None)
    with pytest.raises(PlacerError, match=r"cpu:0: not all of the yardsticks run there .* --store"):
        store([]).on_devices(captured, two_cpus)


def marks(machine: str, slow: float) -> list[OperatorRow]:
    """Yardsticks of a machine."""
    products = [matmul_row(m, machine, slow=slow) for m in (1, 1000, 100_000)]
    sums = [replace(r, operator=replace(r.operator, type="AddV2", inputs=r.operator.outputs * 2)) for r in products]
    both = (*products, *sums)
    return [replace(row, network=YARDSTICKS, source=source) for row in both for source in ("step", "single")]


def test_a_kind_that_was_never_measured_is_refused(store: Callable[..., OperatorStore], captured: Captured) -> None:
    gpus = Topology((Device("gpu:0", "gpu"), *CPUS.devices))
    with pytest.raises(BadInputError, match=r"no times of ops on a gpu; .*placer profile"):
        store(rows(ONE_CORE)).on_topology(captured, gpus)


def test_what_was_predicted_from_what_is_said(store: Callable[..., OperatorStore], captured: Captured) -> None:
    found = store(rows(ONE_CORE)).on_devices(captured, workers())
    assert all(set(op.cost_s) == set(CPUS.names) for op in found.graph.ops)
    said = found.graph.source or ""
    assert f"24 times of ops of 1 network on a cpu ({ONE_CORE})" in said
    count = sum(found.guessed.values())
    assert f"{count} ops, {found.guessed_share:.1%} of the predicted step, can only be guessed" in said
    assert 0 < found.guessed_share < 1 and "MatMul" not in found.guessed


def test_devices_that_are_only_described_take_the_only_machine_or_the_one_with_their_names(
    store: Callable[..., OperatorStore], captured: Captured
) -> None:
    def matmul_s(kept: OperatorStore) -> float:
        costs = kept.on_topology(captured, CPUS).graph
        return sum(op.cost_s["worker:0"] for op in costs.ops if op.type == "MatMul")

    alone_s = matmul_s(store(rows("far")))
    assert alone_s > 0
    with_whole_cpu = store(rows("near", device="cpu:0", slow=0.1))
    assert matmul_s(with_whole_cpu) == alone_s
    with pytest.raises(BadInputError, match="several machines"):
        store(rows("third")).on_topology(captured, CPUS)


def test_workers_with_other_cores_and_workers_elsewhere_are_other_hardware() -> None:
    elsewhere = replace(workers(), workers=None, addresses={"worker:0": "10.0.0.5:5000", "worker:1": "10.0.0.6:5000"})
    found = [workers().machine_of("worker:0"), workers(2).machine_of("worker:1"), elsewhere.machine_of("worker:1")]
    assert found == [ONE_CORE, timed_on(cores_of_cpu(2)), timed_on("@10.0.0.6")]


def test_options_that_contradict_one_another_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for costs, operators, says in (
        ("guessed", None, "profiled or predicted"),
        ("profiled", tmp_path, "--costs predicted; add that"),
        ("predicted", None, "no operators.sqlite in this folder; .* placer profile MODEL... --store operators.sqlite"),
    ):
        with pytest.raises(BadInputError, match=says):
            predicting_from(costs, operators)
    assert predicting_from("profiled", None) is None and predicting_from("predicted", tmp_path) == tmp_path
    for topology, spec, batch in ((None, None, None), (tmp_path, "workers:2", None), (tmp_path, None, 8)):
        with pytest.raises(BadInputError, match="with --costs predicted"):
            planned_files("graph.json", topology, spec, batch)


def test_the_store_of_this_folder_is_taken_where_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store(Path("operators.sqlite")) as kept:
        kept.add_operators(rows(ONE_CORE))
    found = predicting_from("predicted", None)
    assert found is not None and OperatorStore.read(found).rows
    assert predicting_from("predicted", Path("other.sqlite")) == Path("other.sqlite")
