"""Searchers compared on two in-process devices: equal terms, nothing measured twice, and Ctrl-C as an early end."""

from __future__ import annotations

import json
import signal
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import tensorflow as tf

from experiments.jobs.interrupt import interruptible
from experiments.jobs.search import compare
from experiments.jobs.search.compare import LONGER, MARKS, Contest, run_comparison
from experiments.jobs.search.comparison import CompareSettings, Comparison, Standing
from experiments.jobs.search.finding import Progress, Trial, by_merit
from experiments.jobs.search.settings import SearchSettings
from experiments.report.comparison import comparison_facts, comparison_lines, show_comparison, write_comparison
from experiments.report.plots.picture import check_picture
from experiments.report.plots.regret import OURS, RegretCurve, RegretPanel, _styles, draw_regret
from placer.errors import BadInputError, PlacerError
from placer.measure.settings import LEAST_TURNS
from placer.result import Failed, Measured
from search.defaults import DEFAULT_SEARCHER

SETTINGS = CompareSettings(
    SearchSettings("mnist_softmax", searchers=("random", "heft", DEFAULT_SEARCHER), measurements=6, groups=24),
    peer_measurements=3,
    longer=12,
)


class Watcher(Progress):
    """Counts what it is told; `at` mappings in, a signal comes, usually Ctrl-C."""

    def __init__(self, at=None, number=signal.SIGINT):
        self.at, self.number, self.trials, self.total = at, number, 0, 0

    def begin(self, total):
        self.total = total

    def trial(self, trial, best):
        self.trials += 1
        if self.trials == self.at:
            signal.raise_signal(self.number)


@pytest.fixture(scope="module")
def watcher():
    return Watcher()


@pytest.fixture(scope="module")
def found(two_cpus, watcher):
    return run_comparison(SETTINGS, watcher)


@pytest.fixture(scope="module")
def facts(found):
    return json.loads(json.dumps(comparison_facts(found)))


def that_asked(found):
    """The standings of the searchers that asked anything. HEFT gives one mapping: by the costs that a busy machine
    shows it may be a single device, which all know already.
    """
    idle = {standing.searcher for standing in found.standings if not standing.trials}
    assert idle <= {"heft"}
    return [standing for standing in found.standings if standing.searcher not in idle]


def test_no_mapping_is_measured_twice_and_shared_ones_count_to_both(found, watcher):
    measured = [row.mapping.devices for row in found.measured]
    assert len(measured) == len(set(measured))
    asked = [row for standing in (*found.standings, found.longer) for row in standing.trials]
    assert {row.mapping.devices for row in asked} | {row.mapping.devices for row in found.singles} == set(measured)
    result = {row.mapping.devices: row.result for row in found.measured}
    assert all(row.result == result[row.mapping.devices] for row in asked)
    assert watcher.trials == len(found.singles) + len(asked)


def test_nobody_gets_more_than_its_share_and_all_say_why_they_ended(found):
    assert found.standings[0].searcher == DEFAULT_SEARCHER
    for standing in found.standings:
        assert len(standing.trials) <= SETTINGS.share(standing.searcher)
        assert standing.ended
    assert SETTINGS.share(DEFAULT_SEARCHER) == 6 and SETTINGS.share("random") == 3
    assert not found.interrupted


def test_a_longer_search_with_another_seed_is_measured_beside_all_and_is_no_searcher(found, facts):
    assert found.longer.searcher == LONGER not in facts["searchers"]
    assert 0 < len(found.longer.trials) <= SETTINGS.longer
    assert any(row.searcher == LONGER for row in found.measured)  # it asked what nobody else had
    assert found.best_known_s <= found.longer.final.result.step_s == facts["longer"]["step_s"]
    assert f"{LONGER}: found" in "\n".join(comparison_lines(facts))
    assert any(line.startswith("Best known") for line in comparison_lines({**facts, "longer": None}))


def test_everyones_fastest_meets_the_best_single_device_at_the_end(found):
    assert found.best_single.mapping.is_single
    for standing in that_asked(found):
        assert standing.final.result.repeats == found.best_single.result.repeats
        assert found.best.result.step_s <= standing.final.result.step_s
        assert standing.final.at_s is None and not standing.final.stored
    assert found.best.result.step_s <= found.best_single.result.step_s
    assert found.tf_default_s > 0


def test_each_result_has_the_seconds_of_asking_and_measuring(found, facts):
    for standing in found.standings:
        assert len(standing.at_s) == len(standing.trials)
        assert standing.at_s == tuple(sorted(standing.at_s))
        assert 0 < standing.asking_s < found.seconds
        assert all(0 < at_s < found.seconds for at_s in standing.at_s)
        assert facts["searchers"][standing.searcher]["at_s"] == list(standing.at_s)


