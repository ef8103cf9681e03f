"""Measured cases without devices: a stand-in for the process that measures, told when to lose it."""

import zlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from experiments.campaign.cells import MEASURED
from experiments.campaign.measured import case as measured_case
from experiments.campaign.measured.mappings import write_best
from experiments.campaign.measured.process import AWAY, FAILED, LOST, ProcessError, _said
from experiments.campaign.measured.profiled import StoredProfile, plain_calibration
from experiments.campaign.measured.session import _check_devices, _check_model
from experiments.campaign.open_case import AwayError, InterruptedOpeningError
from experiments.campaign.rows import to_plain
from experiments.campaign.run import PAUSES_S, Campaign
from experiments.campaign.spec import read_spec
from experiments.campaign.standing import standing
from experiments.campaign.store import PROFILE, CampaignStore, StoredTrial, WantedCell
from experiments.report.campaign.page_record import campaign_record
from experiments.report.campaign.terminal import untouched_lines
from placer.errors import BadInputError, PlacerError
from placer.graph.coarsen import Groups
from placer.graph.held_memory import Lack
from placer.graph.mapping_files import read_mapping, read_mapping_file
from placer.graph.topology import Device, Link, Topology
from placer.result import Failed, Measured
from search.session.prediction import Prediction
from tests.experiments.campaign.conftest import towers
from tests.experiments.campaign.test_run import Died, contents, dying

SPEC = """\
format = "placer.campaign/1"
searchers = ["random", "hybrid"]
measurements = 6

[[measured]]
models = ["towers"]
devices = ["workers:2"]
"""
TOPOLOGY = Topology((Device("worker:0", "cpu"), Device("worker:1", "cpu", speed=0.9)), (Link("*", "*", 0.2, 100.0),))
CASE = "towers on workers:2"


def profiled():
    """Two towers, profiled; each op is a group."""
    graph = towers()
    groups = Groups(graph, graph, tuple((i,) for i in range(len(graph))))
    return StoredProfile.of(Prediction.profiled(groups, TOPOLOGY, 0.0), "here")


class Process:
    """Answers as a `CaseProcess` does. A step takes a little more than predicted, and a mapping always the same."""

    begun: list = []  # noqa: RUF012 - of all tests, emptied before each
    opening: list = []  # noqa: RUF012 - what the next ones raise when they are started, None for nothing
    losing: list = []  # noqa: RUF012 - the same of questions

    def __init__(self, settings, known, phase, over):
        Process.begun.append((settings, known))
        if Process.opening and (error := Process.opening.pop(0)):
            raise error
        self.step = profiled() if known is None else StoredProfile.decoded(known.profile)
        self.profile = self.step.encoded()
        problem = self.step.units
        told = [(placement, self.measure(problem.devices(placement), None)) for placement in problem.singles()]
        self.found = None if known else self.facts(told)

    def facts(self, told):
        return {
            "devices": list(TOPOLOGY.names),
            "singles": [[TOPOLOGY.names[place[0]], result.step_s] for place, result in told],
            "told": [[list(place), to_plain(result)] for place, result in told],
            "untouched_s": 0.5,
            "bound_s": 0.1,
            "calibration": plain_calibration(self.step.recalibrated(told, None)),
            "ops": len(self.step.fine),
        }

    def ask(self, method, *arguments, limit_s):
        assert limit_s > 0
        if Process.losing and (error := Process.losing.pop(0)):
            raise error
        return getattr(self, method)(*arguments)

    def measure(self, devices, calibration, ran_out=()):
        del calibration, ran_out
        return Measured(0.05 + 1.1 * self._predicted(devices), 0.01, 12)

    def final(self, best, single, calibration, ran_out):
        del calibration, ran_out
        tried = [devices for devices in (single, best) if devices is not None]
        found = min(tried, key=self._predicted)
        return {
            "best_s": self._predicted(found), "spread_s": 0.01, "repeats": 30, "best_single_s": self._predicted(single),
            "single_spread_s": 0.01, "untouched_s": None, "single": found == single, "devices": list(found),
        }  # fmt: skip

    def close(self, at_once=False):
        pass

    def _predicted(self, devices):
        return self.step.units.simulator.makespans([devices])[0].item()


