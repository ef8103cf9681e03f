"""`placer scale`: from a table of runs to a model file and what-if answers, and synchronous SGD of a graph file."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.cli.scale import predict
from experiments.cli.scale_words import counts
from experiments.jobs.scale import sgd_command
from experiments.report.scaling import drawn, show_sgd
from placer.errors import BadInputError
from placer.graph.graph_files import write_graph, write_topology
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from surrogate.scaling.sync_sgd import SgdSettings

GNMT = Path(__file__).parents[2] / "data" / "gnmt.json"
TOPOLOGY = {
    "format": "placer.topology/1",
    "devices": [{"name": f"gpu:{i}", "kind": "gpu"} for i in range(2)],
    "links": [{"src": "*", "dst": "*", "latency_s": 1e-5, "bandwidth_bytes_per_s": 1e10}],
}


def placer(*arguments):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "placer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """40 runs of filters^2 batch / devices^0.9, relu twice as fast as gelu."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "runs.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["filters", "act", "batch", "devices", "step_s"])
        for _ in range(40):
            filters, batch, devices = rng.integers(8, 65), rng.integers(8, 129), rng.integers(1, 5)
            act = str(rng.choice(["relu", "gelu"]))
            step_s = 1e-7 * (2 if act == "gelu" else 1) * filters**2 * batch / devices**0.9
            rows.writerow([filters, act, batch, devices, step_s])
    return path


@pytest.fixture(scope="module")
def model(data):
    path = data.with_name("model.json")
    facts = fitted(data, "--out", path)
    return path, facts


def fitted(data, *options):
    arguments = [
        "scale",
        "fit",
        data,
        "--target",
        "step_s",
        "--intrinsic",
        "act*filters",
        "--extrinsic",
        "batch,devices",
    ]
    return said(*arguments, "--samples", 10, "--json", *options)


def said(*arguments):
    """The JSON on stdout of a command that does well."""
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0
    return json.loads(done.stdout)


def test_a_fit_says_its_formula_its_errors_and_what_matters(model):
    _, facts = model
    assert facts["rows"] == 40 and facts["mape_cv"] < 0.02
    assert facts["formula"] == "step_s = scale ((a1[act] filters^p1) batch^q1 devices^q2 + C)"
    assert facts["constants"]["p act*filters: filters"]["value"] == pytest.approx(2.0, abs=0.02)
    assert facts["factors"][0]["name"] == "filters"
    assert any("devices: doubling it takes 0.5" in line for line in facts["reading"])


def test_the_same_seed_gives_the_same_model(data, model):
    again = fitted(data)
    assert again["constants"] == model[1]["constants"]


def test_a_prediction_for_many_devices_has_bounds_and_says_when_one_more_stops_paying(model):
    path, _ = model
    facts = said("scale", "predict", path, "filters=32", "batch=64", "act=gelu", "--vary", "devices=1..16", "--json")
    assert [row["value"] for row in facts["rows"]] == list(range(1, 17))
    assert facts["rows"][0]["step_s"] == pytest.approx(2e-7 * 32**2 * 64, rel=0.03)
    assert facts["rows"][15]["ratio"] == pytest.approx(16**-0.9, rel=0.05)
    assert all(row["low"] <= row["step_s"] <= row["high"] for row in facts["rows"])
    assert facts["outside"] == ["devices 16 (1 to 4 were measured)"]
    assert facts["assumed"] == []
    assert "one more brings less than 5%" in facts["stops_paying"]


def test_one_run_takes_usual_values_for_what_is_not_given(model):
    facts = said("scale", "predict", model[0], "filters=16", "--json")
    assert set(facts["assumed"]) == {"act", "batch", "devices"}
    (row,) = facts["rows"]
    assert row["value"] is None and row["step_s"] > 0


