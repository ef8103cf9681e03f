"""The command line as a stranger meets it: exit codes, one line for bad input, JSON on stdout, no TensorFlow where
none is needed, no worker left behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from experiments.cli.options import measuring
from placer.errors import PlacerError
from tests.processes import still_running

TAG = "PLACER_TEST_TAG"
GRAPH = Path(__file__).parents[2] / "data" / "gnmt.json"
TOPOLOGY = {
    "format": "placer.topology/1",
    "devices": [{"name": f"gpu:{i}", "kind": "gpu"} for i in range(4)],
    "links": [{"src": "*", "dst": "*", "latency_s": 1e-5, "bandwidth_bytes_per_s": 1e10}],
}


def placer(*arguments, timeout=900, tag=""):
    """Run the command in a process of its own, with `tag` in its environment."""
    command = [sys.executable, "-m", "placer", *map(str, arguments)]
    environment = {**os.environ, TAG: tag}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, env=environment
    )


def workers_tagged(tag):
    """Workers that descend from a command so tagged, dead or alive its process; others' workers are none of ours."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        try:
            if "placer.devices.workers.worker" in (process.info["cmdline"] or []) and process.environ().get(TAG) == tag:
                found.append(process)
        except psutil.Error:  # gone, or somebody else's
            continue
    return found


@pytest.fixture
def topology(tmp_path):
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(TOPOLOGY))
    return path


@pytest.mark.slow
def test_help_has_an_example_for_every_command():
    listed = placer("--help").stdout
    for command in ("devices", "search", "compare", "plan", "simulate", "show", "diff", "spoc", "bench"):
        assert command in listed
        assert "Example: placer " + command in placer(command, "--help").stdout


def test_version():
    assert (placer("--version").stdout, placer("--version").returncode) == ("placer 0.1.0\n", 0)


@pytest.mark.slow
def test_plan_then_simulate_agree(topology, tmp_path):
    out = tmp_path / "mapping.json"
    planned = placer("plan", GRAPH, topology, "--seconds", 2, "--out", out, "--json")
    assert planned.returncode == 0, planned.stderr
    simulated = placer("simulate", GRAPH, topology, out, "--json")
    assert json.loads(simulated.stdout)["value"] == pytest.approx(json.loads(planned.stdout)["value"])
    shown = json.loads(placer("show", out, "--graph", GRAPH, "--topology", topology, "--json").stdout)
    busy_s = {name: device["busy_s"] for name, device in json.loads(simulated.stdout)["devices"].items()}
    assert shown["checked"] and {name: d["busy_s"] for name, d in shown["devices"].items()} == pytest.approx(busy_s)
    assert placer("diff", out, out).stdout.startswith("0 of ")