@pytest.fixture(autouse=True)
def process(monkeypatch):
    for left in (Process.begun, Process.opening, Process.losing):
        left.clear()
    monkeypatch.setattr(measured_case, "CaseProcess", Process)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "campaign.toml").write_text(SPEC)
    return tmp_path


def run(folder, **fields):
    """Run the folder's campaign; (all that must not depend on when it was measured, the campaign)."""
    spec = read_spec(folder / "campaign.toml")
    with CampaignStore(spec.store) as store:
        campaign = Campaign(spec, store, **fields)
        campaign.run()
        finals = [held.final for held in store.held()]
        return (contents(store), finals), campaign


def read(folder):
    return CampaignStore(folder / "campaign.sqlite", reads=True)


@pytest.fixture
def straight(folder):
    """What an uninterrupted run stores."""
    found, _ = run(folder)
    (folder / "campaign.sqlite").unlink()
    Process.begun.clear()
    return found


@pytest.mark.some(6)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("method", "at"), [("keep_opened", 0), ("keep", 0), ("keep", 4), ("keep", 8), ("keep_final", 0), ("keep_final", 1)]
)
def test_a_campaign_that_dies_while_storing_goes_on_as_if_it_had_not(folder, straight, monkeypatch, method, at, after):
    with monkeypatch.context() as patch:
        patch.setattr(CampaignStore, method, dying(method, at, after))
        with pytest.raises(Died):
            run(folder)
    assert run(folder)[0] == straight


def test_searchers_that_predict_go_on_from_their_calibration(straight):
    """Otherwise the test above would not see a calibration that was lost."""
    (cells, _) = straight
    calibrations = [state["calibration"] for _, _, state, _ in cells]
    assert calibrations[0] != calibrations[1]


def test_a_mapping_that_lacks_memory_as_simulated_is_not_measured(folder, monkeypatch):
    lack = Lack("worker:0", 2.0 * 2**20, 2.0**20)
    monkeypatch.setattr(Prediction, "lack", lambda self, mapping: lack if len(set(mapping.devices)) > 1 else None)
    monkeypatch.setattr(Process, "measure", lambda self, devices, *_: Measured(1.0 + 0.1 * devices[0], 0.1, 12))
    (cells, _), campaign = run(folder)
    tried = [result for *_, trials in cells for _, _, result in trials]
    assert tried and all(isinstance(result, Failed) and "as simulated" in result.detail for result in tried)
    assert campaign.lost == [] and not any(campaign.failures.values())
    with read(folder) as store:
        assert [len(held.measured) for held in store.held()] == [0, 0] and standing(store)["complete"]


class Full(Process):
    """worker:1 runs out of memory under every mapping of both that holds as much there as some do."""

    warned: list = []  # noqa: RUF012 - the failures that questions came with

    def measure(self, devices, calibration, ran_out=()):
        Full.warned.append(ran_out)
        held = self.held_bytes(devices)
        if len(set(devices)) > 1 and held >= 3.0:
            return Failed("memory", "worker:1 ran out of memory", "worker:1", held)
        return super().measure(devices, calibration)

    def held_bytes(self, devices):
        return self.step.prediction.predictor.simulator.timeline(devices).memory_peak_bytes[1]


@pytest.fixture
def full(monkeypatch):
    Full.warned.clear()
    monkeypatch.setattr(measured_case, "CaseProcess", Full)