def test_regret_begins_at_the_best_single_device_and_the_best_known_has_none(found, facts):
    for standing in found.standings:
        regret = found.regret(standing)
        assert len(regret) == len(standing.trials) + 1
        assert max(regret) <= regret[0]  # a race may be won by luck, but the best single device is always there
        assert min(regret) >= 0
        assert regret[0] == found.regret(found.standings[0])[0]
    assert min(found.regret(standing)[-1] for standing in (*found.standings, found.longer)) == 0
    row = facts["searchers"]["random"]
    assert [s / facts["best_known_s"] - 1 for s in row["best_so_far_s"]] == pytest.approx(row["regret"])


def test_facts_are_ratios_of_what_was_measured_side_by_side(found, facts):
    single, best = facts["best_single"]["step_s"], facts["best"]["step_s"]
    for name in (standing.searcher for standing in that_asked(found)):
        row = facts["searchers"][name]
        assert row["ratio_to_best_single"] == pytest.approx(single / row["step_s"])
        assert row["ratio_to_best"] == pytest.approx(best / row["step_s"])
        assert row["ratio_to_best"] <= 1
    for row in facts["searchers"].values():
        assert row["measured"] == len(row["rows"]) and row["asking_s"] > 0
        assert all(tried["predicted_s"] > 0 for tried in row["rows"])
    assert {row["by"] for row in facts["singles"]} == {"single"}
    assert {row["by"] for row in facts["searchers"]["heft"]["rows"]} <= {"single", *facts["searchers"]}


def test_table_report_and_picture_tell_the_same(facts, tmp_path, capsys):
    show_comparison(facts)
    write_comparison(facts, tmp_path / "report.md", tmp_path / "curves.png")
    report, table = (tmp_path / "report.md").read_text(), capsys.readouterr().out
    step = f"{facts['searchers']['random']['step_s'] * 1e3:.2f} ms"
    assert step in report and step in table
    assert max(map(len, table.split("\nSteps:")[0].splitlines())) <= 80
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_ctrl_c_ends_the_rounds_and_what_was_measured_is_told(two_cpus):
    found = run_comparison(SETTINGS, Watcher(at=3))
    assert found.interrupted
    assert 3 <= len(found.measured) <= 9  # the race under way is finished
    assert found.best.result.step_s <= found.best_single.result.step_s
    assert "interrupted." in {standing.ended for standing in found.standings}
    assert comparison_lines(comparison_facts(found))[0].startswith(f"Interrupted after {len(found.measured)} ")