def test_many_values_are_thinned_out_and_texts_can_vary(model):
    facts = said("scale", "predict", model[0], "--vary", "batch=8..4096", "--json")
    values = [row["value"] for row in facts["rows"]]
    assert values[0] == 8 and values[-1] == 4096 and 20 < len(values) < 40 and values == sorted(values)
    facts = said("scale", "predict", model[0], "--vary", "act=relu,gelu", "--json")
    assert facts["rows"][1]["ratio"] == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("vary", ["devices=1..16", "act=relu,gelu"])
def test_curves_are_drawn(model, tmp_path, vary):
    said("scale", "predict", model[0], "--vary", vary, "--plot", tmp_path / "curve.png", "--json")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("given", "vary", "plot", "pays", "says"),
    [
        (["filters"], None, None, 0.05, "'filters' sets nothing; write name=value"),
        (["batch=8", "batch=16"], None, None, 0.05, "'batch' is given twice"),
        (["depth=3"], None, None, 0.05, "no column 'depth'"),
        (["act=swish"], None, None, 0.05, "act is 'swish', which no run had; they had gelu, relu"),
        (["batch=many"], None, None, 0.05, "batch is 'many'"),
        (["batch=8"], "batch=1..4", None, 0.05, "both given and varied"),
        ([], "batch", None, 0.05, "write it as NAME=FROM..TO"),
        ([], "depth=1..4", None, 0.05, "no column 'depth'"),
        ([], "batch=9..4", None, 0.05, "'9..4' is not a range"),
        ([], "batch=a..b", None, 0.05, "'a..b' is not a range"),
        ([], "batch=0..4", None, 0.05, "batch is '0.0'"),
        ([], None, "curve.png", 0.05, "name it with --vary"),
        ([], "batch=1..4", "curve.gif", 0.05, "a picture ends in"),
        ([], None, None, 1.5, "--pays is 1.5"),
    ],
)
def test_bad_questions_are_one_line(model, given, vary, plot, pays, says):
    with pytest.raises(BadInputError) as refused:
        predict(model[0], given, vary, None if plot is None else Path(plot), pays, True)
    assert says in str(refused.value) and "\n" not in str(refused.value)
    assert not Path("curve.png").exists() and not Path("curve.gif").exists()


@pytest.fixture
def topology(tmp_path):
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(TOPOLOGY))
    return path


def test_a_graph_file_scales_by_formula(topology, tmp_path):
    picture = tmp_path / "sgd.png"
    facts = said("scale", "sgd", GNMT, topology, "--devices", "1,2,8", "--plot", picture, "--json")
    assert [row["devices"] for row in facts["rows"]] == [1, 2, 8]
    assert facts["rows"][0]["speedup"] == 1.0 and facts["rows"][0]["network_s"] == 0.0
    assert all(row["speedup"] <= row["devices"] for row in facts["rows"])
    assert facts["assumed_alike"] == 6
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("contention", "form", "asked", "noted"),
    [
        ("none", "server", [1, 2, 8], True),
        ("link", "server", [1, 2, 8], True),
        ("port", "server", [1, 2, 8], False),
        ("none", "ring", [1, 2, 8], False),
        ("none", "server", [1, 2], False),
    ],
)
def test_a_server_whose_port_never_fills_is_told_of(tmp_path, capsys, contention, form, asked, noted):
    """By none and link, eight devices send to the server at the speed of one."""
    path = tmp_path / "topology.json"
    path.write_text(json.dumps({**TOPOLOGY, "contention": contention}))
    facts, last = sgd_command(GNMT, path, asked, SgdSettings(form=form), 0.05)
    assert ((facts["note"] or "").count('"contention": "port"') == 1) == noted
    show_sgd(facts, last)
    assert ("never fills up" in capsys.readouterr().out) == noted


def test_overlap_is_worth_it_and_drawn_as_text(topology):
    with_, without = (sgd_command(GNMT, topology, [2], SgdSettings(overlap=on), 0.05) for on in (True, False))
    assert with_[0]["rows"][0]["iteration_s"] < without[0]["rows"][0]["iteration_s"]
    lines = drawn(with_[1]).splitlines()
    assert [line.split()[0] for line in lines] == ["compute", "network"]
    assert lines[0].split("|")[1].startswith("ff") and lines[1].split("|")[1].startswith("..")