def test_what_ran_out_of_memory_is_learnt_and_is_no_reason_to_give_up(folder, full):
    """All searches of a case learn it. A failure is tried again once, so one mapping fails twice."""
    (folder / "campaign.toml").write_text("stop_after = 1\n" + SPEC)
    run(folder)
    with read(folder) as store:
        cells = store.held()
        assert len(store.failures()) == 2
    measured = [trial.result for cell in cells for trial in cell.measured]
    assert [result for result in measured if isinstance(result, Failed)] == [
        Failed("memory", "worker:1 ran out of memory", "worker:1", 3.0)
    ]
    assert [len(cell.measured) for cell in cells] == [6, 6]
    assert any(trial.refused for cell in cells for trial in cell.trials)
    assert [failed.wanted_bytes for failed in Full.warned[-1]] == [3.0]


@pytest.mark.parametrize("at", [1, 4, 8])
def test_a_campaign_that_ran_out_of_memory_goes_on_as_if_it_had_not_died(folder, full, monkeypatch, at):
    straight, _ = run(folder)
    (folder / "campaign.sqlite").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(CampaignStore, "keep", dying("keep", at, True))
        with pytest.raises(Died):
            run(folder)
    assert run(folder)[0] == straight


def test_what_was_profiled_is_not_profiled_again(folder):
    run(folder)
    (folder / "campaign.toml").write_text(SPEC.replace("measurements = 6", "measurements = 8"))
    run(folder)
    (_, first), (_, second) = Process.begun
    assert first is None
    with read(folder) as store:
        assert second.profile == store.content(CASE, PROFILE)
        assert [list(placement) for placement, _ in second.told] == [row[0] for row in store.opened(CASE)["told"]]


def test_a_stored_profile_is_what_it_was_to_the_last_bit():
    before = profiled()
    after = StoredProfile.decoded(before.encoded())
    told = [(place, Measured(1.0 + 0.1 * i)) for i, place in enumerate(before.units.singles())]
    calibrations = [plain_calibration(each.recalibrated(told, None)) for each in (before, after)]
    assert calibrations[0] == calibrations[1]
    placement = (0, *(1 for _ in before.units.units[1:]))
    predicted = [each.calibrated(calibrations[0]).problem.predict(placement) for each in (before, after)]
    assert predicted[0] == predicted[1]
    assert (after.fine.ops, after.fine.edges, after.topology) == (before.fine.ops, before.fine.edges, before.topology)


def test_a_damaged_profile_is_one_line():
    with pytest.raises(PlacerError, match="name another store") as refused:
        StoredProfile.decoded(b"nothing")
    assert "\n" not in str(refused.value)


def test_a_lost_device_is_opened_again_and_the_measurement_is_made(folder, straight):
    (folder / "campaign.toml").write_text("retries = 0\n" + SPEC)
    Process.losing[:] = [None, ProcessError("worker:1 was lost", LOST)]
    found, campaign = run(folder)
    assert found == straight
    assert campaign.lost == []
    assert len(Process.begun) == 2
    with read(folder) as store:
        assert [(failure["reason"], failure["n"]) for failure in store.failures()] == [("device", 1)]


class Slow(Process):
    """Opening takes a minute and an answer, or losing the devices, ten seconds."""

    now_s: list = []  # noqa: RUF012 - of all seconds that passed

    def __init__(self, *more):
        Slow.now_s.append(60.0)
        super().__init__(*more)

    def ask(self, *arguments, limit_s):
        Slow.now_s.append(10.0)
        return super().ask(*arguments, limit_s=limit_s)


def test_an_outage_takes_no_minutes_of_a_search(folder, monkeypatch):
    monkeypatch.setattr(measured_case, "CaseProcess", Slow)
    Process.losing[:] = [None, ProcessError("worker:1 was lost", LOST), None, ProcessError("it broke", FAILED)]
    run(folder, clock=lambda: sum(Slow.now_s))
    assert len(Process.begun) == 3
    with read(folder) as store:
        assert {trial.seconds for held in store.held() for trial in held.trials} == {10.0}


