"""The store: what was measured once is found again, in the time of today's anchor."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from placer.errors import BadInputError, PlacerError
from placer.graph.mapping import Mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.measure.store import Store, topology_key
from placer.profile.operators.dataset import Operator, OperatorRow, Tensor
from placer.result import Failed, Measured

GRAPH = OpGraph("pair", (Op("a", "X", {"cpu": 1.0}), Op("b", "X", {"cpu": 1.0})), (Edge(0, 1, 8),))
TOPOLOGY = Topology((Device("p", "cpu"), Device("q", "cpu")))
SPLIT = Mapping(GRAPH, TOPOLOGY, (0, 1))
TOGETHER = Mapping(GRAPH, TOPOLOGY, (0, 0))


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "deep" / "runs.sqlite") as store:
        yield store


def test_a_result_is_found_in_the_time_of_todays_anchor(store):
    """0.5 s beside an anchor of 1 s is 1 s beside one of 2 s."""
    store.add(SPLIT, Measured(0.5, 0.1, 12, 0.3), anchor_s=1.0, searcher="heft")
    assert store.find(SPLIT, anchor_s=2.0) == Measured(1.0, 0.2, 12, 0.3)


def test_another_mapping_graph_or_machine_is_not_found(store):
    store.add(SPLIT, Measured(0.5), anchor_s=1.0, searcher="heft")
    assert store.find(TOGETHER, 1.0) is None
    renamed = OpGraph("pair", (Op("a", "X", {"cpu": 1.0}), Op("c", "X", {"cpu": 1.0})), GRAPH.edges)
    assert store.find(Mapping(renamed, TOPOLOGY, (0, 1)), 1.0) is None
    third = Topology((*TOPOLOGY.devices, Device("r", "cpu")))
    assert store.find(Mapping(GRAPH, third, (0, 1)), 1.0) is None


def test_another_content_of_the_same_ops_is_not_found(store):
    """Nor what an older Placer stored without one."""
    one, other = (Mapping(replace(GRAPH, content=content), TOPOLOGY, (0, 1)) for content in ("ab", "cd"))
    store.add(SPLIT, Measured(0.5), anchor_s=1.0, searcher="heft")
    assert store.find(one, 1.0) is None
    store.add(one, Measured(0.7), anchor_s=1.0, searcher="heft")
    assert (store.find(one, 1.0), store.find(other, 1.0), store.find(SPLIT, 1.0)) == (
        Measured(0.7), None, Measured(0.5),
    )  # fmt: skip


def test_a_schedule_has_results_of_its_own(store):
    store.add(SPLIT, Measured(0.5), anchor_s=1.0, searcher="heft")
    store.add(SPLIT, Measured(0.7), anchor_s=1.0, searcher="heft", schedule="fifo")
    assert (store.find(SPLIT, 1.0), store.find(SPLIT, 1.0, "fifo")) == (Measured(0.5), Measured(0.7))
    assert store.find(SPLIT, 1.0, "donf") is None


def test_links_measured_anew_are_the_same_topology():
    assert topology_key(TOPOLOGY) == topology_key(Topology(TOPOLOGY.devices, (Link("*", "*", 1.0, 1.0),)))


@pytest.mark.parametrize("now", [{"hardware": "6 cores of a Xeon"}, {"address": "other:5000"}, {"kind": "gpu"}])
def test_results_of_other_hardware_under_the_same_name_are_not_found(now):
    then = Device("worker:0", "cpu", address="host:5000", hardware="2 cores of a Xeon")
    assert topology_key(Topology((then,))) == topology_key(Topology((replace(then, address="host:6000"),)))
    assert topology_key(Topology((then,))) != topology_key(Topology((replace(then, **now),)))


def test_results_under_other_settings_of_tensorflow_are_not_found(monkeypatch):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    before = topology_key(TOPOLOGY)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")  # as it is by itself
    assert topology_key(TOPOLOGY) == before
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    assert topology_key(TOPOLOGY) != before


def test_a_failure_is_kept_too(store):
    store.add(SPLIT, Failed("loss", "another loss"), anchor_s=1.0, searcher="random")
    assert store.find(SPLIT, 1.0) == Failed("loss", "another loss")


@pytest.mark.parametrize("reason", ["device", "error", "memory"])
def test_a_failure_of_a_moment_bans_no_mapping(store, reason):
    store.add(SPLIT, Failed(reason, "worker:1 is lost"), anchor_s=1.0, searcher="random")
    assert store.find(SPLIT, 1.0) is None and len(store) == 0


def test_a_row_counts_beside_the_anchor_with_which_it_was_compared(store):
    first, other = store.anchor_key(TOGETHER), store.anchor_key(None)
    store.add(SPLIT, Measured(0.5), anchor_s=1.0, searcher="heft", anchor=first)
    assert store.find(SPLIT, 2.0, anchor=first) == Measured(1.0)
    assert store.find(SPLIT, 2.0, anchor=other) is None and store.find(SPLIT, 2.0) is None


def test_it_survives_being_opened_again(tmp_path):
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        store.add(SPLIT, Measured(0.5), anchor_s=1.0, searcher="heft")
    with Store(path) as store:
        assert len(store) == 1


def test_another_schema_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "runs.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(BadInputError, match="schema 99"):
        Store(path)


@pytest.mark.parametrize("content", [b"this is no database, but long enough to look at" * 10])
def test_a_file_that_is_no_store_is_refused(tmp_path, content):
    path = tmp_path / "runs.sqlite"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match="cannot be used"):
        Store(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "table",
    [
        "measurements (at REAL, celsius REAL)",
        "operators (name TEXT, number TEXT)",
        "studies (id INTEGER)",
        "cases (key TEXT PRIMARY KEY)",
    ],
)
@pytest.mark.parametrize("version", [0, 2])
def test_another_programs_file_is_named_as_that_and_left_alone(tmp_path, table, version):
    path = tmp_path / "weather.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {table}")
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(BadInputError, match="of another program; name another"):
        Store(path)
    assert path.read_bytes() == before


def test_a_store_of_the_first_version_gets_what_it_lacks(tmp_path, store):
    path = tmp_path / "first.sqlite"
    (made,) = store.connection.execute("SELECT sql FROM sqlite_master WHERE name = 'measurements'").fetchone()
    connection = sqlite3.connect(path)
    connection.execute(made)
    connection.execute("CREATE TABLE notes (text TEXT)")  # its owner's
    connection.execute("PRAGMA user_version=1")
    connection.close()
    with Store(path) as renewed:
        assert (len(renewed), renewed.operators()) == (0, [])


def test_a_pipe_is_refused(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(BadInputError, match="is no file"):
        Store(path)


def test_one_that_another_process_is_just_making_is_waited_for(tmp_path):
    """Another holds the new file's lock in the middle of making it."""
    path, opened = tmp_path / "runs.sqlite", []
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE measurements_of_before (x)")

    def open_it():
        try:
            with Store(path) as store:
                opened.append(len(store))
        except PlacerError as error:
            opened.append(str(error))

    opening = threading.Thread(target=open_it)
    opening.start()
    opening.join(0.3)  # as long as it may: what waits is not done, what does not has failed
    other.execute("ROLLBACK")
    opening.join()
    other.close()
    assert opened == [0]


