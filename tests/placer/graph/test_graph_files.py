"""The file edge: what is written reads back the same; what is bad is refused in one line."""

import json
import os
from pathlib import Path

import pytest

from placer.errors import BadInputError, PlacerError
from placer.graph.graph_files import read_graph, read_topology, write_graph, write_topology
from placer.graph.mapping import Mapping
from placer.graph.mapping_files import mapping_file, read_mapping, read_mapping_file, read_placed, write_mapping
from placer.graph.topology import Device, Topology

DATA = Path(__file__).parents[2] / "data"

GRAPH = {
    "format": "placer.graph/1",
    "name": "small",
    "ops": [
        {
            "name": "a",
            "type": "Conv2D",
            "cost_s": {"gpu": 1.0, "cpu": 2},
            "memory_bytes": 0.0,
            "colocate": "a",
        },
        {"name": "b", "cost_s": {"gpu": 1}, "memory_bytes": 8, "devices": ["gpu"], "phase": "backward"},
        {"name": "c", "cost_s": {"gpu": 1}, "memory_bytes": 8},
    ],
    "edges": [["a", "b", 4.0], ["a", "c", 8, 1], ["b", "c", 2.5]],
}
TOPOLOGY = {
    "format": "placer.topology/1",
    "contention": "link",
    "devices": [
        {"name": "gpu:0", "kind": "gpu", "memory_bytes": 16.0, "speed": 2},
        {"name": "gpu:1", "kind": "gpu", "ingress_bytes_per_s": 1e9, "egress_bytes_per_s": 1e9},
    ],
    "links": [{"src": "*", "dst": "*", "latency_s": 0, "bandwidth_bytes_per_s": 1e9, "receive_s": 1e-4}],
}
HUGE = "x" * 2_000_000
ON_GPU0 = {"a": "gpu:0", "b": "gpu:0", "c": "gpu:0"}


@pytest.fixture
def put(tmp_path):
    """Write something as a file; its path."""

    def put(content, name="file.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return put


def changed(document, change):
    copy = json.loads(json.dumps(document))
    change(copy)
    return copy


def refused(read, *args):
    """The one line with which `read` refuses its input."""
    with pytest.raises(BadInputError) as refusal:
        read(*args)
    line = str(refusal.value)
    assert "\n" not in line
    return line


def test_a_graph_reads_and_writes_back_the_same(put, tmp_path):
    graph = read_graph(put(GRAPH))
    assert [tuple(e) for e in graph.edges] == [(0, 1, 4, 0), (0, 2, 8, 1), (1, 2, 2.5, 0)]
    assert graph.ops[1].devices == ("gpu",) and graph.ops[1].phase == "backward"
    assert isinstance(graph.ops[0].memory_bytes, int)
    write_graph(tmp_path / "again.json", graph)
    again = read_graph(tmp_path / "again.json")
    assert (again.ops, again.edges, again.fingerprint) == (graph.ops, graph.edges, graph.fingerprint)


def test_a_published_graph_reads():
    graph = read_graph(DATA / "gnmt.json")
    assert (len(graph), len(graph.edges), len(graph.colocated)) == (96, 164, 48)
    assert "MIT" in graph.source


def test_a_topology_reads_and_writes_back_the_same(put, tmp_path):
    topology = read_topology(put(TOPOLOGY))
    assert topology.devices[0].memory_bytes == 16 and topology.devices[1].memory_bytes is None
    assert topology.link(0, 1).receive_s == 1e-4
    write_topology(tmp_path / "again.json", topology)
    assert read_topology(tmp_path / "again.json") == topology


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda g: g.pop("format"), "lacks the field 'format'"),
        (lambda g: g.update(format="placer.topology/1"), "$.format is 'placer.topology/1'"),
        (lambda g: g.update(colour=1), "unknown field 'colour'"),
        (lambda g: g["ops"][1].update(colour=1), "$.ops[1] has the unknown field 'colour'"),
        (lambda g: g["ops"][2].pop("memory_bytes"), "$.ops[2] lacks the field 'memory_bytes'"),
        (lambda g: g["ops"][0].update(memory_bytes=-1), "$.ops[0].memory_bytes"),
        (lambda g: g["ops"][0]["cost_s"].update(gpu=-1), "$.ops[0].cost_s"),
        (lambda g: g["ops"][0].update(cost_s={}), "no device can run it"),
        (lambda g: g["ops"][0].update(phase="sideways"), "$.ops[0].phase"),
        (lambda g: g["ops"].append(dict(g["ops"][0])), "two ops are called 'a'"),
        (lambda g: g["edges"].append(["a", "nope", 1]), "$.edges[3] names 'nope'"),
        (lambda g: g["edges"].append(["c", "a", 1]), "has a cycle"),
        (lambda g: g["edges"].append(["a", "b", -1]), "$.edges[3][2]"),
        (lambda g: g["edges"].append(["a", "b", 1, 0, 0]), "$.edges"),
        (lambda g: g["edges"].append(["a", "b"]), "$.edges"),
        (lambda g: g["edges"].append(["a", "b", "1"]), "$.edges[3][2]"),
        (lambda g: g.update(ops=[], edges=[]), "has no ops"),
        (lambda g: g.update(ops={}), "$.ops: expected array, got object"),
        (lambda g: g["ops"][0].update(cost_s=1), "$.ops[0].cost_s: expected object"),
        (lambda g: g["ops"][0].update(cost_s={"gpu": 1e300}), "expected float <="),
        (lambda g: g["edges"].append(["a", "b", 1, 10**12]), "$.edges[3][3]"),
        (lambda g: g["ops"][0].update(name=HUGE), "$.ops[0].name: expected str of length <= 1000"),
        (lambda g: g["ops"][0]["cost_s"].update({HUGE: 1}), "$.ops[0].cost_s: expected str of length <= 1000"),
        (lambda g: g["edges"].append([HUGE, "a", 1]), "$.edges[3][0]: expected str of length <= 1000"),
        (lambda g: g.update({HUGE: 1}), "unknown field 'xxxx"),
        (lambda g: g.update(format=HUGE), "$.format is 'xxxx"),
        (lambda g: g["ops"][0].update(phase=HUGE), "$.ops[0].phase: 'xxxx"),
    ],
)
def test_a_bad_graph_is_refused_in_one_line(put, change, says):
    path = put(changed(GRAPH, change), "graph.json")
    line = refused(read_graph, path)
    assert line.startswith(str(path)) and says in line
    assert len(line) < len(str(path)) + 300


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        '{"format": "placer.graph/1", "name": NaN}',
        "[" * 100_000,
        "[]",
        '{"format": 3}',
        "\x00",
        "\x89PNG\r\n",
        '{"a": ' * 100_000,
        '{"format": "placer.graph/1", "name": "g", "ops": ' + "[" * 100_000,
        " \n",
    ],
)
def test_what_is_no_graph_at_all_is_refused(put, text):
    refused(read_graph, put(text))