def test_a_placement_that_loses_the_device_again_has_failed(folder):
    Process.losing[:] = [ProcessError("worker:1 was lost", LOST)] * 2
    (cells, _), _ = run(folder)
    assert [isinstance(result, Failed) for _, _, result in cells[0][3]] == [True, *[False] * 5]


def test_a_case_whose_devices_do_not_come_back_is_left_and_the_next_one_measured(folder):
    (folder / "campaign.toml").write_text(SPEC.replace('["workers:2"]', '["workers:2", "workers:1"]'))
    Process.losing[:] = [None, ProcessError("worker:1 was lost", LOST)]
    Process.opening[:] = [None, ProcessError("no port is free", FAILED)]
    (cells, finals), campaign = run(folder)
    assert campaign.lost == [CASE]
    assert [len(trials) for *_, trials in cells] == [1, 0, 6, 6]
    assert [final is not None for final in finals] == [False, False, True, True]
    assert run(folder)[1].lost == []
    with read(folder) as store:
        facts = standing(store)
        assert store.failures()[-1]["detail"] == "cannot be opened: no port is free"
    assert facts["complete"]


def patient(folder, **fields):
    """As `run`, and for how long it waited; nobody sleeps."""
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    return (*run(folder, clock=lambda: now[0], sleep=sleep, **fields), now[0])


AN_OUTAGE = ProcessError("no worker answers at host:1", AWAY)


def test_devices_that_went_away_are_waited_for_and_the_searches_go_on_as_if_they_had_not(folder, straight):
    Process.losing[:] = [None, ProcessError("worker:1 was lost", LOST)]
    Process.opening[:] = [None, AN_OUTAGE, AN_OUTAGE]
    found, campaign, waited_s = patient(folder)
    assert found == straight and campaign.lost == []
    assert waited_s == sum(PAUSES_S[:2])
    with read(folder) as store:
        said = [failure["detail"] for failure in store.failures()]
    assert said[1:] == [f"cannot be opened: {AN_OUTAGE}; tried again in {minutes} min" for minutes in ("1.0", "2.0")]


def test_a_second_outage_is_waited_for_as_long_as_the_first(folder, straight):
    Process.losing[:] = [None, ProcessError("lost", LOST), None, None, ProcessError("lost", LOST)]
    Process.opening[:] = [None, AN_OUTAGE, None, AN_OUTAGE]
    found, _, waited_s = patient(folder)
    assert found == straight and waited_s == 2 * PAUSES_S[0]


@pytest.mark.parametrize("patience", [0, 3, 4, 60])
def test_what_does_not_come_back_in_time_is_left_out(folder, patience):
    (folder / "campaign.toml").write_text(f"patience = {patience}\n" + SPEC)
    Process.losing[:] = [None, ProcessError("worker:1 was lost", LOST)]
    Process.opening[:] = [None, *[AN_OUTAGE] * 99]
    _, campaign, waited_s = patient(folder)
    assert campaign.lost == [CASE] and waited_s == 60.0 * patience


def test_a_placement_that_ends_its_devices_each_time_has_failed_and_is_not_waited_for_for_ever(folder):
    lost = ProcessError("worker:1 was lost", LOST)
    Process.losing[:] = [None, lost, lost]
    Process.opening[:] = [None, AN_OUTAGE, None, AN_OUTAGE]
    (cells, _), campaign, waited_s = patient(folder)
    assert [isinstance(result, Failed) for _, _, result in cells[0][3]] == [False, True, *[False] * 4]
    assert campaign.lost == [] and waited_s == PAUSES_S[0] + PAUSES_S[0]


def test_an_end_that_loses_its_devices_each_time_is_made_by_the_next_run(folder, straight):
    lost = ProcessError("worker:1 was lost", LOST)
    Process.losing[:] = [*[None] * 6, lost, lost]
    Process.opening[:] = [None, AN_OUTAGE]
    found, campaign, _ = patient(folder)
    assert campaign.lost == [f"{CASE}: random, seed 0"]
    assert [final is not None for final in found[1]] == [False, True]
    assert run(folder)[0] == straight


