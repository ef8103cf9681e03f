"""Placements that lack memory as simulated: stored and replayed, but neither measurements nor failures."""

from statistics import median

import pytest

from experiments.campaign.schema import MIGRATIONS
from experiments.campaign.standing import after, standing
from experiments.campaign.store import CampaignStore
from placer.errors import BadInputError
from placer.graph.held_memory import Lack
from placer.result import Measured, fastest_s
from search.session.session import MOST_REFUSED
from tests.experiments.campaign.test_run import Counted, Died, Flaky, dying, run

FORMER = 2  # the schema of stores whose refusals have no mark


def lack_of(placement):
    """The more units a placement has on cpu:1, the more it lacks."""
    return Lack("cpu:0", 2.0**20 * (1 + sum(placement)), 2.0**20)


class Tight(Flaky):
    """Refuses the placements of several devices for which `lacks` says so."""

    def __init__(self, case, lacks):
        super().__init__(case, lambda i, result: result)
        self.lacks = lacks

    def lack(self, placement, calibration):
        if len(set(placement)) == 1 or not self.lacks(placement):
            return None
        return lack_of(placement)

    def evaluate(self, placement, calibration):
        assert self.lack(placement, calibration) is None
        return super().evaluate(placement, calibration)


def tight(lacks):
    """What opens a case whose memory is tight."""
    return lambda case, store, progress, over: Tight(case, lacks)


def all_lack(placement):
    return True


def odd_lack(placement):
    return sum(placement) % 2 == 1


def test_a_search_of_which_nothing_fits_ends_and_says_what_the_nearest_lacked(folder, edited):
    """As in `placer search`, no refusal is a measurement or a failure."""
    counted = Counted()
    found = run(folder, opener=tight(all_lack), progress=counted)
    assert [len(trials) for *_, trials in found] == [MOST_REFUSED] * 4 and (counted.done, counted.total) == (0, 0)
    for _, ended, _, trials in found:
        nearest = min((placement for _, placement, _ in trials), key=sum)
        assert f"asked {MOST_REFUSED} mappings in a row that lack memory, as simulated" in ended
        assert f"of the nearest, {lack_of(nearest)}." in ended
    with CampaignStore(folder / "campaign.sqlite", reads=True) as store:
        facts = standing(store)
        assert store.failures() == [] and facts["complete"] and (facts["done"], facts["failures"]) == (0, 0)
    edited("[2, 5]", "[2, 9]")
    assert run(folder, opener=tight(all_lack)) == found


@pytest.mark.parametrize("at", [3, 12])
@pytest.mark.parametrize("lacks", [all_lack, odd_lack])
def test_a_search_that_was_refused_placements_goes_on_as_if_it_had_not_died(folder, monkeypatch, lacks, at):
    straight = run(folder, opener=tight(lacks))
    (folder / "campaign.sqlite").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(CampaignStore, "keep", dying("keep", at, True))
        with pytest.raises(Died):
            run(folder, opener=tight(lacks))
    assert run(folder, opener=tight(lacks)) == straight


def test_a_budget_is_of_measurements_and_not_of_what_was_refused(folder):
    counted = Counted()
    run(folder, opener=tight(odd_lack), progress=counted)
    assert counted.done == counted.total
    with CampaignStore(folder / "campaign.sqlite", reads=True) as store:
        held, facts = store.held(), standing(store)
        reached = after(store, (2,))
    assert {len(cell.measured) for cell in held if cell.ended is None} == {5}
    assert sum(len(cell.trials) for cell in held) > facts["done"] == sum(len(cell.measured) for cell in held)
    assert all(isinstance(trial.result, Measured) for cell in held for trial in cell.measured)
    single_s = next(row["best_single_s"] for row in facts["cells"])
    best_s = [fastest_s(trial.result for trial in cell.measured[:2]) for cell in held if cell.searcher == "local"]
    ratios = [single_s / min(single_s, found_s) for found_s in best_s]
    assert next(row["after"]["2"] for row in reached if row["searcher"] == "local") == median(ratios)


def as_the_former_version_stored_it(store):
    """Take the marks of refusals from a store, and the version of the schema that came with them."""
    mark = ', "refused": true'
    store.connection.execute("UPDATE trials SET result = replace(result, ?, '')", (mark,))
    store.connection.execute(f"PRAGMA user_version={FORMER}")


def test_refusals_that_an_older_placer_stored_are_known_by_their_words(folder):
    run(folder, opener=tight(odd_lack))
    with CampaignStore(folder / "campaign.sqlite") as store:
        before = store.held()
        as_the_former_version_stored_it(store)
        assert store.held() == before and any(trial.refused for cell in before for trial in cell.trials)


def test_a_store_of_the_former_version_is_read_as_it_is_and_goes_on(folder, edited):
    path = folder / "campaign.sqlite"
    edited("[2, 5]", "[2, 9]")
    straight = run(folder, opener=tight(odd_lack))
    path.unlink()
    edited("[2, 9]", "[2, 5]")
    assert run(folder, opener=tight(odd_lack)) != straight
    with CampaignStore(path) as store:
        as_the_former_version_stored_it(store)
    with CampaignStore(path, reads=True) as store:
        assert standing(store)["complete"]
    edited("[2, 5]", "[2, 9]")
    assert run(folder, opener=tight(odd_lack)) == straight


@pytest.mark.parametrize("reads", [False, True])
def test_a_placer_of_the_former_version_asks_for_a_newer_one_and_calls_no_refusal_damage(folder, reads):
    run(folder, opener=tight(odd_lack))
    with pytest.raises(BadInputError, match=f"has schema {FORMER + 1}, this Placer knows {FORMER}; use a newer Placer"):
        CampaignStore(folder / "campaign.sqlite", reads=reads, migrations=MIGRATIONS[:FORMER])