@pytest.mark.slow
def test_a_plan_keeps_to_the_memory_that_is_allowed(topology, tmp_path):
    needed = sum(op["memory_bytes"] for op in json.loads(GRAPH.read_text())["ops"])
    limits = [part for i in range(4) for part in ("--max-memory", f"gpu:{i}={needed // 2}")]
    planned = placer("plan", GRAPH, topology, "--seconds", 1, "--json", *limits)
    assert planned.returncode == 0, planned.stderr
    devices = json.loads(planned.stdout)["devices"].values()
    assert sum(device["memory_bytes"] for device in devices) == needed
    assert max(device["memory_peak_bytes"] for device in devices) <= needed // 2
    unknown = placer("plan", GRAPH, topology, "--max-memory", "gpu:4=1GiB")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == (
        "placer: --max-memory: gpu:4 is no device here; the devices are gpu:0, gpu:1, gpu:2, gpu:3.\n"
    )
    scarce = placer("plan", GRAPH, topology, *[part.replace(f"={needed // 2}", "=1kB") for part in limits])
    assert scarce.returncode == 2 and "too few" in scarce.stderr and len(scarce.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_simulated_step_is_drawn(topology, tmp_path):
    mapping, picture = tmp_path / "mapping.json", tmp_path / "step.png"
    names = [op["name"] for op in json.loads(GRAPH.read_text())["ops"]]
    assignment = dict.fromkeys(names, "gpu:0")
    mapping.write_text(json.dumps({"format": "placer.mapping/1", "assignment": assignment}))
    done = placer("simulate", GRAPH, topology, mapping, "--gantt", picture)
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "gpu:0 |" in done.stdout and max(map(len, done.stdout.splitlines())) <= 100
    refused = placer("simulate", GRAPH, topology, mapping, "--gantt", tmp_path / "step.gif", "--trace", tmp_path / "t")
    assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (2, "", 1)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        pytest.param(("search", "no_such_net", "--workers", 2), 2, "no_such_net", marks=pytest.mark.nightly),
        (("search", "towers", "--workers", 2, "--devices", "workers:2"), 2, "--workers and --devices"),
        pytest.param(
            ("search", "mnist_softmax", "--workers", 4096), 2, "4096 workers were asked for", marks=pytest.mark.nightly
        ),
        (("search", "mnist_softmax", "--workers", 2, "--searcher", "oracle"), 2, "oracle"),
        pytest.param(("search", "missing.py:make", "--workers", 2), 2, "missing.py", marks=pytest.mark.nightly),
        (("compare", "mnist_softmax", "--workers", 2, "--searcher", "oracle"), 2, "oracle"),
        (("compare", "mnist_softmax", "--curves", "curves.gif"), 2, "--curves"),
        (("search", "mnist_softmax", "--report", "report.txt"), 2, "a report ends in .html (a page) or .md"),
        (("search", "mnist_softmax", "--workers", 2, "--out", "/proc/none"), 2, "/proc/none"),
        pytest.param(("search", "mnist_softmax"), 1, "nothing to place", marks=pytest.mark.nightly),
        pytest.param(("devices", "--devices", "gpus:0"), 2, "as in gpus:2", marks=pytest.mark.nightly),
        pytest.param(
            ("devices", "--devices", "gpus:2"), 2, "write cpus:2 to divide the CPU", marks=pytest.mark.nightly
        ),
        pytest.param(
            ("search", "no_such_net", "--devices", "gpus:2@0"), 2, "as in gpus:2@4096", marks=pytest.mark.nightly
        ),
        pytest.param(
            ("devices", "--devices", "localhost:1"), 1, "no worker answers at localhost:1", marks=pytest.mark.slow
        ),
        (("plan", "none.json", "none.json"), 2, "none.json"),
        pytest.param(
            ("search", "mnist_softmax", "--workers", 2, "--max-memory", "worker:2=1GiB"),
            2,
            "--max-memory: worker:2 is no device here; the devices are worker:0, worker:1.",
            marks=pytest.mark.nightly,
        ),
        (("compare", "mnist_softmax", "--workers", 2, "--max-memory", "worker:0=big"), 2, "'big' is no size"),
        pytest.param(
            ("devices", "--workers", 2, "--max-memory", "worker:0"),
            2,
            "give DEVICE=SIZE, such as worker:0=800MiB",
            marks=pytest.mark.nightly,
        ),
        (("plan", "none.json", "none.json", "--max-memory", "gpu:0=0"), 2, "leaves no memory; give at least one byte"),
        (("spoc", GRAPH, "none.json"), 2, "none.json"),
        (("show", "none.json"), 2, "none.json: cannot be read"),
        (("plan", GRAPH, "none.json", "--out", GRAPH), 2, "is read by this command, and would be replaced"),
        (("diff", GRAPH, GRAPH), 2, "placer.graph/1"),
        (("spoc", "keras:ResNet5"), 2, "did you mean 'ResNet50'"),
        pytest.param(("bench", "everything"), 2, "everything", marks=pytest.mark.nightly),
        pytest.param(("bench", "spoc", "--model", "lenet"), 2, "lenet", marks=pytest.mark.nightly),
        (("bench", "simulator-speed", "--measurements", -1), 2, "--measurements -1"),
    ],
)
def test_bad_input_is_one_line(arguments, code, says):
    done = placer(*arguments)
    assert done.returncode == code
    assert done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("placer: ")
    assert says in last
    assert "Traceback" not in done.stderr


FREE = {
    "format": "placer.graph/1",
    "name": "free",
    "ops": [{"name": name, "cost_s": {"gpu": 0.0}, "memory_bytes": 1} for name in "abc"],
    "edges": [["a", "b", 0], ["b", "c", 0]],
}