def test_devices_that_were_never_there_are_not_waited_for(folder):
    Process.opening[:] = [AN_OUTAGE]
    _, campaign, waited_s = patient(folder)
    assert campaign.lost == [CASE] and waited_s == 0.0


def test_another_case_on_devices_that_went_away_waits_for_them_too(folder):
    (folder / "campaign.toml").write_text(SPEC.replace('["towers"]', '["towers", "moe"]'))
    Process.opening[:] = [None, AN_OUTAGE]
    _, campaign, waited_s = patient(folder)
    assert campaign.lost == [] and waited_s == PAUSES_S[0]


def test_ctrl_c_ends_a_pause(folder, straight):
    Process.losing[:] = [None, ProcessError("worker:1 was lost", LOST)]
    Process.opening[:] = [None, AN_OUTAGE]
    slept = []
    _, campaign = run(folder, clock=lambda: 0.0, sleep=slept.append, over=lambda: bool(slept))
    assert len(slept) == 1 and campaign.lost == []
    assert run(folder)[0] == straight


@pytest.mark.parametrize(
    ("error", "kind"),
    [(AwayError("no worker answers"), AWAY), (PlacerError("no device runs it"), FAILED), (ValueError("oh"), FAILED)],
)
def test_only_what_may_pass_is_away(error, kind):
    assert _said(error)[0] == kind


def test_a_model_that_has_changed_is_left_out_with_the_reason(folder):
    run(folder)
    (folder / "campaign.toml").write_text(SPEC.replace("measurements = 6", "measurements = 8"))
    Process.opening[:] = [ProcessError("towers is graph 3f2a now", FAILED)]
    _, campaign = run(folder)
    assert campaign.lost == [CASE]
    with read(folder) as store:
        assert store.failures()[-1]["detail"] == "cannot be opened: towers is graph 3f2a now"


def _checked(now, then):
    traced = SimpleNamespace(captured=SimpleNamespace(graph=replace(towers(), content=now)))
    stored = StoredProfile.decoded(replace(profiled(), fine=replace(towers(), content=then)).encoded())
    _check_model("towers", traced, stored)


def test_a_model_whose_ops_compute_something_else_is_another():
    """Profiles of an older Placer have no content."""
    _checked("ab", "ab")
    _checked("ab", None)
    with pytest.raises(BadInputError, match="other attributes, constants or functions") as refused:
        _checked("ab", "cd")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("topology", "machine", "says"),
    [
        (Topology(TOPOLOGY.devices[:1], ()), "here", "are worker:0, and were worker:0, worker:1"),
        (TOPOLOGY, "there", "are of here, and the case was begun on there; .* set PLACER_MACHINE=there if only"),
        (TOPOLOGY, "", "of another machine, or its cores, hardware, TensorFlow, its settings or Placer have changed"),
        (TOPOLOGY, "here", "of the machine where the case was begun, but their cores, hardware, TensorFlow"),
    ],
)
def test_other_devices_than_a_case_was_begun_on_are_refused_with_what_differs(monkeypatch, topology, machine, says):
    monkeypatch.setattr("experiments.campaign.measured.session.node_name", lambda: "here")
    begun = replace(profiled(), made_on="a key", machine=machine)
    with pytest.raises(BadInputError, match=says) as refused:
        _check_devices("workers:2", SimpleNamespace(topology=topology), begun)
    assert "\n" not in str(refused.value)


def test_a_profile_of_an_older_placer_names_no_machine():
    content = zlib.decompress(profiled().encoded()).replace(b',"machine":""', b"")
    assert b"machine" not in content and StoredProfile.decoded(zlib.compress(content)).machine == ""


def test_ctrl_c_while_a_case_is_opened_stores_nothing(folder, straight):
    Process.opening[:] = [InterruptedOpeningError()]
    found, campaign = run(folder)
    assert campaign.lost == []
    assert [len(trials) for *_, trials in found[0]] == [0, 0]
    assert run(folder)[0] == straight


