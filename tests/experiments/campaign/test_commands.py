"""`placer campaign` as a user meets it: what it prints, exit codes, Ctrl-C, and no TensorFlow where none is needed."""

import csv
import json
import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from experiments.campaign.export import export
from experiments.campaign.run import Campaign
from experiments.campaign.spec import read_spec
from experiments.campaign.standing import after, standing
from experiments.campaign.store import CampaignStore, StoredTrial
from experiments.report.campaign.export import check_export
from experiments.report.campaign.markdown import report_markdown
from experiments.report.campaign.terminal import CampaignBar, show_standing
from placer.errors import BadInputError
from placer.result import Measured
from tests.experiments.campaign.held import held_at, wait_until_held

WITHOUT_TENSORFLOW = """
import sys
from experiments.cli import main
try:
    main()
finally:
    assert not {"tensorflow", "ray"} & sys.modules.keys(), "TensorFlow or Ray was loaded"
"""


def placer(*arguments, **more):
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, "campaign", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **more)


def read(folder):
    return CampaignStore(folder / "campaign.sqlite", reads=True)


def test_from_run_to_report(folder):
    ran = placer("run", folder / "campaign.toml", "--json")
    assert ran.returncode == 0, ran.stderr
    facts = json.loads(ran.stdout)
    assert (facts["done"], facts["total"], facts["complete"], facts["interrupted"]) == (20, 20, True, False)
    assert "towers.json on two.json: local, seed 1 (15 of 20)" in ran.stderr
    status = json.loads(placer("status", folder / "campaign.sqlite", "--json").stdout)
    assert status == {name: value for name, value in facts.items() if name != "interrupted"}


def test_a_broken_spec_is_one_line_and_exit_code_2(edited):
    found = placer("run", edited("seeds =", "sedes ="))
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("placer: ") and found.stderr.count("\n") == 1


def test_a_spec_that_is_a_pipe_is_not_waited_for_and_a_byte_order_mark_is_no_fault(folder):
    os.mkfifo(folder / "pipe.toml")
    for command in ("run", "status"):
        found = placer(command, folder / "pipe.toml", timeout=120)
        assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)
        assert "is no file" in found.stderr
    path = folder / "campaign.toml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_spec(path).cells) == 4


@pytest.mark.slow
def test_outputs_of_a_report_and_an_export_are_tried_each_by_itself(done, tmp_path):
    out = done / "report.md"
    os.mkfifo(out)  # which nobody reads
    ran = placer("report", done / "campaign.toml", "--out", out, "--json")
    assert ran.returncode == 1 and set(json.loads(ran.stdout)) > {"cells", "after"}
    assert "nobody reads from it" in ran.stderr and ran.stderr.count("\n") == 1
    ran = placer("export", done / "campaign.toml", "--out", done / "t.csv", "--best", done / "best", "--json")
    assert ran.returncode == 1 and json.loads(ran.stdout)["rows"] == 20
    assert "no measured cell" in ran.stderr and (done / "t.csv").exists()
    (done / "t.parquet").mkdir()
    ran = placer("export", done / "campaign.toml", "--out", done / "t.parquet")
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1) and "is a folder" in ran.stderr


@pytest.mark.parametrize(("command", "format"), [("report", "md"), ("export", "csv")])
@pytest.mark.parametrize("of", ["campaign.toml", "campaign.sqlite"])
def test_what_a_campaign_is_read_from_is_not_replaced(done, command, format, of):
    store = done / "campaign.sqlite"
    before = store.read_bytes()
    found = placer(command, done / of, "--out", store, "--format", format)
    assert (found.returncode, found.stdout) == (2, "")
    assert "is read by this command, and would be replaced" in found.stderr and found.stderr.count("\n") == 1
    assert store.read_bytes() == before


def test_a_storage_of_another_program_is_not_made_in_the_campaigns_store(done):
    with pytest.raises(BadInputError, match="is read by this command, and would be replaced"):
        check_export(f"sqlite:///{done / 'campaign.sqlite'}", None, [done / "campaign.sqlite"])


@pytest.mark.slow
def test_a_warm_start_is_an_option_and_what_is_no_store_is_one_line_and_exit_code_2(folder, edited, done):
    path = edited("seeds = [0, 1]", 'seeds = [2]\nstore = "second.sqlite"')
    found = placer("run", path, "--warm-start", folder / "two.json")
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)
    ran = placer("run", path, "--warm-start", folder / "campaign.sqlite", "--json")
    assert ran.returncode == 0, ran.stderr
    (row,) = json.loads(ran.stdout)["warm_starts"]
    assert row["carried"] and row["carried"][0]["store"] == "campaign.sqlite"
    again = placer("run", path)
    assert again.returncode == 2 and "warm_start" in again.stderr


def test_a_ray_address_that_is_none_is_refused_before_anything_is_stored(folder):
    found = placer("run", folder / "campaign.toml", "--ray", "nowhere")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("placer: ") and "'nowhere'" in found.stderr and found.stderr.count("\n") == 1
    assert not (folder / "campaign.sqlite").exists()


def test_a_store_in_which_nothing_was_begun_is_not_complete(folder):
    CampaignStore(folder / "campaign.sqlite").close()
    facts = json.loads(placer("status", folder / "campaign.sqlite", "--json").stdout)
    assert (facts["cells"], facts["complete"]) == ([], False)


def test_a_store_that_is_not_there_is_one_line_and_exit_code_2(folder):
    found = placer("status", folder / "campaign.toml")
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)


