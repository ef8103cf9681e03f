"""Exports for other programs, read back with these."""

import json
import sys

import pytest

from experiments.campaign.cells import PREDICTED
from experiments.campaign.run import Campaign, wanted
from experiments.campaign.spec import read_spec
from experiments.campaign.standing import standing
from experiments.campaign.store import CampaignStore, StoredTrial
from experiments.report.campaign.export import check_export, export
from experiments.report.campaign.scalars import file_names
from placer.errors import BadInputError, PlacerError
from placer.result import Failed, Measured

CASE = "towers.json on two.json"


@pytest.fixture
def spec(folder):
    """A campaign that has ended, and a failed measurement of a cell that is no longer in its spec."""
    found = read_spec(folder / "campaign.toml")
    with CampaignStore(found.store) as store:
        first = found.cells[0].key
        store.want(wanted(found))
        store.keep(first, StoredTrial(0, (0,) * 8, Failed("link", "missing"), 0.5), None)
        store.connection.execute("UPDATE cells SET state = NULL")
        store.connection.execute("UPDATE cells SET ended = 'for the test' WHERE key = ?", (first,))
        Campaign(found, store).run()
    return found


@pytest.fixture
def write(spec):
    """Exports it; returns what was written."""

    def export_to(out, format=None, known=spec):
        with CampaignStore(spec.store, reads=True) as store:
            return export(store, known, str(out), check_export(str(out), format))

    return export_to


def trials(spec):
    with CampaignStore(spec.store, reads=True) as store:
        return [(held, trial) for held in store.held() for trial in held.trials]


@pytest.mark.parametrize("as_url", [False, True])
def test_an_optuna_study_has_every_measurement(spec, write, folder, as_url):
    optuna = pytest.importorskip("optuna")
    url = f"sqlite:///{folder / 'study.db'}"
    assert write(url if as_url else folder / "study.db")["rows"] == len(trials(spec))
    storage = optuna.storages.RDBStorage(url)
    study = optuna.load_study(study_name=f"campaign: {CASE}", storage=storage)
    expected = trials(spec)
    assert [(t.params["searcher"], t.params["seed"], t.user_attrs["n"]) for t in study.trials] == [
        (held.searcher, held.seed, trial.n) for held, trial in expected
    ]
    assert [t.value for t in study.trials] == [
        trial.result.step_s if isinstance(trial.result, Measured) else None for _, trial in expected
    ]
    failed = [t for t in study.trials if t.state == optuna.trial.TrialState.FAIL]
    assert [(t.user_attrs["failed"], t.user_attrs["detail"]) for t in failed] == [("link", "missing")]
    with CampaignStore(spec.store, reads=True) as store:
        facts = standing(store)["cells"][0]
    assert study.user_attrs["best_single_s"] == facts["best_single_s"]
    assert (study.user_attrs["bound_s"], study.user_attrs["judged"]) == (facts["bound_s"], PREDICTED)
    best_value = study.best_value
    storage.remove_session()
    storage.engine.dispose()
    assert best_value == min(t.result.step_s for _, t in expected if isinstance(t.result, Measured))


def test_a_storage_that_has_the_study_is_refused_and_left_alone(write, folder):
    pytest.importorskip("optuna")
    url = f"sqlite:///{folder / 'study.db'}"
    write(url)
    before = (folder / "study.db").read_bytes()
    with pytest.raises(BadInputError, match="name another storage") as refused:
        write(url)
    assert "\n" not in str(refused.value) and (folder / "study.db").read_bytes() == before
    write(folder / "study.db")  # a file is written anew


def test_a_storage_that_cannot_be_opened_is_one_line(write, folder):
    pytest.importorskip("optuna")
    for url in (f"sqlite:///{folder}/none/x.db", "nodatabase://x"):
        with pytest.raises(PlacerError) as refused:
            write(url)
        assert "\n" not in str(refused.value) and url in str(refused.value)


def test_tensorboard_reads_scalars_and_the_report(spec, write, folder):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = folder / "board"
    write(out, "tensorboard")
    assert write(out, "tensorboard")["rows"] == len(trials(spec))  # replaces the first
    expected = [(h, t) for h, t in trials(spec) if h.searcher == "local" and h.seed == 1]
    found = EventAccumulator(str(out / "towers.json_on_two.json" / "local-1")).Reload()
    assert found.Tags()["scalars"] == ["step_s", "best_so_far_s"]
    steps = found.Scalars("step_s")
    assert [event.step for event in steps] == [trial.n + 1 for _, trial in expected]
    assert [event.value for event in steps] == pytest.approx([trial.result.step_s for _, trial in expected])
    best = [event.value for event in found.Scalars("best_so_far_s")]
    assert best == sorted(best, reverse=True)
    with CampaignStore(spec.store, reads=True) as store:
        times = store.times()
    assert [event.wall_time for event in steps] == [times[held.key, trial.n] for held, trial in expected]
    report = EventAccumulator(str(out / "report")).Reload()
    (text,) = report.Tensors("report")
    assert b"# Campaign" in text.tensor_proto.string_val[0]
    assert report.SummaryMetadata("report").plugin_data.plugin_name == "text"


def test_perfetto_gets_the_best_step_of_each_case(spec, write, folder):
    facts = write(folder / "traces", "perfetto")
    assert (facts["traces"], facts["left_out"]) == (1, {})
    trace = json.loads((folder / "traces" / "towers.json_on_two.json.json").read_text())
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    end_s = max(event["ts"] + event["dur"] for event in slices) / 1e6
    best_s = min(trial.result.step_s for _, trial in trials(spec) if isinstance(trial.result, Measured))
    assert end_s == pytest.approx(best_s)
    assert {event["name"] for event in slices if event["cat"] == "op"} >= {"fork", "join", "tower0/0"}


def test_perfetto_without_the_files_says_why(write, folder):
    with pytest.raises(PlacerError, match=r"no best mapping can be traced: .*spec"):
        write(folder / "traces", "perfetto", None)


@pytest.mark.parametrize(
    ("out", "format", "said"),
    [
        ("x.xlsx", None, r"\.csv, \.parquet, \.db"),
        ("x.csv", "excel", "choose one of csv"),
        ("folder", None, "tensorboard or perfetto"),
        ("campaign.toml", "perfetto", "is a file"),
        ("x.csv", "parquet", "parquet needs the name of a file that ends in .parquet"),
        ("x.PARQUET", "csv", "csv needs the name of a file that ends in .csv"),
        ("topology.json", "csv", "ends in .csv"),
        ("x.csv", "optuna", "ends in .db"),
    ],
)
def test_what_cannot_be_meant_is_refused(folder, out, format, said):
    with pytest.raises(BadInputError, match=said) as refused:
        check_export(str(folder / out), format)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("storage", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_storage_that_is_kept_nowhere_is_refused(storage):
    with pytest.raises(BadInputError, match="names no file, so nothing would be kept"):
        check_export(storage, None)


@pytest.mark.parametrize(("package", "out", "format"), [("optuna", "x.db", None), ("tensorboard", "x", "tensorboard")])
def test_a_missing_extra_is_named(monkeypatch, tmp_path, package, out, format):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BadInputError, match=rf"pip install 'placer\[{package}\]'"):
        check_export(str(tmp_path / out), format)


def test_no_two_cases_are_written_under_one_name():
    keys = ("a/b.json on t.json", "a_b.json on t.json", "../a_b.json on t.json", "a_b.json on t.json~2", "..")
    names = file_names(keys)
    assert tuple(names) == keys and len(set(names.values())) == len(keys)
    assert names[keys[0]] == "a_b.json_on_t.json"