@pytest.mark.some(1)
@pytest.mark.parametrize("latency_s", [0, 1e-5])
@pytest.mark.parametrize("objective", ["makespan", pytest.param("max-load", marks=pytest.mark.slow)])
def test_a_graph_whose_ops_take_no_time_is_planned_and_simulated(tmp_path, objective, latency_s):
    graph, topology, mapping = (tmp_path / name for name in ("graph.json", "topology.json", "mapping.json"))
    graph.write_text(json.dumps(FREE))
    topology.write_text(json.dumps({**TOPOLOGY, "links": [{**TOPOLOGY["links"][0], "latency_s": latency_s}]}))
    planned = placer("plan", graph, topology, "--objective", objective, "--seconds", 1, "--out", mapping)
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "0.00 ms" in planned.stdout
    simulated = placer("simulate", graph, topology, mapping, "--objective", objective, "--gantt", tmp_path / "step.png")
    assert (simulated.returncode, simulated.stderr) == (0, "")


SMALL = {
    "format": "placer.graph/1",
    "name": "small",
    "ops": [{"name": name, "cost_s": {"gpu": 1.0}, "memory_bytes": 1} for name in "ab"],
    "edges": [["a", "b", 8]],
}
SPLIT = {"format": "placer.mapping/1", "assignment": {"a": "gpu:0", "b": "gpu:1"}}


@pytest.mark.parametrize(
    ("graph", "links", "mapping", "says"),
    [
        ({**SMALL, "edges": [["a", "b", 8], ["b", "a", 8]]}, TOPOLOGY["links"], SPLIT, "has a cycle: a -> b -> a"),
        (SMALL, [], SPLIT, "no link gpu:0 -> gpu:1"),
        (SMALL, TOPOLOGY["links"], {**SPLIT, "assignment": {"a": "gpu:0"}}, "leaves out 1 of 2 ops, first 'b'"),
        ({**SMALL, "x" * 10**6: 1}, TOPOLOGY["links"], SPLIT, "unknown field"),
    ],
)
def test_bad_files_are_one_short_line_and_nothing_is_written(tmp_path, graph, links, mapping, says):
    paths = [tmp_path / name for name in ("graph.json", "topology.json", "mapping.json")]
    for path, content in zip(paths, (graph, {**TOPOLOGY, "links": links}, mapping), strict=True):
        path.write_text(json.dumps(content))
    done = placer("simulate", *paths, "--trace", tmp_path / "trace.json", "--gantt", tmp_path / "step.png")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("placer: ") and says in line and len(line) < 400
    assert sorted(tmp_path.iterdir()) == sorted(paths)


@pytest.fixture
def mixed(tmp_path):
    """A chain a -> b -> c, of which c runs on gpus only, with a gpu that holds two of the three, and a cpu."""
    graph, machine = tmp_path / "graph.json", tmp_path / "machine.json"
    both = {"gpu": 1.0, "cpu": 5.0}
    costs = {"a": both, "b": both, "c": {"gpu": 1.0}}
    ops = [{"name": name, "cost_s": cost_s, "memory_bytes": 10} for name, cost_s in costs.items()]
    edges = [["a", "b", 8], ["b", "c", 8]]
    graph.write_text(json.dumps({"format": "placer.graph/1", "name": "chain", "ops": ops, "edges": edges}))
    devices = [{"name": "gpu:0", "kind": "gpu", "memory_bytes": 20}, {"name": "cpu:0", "kind": "cpu"}]
    machine.write_text(json.dumps({**TOPOLOGY, "devices": devices}))
    return graph, machine