def test_a_device_that_nobody_asked_for_keeps_nothing_from_being_answered(tmp_path):
    """Whether one more would pay is not known where it cannot take part."""
    ops = tuple(
        Op(f"{phase}", cost_s={"cpu": 1.0}, memory_bytes=4, colocate="layer", phase=phase)
        for phase in ("forward", "backward")
    )
    write_graph(tmp_path / "g.json", OpGraph("g", ops, (Edge(0, 1, 8),)))
    link = Link("*", "*", 1e-3, 1e9)
    devices = (Device("cpu:0", "cpu"), Device("cpu:1", "cpu"), Device("gpu:0", "gpu"))
    for there, asked in ((Topology(devices, (link,)), [1, 2]), (Topology(devices[:1]), [1])):
        write_topology(tmp_path / "t.json", there)
        facts, _ = sgd_command(tmp_path / "g.json", tmp_path / "t.json", asked, SgdSettings(), 0.05)
        assert [row["devices"] for row in facts["rows"]] == asked and facts["stops_paying"] is None
    with pytest.raises(BadInputError, match="would take for ever"):
        sgd_command(
            tmp_path / "g.json", tmp_path / "t.json", [1], SgdSettings(input_bytes=1e300, io_bytes_per_s=1e-300), 0.05
        )


@pytest.mark.parametrize("devices", ["0..4", "none", "4..1", "1,x", "99999", "0", "\u00b2", "1,\u2460"])
def test_bad_numbers_of_devices_are_one_line(topology, devices):
    with pytest.raises(BadInputError, match="--devices"):
        counts(devices)


FIT = ("--target", "step_s", "--intrinsic")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("scale", "fit", "none.csv", *FIT, "filters"), "none.csv"),
        (("scale", "fit", "runs.csv", *FIT, "filters", "--exponents", "x"), "--exponents"),
        (("scale", "fit", "runs.csv", *FIT, "filters", "--out", "no/such/model.json"), "no/such"),
        (("scale", "predict", "none.json"), "none.json"),
        (("scale", "sgd", "none.json", "none.json"), "none.json"),
        (("scale", "sgd", "none.json", "none.json", "--form", "tree"), "tree"),
    ],
)
def test_bad_input_is_one_line_and_no_traceback(arguments, says):
    done = placer(*arguments)
    assert done.returncode in (1, 2) and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("placer: ") and says in line


def test_help_has_an_example_and_tables_are_shown_to_people(model):
    for command in ("fit", "predict", "sgd"):
        assert f"Example: placer scale {command}" in placer("scale", command, "--help").stdout
    done = placer("scale", "predict", model[0], "--vary", "devices=1,2,4")
    assert done.returncode == 0 and "90% of runs" in done.stdout and "Outside" not in done.stdout


def test_models_are_fitted_and_asked_without_tensorflow():
    code = (
        "import sys, experiments.jobs.scale, surrogate.scaling.sync_sgd; "
        "sys.exit(any(m in sys.modules for m in ('tensorflow', 'sklearn', 'matplotlib', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.nightly
def test_a_million_runs_are_fitted_by_a_sample_and_it_is_said(tmp_path):
    rng = np.random.default_rng(0)
    batch, devices = rng.integers(1, 257, 10**6), rng.integers(1, 17, 10**6)
    seconds = 1e-3 * batch / devices**0.9
    table = np.column_stack([batch, devices, seconds])
    np.savetxt(tmp_path / "runs.csv", table, "%d,%d,%.6g", header="batch,devices,step_s", comments="")
    options = ("--target", "step_s", "--intrinsic", "batch", "--extrinsic", "devices", "--samples", 20)
    done = placer("scale", "fit", tmp_path / "runs.csv", *options)
    assert done.returncode == 0, done.stderr
    assert "runs, drawn at random from 1000000; off by" in done.stdout
