"""`placer profile` and the bench `operators`: rows come back, errors are told of what was held out, bad input is one
line."""

from __future__ import annotations

import json
import signal
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
from experiments.jobs.interrupt import SIGNALS, Signals, heard
from experiments.jobs.kept_profiles import KeptProfiles
from experiments.jobs.profile import ProfileSettings, check, profile_command, run_passes
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


class Profile:
    """A profile. rows: those after each of its passes."""

    captured = SimpleNamespace(name="made up")

    def __init__(self, *rows, before=lambda done: None):
        self.of_passes, self.before, self.done = rows, before, 0

    def run_pass(self):
        self.before(self.done)
        self.done += 1

    def rows(self):
        return [] if self.done == 0 else self.of_passes[self.done - 1]


def ran(rows):
    profile = Profile(rows)
    profile.run_pass()
    return profile


def keeper(store, target=None, signals=None):
    return KeptProfiles(store, target, signals or Signals())


def in_store(path):
    with Store(path, reads=True) as kept:
        return kept.operators()


def command(monkeypatch, store, *profiles, devices=None):
    """Run the command with made-up profiles."""
    opened = nullcontext(SimpleNamespace(topology=[None]))
    monkeypatch.setattr("placer.devices.opening.open_devices", devices or (lambda *_, **__: opened))
    monkeypatch.setattr("placer.profile.operators.yardsticks.yardsticks", lambda *_: [])
    monkeypatch.setattr(profile, "profiles_of", lambda *_: profiles)
    settings = ProfileSettings(("mnist_softmax",), passes=len(profiles[0].of_passes))
    return profile_command(settings, store, None, lambda _: nullcontext(lambda _: None))


def test_a_store_that_cannot_be_written_loses_no_export(tmp_path):
    (tmp_path / "folder.sqlite").mkdir()
    rows, known, lost = keeper(tmp_path / "folder.sqlite", tmp_path / "rows.csv").finish([ran(ROWS)])
    assert rows == known == ROWS == load(tmp_path / "rows.csv")
    assert [type(error) for error in lost] == [BadInputError]
    (tmp_path / "export.csv").mkdir()
    *_, lost = keeper(tmp_path / "rows.sqlite", tmp_path / "export.csv").finish([ran(ROWS)])
    assert [str(error).partition(": ")[2] for error in lost] == ["is a folder, and is not written to; name a file."]
    assert len(in_store(tmp_path / "rows.sqlite")) == len({(row.operator.signature, row.source) for row in ROWS})


def test_a_store_that_cannot_be_used_is_refused_before_the_work(tmp_path):
    with pytest.raises(PlacerError, match="is no file; name another with --store"):
        profile_command(ProfileSettings(("mnist_softmax",)), tmp_path, None, lambda total: nullcontext())


def slower(rows, times, repeats):
    return [replace(row, median_s=times * row.median_s, spread_s=1e-6, repeats=repeats) for row in rows]


def test_after_all_passes_a_store_holds_what_it_would_hold_if_the_end_alone_was_stored(tmp_path):
    """One row of the first pass is gone after the second; two devices share rows; another run had measured some."""
    first, last = slower(ROWS[:6], 1.0, 5), slower(ROWS[1:6], 1.1, 10)
    other = [replace(row, device="worker:1") for row in slower(ROWS[2:9], 1.3, 10)]
    profiles = [Profile(first, last), Profile(slower(other, 0.9, 5), other)]
    for path in (tmp_path / "passes.sqlite", tmp_path / "end.sqlite"):
        with Store(path) as kept:
            kept.add_operators(slower(ROWS[4:8], 2.0, 30))
    kept = keeper(tmp_path / "passes.sqlite")
    run_passes(profiles, 2, lambda _: None, kept.keep)
    assert kept.finish(profiles).lost == []
    with Store(tmp_path / "end.sqlite") as end:
        end.add_operators([*last, *other])
    passes, end = in_store(tmp_path / "passes.sqlite"), in_store(tmp_path / "end.sqlite")
    assert [same_but_times(row) for row in passes] == [same_but_times(row) for row in end]
    for name in ("median_s", "low_s", "spread_s"):
        found, wanted = ([getattr(row, name) for row in rows] for rows in (passes, end))
        assert found == pytest.approx(wanted, rel=1e-12, abs=1e-18)


def same_but_times(row):
    return replace(row, median_s=0.0, low_s=0.0, spread_s=0.0)


def test_rows_that_nobody_else_measured_are_stored_exactly(tmp_path):
    last = slower(ROWS, 1.1, 10)
    profiles = [Profile(slower(ROWS, 1.0, 5), last)]
    run_passes(profiles, 2, lambda _: None, keeper(tmp_path / "operators.sqlite").keep)
    assert in_store(tmp_path / "operators.sqlite") == last