def test_lines_name_their_cells_where_several_are_under_way(folder, capsys):
    cells = read_spec(folder / "campaign.toml").cells
    bar = CampaignBar(several=True)
    bar.begin(0, 20)
    for cell, done, best_s in zip(cells, (0, 1), (1.0, 1.5), strict=False):
        bar.cell(cell, done, 2.0, 2.0)
        bar.trial(cell, StoredTrial(9, (0,), Measured(best_s), 0.1), best_s)  # n counts refusals, too
    bar.end()
    said = [line.rstrip() for line in capsys.readouterr().err.splitlines() if "best" in line]
    assert said == [
        f"     1  best 1000 ms (2.00x the best single device)  {cells[0].key}",
        f"     2  best 1500 ms (1.33x the best single device)  {cells[1].key}",
    ]


def test_ctrl_c_ends_a_run_with_what_it_has_and_the_same_command_goes_on(folder, edited):
    path = edited('["random", "local"]', '["random"]')
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # also where this is a background job
    with held_at(3, path, preexec_fn=hears) as process:
        wait_until_held(process)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate()  # which closes its stdin
    facts = json.loads(out)
    assert process.returncode == 130, said
    assert facts["interrupted"] and not facts["complete"]
    assert 3 <= facts["done"] < facts["total"] == 10
    again = placer("run", path, "--json")
    assert again.returncode == 0, again.stderr
    assert "going on" in again.stderr and json.loads(again.stdout)["complete"]


def test_status_says_what_is_best_against_the_best_single_device(done):
    with read(done) as store:
        facts = standing(store)
    for cell in facts["cells"]:
        assert (cell["state"], cell["done"], cell["failures"], cell["total"]) == ("done", 5, 0, 5)
        assert cell["bound_s"] <= cell["best_s"] <= cell["best_single_s"]
        assert cell["ratio_to_best_single"] == cell["best_single_s"] / cell["best_s"]
    assert max(cell["ratio_to_best_single"] for cell in facts["cells"]) > 1.2


def test_status_needs_no_more_than_80_columns(done, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with read(done) as store:
        facts = standing(store)
    facts["cells"] = [
        {
            **row,
            "case": "some-long-network.json on four-gpus.json (max-load)",
            "searcher": "bayes-rf",
            "best_s": 1.2345e-3,
        }
        for row in facts["cells"]
    ]
    show_standing(facts)
    said = capsys.readouterr().out.splitlines()
    assert max(map(len, said[:-1])) <= 80
    assert sum("bayes-rf" in line and "done" in line and "5/5" in line and "1.234 ms" in line for line in said) == 4


def test_export_has_a_row_for_each_measurement(done):
    with read(done) as store:
        for name in ("trials.csv", "trials.parquet"):
            assert export(store, done / name, as_parquet=name.endswith("parquet")) == 20
        held = store.held()
    rows = list(csv.DictReader((done / "trials.csv").read_text().splitlines()))
    trials = [trial for cell in held for trial in cell.trials]
    assert [float(row["step_s"]) for row in rows] == [trial.result.step_s for trial in trials]
    assert [tuple(map(int, row["placement"].split())) for row in rows] == [trial.placement for trial in trials]
    parquet = pytest.importorskip("pyarrow.parquet").read_table(done / "trials.parquet").to_pylist()
    assert [row["step_s"] for row in parquet] == [trial.result.step_s for trial in trials]


def test_export_of_nothing_is_refused(done):
    found = placer("export", done / "campaign.toml")
    assert (found.returncode, found.stdout) == (2, "")
    assert "--out FILE, --best FOLDER" in found.stderr
    none = placer("export", done / "campaign.toml", "--best", done / "best")
    assert none.returncode == 1 and "no measured cell" in none.stderr


def test_the_report_names_the_baselines_and_how_far_each_searcher_had_come(done):
    with read(done) as store:
        facts, curves = standing(store), after(store, (2, 5))
    text = report_markdown(facts, curves)
    assert "(predicted)" in text and "the best single device takes" in text and "no mapping can be predicted" in text
    assert "| case | searcher | seeds | after 2 | after 5 |" in text
    for row in curves:
        assert 1 <= row["after"]["2"] <= row["after"]["5"]


def test_the_report_is_a_page_where_the_file_is_called_so(done):
    (done / "towers.json").unlink()  # what is only read from the store needs no files
    ran = placer("report", done / "campaign.toml", "--out", done / "r.html", "--json")
    assert ran.returncode == 0, ran.stderr
    assert set(json.loads(ran.stdout)) > {"cells", "after"}
    page = (done / "r.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "cannot be read any more" in page
    refused = placer("report", done / "campaign.toml", "--out", done / "r.docx")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1) and ".html" in refused.stderr


def test_exports_need_no_tensorflow(done):
    pytest.importorskip("tensorboard")
    ran = placer("export", done / "campaign.toml", "--out", done / "board", "--format", "tensorboard", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"out": str(done / "board"), "format": "tensorboard", "rows": 20}


def test_a_resumed_run_says_where_it_goes_on(folder, edited, capsys):
    spec = read_spec(folder / "campaign.toml")
    with CampaignStore(spec.store) as store:
        Campaign(spec, store, CampaignBar()).run()
    spec = read_spec(edited("[2, 5]", "6"))
    capsys.readouterr()
    with CampaignStore(spec.store) as store:
        Campaign(spec, store, CampaignBar()).run()
    said = capsys.readouterr().err
    assert "20 of 24 measurements are in the store; going on" in said
    assert "random, seed 0, from measurement 6 on (20 of 24)" in said.replace("\n", "")
