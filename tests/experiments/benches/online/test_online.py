"""The bench online: figures of runs whose truth is known; a part that failed never looks good."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure

from experiments.benches.bench import BenchOptions
from experiments.benches.online import oracle, page
from experiments.benches.online import run as online
from experiments.benches.online.judge import gained, has_nothing_to_recover, judged_kills, recovered
from experiments.benches.online.landings import FIRST, _first_s, against, steps_until, steps_until_mapping
from experiments.benches.online.loads_page import load_lines, middle, reached
from experiments.benches.online.neighbours import HORIZON, LOADS
from experiments.benches.online.oracle import worth
from experiments.benches.online.overhead import compared
from experiments.benches.online.plot import fill, shares_of
from placer.errors import BadInputError
from tests.experiments.benches.run_bench import run_bench

LOSSES = [2.0, 1.5, 1.25, 1.0, 0.75, 0.5, 0.4, 0.3]


def landing(steps, **more):
    """Moved from 200 to 110 ms a step, where the best known mapping takes 107; by the clock ten steps later."""
    clocked = None if steps is None else steps + 10
    return {"mapping_steps": steps, "steps": clocked, "ended_share": 0.97, "ended_s": 0.11, "before_s": 0.2,
            "optimum_s": 0.107, "moved_after": [9], "alarms": 1,
            "took_s": [0.2] * 10 + [0.11] * 10, **more}  # fmt: skip


EVEN = {"before_s": 0.11, "moved_after": []}  # nothing was to be recovered


def landed(steps, vs_never=0.5):
    """A load that landed, and left after which 5 steps sufficed."""
    under = landing(steps, anew_s=0.1, search_s=40.0, vs_never=vs_never, vs_anew=0.8)
    return {"device": 1, "calm_s": 0.1, "steps_watched": 150, "landed": under, "left": landing(5)}


FOUND = {
    "overhead": {
        "overhead": 0.004, "overhead_error": 0.002, "overhead_total": 0.006, "call_s": 0.1004, "bare_s": 0.1,
        "steps": 300,
    },
    "oracle": {
        "calls": 2000, "total_s": 208.0, "vs_oracle": 1.04, "vs_single": 0.6, "oracle_s": 0.1, "oracle_by": "hybrid",
        "single_s": 0.18, "untouched_before_s": 0.15, "last_s": 0.1, "steady_at": 150,
    },
    "loads": landed(20),
    "steady": {
        "model": "towers@2", "jitter_said": "bursts",
        **{n: {"steps": 9, "moves": 0, "alarms": 1, "step_s": 0.01, "spread_s": 0.001, "slowest_s": 0.02}
           for n in ("plain", "jitter")},
    },
}  # fmt: skip


def killed(**changes):
    kills = [{"at": at, "worker": 0, "noticed": True, "back_s": 5.0} for at in (2, 5)]
    return {"losses": LOSSES[:7], "undisturbed": LOSSES[:7], "kills": kills, "ended": "", **changes}


def answers(monkeypatch, **changes):
    """Parts that answer at once; the list of those that ran."""
    ran = []

    def facts_alone(call, name, settings, seconds):
        ran.append(name)
        found = changes.get(name, {**FOUND, "kills": killed()}[name])
        return found[settings["load"]] if name == "loads" and "failed" not in found and "hog" in found else found

    monkeypatch.setattr(online, "facts_alone", facts_alone)
    return ran


def test_headlines_are_the_worst_of_their_kind_and_the_page_has_them_all(checkout, monkeypatch):
    answers(monkeypatch, loads=dict(zip(LOADS, map(landed, (20, 12, None, 24), (0.5, 0.5, 1.0, 1.0)), strict=True)))
    facts = run_bench("online", BenchOptions(measurements=2), record=True)
    assert (facts["overhead"], facts["overhead_medians"], facts["vs_oracle"]) == (0.006, 0.004, 1.04)
    assert (facts["false_alarms"], facts["alarms"], facts["seeds"], facts["repeats"]["trainings with kills"]) == (
        0, 2, [0], 1
    )  # fmt: skip
    assert (facts["recovery_steps_landed"], facts["recovery_steps_left"], facts["recovery_steps"]) == (22.0, 5.0, 22.0)
    assert (facts["vs_never"], facts["vs_anew"]) == (pytest.approx(0.5**0.5), pytest.approx(0.8))
    assert (facts["kills_survived"], facts["kills"]) == (2, 2)
    page = (checkout / "BENCHMARKS.md").read_text()
    assert "| `towers` | +0.6% | by medians +0.4% +- 0.2%" in page and "| 1.040 |" in page
    watched = "reached 95 % of the best known speed in the 150 steps watched"
    assert facts["recovery_steps_by_clock"] == 32.0
    assert f"| `towers` | never | {watched}: 0 of 1, within 30 steps 0 of 1; by the clock 0 and 0 |" in page
    assert f"| 22 | {watched}: 3 of 4, within 30 steps 3 of 4; by the clock 3 and 2 |" in page and "| 2 of 2 |" in page
    assert "a fresh profile and search of at most 1 mappings" in page and "(docs/online.png)" in page
    assert (checkout / "docs" / "online.png").stat().st_size > 10_000
    assert "| `towers` | CPU hog on worker:1 | 100.0 ms | 200.0 ms | 110.0 ms (0.97) | 20 | 30 |" in page
    assert (
        "4 loads, of which 4 left something to recover: 3 within 30 steps, 1 of them of loads that had grown " in page
    )
    assert "for 20 s before (wanted: all; by the clock 2), 3 in the steps watched" in page
    assert "at the worst 1.00 (`towers`, memory traffic on worker:1)" in page and "alarms: 1;" in page
    assert json.loads((checkout / "benchmarks" / "online.json").read_text())["by_model"]["towers"]["oracle"]


@pytest.mark.parametrize("part", ["overhead", "oracle", "loads", "steady", "kills"])
def test_a_part_that_failed_gives_no_figure(checkout, monkeypatch, part):
    answers(monkeypatch, **{part: {"failed": "it did not end within 9 s"}})
    facts = run_bench("online", BenchOptions(measurements=2), record=True)
    keys = {"overhead": "overhead", "oracle": "vs_oracle", "loads": "recovery_steps", "steady": "false_alarms"}
    if part == "kills":
        assert (facts["kills_survived"], facts["kills"]) == (0, 2)
    else:
        assert facts[keys[part]] is None
    text = (checkout / "BENCHMARKS.md").read_text()
    assert "it did not end within 9 s" in text
    assert part != "loads" or "| `towers` | never | reached 95 % of the best known speed: 0 of 1" in text
    headline = page.headline(facts)
    assert ("overhead -, by medians -" in headline) == (part == "overhead") and "\n" not in headline


def test_parts_are_kept_and_failed_ones_run_again(tmp_path, monkeypatch):
    options = BenchOptions(("towers",), measurements=2, runs=tmp_path)
    answers(monkeypatch, oracle={"failed": "no."})
    online.bench_facts(options)
    ran = answers(monkeypatch)
    assert online.bench_facts(options)["vs_oracle"] == 1.04
    assert ran == ["oracle"]


def test_a_training_has_recovered_when_its_mapping_is_near_the_optimum_for_good():
    slow, near, best = [1.6], [1.04], [1.0]
    assert steps_until_mapping(slow * 2 + best + slow * 2 + best * 3, 1.0) == 5
    assert steps_until_mapping(near * 9, 1.0) == 0
    assert steps_until_mapping(best * 5 + slow, 1.0) is None
    assert steps_until_mapping(slow * 3 + near, 1.0) == 3
    assert steps_until_mapping(near * 9, 0.98) is None


def test_recovery_is_a_running_median_that_the_next_steps_confirm():
    slow, fast = [1.6], [1.0]
    assert steps_until(slow * 3 + fast + slow * 2 + fast * 8, 1.0) == 8
    assert steps_until(slow * 20, 1.0) is None
    assert steps_until(slow * 9 + fast * 5 + slow * 9, 1.0) is None
    assert steps_until(fast * 10, 1.0) == 5
    assert steps_until(fast * 12 + slow * 30, 1.0) is None  # it was left again
    assert steps_until(fast * 10, 0.94) is None and steps_until(fast * 10, 0.96) == 5


def test_how_fast_the_machine_is_is_taken_from_many_steps_once_the_load_is_felt():
    clock = [0.0]

    def step():
        taken = 0.1 if clock[0] < 1.0 else 0.2
        clock[0] += taken
        return taken

    assert _first_s(SimpleNamespace(step=step), lambda: clock[0]) == 0.2
    assert clock[0] == pytest.approx(1.0 + FIRST * 0.2, abs=0.11)


def test_a_recovery_that_never_came_is_worse_than_any():
    rows = [{"landed": landing(s)} for s in (10, None, None)]
    assert recovered(rows, "landed") is None
    assert recovered(rows[:1], "landed") == 10.0
    assert recovered([*rows[:1], {"failed": "no."}], "landed") is None
    assert recovered([], "landed") is None and gained([], "vs_never") is None
    assert gained([landed(5), {"failed": "no."}], "vs_never") is None


def test_where_the_mapping_from_before_is_still_near_the_best_there_is_nothing_to_recover():
    even, far = {"landed": landing(8, **EVEN)}, {"landed": landing(20)}
    assert has_nothing_to_recover(even, "landed") and not has_nothing_to_recover(far, "landed")
    assert recovered([even, far], "landed") == 20.0 and recovered([even], "landed") is None
    assert (middle([even, far], "landed"), middle([even], "landed")) == ("20", "nothing to recover")
    assert reached([even, far, {"landed": landing(50)}], "landed") == (
        "reached 95 % of the best known speed: 2 of 2, within 30 steps 1 of 2; by the clock 2 and 1; "
        "nothing to recover (in brackets below): 1"
    )


def test_when_a_load_leaves_there_is_nothing_to_recover_only_where_nothing_had_been_moved():
    stayed = {"landed": landing(None, moved_after=[], before_s=0.112), "left": landing(8, before_s=0.107)}
    moved = {**stayed, "landed": landing(9)}
    while_growing = {**stayed, "landed": landing(9, moved_after=[])}  # it ended on a mapping that is much faster
    assert [has_nothing_to_recover(row, "left") for row in (stayed, moved, while_growing)] == [True, False, False]
    told = [{**stayed, "landed": {**stayed["landed"], "ended_on_before": told}} for told in (True, False)]
    assert [has_nothing_to_recover(row, "left") for row in told] == [True, False]


def test_the_page_names_landings_that_ended_slow_without_an_alarm_and_with_one():
    def row(name, share, alarms):
        found = landed(None)
        return {**found, "model": name, "load": "ramp",
                "landed": {**found["landed"], "first_s": 0.2, "ended_share": share, "alarms": alarms}}  # fmt: skip

    loads = [row("a", 0.78, 0), row("b", 0.9, 2), row("c", 0.96, 0)]
    loads[2]["left"] |= {"ended_share": 0.8}
    text = "\n".join(load_lines({"loads": loads, "vs_never": 0.5, "vs_anew": 0.8}))
    below = "steps ended below 95% of the best known speed; the change was"
    assert f"After loads landed, {below} not noticed in the steps watched: `a`, growing hog on worker:1 (0.78)." in text
    assert f"After loads landed, {below} noticed: `b`, growing hog on worker:1 (0.90)." in text
    assert f"After loads left, {below} noticed: `c`, growing hog on worker:1 (0.80)." in text
    assert "0.50 (95% interval 0.50 to 0.50; median 0.50)" in text


def test_the_picture_shows_the_optimum_over_the_running_median_of_steps():
    assert shares_of({**landing(9), "took_s": [0.2] * 5 + [0.1] * 5, "optimum_s": 0.1}) == [0.5] * 3 + [1.0] * 3
    assert shares_of({"took_s": [0.2] * 5, "optimum_s": 0.1, "pace": 4.0}) == [1.0]
    figure = Figure()
    rows = [{**landed(9), "model": "a", "load": "link"}, {"model": "b", "load": "hog", "failed": "no."}]
    fill(figure, {"loads": rows})
    assert [len(ax.get_lines()) for ax in figure.axes] == [1, 1, 1, 2]
    assert figure.axes[3].get_lines()[0].get_xdata()[0] == 5


def test_what_adapts_is_held_against_what_does_not_and_a_new_search():
    found = against([0.2] * 100, ended_s=0.1, before_s=0.2, anew_s=0.1, search_s=20.0)
    seconds = 100 * 0.2 + (HORIZON - 100) * 0.1
    assert found["vs_never"] == pytest.approx(seconds / (HORIZON * 0.2))
    assert found["vs_anew"] == pytest.approx(seconds / (20.0 + HORIZON * 0.1))


def test_calls_are_counted_in_the_oracles_steps_of_their_time():
    """A machine that gets twice as slow slows both: worth stays; calls twice as slow as the oracle are worth two."""
    drifting = [0.1] * 50 + [0.2] * 50
    assert worth(drifting, [50, 51, 100], [0.1, 0.2, 0.2]) == pytest.approx(100)
    assert worth([0.2] * 10 + [0.1] * 90, [20, 100], [0.1, 0.1]) == pytest.approx(110)


def test_the_untouched_step_is_timed_before_there_are_workers(monkeypatch):
    begun = []

    class StartedError(Exception):
        """The workers of a training start."""

    def training(*_):
        raise StartedError

    monkeypatch.setattr(oracle, "untouched_s", lambda model: begun.append(model) or 0.1, raising=False)
    monkeypatch.setattr(oracle, "Training", training)
    with pytest.raises(StartedError):
        oracle.oracle_facts("towers@2", 2)
    assert begun == ["towers@2"]


def test_an_untouched_step_that_was_timed_beside_starting_workers_is_not_shown():
    new = FOUND["oracle"]
    old = {"untouched_s": 0.42, **{key: value for key, value in new.items() if key != "untouched_before_s"}}
    (_, (*_, said), (*_, share, _)), (_, (*_, of_old)) = (page._oracle("towers", found) for found in (new, old))
    assert share == f"{208.0 / 2000 / 0.15:.3f}"
    assert said == "its step 180.0 ms; untouched, all cores, before there were workers 150.0 ms"
    assert of_old == "its step 180.0 ms"


def test_overhead_is_of_pairs_of_blocks():
    found = compared([[1.01] * 5, [2.02] * 4 + [9.0]], [[1.0] * 5, [2.0] * 5])
    assert found["overhead"] == pytest.approx(0.01)
    assert found["overhead_total"] > 0.4 and found["steps"] == 10


def test_a_kill_is_survived_where_every_loss_up_to_the_next_is_right():
    assert judged_kills(killed())["survived"] == 2
    late = judged_kills(killed(losses=[*LOSSES[:6], 0.41]))
    assert (late["survived"], late["first_wrong"], late["same_bits"]) == (1, 6, 6)
    lost = [*LOSSES[:3], *LOSSES[4:8]]
    assert judged_kills(killed(losses=lost))["survived"] == 0
    assert judged_kills(killed(losses=[*LOSSES[:6], float("nan")]))["survived"] == 1
    assert judged_kills(killed(losses=[x * (1 + 1e-7) for x in LOSSES[:7]]))["survived"] == 2


def test_losses_that_were_not_taken_again_prove_nothing():
    assert judged_kills(killed(undisturbed=LOSSES[:4]))["survived"] == 0
    assert judged_kills(killed(undisturbed=[], ended="TimeoutError"))["survived"] == 0
    assert judged_kills(killed(kills=[], ended="TimeoutError"))["survived"] == 0


@pytest.mark.parametrize("options", [{"measurements": 0}, {"models": ("nosuch",)}, {"models": ("towers@0",)}])
def test_bad_options_are_refused_before_any_part_runs(monkeypatch, options):
    ran = answers(monkeypatch)
    with pytest.raises(BadInputError, match="--"):
        run_bench("online", BenchOptions(**options), record=False)
    assert not ran
