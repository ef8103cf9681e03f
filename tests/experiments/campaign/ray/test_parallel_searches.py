"""Campaigns over Ray against the same without it: what is stored does not tell which it was, whatever is killed."""

import json
import os
import signal
import subprocess
import sys
from functools import cache, partial
from itertools import count

import psutil
import pytest

import placer
from experiments.benches.simulator_speed import layered, machine
from experiments.campaign.progress import CampaignProgress
from experiments.campaign.ray.parallel_searches import ParallelSearches
from experiments.campaign.run import Campaign
from experiments.campaign.spec import read_spec
from experiments.campaign.store import CampaignStore
from placer.devices.ray.connection import connect
from placer.errors import BadInputError, PlacerError
from placer.graph.graph_files import write_graph, write_topology
from tests.experiments.campaign.held import held_at, wait_until_held
from tests.processes import still_running

pytestmark = pytest.mark.slow

SPEC = """\
format = "placer.campaign/1"
searchers = ["local", "random"]
seeds = [0, 1]
measurements = 30

[[predicted]]
graphs = ["graph.json"]
topologies = ["topology.json"]
"""
EACH = 0.0  # seconds in a batch: every measurement is sent for itself, so that a search cannot run away to its end
LONG = 40  # measurements of a search that is under way for some seconds
COMMAND = [sys.executable, "-m", "placer", "campaign", "run"]
TASK = "ray::_searched"  # the title of a process while it searches


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a graph and a topology."""
    folder = tmp_path_factory.mktemp("campaigns")
    write_graph(folder / "graph.json", layered(20, 45, 4))
    write_topology(folder / "topology.json", machine())
    return folder


@pytest.fixture
def campaign(folder, request):
    """Writes the test's campaign, with so many measurements of each cell; returns its path."""

    def write(measurements=30, **changed):
        path = folder / f"{request.node.name}.toml"
        text = SPEC.replace("30", str(measurements))
        path.write_text("\n".join([*(f"{key} = {json.dumps(value)}" for key, value in changed.items()), text]))
        return path

    return write


@pytest.fixture(scope="module")
def straight(folder):
    """What one process stores with so many measurements of each cell."""

    @cache
    def stored(measurements=30):
        path = folder / f"straight{measurements}.toml"
        path.write_text(SPEC.replace("30", str(measurements)))
        return run(path, by_ray=False)[0]

    return stored


def run(path, progress=None, over=lambda: False, by_ray=True):
    """Run the campaign; what is then stored of it, and its failures."""
    spec, shown = read_spec(path), progress or CampaignProgress()
    with CampaignStore(spec.store) as store:
        search_files = ParallelSearches(spec, store, shown, over, batch_s=EACH).run if by_ray else None
        Campaign(spec, store, shown, over, search_files=search_files).run()
    return stored(path), failures(path)


def stored(path):
    """All that must not depend on how it was searched."""
    with CampaignStore(path.with_suffix(".sqlite"), reads=True) as store:
        return [
            (held.key, held.ended, lasting(held.state), store.opened(held.case_key), placed(held.trials))
            for held in store.held()
        ]


def placed(trials):
    return [(trial.n, trial.placement, trial.result) for trial in trials]


def lasting(state):
    """A search's state without its count of predictions, which a resumed search makes again."""
    return state and {**state, "session": {**state["session"], "evaluations": None}}


def failures(path):
    with CampaignStore(path.with_suffix(".sqlite"), reads=True) as store:
        return store.failures()


def searching(process):
    """The processes of Ray below another one that search now."""
    found = []
    for child in process.children(recursive=True):
        try:
            found += [child] if child.cmdline()[:1] == [TASK] else []
        except psutil.Error:  # it ended meanwhile
            continue
    return found


class At(CampaignProgress):
    """Does something once, when so many measurements have been stored."""

    def __init__(self, when, what):
        self.when, self.what, self.seen = when, what, count(1)

    def trial(self, cell, trial, best_s):
        if next(self.seen) == self.when:
            self.what()


def started(path):
    """The command over Ray in a session of its own, which waits once it has stored something; those of its processes
    that search, and the one that keeps them. Ray's agents notice the end of that within two minutes.
    """
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # also where this is a background job
    process = held_at(1, path, "--ray", "local", start_new_session=True, preexec_fn=hears)
    wait_until_held(process)
    ours = psutil.Process(process.pid)
    return process, [*searching(ours), *(child for child in ours.children() if child.name() == "raylet")]


