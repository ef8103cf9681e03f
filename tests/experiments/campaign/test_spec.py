"""The spec: what it makes of a file, and what it says of a wrong one."""

import os

import pytest

from experiments.campaign.spec import read_spec
from placer.errors import BadInputError


def refused(path):
    with pytest.raises(BadInputError) as error:
        read_spec(path)
    said = str(error.value)
    assert "\n" not in said and said.startswith(str(path.parent))
    return said


def test_cells_are_cases_times_searchers_times_seeds(folder):
    spec = read_spec(folder / "campaign.toml")
    assert [(cell.searcher, cell.seed) for cell in spec.cells] == [
        ("random", 0), ("random", 1), ("local", 0), ("local", 1),
    ]  # fmt: skip
    assert {cell.case.key for cell in spec.cells} == {"towers.json on two.json"}
    assert (spec.budgets, spec.measurements, spec.store) == ((2, 5), 5, folder / "campaign.sqlite")


def test_broken_toml_names_its_line(edited):
    assert "line 3" in refused(edited("seeds = [0, 1]", "seeds = [0, 1}"))


@pytest.mark.parametrize(
    ("before", "after", "key", "allowed"),
    [
        ("seeds =", "sedes =", "sedes", "seeds"),
        ("topologies =", "topology =", "topology", "topologies"),
        ('searchers = ["random", "local"]\n', "", "searchers", "add it"),
        ('"local"]', '"magic"]', "searchers[1]", "hybrid"),
        ('["two.json"]', '["two.json"]\nobjective = "speed"', "objective", "max-load"),
        ('["two.json"]', '["two.json"]\npins = ["(=x"]', "predicted[0]", "pattern"),
        ("measurements = [2, 5]", "measurements = 0", "measurements", ">= 1"),
        ("measurements = [2, 5]", "measurements = 5\nminutes = 0", "minutes", "> 0"),
        ("measurements = [2, 5]", "measurements = 5\nminutes = inf", "minutes", "<= 1000000000000"),
        ("placer.campaign/1", "placer.campaign/9", "format", "placer.campaign/1"),
        ('["two.json"]', '["three.json"]', "three.json", "check the path"),
        ('"two.json"', '"two\\u0000.json"', "null byte", "check it"),
        ("seeds = [0, 1]", f"seeds = [{'1' * 5000}]", "not TOML", "digits"),
        ("seeds = [0, 1]", "seeds = [1, 1]", "seeds", "twice"),
    ],
)
def test_a_wrong_key_is_named_with_what_is_allowed(edited, before, after, key, allowed):
    said = refused(edited(before, after))
    assert key in said and allowed in said


def test_a_case_that_stands_there_twice_is_refused_with_what_differs(edited):
    again = '[[predicted]]\ngraphs = ["towers.json"]\ntopologies = ["two.json"]\nschedule = "fifo"\n'
    said = refused(edited("[[predicted]]", f"{again}[[predicted]]"))
    assert "towers.json on two.json" in said and "schedule" in said


@pytest.mark.parametrize(
    ("named", "word"),
    [
        ('models = ["two_towers"]\ndevices = ["workers:2"]', "two_towers"),
        ('models = ["two_tower"]\ndevices = ["workers:1", "wrokers"]', "wrokers"),
        ('models = ["two_tower"]\ndevices = ["workers:0"]', "0 workers"),
        ('models = ["two_tower"]\ndevices = ["two.json"]', "has no address"),
    ],
)
def test_a_model_or_device_to_be_measured_that_does_not_exist_is_refused_before_anything_runs(edited, named, word):
    path = edited("[[predicted]]", f"[[measured]]\n{named}\n[[predicted]]")
    said = refused(path)
    assert "measured[0]" in said and word in said
    assert read_spec(path, lenient=True).cells, "what was measured can be looked at where these devices are not"


def test_without_a_table_there_is_nothing_to_search(edited):
    path = edited("[[predicted]]", "[[predicted]]")
    path.write_text(path.read_text().split("[[")[0])
    assert "nothing to search" in refused(path)


def test_a_pipe_for_a_graph_is_refused_and_not_waited_for(folder):
    (folder / "towers.json").unlink()
    os.mkfifo(folder / "towers.json")
    assert "is no file; give the path of a placer.graph/1" in refused(folder / "campaign.toml")


def test_a_store_may_be_in_the_users_home(edited, folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder / "home"))
    spec = read_spec(edited("searchers =", 'store = "~/runs/mine.sqlite"\nsearchers ='))
    assert spec.store == folder / "home/runs/mine.sqlite"


def test_a_missing_file_is_named(tmp_path):
    assert "check the path" in refused(tmp_path / "none.toml")