@pytest.mark.slow
def test_a_plan_keeps_its_pins_and_says_that_no_single_device_can(mixed, tmp_path):
    out = tmp_path / "mapping.json"
    done = placer("plan", *mixed, "--pin", "a|b=cpu", "--pin", "c=gpu:0", "--seconds", 1, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["assignment"] == {"a": "cpu:0", "b": "cpu:0", "c": "gpu:0"}
    assert json.loads(done.stdout)["best_single"] is None
    shown = placer("plan", *mixed, "--pin", "a|b=cpu", "--seconds", 1)
    assert "no single device can run it under these constraints" in " ".join(shown.stdout.split())


@pytest.mark.parametrize(
    ("pins", "says"),
    [
        (["a"], "give PATTERN=DEVICE"),
        pytest.param(["(a=cpu"], "no regular expression", marks=pytest.mark.slow),
        pytest.param(["d=cpu"], "no op of graph 'chain'", marks=pytest.mark.slow),
        (["a=tpu"], "the topology has the devices gpu:0, cpu:0 and the kinds cpu, gpu"),
        pytest.param(["c=cpu"], "op 'c'", marks=pytest.mark.slow),
        (["a=cpu", "[ab]=gpu"], "--pin 'a=cpu' and --pin '[ab]=gpu' contradict each other for op 'a'"),
        pytest.param(
            ["[abc]=gpu"], "need 30 bytes, it holds 20 (0% kept free), 10 too few: a, b, c. ", marks=pytest.mark.slow
        ),
    ],
)
def test_a_bad_pin_is_one_line(mixed, tmp_path, pins, says):
    done = placer("plan", *mixed, *(part for pin in pins for part in ("--pin", pin)), "--out", tmp_path / "out.json")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("placer: ") and says in line
    assert not (tmp_path / "out.json").exists()


def test_names_are_never_taken_for_markup(tmp_path):
    paths = [tmp_path / name for name in ("graph.json", "topology.json", "mapping.json")]
    devices = [{"name": "[/]", "kind": "gpu"}, {"name": "[red]", "kind": "gpu"}]
    mapping = {**SPLIT, "assignment": {"a": "[/]", "b": "[red]"}}
    for path, content in zip(paths, (SMALL, {**TOPOLOGY, "devices": devices}, mapping), strict=True):
        path.write_text(json.dumps(content))
    done = placer("simulate", *paths)
    assert done.returncode == 0, done.stderr
    assert "[red]" in done.stdout


@pytest.mark.nightly
def test_search_on_two_devices_of_one_process(tmp_path):
    done = placer("search", "mnist_softmax", "--devices", "cpus:2", "--measurements", 4, "--json", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["devices"] == ["cpu:0", "cpu:1"]
    assert all(row["failed"] is None for row in facts["measured"])
    assert facts["tf_default_s"] > 0


@pytest.mark.nightly
def test_devices_that_one_process_is_divided_into():
    done = placer("devices", "--devices", "cpus:2", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert [(d["name"], d["kind"], d["hardware"]) for d in facts["devices"]] == [
        (name, "cpu", None) for name in ("cpu:0", "cpu:1")
    ]
    assert len(facts["links"]) == 2


@pytest.mark.slow
def test_search_on_two_workers_prints_one_json_object_and_leaves_no_worker(tmp_path):
    tag = str(tmp_path)
    done = placer("search", "mnist_softmax", "--workers", 2, "--measurements", 5, "--json", "--out", tmp_path, tag=tag)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["devices"] == ["worker:0", "worker:1"]
    assert len(facts["measured"]) == 5
    assert all(row["failed"] is None for row in facts["measured"])
    assert facts["best"]["step_s"] <= facts["best_single"]["step_s"]
    assert (tmp_path / "mapping.json").exists()
    assert not still_running(workers_tagged(tag))


@pytest.mark.nightly
def test_a_users_own_step_is_searched(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import tensorflow as tf\n"
        "def make():\n"
        "    w = tf.Variable(tf.ones([8, 8]))\n"
        "    def step(x):\n"
        "        with tf.GradientTape() as tape:\n"
        "            loss = tf.reduce_mean(tf.square(x @ w))\n"
        "        w.assign_sub(0.01 * tape.gradient(loss, w))\n"
        "        return loss\n"
        "    print('built')\n"
        "    return step, (tf.ones([4, 8]),)\n"
    )
    done = placer("search", f"{tmp_path / 'mine.py'}:make", "--workers", 2, "--measurements", 3, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ops"] > 3  # what the user's code prints went to stderr


@pytest.mark.parametrize("code", ["import placer", "import experiments.cli.app", "from experiments.jobs import plan"])
def test_nothing_heavy_is_imported_where_it_is_not_needed(code):
    probe = f"{code}; import sys; print([m for m in ('tensorflow', 'keras', 'skopt', 'ray') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout.strip() == "[]", done.stderr


def test_the_face_hands_out_its_names_and_no_others():
    import placer as face

    assert face.OpGraph.__name__ == "OpGraph"
    assert "Mapping" in dir(face)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = face.nonsense


def test_an_error_of_tensorflows_is_one_line():
    import tensorflow as tf

    message = "Graph execution error:\n\nDetected at node x defined at\nOut of range: 5"
    with (
        pytest.raises(PlacerError, match=r"TensorFlow failed \(OutOfRangeError\): Out of range: 5") as told,
        measuring(),
    ):
        raise tf.errors.OutOfRangeError(None, None, message)
    assert "\n" not in str(told.value)