def assert_raced(found, tmp_path, capsys):
    """Every figure comes from a race, and tables, report and picture can be made of it."""
    assert found.raced and found.best.mapping in found.side_by_side_s
    assert not found.best.measured.stopped_early and found.tf_default_s is None
    assert all(standing.ended for standing in found.standings)
    facts = json.loads(json.dumps(comparison_facts(found), allow_nan=False))
    show_comparison(facts)
    write_comparison(facts, tmp_path / "report.md", tmp_path / "curves.png")
    said = capsys.readouterr().out
    assert "medians of the races, because none were taken side by side at the end" in said
    assert all(row["step_s"] for row in facts["searchers"].values() if row["rows"])
    return said


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_another_signal_ends_it_with_what_the_races_showed(two_cpus, tmp_path, capsys):
    found = run_comparison(SETTINGS, Watcher(at=5, number=signal.SIGTERM))
    assert found.interrupted and not found.lost and len(found.measured) < 15
    assert f"Interrupted after {len(found.measured)} " in assert_raced(found, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_a_signal_amid_the_single_devices_hands_back_those_that_ran(two_cpus, tmp_path, capsys):
    found = run_comparison(SETTINGS, Watcher(at=1, number=signal.SIGTERM))
    assert len(found.measured) == 1 and found.best == found.best_single
    assert "Interrupted after 1 " in assert_raced(found, tmp_path, capsys)


@pytest.mark.nightly
def test_when_the_minutes_are_over_little_more_is_compared(two_cpus):
    found = run_comparison(replace(SETTINGS, search=replace(SETTINGS.search, minutes=1e-6)))
    assert len(found.measured) == 1 and found.best.result.repeats == LEAST_TURNS
    assert any("the minutes were up" in line for line in found.notes)


@pytest.mark.slow
def test_an_error_of_tensorflows_at_the_end_leaves_what_the_races_showed(two_cpus, tmp_path, capsys, monkeypatch):
    def fails(*_, **__):
        raise tf.errors.UnavailableError(None, None, "Socket closed\nand more")

    monkeypatch.setattr(compare, "side_by_side", fails)
    found = run_comparison(SETTINGS)
    assert found.lost == "TensorFlow failed: Socket closed" and not found.interrupted
    said = assert_raced(found, tmp_path, capsys)
    assert "TensorFlow failed: Socket closed. What was measured before is compared." in said


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_a_second_ctrl_c_interrupts_as_always():
    with pytest.raises(KeyboardInterrupt), interruptible() as pressed:
        assert not pressed()
        signal.raise_signal(signal.SIGINT)
        assert pressed()
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Placed(NamedTuple):
    devices: tuple[int, ...]


def test_who_fails_to_ask_is_out_and_the_others_go_on(found):
    """A contest over made-up mappings: one searcher breaks, one asks what is known, one measures."""

    def mapping(*devices):
        return Placed(devices)

    class Session:
        def __init__(self, name, seed, over):
            self.name, self.asked, self.told, self.ended = name, iter(asks[name]), [], None
            self.searcher = SimpleNamespace(predicts=False)

        def tell(self, measured):
            self.told += measured

        def ask(self, count):
            batch = next(self.asked, [])
            if isinstance(batch, Exception):
                raise batch
            return batch

    raced = []

    def measure_all(asked):
        raced.extend(asked)
        return [Trial(name, m, Failed("memory") if m.devices == (1, 0) else Measured(1.0)) for name, m in asked]

    job = SimpleNamespace(
        trials=[Trial("single", mapping(0, 0), Measured(2.0))], prediction=SimpleNamespace(step_s=lambda mapping: 1.0),
        clock=lambda: 0.0, time_is_up=lambda: False, progress=Progress(), measure_all=measure_all,
        calibrate=lambda: None, session=Session, runner=SimpleNamespace(forget_incumbent=lambda: None),
    )  # fmt: skip
    asks = {
        DEFAULT_SEARCHER: [[mapping(0, 0), mapping(1, 0)], [mapping(0, 1)]],
        "random": [[mapping(1, 0)], []],
        "heft": [PlacerError("no room.")],
    }
    contest = Contest(job, replace(SETTINGS, longer=0))
    contest.run()
    ours, random, heft = contest.entrants
    assert [(name, m.devices) for name, m in raced] == [(DEFAULT_SEARCHER, (1, 0)), (DEFAULT_SEARCHER, (0, 1))]
    assert [row.result for row in ours.trials] == [Measured(2.0), Failed("memory"), Measured(1.0)]
    assert [row.result for row in random.trials] == [Failed("memory")]
    assert (heft.trials, heft.ended) == ([], "no room.")
    assert ours.session.told[1:] == [(row.mapping, row.result) for row in ours.trials]


def compared(rows, again, single_s=1.0):
    """A comparison of one searcher. rows: [what each of its mappings came to in its race]; again: {row: seconds at the
    end}, where the single device takes single_s, as in its race.
    """
    single = Trial("single", Placed((0, 0)), Measured(single_s, repeats=12))
    asked = tuple(Trial("random", Placed((1, i)), result) for i, result in enumerate(rows))
    at_end = {single.mapping: single_s, **{asked[i].mapping: step_s for i, step_s in again.items()}}
    own = [(step_s, mapping) for mapping, step_s in at_end.items() if mapping != single.mapping]
    final = Trial("random", min(own)[1], Measured(min(own)[0])) if own else None
    unknown = dict.fromkeys(field.name for field in fields(Comparison))
    known = {"measured": (single, *asked), "best_single": single, "side_by_side_s": at_end}
    return Comparison(**{**unknown, **known}), Standing("random", asked, 0.0, (), "", (), final)


LUCKY = Measured(0.5, repeats=3, stopped_early=True)


@pytest.mark.parametrize(
    ("rows", "again", "curve"),
    [
        # A median of three steps of one that was stopped early wins no race; the second one is measured again.
        ([LUCKY, Measured(0.8), LUCKY], {1: 0.9}, [1.0, 1.0, 0.9, 0.9]),
        # Unless it is measured again, too, and was faster than what it lost to.
        ([LUCKY, Measured(0.8), LUCKY], {0: 0.85, 1: 0.9}, [1.0, 0.85, 0.85, 0.85]),
        # The first was lucky in its race, and was not measured again: it is not below what is delivered.
        ([Measured(0.6), Measured(0.5)], {1: 0.9}, [1.0, 0.9, 0.9]),
        # A race was won by luck: its figure is that of the end, or that of the single device, where that is faster.
        ([Measured(0.6), Measured(0.5), Failed("error")], {0: 0.8, 1: 1.2}, [1.0, 0.8, 1.0, 0.8]),
        ([Failed("error")], {}, [1.0, 1.0]),
    ],
)
def test_the_best_so_far_is_the_winner_of_the_races_by_what_it_came_to_at_the_end(rows, again, curve):
    found, standing = compared(rows, again)
    assert found.best_so_far_s(standing) == curve


def test_what_each_would_have_delivered_after_so_many_is_measured_at_the_end():
    class Mapped(Placed):
        is_single = False

    rows = [Trial("random", Mapped((0, i)), Measured(1.0 - 0.01 * i)) for i in range(21)]
    rows[2] = replace(rows[2], result=LUCKY)
    job = SimpleNamespace(trials=rows, ranked=lambda: by_merit(rows), session=lambda name: None)
    contest = SimpleNamespace(job=job, entrants=[SimpleNamespace(trials=rows)], longer=[])
    chosen = Contest._finalists(contest)
    assert {rows[n - 1].mapping for n in (*MARKS, 21)} <= set(chosen)


def test_a_mapping_that_lost_a_race_to_another_searchers_is_measured_at_the_end():
    """It ranks below the winner of a weak race, but was faster; what was stopped at once may only be lucky."""

    class Mapped(Placed):
        is_single = False

    stopped = (Measured(0.7, repeats=3, stopped_early=True), Measured(0.1, repeats=1, stopped_early=True))
    peer = [Trial("random", Mapped((1, i)), result) for i, result in enumerate((*stopped, Measured(0.9, repeats=12)))]
    ours = [Trial("hybrid", Mapped((0, i)), Measured(0.5 + 0.01 * i, repeats=12)) for i in range(20)]
    rows = [*ours, *peer]
    job = SimpleNamespace(trials=rows, ranked=lambda: by_merit(rows))
    entrants = [SimpleNamespace(trials=ours), SimpleNamespace(trials=peer)]
    chosen = Contest._finalists(SimpleNamespace(job=job, entrants=entrants, longer=[]))
    assert [row.mapping in chosen for row in peer] == [True, False, True]


def test_each_searchers_mappings_race_among_themselves_and_another_one_begins_each_round():
    class Session:
        def __init__(self, name, seed, over):
            self.name, self.ended, self.searcher, self.count = name, None, SimpleNamespace(predicts=False), 0

        def tell(self, measured):
            pass

        def ask(self, count):
            self.count += count
            return [Placed((names.index(self.name), self.count, i)) for i in range(count)]

    names, events = list(SETTINGS.searchers), []

    def measure_all(asked):
        events.append([name for name, _ in asked])
        return [Trial(name, m, Measured(1.0)) for name, m in asked]

    job = SimpleNamespace(
        trials=[], prediction=SimpleNamespace(step_s=lambda mapping: 1.0), clock=lambda: 0.0,
        time_is_up=lambda: len(events) >= 10, progress=Progress(), measure_all=measure_all, calibrate=lambda: None,
        session=Session, runner=SimpleNamespace(forget_incumbent=lambda: events.append("alone")),
    )  # fmt: skip
    Contest(job, CompareSettings(replace(SETTINGS.search, measurements=12))).run()
    assert events[::2] == ["alone"] * 5
    first, second, third = names
    assert events[1::2] == [[first] * 2, [second] * 2, [third] * 2, [second] * 2, [third] * 2]


@pytest.mark.parametrize(
    ("change", "peers", "says"),
    [
        ({"searchers": ("oracle",)}, None, "no searcher 'oracle'"),
        ({"measurements": 0}, None, "--measurements is 0"),
        ({}, 0, "--peer-measurements is 0"),
    ],
)
def test_bad_settings_are_refused_in_one_line(change, peers, says):
    with pytest.raises(BadInputError, match=says) as refused:
        run_comparison(CompareSettings(replace(SETTINGS.search, **change), peers))
    assert "\n" not in str(refused.value)
    with pytest.raises(BadInputError, match="--longer is -1"):
        run_comparison(CompareSettings(SETTINGS.search, longer=-1))
    SETTINGS.check()


def test_many_curves_look_different_and_ours_stands_out(tmp_path):
    curves = [RegretCurve(f"searcher {i}", (0.5, None if i == 3 else 0.1 / (i + 1)), ours=i == 0) for i in range(15)]
    panels = [
        RegretPanel("<one> $x$", tuple(curves)),
        RegretPanel("none ran", (RegretCurve("searcher 1", (None, None)),)),
    ]
    looks = _styles(panels)
    assert looks["searcher 0"]["color"] == OURS
    assert len({(look.get("color"), str(look.get("linestyle")), look["marker"]) for look in looks.values()}) == 15
    draw_regret(panels, tmp_path / "curves.svg")
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    with pytest.raises(BadInputError, match="--curves"):
        check_picture(tmp_path / "curves.gif", "--curves")
