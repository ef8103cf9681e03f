"""A real campaign on two workers: killed amid its measurements, resumed, a worker killed, and nothing left running."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from experiments.campaign.cell_search import CellSearch
from experiments.campaign.measured import case as measured_case
from experiments.campaign.measured.case import MeasuredCase
from experiments.campaign.progress import CampaignProgress
from experiments.campaign.spec import read_spec
from experiments.campaign.store import CampaignStore
from experiments.report.campaign.page_record import campaign_record
from placer.result import Measured
from tests.experiments.campaign.held import held_at, wait_until_held
from tests.experiments.campaign.test_run import lasting
from tests.processes import still_running, words

pytestmark = [pytest.mark.slow, pytest.mark.workers]

SPEC = """\
format = "placer.campaign/1"
searchers = ["hybrid", "random"]
measurements = 6
retries = 0

[[measured]]
models = ["small.py:small_step"]
devices = ["workers:2"]
groups = 24
"""
MODEL = """\
import tensorflow as tf
import keras


def small_step():
    inputs = keras.Input((64,))
    towers = [keras.layers.Dense(64, activation="relu", name=f"tower{i}")(inputs) for i in range(2)]
    model = keras.Model(inputs, keras.layers.Dense(4, name="logits")(keras.layers.Concatenate()(towers)))
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step, (tf.random.stateless_normal([32, 64], [1, 2]), tf.constant([0, 1, 2, 3] * 8))
"""
PLACE = """
import json, sys
import placer
from small import small_step

if __name__ == "__main__":
    step, inputs = small_step()
    with placer.place(step, sys.argv[1], devices="workers:2") as placed:
        losses = [float(placed(*inputs))]
        while placed.mapping is None:
            losses.append(float(placed(*inputs)))
        losses.append(float(placed(*inputs)))
        print(json.dumps({"losses": losses, "assignment": placed.mapping.assignment}))
"""
LATE_S = 1200  # after which what should have happened will not


def command(folder, *arguments):
    return [sys.executable, "-m", "placer", "campaign", *map(str, arguments), str(folder / "campaign.toml")]


def stored(folder):
    """What is stored of each cell."""
    with CampaignStore(folder / "campaign.sqlite", reads=True) as store:
        return store.held()


def plain(state):
    """A state with lists where it has tuples, as it is when it has been stored."""
    return json.loads(json.dumps(state))


def trials(held):
    return [(cell.key, trial) for cell in held for trial in cell.trials]


def below(process):
    """The processes below a command that waits."""
    wait_until_held(process)
    return psutil.Process(process.pid).children(recursive=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A campaign that was killed, went on, lost a worker, and came to its end; `before` is what the kill left."""
    folder = tmp_path_factory.mktemp("campaign")
    (folder / "campaign.toml").write_text(SPEC)
    (folder / "small.py").write_text(MODEL)
    with held_at(3, folder / "campaign.toml") as process:
        ended = below(process)
        process.stdin.close()  # it measures on
        process.kill()
    assert not still_running(ended)
    before = stored(folder)
    with held_at(9 - len(trials(before)), folder / "campaign.toml") as process:
        ended = below(process)
        next(p for p in ended if "placer.devices.workers.worker" in words(p)).kill()
        out, said = process.communicate(timeout=LATE_S)  # which closes its stdin
    assert process.returncode == 0, said
    assert not still_running(ended)
    return folder, before, json.loads(out)


@pytest.mark.nightly
def test_what_was_measured_before_the_kill_is_kept_and_not_measured_again(folder):
    path, before, facts = folder
    held = stored(path)
    assert trials(before) == [entry for entry in trials(held) if entry in trials(before)]
    assert facts["complete"]
    for cell in held:
        assert [trial.n for trial in cell.trials] == list(range(len(cell.trials)))
        placements = [trial.placement for trial in cell.trials]
        assert len(set(placements)) == len(placements)


@pytest.mark.nightly
def test_the_questions_are_those_of_a_search_that_was_not_killed(folder, monkeypatch):
    """Its own results are told to a fresh one."""
    monkeypatch.setattr(measured_case, "CaseProcess", lambda *_: SimpleNamespace(found=None))
    path = folder[0]
    with CampaignStore(path / "campaign.sqlite", reads=True) as store:
        for cell, held in zip(read_spec(path / "campaign.toml").cells, store.held(), strict=True):
            search = CellSearch(cell, MeasuredCase(cell.case, store, CampaignProgress()))
            for trial in held.trials:
                assert search.ask() == trial.placement
                search.tell(trial.placement, trial.result)
            assert lasting(plain(search.state())) == lasting(plain(held.state))


@pytest.mark.nightly
def test_the_worker_that_died_is_a_failure_of_no_placement(folder):
    path, _, facts = folder
    with CampaignStore(path / "campaign.sqlite", reads=True) as store:
        assert {failure["reason"] for failure in store.failures()} == {"device"}
    assert facts["failures"] >= 1
    assert not [trial for _, trial in trials(stored(path)) if hasattr(trial.result, "reason")]


def test_every_cell_ends_side_by_side_with_the_best_single_device(folder):
    for cell in folder[2]["cells"]:
        assert cell["side_by_side"]
        assert cell["best_s"] <= cell["best_single_s"]
        assert cell["ratio_to_best_single"] >= 1
        assert cell["untouched_s"] > 0


@pytest.mark.nightly
def test_the_best_mapping_can_be_placed(folder):
    path = folder[0]
    done = subprocess.run(
        command(path, "export", "--best", path / "best", "--json"), capture_output=True, text=True, check=True
    )
    (mapping,) = json.loads(done.stdout)["best"].values()
    (path / "place.py").write_text(PLACE)
    placed = subprocess.run(
        [sys.executable, "place.py", mapping], cwd=path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert placed.returncode == 0, placed.stderr
    found = json.loads(placed.stdout.splitlines()[-1])
    assert found["assignment"] == json.loads(Path(mapping).read_text())["assignment"]
    assert found["losses"][-1] < found["losses"][0]


def test_the_page_has_the_figures_of_what_was_measured(folder):
    with CampaignStore(folder[0] / "campaign.sqlite", reads=True) as store:
        (case,) = campaign_record(store, {}).cases
        ran = sum(isinstance(trial.result, Measured) for held in store.held() for trial in held.trials)
    assert case.missing == () and len(case.rows) == ran > 0
    assert case.panels and case.nodes and case.loads
    assert any("side by side" in line for line in case.summary)


def test_another_model_under_the_same_name_is_refused(folder):
    path = folder[0]
    spec, model = path / "campaign.toml", path / "small.py"
    spec.write_text(SPEC.replace("measurements = 6", "measurements = 7"))
    model.write_text(MODEL.replace("Dense(64, activation", "Dense(32, activation"))
    done = subprocess.run(command(path, "run", "--quiet"), capture_output=True, text=True, check=False)
    spec.write_text(SPEC)
    model.write_text(MODEL)
    assert done.returncode == 1
    with CampaignStore(path / "campaign.sqlite", reads=True) as store:
        said = store.failures()[-1]["detail"]
    assert said.startswith("cannot be opened: ") and "name another store" in said
