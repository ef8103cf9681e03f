"""`placer profile` and the bench `operators`: rows come back, errors are told of what was held out, bad input is one
line."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.benches.operators import held_out as bench
from experiments.benches.operators.page import page_lines
from experiments.jobs import profile
from experiments.jobs.profile import ProfileSettings, _keep, check, profile_command
from placer.errors import BadInputError, PlacerError
from placer.measure.store import Store
from placer.profile.operators.dataset import YARDSTICKS, Operator, OperatorRow, Tensor, load


def placer(*arguments):
    command = [sys.executable, "-m", "placer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


@pytest.mark.slow
def test_a_profile_fills_store_and_export_and_tells_errors(tmp_path):
    store, target = tmp_path / "operators.sqlite", tmp_path / "rows.csv"
    arguments = ("profile", "mnist_softmax", "--batch", 16, "--batch", 32, "--passes", 1)
    done = placer(*arguments, "--store", store, "--export", target, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    rows = load(target)
    with Store(store) as kept:
        assert kept.operators() == rows
    assert facts["rows"] == len(rows) and facts["networks"] == ["mnist_softmax"]
    assert {row.network for row in rows} == {"mnist_softmax", YARDSTICKS}
    assert {row.batch for row in rows if row.network != YARDSTICKS} == {16, 32}
    assert {row.source for row in rows} == {"step", "single"}
    assert {"matmul", "element-wise"} <= {family["family"] for family in facts["families"]}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(("no_such_net",), "no_such_net", marks=pytest.mark.nightly),
        (("mnist_softmax", "--export", "rows.xls"), "rows.xls"),
        (("mnist_softmax", "--batch", 0), "--batch"),
    ],
)
def test_bad_input_is_one_line(arguments, says):
    done = placer("profile", *arguments, "--quiet")
    assert done.returncode == 2 and done.stdout == ""
    assert says in done.stderr.strip().splitlines()[-1] and "Traceback" not in done.stderr


def test_no_passes_are_refused():
    with pytest.raises(BadInputError, match="--passes"):
        check(ProfileSettings(("mnist_softmax",), passes=0), None)


def test_a_store_that_cannot_be_written_loses_no_export(tmp_path):
    (tmp_path / "folder.sqlite").mkdir()
    profiles = [SimpleNamespace(rows=lambda: ROWS)]
    rows, known, lost = _keep(profiles, tmp_path / "folder.sqlite", tmp_path / "rows.csv")
    assert rows == known == ROWS == load(tmp_path / "rows.csv")
    assert [type(error) for error in lost] == [BadInputError]
    (tmp_path / "export.csv").mkdir()
    *_, lost = _keep(profiles, tmp_path / "rows.sqlite", tmp_path / "export.csv")
    assert [str(error).partition(": ")[2] for error in lost] == ["is a folder, and is not written to; name a file."]
    with Store(tmp_path / "rows.sqlite") as kept:
        assert len(kept.operators()) == len({(row.operator.signature, row.network, row.source) for row in ROWS})


def test_a_store_that_cannot_be_used_is_refused_before_the_work(tmp_path):
    with pytest.raises(PlacerError, match="is no file; name another with --store"):
        profile_command(ProfileSettings(("mnist_softmax",)), tmp_path, None, lambda total: nullcontext())


def test_what_was_measured_is_kept_whatever_ends_it(tmp_path, monkeypatch):
    """An error of TensorFlow's that nobody knows, say, in a later pass or network."""

    def fails(*_):
        raise RuntimeError("Dst tensor is not initialized.")

    devices = nullcontext(SimpleNamespace(topology=[None]))
    monkeypatch.setattr("placer.devices.opening.open_devices", lambda *_, **__: devices)
    monkeypatch.setattr("placer.profile.operators.yardsticks.yardsticks", lambda *_: [])
    monkeypatch.setattr(profile, "profiles_of", lambda *_: [SimpleNamespace(rows=lambda: ROWS[:2])])
    monkeypatch.setattr(profile, "run_passes", fails)
    settings, store = ProfileSettings(("mnist_softmax",)), tmp_path / "operators.sqlite"
    with pytest.raises(RuntimeError, match="Dst tensor"):
        profile_command(settings, store, None, lambda _: nullcontext(lambda _: None))
    with Store(store) as kept:
        assert len(kept.operators()) == 2


