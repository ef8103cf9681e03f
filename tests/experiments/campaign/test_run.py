"""Running: a campaign that dies at any moment asks, and stores, what an uninterrupted one would have."""

import json
from itertools import count

import msgspec
import pytest

from experiments.campaign.cell_search import CellSearch
from experiments.campaign.predicted import PredictedCase
from experiments.campaign.progress import CampaignProgress
from experiments.campaign.run import Campaign, open_case
from experiments.campaign.spec import read_spec
from experiments.campaign.store import CampaignStore
from placer.errors import BadInputError, PlacerError
from placer.result import Failed, Measured
from search.local.local_search import Local
from search.session.registry import SEARCHERS


class Died(BaseException):
    """Stands for the end of the process."""


class Flaky(PredictedCase):
    """A case with a clock: `script` says what becomes of each evaluation after the next, by its number."""

    clocked = True

    def __init__(self, case, script):
        super().__init__(case)
        self.script, self.calls = script, count()

    def evaluate(self, placement, calibration):
        return self.script(next(self.calls), super().evaluate(placement, calibration))


def run(folder, **fields):
    """Run the folder's campaign; what is then stored of it."""
    spec = read_spec(folder / "campaign.toml")
    with CampaignStore(spec.store) as store:
        Campaign(spec, store, **fields).run()
        return contents(store)


def lasting(state):
    """A search's state without its count of predictions, which a resumed search makes again."""
    return state and {**state, "session": {**state["session"], "evaluations": None}}


def contents(store):
    """All that must not depend on when it was measured."""
    return [
        (held.key, held.ended, lasting(held.state), [(trial.n, trial.placement, trial.result) for trial in held.trials])
        for held in store.held()
    ]


@pytest.fixture
def straight(folder, tmp_path_factory):
    """What an uninterrupted run stores."""
    found = run(folder)
    (folder / "campaign.sqlite").unlink()
    return found


def dying(method, at, after):
    """A store whose method dies when it is called for the `at`-th time, before or after it has done its work."""
    calls = count()

    def patched(self, *arguments):
        if next(calls) != at:
            return real(self, *arguments)
        if after:
            real(self, *arguments)
        raise Died

    real = getattr(CampaignStore, method)
    return patched


@pytest.mark.some(6)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("method", "at"), [("want", 0), ("keep_opened", 0), *(("keep", k) for k in range(0, 20, 3))])
def test_a_campaign_that_dies_while_storing_goes_on_as_if_it_had_not(folder, straight, monkeypatch, method, at, after):
    with monkeypatch.context() as patch:
        patch.setattr(CampaignStore, method, dying(method, at, after))
        with pytest.raises(Died):
            run(folder)
    assert run(folder) == straight


@pytest.mark.parametrize("at", range(1, 20, 4))
@pytest.mark.parametrize("place", ["ask", "tell", "state"])
def test_a_campaign_that_dies_amid_a_measurement_goes_on_as_if_it_had_not(folder, straight, monkeypatch, place, at):
    calls = count()
    real = getattr(CellSearch, place)

    def dies(self, *arguments):
        found = real(self, *arguments)
        if next(calls) == at:
            raise Died
        return found

    with monkeypatch.context() as patch:
        patch.setattr(CellSearch, place, dies)
        with pytest.raises(Died):
            run(folder)
    assert run(folder) == straight


def test_a_campaign_that_dies_at_every_measurement_goes_on_as_if_it_had_not(folder, straight, monkeypatch):
    """The state is restored before every single question."""
    dies_first = True
    while dies_first:
        with monkeypatch.context() as patch:
            patch.setattr(CampaignStore, "keep", dying("keep", 1, False))
            try:
                run(folder)
                dies_first = False
            except Died:
                pass
    assert run(folder) == straight


@pytest.mark.some(3)
@pytest.mark.parametrize("clocked", [False, True])
@pytest.mark.parametrize("name", SEARCHERS)
def test_every_searcher_asks_the_same_when_it_is_resumed_before_each_question(folder, edited, name, clocked):
    edited('["random", "local"]', f'["{name}"]')
    spec = read_spec(folder / "campaign.toml")
    case = Flaky(spec.cells[0].case, lambda i, result: result) if clocked else PredictedCase(spec.cells[0].case)
    kept, resumed = (CellSearch(spec.cells[0], case) for _ in range(2))
    told = []
    for _ in range(6):
        asked = kept.ask()
        resumed = CellSearch(spec.cells[0], case, msgspec.msgpack.decode(msgspec.msgpack.encode(resumed.state())), told)
        assert (resumed.ask(), resumed.ended) == (asked, kept.ended)
        if asked is None:
            break
        told.append((asked, case.evaluate(asked, None)))
        for search in (kept, resumed):
            search.tell(*told[-1])
        assert lasting(resumed.state()) == lasting(kept.state())
        assert resumed.told == kept.told