def test_after_each_profile_of_a_pass_its_rows_are_in_the_store(tmp_path):
    """Nothing can be done after SIGKILL."""
    store, found = tmp_path / "operators.sqlite", []
    one, other = slower(ROWS[:2], 1.0, 5), slower(ROWS[2:4], 1.0, 5)
    profiles = [Profile(one, one), Profile(other, other, before=lambda done: found.append(in_store(store)))]
    run_passes(profiles, 2, lambda _: None, keeper(store).keep)
    assert found == [one, [*one, *other]]


def test_a_store_that_cannot_be_written_is_told_at_once_and_tried_again(tmp_path, monkeypatch, capsys):
    full, add, told = ["full", "full"], Store.add_operators, []

    def added(store, rows, instead_of=()):
        if full:
            raise PlacerError(f"the disk is {full.pop()}.")
        add(store, rows, instead_of)

    def note(done):
        told.append(capsys.readouterr().err)

    monkeypatch.setattr(Store, "add_operators", added)
    kept, profiles = keeper(tmp_path / "operators.sqlite"), [ran(ROWS[:2]), Profile(ROWS[2:4], before=note)]
    kept.keep(profiles[0])
    run_passes(profiles[1:], 1, lambda _: None, kept.keep)
    assert (told, capsys.readouterr().err) == (["placer: the disk is full.\n"], "")
    assert kept.finish(profiles).lost == []
    assert in_store(tmp_path / "operators.sqlite") == ROWS[:4]


def test_what_was_measured_is_kept_whatever_ends_it(tmp_path, monkeypatch):
    """An error of TensorFlow's that nobody knows, say, in the middle of a pass."""
    half_done = Profile(ROWS[:2], ROWS[:3])

    def fails(done):
        if done == 1:
            half_done.done = 2
            raise RuntimeError("Dst tensor is not initialized.")

    half_done.before = fails
    store = tmp_path / "operators.sqlite"
    with pytest.raises(RuntimeError, match="Dst tensor"):
        command(monkeypatch, store, half_done)
    assert in_store(store) == ROWS[:3]


def test_what_was_measured_is_kept_before_the_devices_are_closed(tmp_path, monkeypatch):
    """Closing workers takes seconds, in which Ctrl-C may come."""

    @contextmanager
    def devices(*_, **__):
        yield SimpleNamespace(topology=[None])
        raise KeyboardInterrupt

    store = tmp_path / "operators.sqlite"
    with pytest.raises(KeyboardInterrupt):
        command(monkeypatch, store, Profile(ROWS[:2]), devices=devices)
    assert in_store(store) == ROWS[:2]


@pytest.fixture
def while_storing(monkeypatch):
    """A list of signals, the next of which comes each time that rows are stored."""
    add, numbers = Store.add_operators, []

    def added(store, rows, instead_of=()):
        rows = list(rows)
        add(store, rows[: len(rows) // 2], instead_of)  # the signal comes amid the work
        if numbers:
            signal.raise_signal(numbers.pop(0))
        add(store, rows[len(rows) // 2 :])

    monkeypatch.setattr(Store, "add_operators", added)
    return numbers


@pytest.mark.usefixtures("ctrl_c_interrupts")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_rows_are_stored_comes_after_them(tmp_path, while_storing, capfd, number):
    while_storing.append(number)
    with heard() as signals, pytest.raises(KeyboardInterrupt):
        keeper(tmp_path / "passes.sqlite", signals=signals).keep(ran(ROWS[:4]))
    assert in_store(tmp_path / "passes.sqlite") == ROWS[:4]
    assert ": keeping what was measured; press " in capfd.readouterr().err
    while_storing.append(number)
    with heard() as signals, pytest.raises(KeyboardInterrupt):
        keeper(tmp_path / "end.sqlite", tmp_path / "rows.csv", signals).finish([ran(ROWS[:4])])
    assert in_store(tmp_path / "end.sqlite") == load(tmp_path / "rows.csv") == ROWS[:4]


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_what_cannot_be_written_is_told_although_a_signal_comes_meanwhile(tmp_path, while_storing, capfd):
    while_storing.append(signal.SIGTERM)
    (tmp_path / "export.csv").mkdir()
    with heard() as signals, pytest.raises(KeyboardInterrupt):
        keeper(tmp_path / "end.sqlite", tmp_path / "export.csv", signals).finish([ran(ROWS[:4])])
    assert "export.csv: is a folder, and is not written to" in capfd.readouterr().err


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_another_signal_while_an_interrupted_pass_is_stored_cuts_nothing_short(
    tmp_path, monkeypatch, capfd, while_storing
):
    while_storing.append(signal.SIGTERM)
    pressed = Profile(ROWS[:4])

    def press(done):
        pressed.done = 1
        signal.raise_signal(signal.SIGINT)

    pressed.before = press
    with pytest.raises(KeyboardInterrupt):
        command(monkeypatch, tmp_path / "operators.sqlite", pressed)
    assert in_store(tmp_path / "operators.sqlite") == ROWS[:4]
    assert capfd.readouterr().err.startswith("keeping what was measured")


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
