"""Workers on nodes: what the process that holds them says, and what one worker's actor does, without a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from placer.devices.ray import lease, ray_workers
from placer.devices.ray.node_worker import NodeWorker
from placer.devices.ray.ray_workers import start_ray_workers
from placer.devices.ray.spec import RaySpec
from placer.devices.workers.addresses import listens
from placer.errors import BadInputError, PlacerError

WORKERS = {"workers": [{"address": "127.0.0.1:5000"}, {"address": "127.0.0.1:5001"}]}
ANSWERS = """
import json, sys
print(json.dumps({said}), flush=True)
for line in sys.stdin:
    print(json.dumps({{"back": line == "restart 1\\n"}}), flush=True)
"""


@pytest.fixture
def leased(monkeypatch):
    """Start workers by a process that runs a program instead of the lease: program -> (workers, its arguments)."""
    started = []
    popen = subprocess.Popen

    def start(program, spec="ray:2"):
        def instead(command, **pipes):
            started.append(command)
            return popen([sys.executable, "-c", program], **pipes)

        monkeypatch.setattr(ray_workers, "_warned", False)
        monkeypatch.setattr("placer.devices.ray.ray_workers.subprocess.Popen", instead)
        return start_ray_workers(RaySpec.parsed(spec)), started[-1]

    return start


def test_a_lease_says_where_its_workers_are_and_brings_them_back_until_it_is_closed(leased, capfd):
    workers, command = leased(ANSWERS.format(said=WORKERS))
    assert command[-1] == "ray:2"
    assert workers.addresses == ("127.0.0.1:5000", "127.0.0.1:5001")
    assert [workers.bring_back(task) for task in (0, 1)] == [False, True]
    workers.restart_ended()
    workers.close()
    workers.close()
    assert not workers.bring_back(1)
    (warning,) = capfd.readouterr().err.splitlines()
    assert "no authentication" in warning and "this machine alone does" in warning


def test_whose_networks_reach_the_workers_is_said_once(leased, capfd):
    said = {"workers": [{"address": "10.0.0.5:5000"}, {"address": "10.0.0.6:5000"}]}
    leased(ANSWERS.format(said=said))[0].close()
    ray_workers._warn(("10.0.0.7:1",))
    (warning,) = capfd.readouterr().err.splitlines()
    assert "open to all on the networks of 10.0.0.5, 10.0.0.6; for trusted networks only" in warning


@pytest.mark.parametrize(("exit_code", "kind"), [(1, PlacerError), (2, BadInputError)])
def test_what_a_lease_refuses_is_refused_here(leased, exit_code, kind):
    said = {"error": "ray:2 needs 2 nodes.", "exit_code": exit_code}
    with pytest.raises(PlacerError) as refused:
        leased(f"print({json.dumps(json.dumps(said))})")
    assert (type(refused.value), str(refused.value)) == (kind, "ray:2 needs 2 nodes.")


def test_a_lease_that_ends_or_says_nothing_is_an_error(leased, monkeypatch):
    with pytest.raises(PlacerError, match="asks Ray for nodes ended without a word"):
        leased("pass")
    monkeypatch.setattr(ray_workers, "LEASE_S", 0.01)
    with pytest.raises(PlacerError, match="did not answer within 0 s"):
        leased("import sys; sys.stdin.read()")


def test_the_cluster_of_the_program_is_used_where_none_is_named(leased, monkeypatch):
    monkeypatch.setattr(ray_workers, "connected_address", lambda: "10.0.0.1:6379")
    for spec, asked in (("ray:2", "ray:2@10.0.0.1:6379"), ("ray:2@local", "ray:2@local")):
        workers, command = leased(ANSWERS.format(said=WORKERS), spec)
        workers.close()
        assert command[-1] == asked


def test_a_lease_refuses_in_one_line_of_json_and_holds_nothing():
    command = [sys.executable, "-m", lease.MODULE, "ray:0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        said = json.loads(process.stdout.readline())
    assert "no number of nodes" in said["error"] and said["exit_code"] == 2
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        pass
    assert process.returncode in (0, 1), "it does not outlive its stdin"


def test_what_ray_says_of_a_failed_actor_is_its_last_line():
    missing = RuntimeError("The actor died\nTraceback\nModuleNotFoundError: No module named 'placer'\n")
    assert lease._reason(missing) == (
        "ModuleNotFoundError: No module named 'placer'; install placer, with its TensorFlow, on all nodes."
    )
    assert lease._reason(RuntimeError("a\n b \n\n")) == "b"
    assert lease._reason(TimeoutError()) == "TimeoutError"


@pytest.mark.slow
@pytest.mark.workers
def test_the_worker_of_a_node_starts_anew_at_its_port_and_ends():
    actor = NodeWorker("127.0.0.1", 0, 1, 0)
    assert not actor.serves()
    said = actor.serve()
    try:
        assert said["cores"] == sorted(os.sched_getaffinity(0))[:1]
        assert actor.serves()
        actor._process.kill()
        actor._process.wait()
        assert not actor.serves()
        assert actor.serve(int(said["address"].rpartition(":")[2]))["address"] == said["address"]
        assert actor.serves()
    finally:
        actor.end()
    assert not listens(said["address"])
    assert "no address of this machine" in NodeWorker("198.51.100.7", 0, 1, 0).serve()["error"]