def test_an_end_that_fails_is_said_and_made_by_the_next_run(folder, straight):
    Process.losing[:] = [*[None] * 6, *[ProcessError("it broke", FAILED)] * 2]
    found, campaign = run(folder)
    assert campaign.lost == [f"{CASE}: random, seed 0"]
    assert [final is not None for final in found[1]] == [False, True]
    assert run(folder)[0] == straight


def test_more_measurements_are_compared_with_the_baselines_anew(folder):
    run(folder)
    with read(folder) as store:
        assert standing(store)["complete"]
    (folder / "campaign.toml").write_text(SPEC.replace("measurements = 6", "measurements = 8"))
    assert [final["n"] for final in run(folder)[0][1]] == [8, 8]


def test_the_figures_of_a_cell_are_those_of_its_end(folder):
    run(folder)
    with read(folder) as store:
        for held, cell in zip(store.held(), standing(store)["cells"], strict=True):
            assert cell["side_by_side"]
            assert cell["best_s"] == held.final["best_s"] <= held.final["best_single_s"] == cell["best_single_s"]
            assert (cell["untouched_s"], cell["untouched_beside"]) == (0.5, False)


def test_the_best_mapping_is_a_file_of_the_ops(folder):
    run(folder)
    with read(folder) as store:
        written, left_out, failures = write_best(store, folder / "best")
        finals = [held.final for held in store.held()]
    (path,) = written.values()
    assert path.endswith("towers-on-workers-2.json") and not left_out and not failures
    mapping = read_mapping(path, profiled().fine, TOPOLOGY)
    groups = profiled()
    best = min(finals, key=lambda final: final["best_s"])
    assert [mapping.devices[members[0]] for members in groups.members] == best["devices"]


def _calibrated_cell(store, n):
    """A cell that ended under costs that its searcher had corrected `n` times."""
    devices = (0, 0, 0, 0, 1, 1, 1, 0)
    singles = [["worker:0", 6.0], ["worker:1", 7.0]]
    slower = [{"device_factor": [1.0, factor]} for factor in (3.0, 0.2)]
    store.want([WantedCell("m: a, seed 0", "m", MEASURED, {}, "a", 0, n, None)])
    store.keep_opened("m", {"singles": singles, "calibration": slower[0]}, {PROFILE: profiled().encoded()})
    for i in range(n):
        store.keep("m: a, seed 0", StoredTrial(i, devices, Measured(5.0), 1.0), {"calibration": slower[1]})
    final = {"n": n, "best_s": 5.0, "spread_s": 0.1, "repeats": 9, "best_single_s": 6.0, "untouched_s": None}
    store.keep_final("m: a, seed 0", {**final, "devices": list(devices)})
    return devices, slower[n]


@pytest.mark.parametrize("n", [0, 1])
def test_the_best_mapping_is_written_with_the_run_order_that_was_measured(tmp_path, n):
    with CampaignStore(tmp_path / "m.sqlite") as store:
        devices, calibration = _calibrated_cell(store, n)
        (path,) = write_best(store, tmp_path / "best")[0].values()
    measured = profiled().calibrated(calibration).order_of(devices)
    assert measured != profiled().prediction.order_of(devices)
    assert read_mapping_file(path).order == measured


def test_a_case_whose_mapping_cannot_be_written_keeps_no_other_from_it(tmp_path):
    with CampaignStore(tmp_path / "m.sqlite") as store:
        _calibrated_cell(store, 1)
        cells = [WantedCell(f"{case}: a, seed 0", case, MEASURED, {}, "a", 0, 1, None) for case in ("a", "m", "z")]
        store.want(cells)
        for case in ("a", "z"):
            store.keep_opened(case, {}, {PROFILE: profiled().encoded() if case == "z" else b"spoilt"})
        final = {"n": 0, "best_s": 5.0, "spread_s": 0.1, "repeats": 9, "best_single_s": 6.0, "untouched_s": None}
        store.keep_final("a: a, seed 0", {**final, "devices": [0] * 8})
        written, left_out, failures = write_best(store, tmp_path / "best")
    assert list(written) == ["m"] and list(left_out) == ["z"] and "not measured side by side" in left_out["z"]
    (failure,) = failures
    assert "a stored profile cannot be read" in str(failure)