def test_numbers_that_are_none_are_refused(put):
    for number in ("NaN", "Infinity", "-Infinity"):
        assert "has NaN or Infinity" in refused(read_graph, put(json.dumps(GRAPH).replace("2.5", number)))
    refused(read_graph, put(json.dumps(GRAPH).replace("2.5", "1e999")))


def test_a_byte_order_mark_is_no_fault(put):
    assert len(read_graph(put("\ufeff" + json.dumps(GRAPH)))) == len(GRAPH["ops"])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (json.dumps(GRAPH).encode("utf-16"), "is in UTF-16 or UTF-32; save it as UTF-8"),
        (b"\xef\xbb\xbf", "is no JSON"),
        (json.dumps(GRAPH).replace("small", "\\ud800").encode(), "lone surrogate"),
        (json.dumps(GRAPH).replace("small", "\\udc00").encode(), "lone surrogate"),
        (json.dumps(GRAPH).replace("small", "\\ud83d and more").encode(), "lone surrogate"),
        (json.dumps(GRAPH).replace("small", "\xff").encode("latin-1"), "is not in UTF-8"),
        (b'{"a": ' * 100_000, "is nested too deeply"),
        (json.dumps(GRAPH).encode()[:-1], "is no JSON"),
        (json.dumps(GRAPH).replace("small", "NaN").encode() + b"x", "is no JSON"),
        (json.dumps(GRAPH).replace("small", "a\tb").encode(), "is no JSON"),
    ],
    ids=range(10),
)
def test_what_is_no_json_is_named_as_what_it_is(tmp_path, content, says):
    path = tmp_path / "graph.json"
    path.write_bytes(content)
    line = refused(read_graph, path)
    assert says in line
    assert "Infinity" not in line


