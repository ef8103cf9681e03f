"""A search that runs ahead of its store: in whatever batches it comes, it is the search of one process."""

from itertools import count, islice

import msgspec
import pytest

from experiments.campaign.cells import Limits
from experiments.campaign.predicted import PredictedCase
from experiments.campaign.ray.ahead import BATCH_S, Begun, Point, search_ahead
from experiments.campaign.run import Campaign
from experiments.campaign.spec import read_spec
from experiments.campaign.store import CampaignStore
from placer.result import Measured

START = Point((), None)


def ticking(batch):
    """A clock by which so many measurements fill a batch: it is read three times for each."""
    ticks = count()
    return lambda: next(ticks) * BATCH_S / (3 * batch)


def asked(trials):
    return [(trial.n, trial.placement, trial.result) for trial in trials]


def second(items):
    """What follows the first item, None where nothing does."""
    return next(islice(items, 1, None), None)


def lasting(state):
    """A search's state as it is stored, without its count of predictions, which a resumed search makes again."""
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(state))
    return stored and {**stored, "session": {**stored["session"], "evaluations": None}}


@pytest.fixture
def straight(folder, edited):
    """Each cell, its case, and what a campaign without Ray stores of it; some cells are done, some have ended."""
    edited('["random", "local"]', '["random", "local", "exact"]')
    spec = read_spec(edited("[2, 5]", "9"))
    with CampaignStore(spec.store) as store:
        Campaign(spec, store).run()
        held = store.held()
    case = PredictedCase(spec.cells[0].case)
    return [(cell, case, found) for cell, found in zip(spec.cells, held, strict=True)]


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_batches_add_up_to_the_search_of_one_process(straight, batch):
    ended = 0
    for cell, case, held in straight:
        begun, *batches = search_ahead(cell, case, (), START, Limits(9), clock=ticking(batch))
        assert begun == Begun(case.best_single_s, case.best_single_s)
        point = START
        for found in batches:
            point = point.after(found)
        assert asked(point.trials) == asked(held.trials)
        assert lasting(point.state) == lasting(held.state)
        assert batches[-1].ended == held.ended
        ended += held.ended is not None
    assert 0 < ended < len(straight)


def test_a_batch_has_the_best_after_each_of_its_measurements(straight):
    for cell, case, _ in straight:
        best_s = case.best_single_s
        for batch in list(search_ahead(cell, case, (), START, Limits(9), clock=ticking(3)))[1:]:
            for trial, now_s in zip(batch.trials, batch.best_s, strict=True):
                best_s = min(best_s, trial.result.step_s) if isinstance(trial.result, Measured) else best_s
                assert now_s == best_s


def test_whoever_has_the_first_batches_goes_on_from_the_last_of_them(straight):
    """As after the loss of a process: nothing of what it did later is known."""
    for cell, case, held in straight:
        point = START
        while (found := second(search_ahead(cell, case, (), point, Limits(9), clock=ticking(2)))) is not None:
            point = point.after(found)
            if found.ended is not None:
                break
        assert asked(point.trials) == asked(held.trials)
        assert lasting(point.state) == lasting(held.state)


def test_a_batch_is_sent_once_it_has_taken_long_enough(straight):
    cell, case, _ = straight[0]
    _, *batches = search_ahead(cell, case, (), START, Limits(9), clock=ticking(4))
    assert [len(batch.trials) for batch in batches] == [4, 4, 1]


def test_seconds_of_earlier_runs_count(straight):
    """By this clock a measurement takes a second."""
    cell, case, held = straight[0]
    ticks = count()
    _, *batches = search_ahead(cell, case, (), START, Limits(9, 4 / 60), clock=lambda: next(ticks) * 1.0)
    assert sum(len(batch.trials) for batch in batches) == 4
    point = START.after(batches[0]).after(batches[1])
    _, *batches = search_ahead(cell, case, (), point, Limits(9, 4 / 60), clock=lambda: next(ticks) * 1.0)
    assert asked(t for batch in batches for t in batch.trials) == asked(held.trials[len(point.trials) : 4])