def test_many_may_make_one_store_at_the_same_instant(tmp_path):
    opened, count = [], 6

    def open_it(path, start):
        start.wait()
        try:
            with Store(path) as store:
                store.add(SPLIT, Measured(0.5), anchor_s=1.0, searcher="heft")
                opened.append(len(store))
        except PlacerError as error:
            opened.append(str(error))

    for i in range(10):
        start = threading.Barrier(count)
        threads = [threading.Thread(target=open_it, args=(tmp_path / f"{i}.sqlite", start)) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert opened == [1] * 10 * count


def test_only_a_full_disk_is_told_to_free_space(tmp_path):
    with Store(tmp_path / "runs.sqlite") as store:
        store.connection.execute("DROP TABLE measurements")
        with pytest.raises(PlacerError, match="no such table") as told:
            store.add(SPLIT, Measured(0.5), anchor_s=1.0, searcher="heft")
        assert "free some space" not in str(told.value)
        with pytest.raises(PlacerError, match="cannot be read: no such table"):
            store.find(SPLIT, 1.0)
    with Store(tmp_path / "full.sqlite") as store:
        store.connection.execute("PRAGMA max_page_count = 1")  # which becomes the number of pages that it has
        with pytest.raises(PlacerError, match="full; free some space"):
            for i in range(1000):
                store.add(SPLIT, Failed("loss", f"{i}" * 10_000), anchor_s=1.0, searcher="heft")


def test_a_gpu_split_another_way_is_another_topology():
    def key(memory_bytes, kind="gpu"):
        return topology_key(Topology((Device("gpu:0", kind, memory_bytes), Device("cpu:0", "cpu", 10))))

    assert key(20 << 30) != key(10 << 30)
    assert key(20 << 30) == key((20 << 30) + 1000)
    assert key(20 << 30, "cpu") == key(10 << 30, "cpu")


def test_results_of_other_machines_are_told_apart_by_their_host_and_not_by_their_port():
    keys = [topology_key(Topology((Device("worker:0", "cpu", address=a),))) for a in (None, "a:1", "a:2", "b:1")]
    assert keys[1] == keys[2]
    assert len(set(keys)) == 3


def test_results_of_another_release_of_tensorflow_are_told_apart(monkeypatch):
    before = topology_key(TOPOLOGY)
    monkeypatch.setattr("placer.measure.store.installed", lambda: "2.99.0")
    assert topology_key(TOPOLOGY) != before


@pytest.mark.parametrize(
    "damage",
    [
        "result = '{}'",
        "result = 'no JSON'",
        'result = \'{"step_s": "long"}\'',
        "result = '{\"step_s\": 0.0}'",
        "result = '{\"step_s\": -1.0}'",
        "result = '{\"step_s\": NaN}'",
        'result = \'{"step_s": 0.5, "repeats": 0}\'',
        "result = X'ff00'",
        "result = 7",
        "ratio = NULL",
        "ratio = 'far'",
        "ratio = -1.0",
        "ratio = 1e999",
        "kind = 'guessed'",
    ],
)
def test_a_row_that_no_placer_wrote_is_measured_anew(store, damage):
    store.add(SPLIT, Measured(0.5), anchor_s=1.0, searcher="heft")
    store.connection.execute(f"UPDATE measurements SET {damage}")
    assert store.find(SPLIT, 1.0) is None
    store.add(SPLIT, Measured(0.25), anchor_s=1.0, searcher="heft")
    assert store.find(SPLIT, 1.0) == Measured(0.25)


@pytest.mark.parametrize(
    "damage",
    [
        "median_s = 'long'",
        "median_s = -1.0",
        "repeats = 0",
        "repeats = 1e999",
        "input_shapes = '[[\"a\"]]'",
        "input_shapes = '{}'",
        "input_dtypes = '[]'",
        "attributes = '[1]'",
        "attributes = NULL",
        "flops = 'many'",
    ],
)
def test_an_operator_that_no_placer_wrote_is_refused(store, damage):
    tensor = Tensor((8, 4), "float32")
    operator = Operator("MatMul", (tensor, tensor), (tensor,), {"transpose_a": False}, 64.0)
    row = OperatorRow(operator, "cpu:0", "cpu", "m", 8, "net", "forward", "step", 1e-3, 9e-4, 2e-4, 5)
    store.add_operators([row])
    assert store.operators() == [row]
    store.connection.execute(f"UPDATE operators SET {damage}")
    with pytest.raises(BadInputError, match="a row of operators that no Placer wrote"):
        store.operators()