@pytest.mark.nightly
def test_a_command_that_is_killed_leaves_no_process_and_may_go_on_without_ray(campaign, straight):
    path = campaign(LONG)
    process, others = started(path)
    process.kill()
    process.communicate()
    assert len(others) > 1
    assert not still_running(others)
    assert 0 < sum(len(trials) for *_, trials in stored(path)) < 4 * LONG
    assert run(path, by_ray=False) == (straight(LONG), [])


@pytest.mark.nightly
def test_ctrl_c_in_a_terminal_reaches_all_and_the_same_command_goes_on(campaign, straight):
    """It is sent to the whole group of processes. Nothing but the result is printed, before and after."""
    path = campaign(LONG)
    process, others = started(path)
    os.killpg(process.pid, signal.SIGINT)
    out, said = process.communicate()
    facts = json.loads(out)
    assert process.returncode == 130, said
    assert facts["interrupted"] and 0 < facts["done"] < facts["total"] == 4 * LONG
    assert not still_running(others)
    again = subprocess.run([*COMMAND, str(path), "--ray", "local", "--quiet", "--json"], capture_output=True, text=True)
    assert (json.loads(again.stdout)["complete"], again.stderr) == (True, "")
    assert (stored(path), failures(path)) == (straight(LONG), [])


@pytest.mark.nightly
def test_a_node_that_is_lost_has_its_cells_searched_elsewhere(campaign, straight):
    from ray.cluster_utils import Cluster

    sizes = {"num_cpus": 1, "object_store_memory": 100_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**sizes, "include_dashboard": False})
    try:
        other = cluster.add_node(**sizes)
        (raylet,) = other.all_processes["raylet"]

        def lose():
            while not searching(psutil.Process(raylet.process.pid)):  # it may still be starting
                pass
            cluster.remove_node(other, allow_graceful=False)

        with connect(cluster.address):
            found, failed = run(campaign(), At(3, lose))
        assert found == straight()
        assert len(failed) == 1
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def local():
    """Ray on this machine, connected until the last of these tests: those above connect to others."""
    with connect("local"):
        yield


def test_what_is_stored_is_what_one_process_stores(campaign, straight, local):
    assert run(campaign()) == (straight(), [])
    assert len(straight()) == 4 and all(len(trials) == 30 for *_, trials in straight())


@pytest.mark.nightly
def test_a_search_whose_process_is_killed_goes_on_from_what_is_stored(campaign, straight, local):
    killed = []

    def kill():
        for process in searching(psutil.Process()):
            process.kill()
            killed.append(process.pid)

    found, failed = run(campaign(), At(11, kill))
    assert found == straight()
    assert 1 <= len(failed) <= len(killed)
    assert all("its process is lost" in failure["detail"] for failure in failed)


def test_a_cell_that_loses_its_process_too_often_ends_the_campaign(campaign, local):
    path = campaign(stop_after=1)
    with pytest.raises(PlacerError, match=r"lost its process 1 times in a row.*the same command goes on") as stopped:
        run(path, At(5, lambda: [process.kill() for process in searching(psutil.Process())]))
    assert stopped.value.exit_code == 1 and "\n" not in str(stopped.value)
    assert sum(len(trials) for *_, trials in stored(path)) >= 5


@pytest.mark.nightly
def test_ctrl_c_keeps_what_is_stored_and_one_process_goes_on(campaign, straight, local):
    pressed = []
    path = campaign()
    half, _ = run(path, At(20, lambda: pressed.append(True)), over=lambda: bool(pressed))
    assert 20 <= sum(len(trials) for *_, trials in half) < 120
    assert run(path, by_ray=False) == (straight(), [])


@pytest.mark.nightly
def test_what_a_search_raises_is_raised_here(campaign, local):
    path = campaign()
    run(path, At(2, lambda: None), by_ray=False)
    with CampaignStore(path.with_suffix(".sqlite")) as store:
        state = store.held()[0].state
        state["session"]["searcher"] = "another"
        store.keep_all(store.held()[0].key, [], state)
    path = campaign(31)
    with pytest.raises(BadInputError, match=r"^the state is of searcher 'another'; resume with that one\.$"):
        run(path)


def test_another_version_of_placer_on_a_node_is_refused(campaign, local, monkeypatch):
    monkeypatch.setattr(placer, "__version__", "0.0.0")
    with pytest.raises(PlacerError, match=r"a node of the Ray cluster has Placer .*, this process 0\.0\.0"):
        run(campaign())