def test_files_that_cannot_be_read_are_refused(tmp_path, put):
    assert "No such file" in refused(read_graph, tmp_path / "nowhere.json")
    refused(read_graph, tmp_path)
    latin = tmp_path / "latin.json"
    latin.write_bytes(b'{"format": "placer.graph/1", "name": "\xff"}')
    refused(read_graph, latin)


def test_a_key_that_stands_twice_is_refused(put, small):
    twice = json.dumps(GRAPH).replace('"cpu": 2', '"gpu": 2')
    assert "the key 'gpu' twice" in refused(read_graph, put(twice))
    twice = '{"format": "placer.mapping/1", "assignment": {"a": "gpu:0", "b": "gpu:0", "c": "gpu:0", "a": "gpu:1"}}'
    assert "the key 'a' twice" in refused(read_mapping, put(twice), *small)


def test_a_file_too_large_is_refused_unread(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(10**9)  # takes no room on the disk
    assert "has 954 MiB, and 128 MiB is the most" in refused(read_graph, path)


def test_a_pipe_that_nobody_writes_into_is_refused(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert "is no file" in refused(read_graph, path)


def test_a_long_cycle_is_found_and_shown_in_part(put):
    count = 3000
    ops = [{"name": f"op{i}\n", "cost_s": {"gpu": 1}, "memory_bytes": 0} for i in range(count)]
    edges = [[f"op{i}\n", f"op{(i + 1) % count}\n", 1] for i in range(count)]
    line = refused(read_graph, put({**GRAPH, "ops": ops, "edges": edges}))
    assert "has a cycle: op0\\n -> op1\\n" in line and len(line) < 300


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t["devices"][0].update(speed=0), "$.devices[0].speed"),
        (lambda t: t["devices"][1].update(name="gpu:0"), "twice"),
        (lambda t: t.update(contention="some"), "$.contention"),
        (lambda t: t["links"][0].update(src="gpu:7"), "'gpu:7'"),
        (lambda t: t["links"][0].update(bandwidth_bytes_per_s=0), "$.links[0].bandwidth_bytes_per_s"),
        (lambda t: t["links"][0].pop("latency_s"), "'latency_s'"),
        (lambda t: t.update(devices=[]), "no devices"),
        (lambda t: t["links"][0].update(bandwidth_bytes_per_s=-1), "$.links[0].bandwidth_bytes_per_s"),
        (lambda t: t["links"][0].update(bandwidth_bytes_per_s=1e-300), "$.links[0].bandwidth_bytes_per_s"),
        (lambda t: t["links"][0].update(latency_s=1e300), "$.links[0].latency_s"),
        (lambda t: t["devices"][0].update(name=HUGE), "$.devices[0].name"),
        (lambda t: t.update(devices=[{"name": str(i), "kind": "cpu"} for i in range(1001)]), "$.devices"),
    ],
)
def test_a_bad_topology_is_refused_in_one_line(put, change, says):
    line = refused(read_topology, put(changed(TOPOLOGY, change)))
    assert says in line


@pytest.fixture
def small(put):
    return read_graph(put(GRAPH, "graph.json")), read_topology(put(TOPOLOGY, "topology.json"))


def test_a_mapping_file_keeps_every_field(small, tmp_path):
    mapping = Mapping.of(*small, ON_GPU0)
    file = mapping_file(
        mapping,
        objective="makespan",
        predicted_s=1.5,
        measured_s=2.0,
        spread_s=0.1,
        repeats=9,
        baseline={"single gpu:0": 3.0},
        lower_bound_s=1.0,
        seed=7,
        searcher="local",
        versions={"placer": "0"},
        order=["a", "c"],
    )
    write_mapping(tmp_path / "m.json", file)
    assert read_mapping_file(tmp_path / "m.json") == file
    assert read_mapping(tmp_path / "m.json", *small) == mapping
    written = json.loads((tmp_path / "m.json").read_text())
    assert written["graph"] == {"name": "small", "fingerprint": small[0].fingerprint}


def test_a_mapping_file_needs_no_more_than_an_assignment(small, put):
    path = put({"format": "placer.mapping/1", "assignment": ON_GPU0})
    assert read_mapping(path, *small).devices == (0, 0, 0)
    assert read_placed(path, *small)[1] == ()


def ordered(names):
    return {"format": "placer.mapping/1", "assignment": ON_GPU0, "order": names}