def test_what_was_measured_is_kept_before_the_devices_are_closed(tmp_path, monkeypatch):
    """Closing workers takes seconds, in which Ctrl-C may come."""

    @contextmanager
    def devices(*_, **__):
        yield SimpleNamespace(topology=[None])
        raise KeyboardInterrupt

    monkeypatch.setattr("placer.devices.opening.open_devices", devices)
    monkeypatch.setattr("placer.profile.operators.yardsticks.yardsticks", lambda *_: [])
    monkeypatch.setattr(profile, "profiles_of", lambda *_: [SimpleNamespace(rows=lambda: ROWS[:2])])
    monkeypatch.setattr(profile, "run_passes", lambda *_: None)
    settings, store = ProfileSettings(("mnist_softmax",)), tmp_path / "operators.sqlite"
    with pytest.raises(KeyboardInterrupt):
        profile_command(settings, store, None, lambda _: nullcontext(lambda _: None))
    with Store(store) as kept:
        assert len(kept.operators()) == 2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (ProfileSettings(("mnist_softmax", "no_such_net")), "no_such_net"),
        (ProfileSettings(("mnist_softmax",), "workers:none"), "workers:none"),
    ],
)
def test_a_model_or_devices_that_are_not_there_are_refused_before_any_work(settings, says, monkeypatch):
    monkeypatch.setattr("placer.devices.opening.open_devices", None)
    with pytest.raises(BadInputError, match=says):
        profile_command(settings, None, None, lambda _: nullcontext(lambda _: None))


def matmul_row(m: int, k: int, network: str, source: str = "step") -> OperatorRow:
    inputs = (Tensor((m, k), "float32"), Tensor((k, 64), "float32"))
    op = Operator("MatMul", inputs, (Tensor((m, 64), "float32"),), {}, 2.0 * m * k * 64)
    seconds = 2e-5 + (op.flops or 0.0) / 1e10
    return OperatorRow(op, "worker:0", "cpu", "here", 8, network, "forward", source, seconds, seconds, 0.0, 20)


ROWS = [
    matmul_row(m, k, network, source)
    for i, m in enumerate(range(16, 400, 16))
    for k, network in ((64, "a"), (200, "b"), (128 + i, "held"))
    for source in ("step", "single")
]


@pytest.fixture(scope="module")
def facts():
    return bench.evaluated(ROWS, ("held",))


@pytest.mark.slow
def test_what_is_held_out_is_not_fitted(facts):
    kept = [row for row in ROWS if row.network != "held"]
    assert facts["n_train"] + facts["n_test_all_ops"] == len(kept)
    assert 0 < facts["n_test"] <= facts["n_test_all_ops"] < facts["n_train"]
    assert facts["n_test_unseen_networks"] == len(ROWS) - len(kept)
    assert list(facts["mape_by_unseen_network"]) == ["held"]


@pytest.mark.slow
def test_a_law_without_noise_is_learned(facts):
    assert facts["mape"] < 0.05
    assert set(facts["mape_by_type"]) == {"MatMul"}
    assert facts["by_regressor"]["chosen"]["unseen_shapes"] <= facts["by_regressor"]["boosting"]["unseen_shapes"]


def test_halves_of_repeats_tell_the_noise():
    other = [replace(row, median_s=row.median_s * 1.1) for row in ROWS]
    found = bench.disagreement(ROWS, other)
    assert found["all"] == pytest.approx(0.1 / 1.05)
    assert set(found) == {"all", "step", "single", "median"}


def test_the_page_tells_every_figure(facts):
    whole = facts | {
        "repeats_disagree": {"all": 0.04},
        "noise_floor": 0.02,
        "repeats": 15,
        "networks": ["a", "b", "held"],
    }
    said = page_lines(json.loads(json.dumps(whole)))
    assert any("disagree by 4.0%" in line for line in said)
    assert any(line.startswith("| matmul |") for line in said)
    assert np.isfinite(facts["mape_time_weighted"])