def test_the_page_shows_the_best_mapping_and_what_was_predicted_before_it_was_measured(folder):
    run(folder)
    with read(folder) as store:
        (case,) = campaign_record(store, {}).cases
        best = min((held.final for held in store.held()), key=lambda final: final["best_s"])
    assert case.missing == ()
    assert [panel.name for panel in case.panels] == ["best single device, predicted", "best mapping, predicted"]
    assert {node.device for node in case.nodes} == set(best["devices"])
    assert len(case.rows) == 12
    for row in case.rows:
        assert row.predicted_s == pytest.approx(row.step_s, rel=0.1)


@pytest.mark.parametrize(
    ("untouched_s", "beside", "said"), [(0.5, True, True), (2.0, True, False), (0.5, False, False)]
)
def test_an_untouched_step_that_beats_every_mapping_is_said(untouched_s, beside, said):
    rows = [{"untouched_s": untouched_s, "untouched_beside": beside, "best_s": best_s} for best_s in (1.0, 1.2)]
    assert bool(untouched_lines(rows)) == said


def test_a_campaign_that_measured_nothing_has_no_best_mapping(folder):
    spec = read_spec(folder / "campaign.toml")
    with CampaignStore(spec.store) as store, pytest.raises(PlacerError, match="no measured cell"):
        write_best(store, folder)


@pytest.mark.parametrize(
    ("before", "after", "key", "allowed"),
    [
        ('devices = ["workers:2"]', "devices = []", "measured[0].devices", ">= 1"),
        ('devices = ["workers:2"]', 'device = ["workers:2"]', "device", "include_local"),
        ('["workers:2"]', '["workers:2"]\nsplit = "auto"', "split", "groups"),
        ('["workers:2"]', '["workers:2"]\ngroups = 1', "measured[0].groups", ">= 2"),
        ('["workers:2"]', '["workers:2"]\nbatch = 0', "measured[0].batch", ">= 1"),
        ('["workers:2"]', '["workers:2"]\npins = ["(=x"]', "measured[0]", "pattern"),
        ('["workers:2"]', '["workers:2", "workers:2"]', "measured[0].devices", "twice"),
        ('["towers"]', '["towerz"]', "measured[0]", "towers"),
        ('["towers"]', '["none.py:step"]', "measured[0]", "check the path"),
    ],
)
def test_a_wrong_key_is_named_with_what_is_allowed(folder, before, after, key, allowed):
    assert before in SPEC
    (folder / "campaign.toml").write_text(SPEC.replace(before, after, 1))
    with pytest.raises(BadInputError) as refused:
        read_spec(folder / "campaign.toml")
    said = str(refused.value)
    assert key in said and allowed in said and "\n" not in said


def test_a_spec_that_contradicts_the_store_is_refused(folder):
    run(folder)
    (folder / "campaign.toml").write_text(SPEC + "groups = 24\n")
    with pytest.raises(BadInputError, match=f"measured.groups of {CASE} is '24', and was '192'"):
        run(folder)


def test_files_are_found_from_the_spec(folder):
    (folder / "mine.py").write_text("def step(): ...")
    (folder / "campaign.toml").write_text(SPEC.replace('["towers"]', '["mine.py:step"]').replace("workers:2", "t.json"))
    settings = measured_case.settings_of(read_spec(folder / "campaign.toml", lenient=True).cells[0].case)
    assert (settings.model, settings.devices) == (f"{folder}/mine.py:step", f"{folder}/t.json")