def test_a_search_goes_on_from_nothing_that_is_not_its_own(folder):
    spec = read_spec(folder / "campaign.toml")
    cell, case = spec.cells[0], PredictedCase(spec.cells[0].case)
    search = CellSearch(cell, case)
    asked, state = search.ask(), search.state()
    CellSearch(cell, case, state, [(asked, case.evaluate(asked, None))])
    for placement in (asked[1:], (9, *asked[1:]), (-1, *asked[1:])):
        with pytest.raises(BadInputError, match="is of another graph"):
            CellSearch(cell, case, state, [(placement, Measured(1.0))])
    for damaged in ({}, {**state, "session": {}}, {**state, "session": {**state["session"], "rng": [3, [], None]}}):
        with pytest.raises(BadInputError, match="cannot go on from what is stored"):
            CellSearch(cell, case, damaged, [])


def test_a_campaign_whose_states_were_stored_as_they_were_at_first_goes_on(folder, edited, straight):
    """As JSON, with all that was asked and told in it."""
    edited("[2, 5]", "3")
    spec = read_spec(folder / "campaign.toml")
    run(folder)
    with CampaignStore(spec.store) as store:
        for cell, held in zip(spec.cells, store.held(), strict=True):
            asked = [(trial.placement, trial.result) for trial in held.trials]
            search = CellSearch(cell, PredictedCase(cell.case), held.state, asked)
            state = {"session": search.session.state(), "calibration": None}
            store.connection.execute("UPDATE cells SET state = ? WHERE key = ?", (json.dumps(state), cell.key))
    edited("measurements = 3", "measurements = [2, 5]")
    assert run(folder) == straight


def test_a_state_does_not_grow_with_what_was_measured(folder, edited):
    spec = read_spec(edited("[2, 5]", "40"))
    case = PredictedCase(spec.cells[0].case)
    search = CellSearch(spec.cells[0], case)
    sizes = []
    for _ in range(40):
        placement = search.ask()
        search.tell(placement, case.evaluate(placement, None))
        sizes.append(len(msgspec.msgpack.encode(search.state())))
    assert max(sizes) <= sizes[0] + 8


def test_a_complete_campaign_does_nothing_more(folder, straight):
    assert run(folder) == straight
    assert run(folder, opener=None) == straight


def test_added_cells_and_a_larger_budget_go_on(folder, edited, straight):
    run(folder)
    edited("seeds = [0, 1]", "seeds = [0, 1, 2]")
    edited("[2, 5]", "[2, 7]")
    found = run(folder)
    assert len(found) == 6
    assert {key: trials[:5] for key, _, _, trials in found if "seed 2" not in key} == {
        key: trials for key, _, _, trials in straight
    }
    assert all(len(trials) == 7 or ended for _, ended, _, trials in found)


def test_cells_that_the_spec_no_longer_has_are_kept(folder, edited, straight):
    run(folder)
    edited('"random", ', "")
    found = run(folder)
    assert sorted(map(repr, found)) == sorted(map(repr, straight))


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ('["two.json"]', '["two.json"]\nschedule = "fifo"', "schedule"),
        ('["two.json"]', '["two.json"]\npins = ["fork=cpu:0"]', "pins"),
    ],
)
def test_a_spec_that_contradicts_the_store_is_refused(folder, edited, straight, before, after, key):
    run(folder)
    edited(before, after)
    with pytest.raises(BadInputError, match=f"predicted.{key} of towers.json on two.json") as refused:
        run(folder)
    assert "\n" not in str(refused.value)
    edited(after, before)
    assert run(folder) == straight


def test_a_changed_file_contradicts_the_store(folder):
    run(folder)
    path = folder / "towers.json"
    path.write_text(path.read_text().replace("1.1", "1.3"))
    with pytest.raises(BadInputError, match=r"predicted.graphs .* content has changed"):
        run(folder)


def test_ctrl_c_stores_nothing_of_a_question_cut_short(folder, straight):
    calls = count()
    half = run(folder, over=lambda: next(calls) > 40)
    assert 0 < sum(len(trials) for *_, trials in half) < sum(len(trials) for *_, trials in straight)
    assert run(folder) == straight


def test_the_minutes_of_a_cell_count_what_earlier_runs_took(folder, edited):
    """Each measurement takes a second by this clock, and nothing else does."""
    edited("[2, 5]", "5\nminutes = 0.05")
    seconds = []

    def second(_, result):
        seconds.append(1.0)
        return result

    found = run(folder, opener=failing(second), clock=lambda: sum(seconds))
    assert [len(trials) for *_, trials in found] == [3] * 4
    assert run(folder, opener=failing(second), clock=lambda: sum(seconds)) == found