def test_an_order_may_leave_out_ops(small, put):
    for names in ([], ["a", "c"], ["b", "c"], ["a", "b", "c"]):
        assert read_placed(put(ordered(names)), *small)[1] == tuple(names)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["a", "d"], "$.order names op 'd', which the graph does not have"),
        (["a", "b", "a"], "$.order names op 'a' twice"),
        (["c", "b"], "$.order has op 'c' before 'b', which it needs"),
        (["a", 1], "$.order[1]"),
        ("ab", "$.order"),
    ],
)
def test_an_order_that_no_step_can_run_in_is_refused(small, put, names, says):
    path = put(ordered(names))
    line = refused(read_mapping, path, *small)
    assert line.startswith(str(path)) and says in line


def test_an_order_must_hold_through_ops_that_it_leaves_out(put):
    chain = {
        "format": "placer.graph/1", "name": "chain", "edges": [["a", "b", 8], ["b", "c", 8]],
        "ops": [{"name": name, "cost_s": {"cpu": 1.0}, "memory_bytes": 0} for name in "abc"],
    }  # fmt: skip
    graph, topology = read_graph(put(chain, "chain.json")), Topology((Device("x", "cpu"),))
    mapping = {"format": "placer.mapping/1", "assignment": dict.fromkeys("abc", "x"), "order": ["c", "a"]}
    path = put(mapping, "m.json")
    assert "has op 'c' before 'a', which it needs" in refused(read_mapping, path, graph, topology)
    assert read_placed(path, graph, topology, match_by_name=True)[1] == ()


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ({"a": "gpu:0", "b": "gpu:0"}, "leaves out 1 of 3 ops, first 'c'"),
        ({**ON_GPU0, "d": "gpu:0"}, "'d'"),
        ({**ON_GPU0, "c": "gpu:9"}, "'gpu:9'"),
        ({**ON_GPU0, HUGE: "gpu:0"}, "$.assignment: expected str of length <= 1000"),
        ({**ON_GPU0, "c": None}, "$.assignment"),
    ],
)
def test_a_mapping_that_does_not_fit_the_graph_is_refused(small, put, assignment, says):
    path = put({"format": "placer.mapping/1", "assignment": assignment})
    line = refused(read_mapping, path, *small)
    assert line.startswith(str(path)) and says in line


def test_a_mapping_for_another_graph_is_refused_with_both_fingerprints(small, put):
    mark = {"name": "small", "fingerprint": "0123456789abcdef"}
    path = put({"format": "placer.mapping/1", "graph": mark, "assignment": {"a": "gpu:0"}}, "mapping.json")
    ours = small[0].fingerprint[:4]
    assert refused(read_mapping, path, *small) == (
        f"{path} was made for graph 0123 (1 ops); this model is {ours} (3). "
        "Run placer search again, or match ops by name "
        "(placer simulate --match-by-name, placer.place with match_by_name=True)."
    )


def test_a_mapping_is_carried_over_by_name(small, put):
    mark = {"name": "small", "fingerprint": "0123456789abcdef"}
    known = {"a": "gpu:0", "b": "gpu:1", "gone": "gpu:0"}
    path = put({"format": "placer.mapping/1", "graph": mark, "assignment": known})
    # c is new: it shares 8 bytes with a, 2.5 with b.
    assert read_mapping(path, *small, match_by_name=True).assignment == {
        "a": "gpu:0",
        "b": "gpu:1",
        "c": "gpu:0",
    }


def test_nothing_is_carried_over_where_no_name_matches(small, put):
    path = put({"format": "placer.mapping/1", "assignment": {"x": "gpu:0"}})
    assert "no op of graph 'small'" in refused(lambda: read_mapping(path, *small, match_by_name=True))


def test_writing_leaves_the_old_file_or_the_new_one(small, tmp_path, monkeypatch):
    target = tmp_path / "graph.json"
    write_graph(target, small[0])
    before = target.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PlacerError, match="No space left on device"):
        write_graph(target, small[0])
    assert target.read_bytes() == before
    assert not list(tmp_path.glob(".*.part"))


def test_writing_into_no_folder_fails_in_one_line(small, tmp_path):
    with pytest.raises(PlacerError, match="cannot be written"):
        write_topology(tmp_path / "no" / "where.json", small[1])


def test_an_empty_colocate_is_none(tmp_path):
    path = tmp_path / "graph.json"
    ops = [{"name": name, "cost_s": {"cpu": 1.0}, "memory_bytes": 0, "colocate": ""} for name in "ab"]
    path.write_text(json.dumps({"format": "placer.graph/1", "name": "g", "ops": ops, "edges": []}))
    assert [op.colocate for op in read_graph(path).ops] == [None, None]