def test_the_minutes_of_a_cell_end_a_question_under_way(folder, edited, monkeypatch):
    edited("[2, 5]", "5\nminutes = 0.05")
    seconds = count()

    def until_stopped(searcher):
        for _ in range(1000):
            if searcher.stop():
                return searcher.first_new()
            next(seconds)
        raise AssertionError("nobody ended the question")

    monkeypatch.setattr(Local, "_propose", until_stopped)
    found = run(folder, clock=lambda: next(seconds))
    assert [len(trials) for key, _, _, trials in found if "local" in key] == [1, 1]


def test_a_cell_that_found_nothing_in_its_minutes_goes_on_where_it_is_given_more(folder, edited, straight, monkeypatch):
    edited("[2, 5]", "[2, 5]\nminutes = 5")
    with monkeypatch.context() as patch:

        def none(searcher):
            raise searcher.exhausted("no other mapping that fits into memory was found in time.")

        patch.setattr(Local, "_propose", none)
        assert {len(trials) for key, _, _, trials in run(folder) if "local" in key} == {0}
        assert run(folder) == run(folder)
    assert {len(trials) for key, _, _, trials in run(folder) if "local" in key} == {0}
    edited("minutes = 5", "minutes = 6")
    assert run(folder) == straight


def failing(script):
    """What opens a case whose measurements come to what the script says."""
    return lambda case, store, progress, over: Flaky(case, script)


def test_a_failure_is_kept_and_tried_again(folder):
    singles = 2
    found = run(folder, opener=failing(lambda i, result: Failed("error", "once") if i == singles else result))
    assert all(isinstance(result, Measured) for *_, trials in found for _, _, result in trials)
    with CampaignStore(folder / "campaign.sqlite", reads=True) as store:
        assert [(failure["n"], failure["reason"], failure["detail"]) for failure in store.failures()] == [
            (0, "error", "once")
        ]


def test_what_fails_again_is_told_as_a_failure(folder):
    found = run(folder, opener=failing(lambda i, result: Failed("memory", "full") if i in (2, 3) else result))
    assert found[0][3][0][2] == Failed("memory", "full")
    assert len(found[0][3]) == 5


class Counted(CampaignProgress):
    """Counts what the bar counts."""

    def __init__(self):
        self.total = self.done = 0

    def begin(self, done, total):
        self.done, self.total = done, total

    def trial(self, cell, trial, best_s):
        self.done += 1

    def ended(self, cell, why, skipped):
        self.total -= skipped


def test_where_minutes_end_the_searches_the_bar_is_full_at_the_end(folder, edited):
    edited("measurements = [2, 5]", "measurements = [2, 50]\nminutes = 1")
    now, counted = count(), Counted()
    run(folder, progress=counted, clock=lambda: 10.0 * next(now))
    assert counted.done == counted.total and 4 < counted.total < 200
    again = Counted()
    run(folder, progress=again, clock=lambda: 10.0 * next(now))
    assert (again.done, again.total) == (counted.done, counted.total)


def test_too_many_failures_in_a_row_end_the_campaign_and_say_why(folder):
    with pytest.raises(PlacerError, match=r"5 measurements failed in a row.*error, 'broken'") as stopped:
        run(folder, opener=failing(lambda i, result: Failed("error", "broken") if i >= 2 else result))
    assert stopped.value.exit_code == 1
    with CampaignStore(folder / "campaign.sqlite", reads=True) as store:
        assert sum(len(held.trials) for held in store.held()) == 5
        assert len(store.failures()) == 10


def test_cases_are_opened_once_for_all_their_searches(folder):
    opened = []

    def opener(case, *more):
        opened.append(case.key)
        return open_case(case, *more)

    run(folder, opener=opener)
    assert opened == ["towers.json on two.json"]


OF_GPUS = """
{"format": "placer.graph/1", "name": "g", "edges": [],
 "ops": [{"name": "a", "cost_s": {"gpu": 1.0}, "memory_bytes": 0}]}
"""


def test_a_case_whose_files_do_not_suit_is_left_out_and_the_others_are_searched(folder, edited, straight):
    (folder / "other.json").write_text(OF_GPUS)
    edited('graphs = ["towers.json"]', 'graphs = ["other.json", "towers.json"]')
    spec = read_spec(folder / "campaign.toml")
    with CampaignStore(spec.store) as store:
        campaign = Campaign(spec, store)
        campaign.run()
        assert campaign.lost == ["other.json on two.json"]
        searched = [held for held in contents(store) if held[3]]
    assert searched == straight


def test_where_the_files_of_no_case_suit_that_is_bad_input(folder):
    (folder / "towers.json").write_text(OF_GPUS)
    with pytest.raises(BadInputError, match=r"a.* can run|cannot run|no device"):
        run(folder)
