"""Cross-validation and the rule by which a regressor wins."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from placer.errors import BadInputError
from surrogate.learn.regressors import BASELINE, Regressor, make_regressor
from surrogate.learn.selection import (
    Scores,
    compared_in_order,
    eligible,
    folds_of,
    in_order,
    judged,
    scored,
    splits,
    top_regret,
    winner,
)


class Known(Regressor):
    """Predicts the first feature: the truth, where that is what it is."""

    def _fit(self, x, log_s):
        pass

    def _predict(self, x):
        return np.log(x[:, 0])


class Middle(Known):
    """Predicts one second for everything."""

    def _predict(self, x):
        return np.zeros(len(x))


def scores(mape, regret, folds=6):
    """Folds that are 1 % apart, the same for all regressors."""
    hardness = np.linspace(-0.01, 0.01, folds)
    found = np.full(folds, regret)
    return Scores(mape + hardness, found, found, found, found, found)


@pytest.mark.parametrize(("mappings", "folds"), [(10, 5), (23, 5), (7, 3)])
def test_in_each_repeat_every_mapping_is_judged_once_and_never_learned_from(mappings, folds):
    pairs = list(splits(mappings, folds, repeats=2))
    assert len(pairs) == 2 * folds
    for repeat in (pairs[:folds], pairs[folds:]):
        assert sorted(np.concatenate([unseen for _, unseen in repeat]).tolist()) == list(range(mappings))
    for known, unseen in pairs:
        assert sorted([*known.tolist(), *unseen.tolist()]) == list(range(mappings))
        assert mappings // folds <= len(unseen) <= mappings // folds + 1


def test_the_seed_decides_the_folds():
    first, again, other = ([u.tolist() for _, u in splits(20, seed=seed)] for seed in (1, 1, 2))
    assert first == again != other


def test_too_few_mappings_are_refused():
    with pytest.raises(BadInputError, match="9 mappings cannot be judged in 5 folds; measure at least 10"):
        next(splits(9))


@pytest.mark.parametrize("mappings", [4, 9, 30])
def test_in_order_later_mappings_are_judged_once_by_earlier_ones(mappings):
    pairs = list(in_order(mappings))
    assert [row for _, unseen in pairs for row in unseen] == list(range(mappings // 2, mappings))
    assert all(list(known) == list(range(unseen[0])) for known, unseen in pairs)


def test_too_few_mappings_have_no_order():
    with pytest.raises(BadInputError, match="3 mappings cannot be judged in order"):
        list(in_order(3))


def test_the_regressor_that_predicts_what_comes_later_wins():
    """Step times are the simulated ones; the neighbours of earlier mappings say little of larger ones."""
    x = np.column_stack([np.linspace(1, 9, 24), np.ones(24)])
    errors = compared_in_order(["neighbours", BASELINE, "ridge"], x, 2 * x[:, 0])
    assert next(iter(errors)) == BASELINE and errors[BASELINE] == pytest.approx(0)
    assert errors["neighbours"] > 0.05


def test_rows_that_are_not_finite_do_not_count():
    x = np.column_stack([np.linspace(1, 2, 8), np.ones(8)])
    x[5] = np.inf
    assert compared_in_order([BASELINE, "ridge"], x, x[:, 0])[BASELINE] == pytest.approx(0)
    ((name, error),) = compared_in_order(["ridge", BASELINE], x[3:6], x[3:6, 0]).items()
    assert name == "ridge" and np.isnan(error)


def test_the_truth_has_no_error_and_no_regret():
    step_s = np.random.default_rng(0).uniform(1, 2, 30)
    found = scored(Known, folds_of(step_s[:, None], step_s))
    assert len(found.mape) == 15
    assert found.mape == pytest.approx(0, abs=1e-12) and found.regret == pytest.approx(0)
    assert found.spearman == pytest.approx(1) and found.kendall == pytest.approx(1)


def test_one_guess_for_all_ranks_nothing():
    step_s = np.random.default_rng(0).uniform(1, 2, 30)
    found = scored(Middle, folds_of(step_s[:, None], step_s))
    assert (found.kendall == 0).all() and (found.spearman == 0).all()
    assert found.mape.mean() > 0.2


def test_fitting_and_predicting_are_timed_apart():
    step_s = np.arange(1.0, 11.0)
    seconds = count()
    found = scored(Known, folds_of(step_s[:, None], step_s, repeats=1), clock=lambda: float(next(seconds)))
    assert (found.fit_s == 1).all() and (found.predict_s == 1).all()


def test_regret_is_what_the_best_of_the_predicted_best_loses():
    measured, predicted = np.array([1.0, 1.2, 2.0, 3.0]), np.array([9.0, 2.0, 1.0, 3.0])
    assert top_regret(predicted, measured, top=1) == pytest.approx(1.0)
    assert top_regret(predicted, measured, top=2) == pytest.approx(0.2)
    assert top_regret(predicted, measured, top=4) == 0
    mape, rho, tau, _ = judged(measured[::-1] * 0 + measured * 1.1, measured)
    assert (mape, rho, tau) == pytest.approx((0.1, 1, 1))


def test_of_those_that_err_about_as_little_the_one_with_the_least_regret_wins():
    table = {"exact": scores(0.05, 0.02), "ranks": scores(0.05, 0.01), "lucky": scores(0.2, 0.0)}
    assert eligible(table) == ["exact", "ranks"]
    assert winner(table) == "ranks"


def test_folds_that_are_hard_for_all_do_not_excuse_a_larger_error():
    """The folds' errors spread by 1 %, and yet 0.1 % more on every fold is clear."""
    assert eligible({"best": scores(0.05, 0.0), "worse": scores(0.051, 0.0)}) == ["best"]


def test_a_difference_within_its_own_noise_is_none():
    noise = np.array([0.03, -0.02, 0.03, -0.02, 0.0, -0.01])
    near = scores(0.05, 0.01)
    table = {"best": near, "near": Scores(near.mape + noise, *(np.zeros(6),) * 5)}
    assert set(eligible(table)) == {"best", "near"}
    assert winner(table) == "near"


def test_where_regrets_agree_the_smaller_error_wins():
    near = scores(0.05, 0.0)
    noise = np.array([0.01, -0.01, 0.01, -0.01, 0.01, -0.009])
    assert winner({"other": Scores(near.mape + noise, *(near.regret,) * 5), "best": near}) == "best"


def test_scores_of_networks_are_joined_in_order():
    joined = Scores.joined([scores(0.1, 0.0, 2), scores(0.2, 0.5, 3)])
    assert joined.regret.tolist() == [0, 0, 0.5, 0.5, 0.5]
    assert len(joined.mape) == 5


def test_a_difference_on_one_network_of_four_is_not_clear_however_many_folds_show_it():
    """Fifteen folds of one network agree, but the other three say nothing."""
    best = [scores(0.05, 0.1, 15) for _ in range(4)]
    other = [scores(0.06 if network == 0 else 0.05, 0.0, 15) for network in range(4)]
    assert eligible({"best": Scores.joined(best), "other": Scores.joined(other)}) == ["best"]
    judged = {"best": Scores.of_networks(best), "other": Scores.of_networks(other)}
    assert judged["other"].mape.tolist() == pytest.approx([0.06, 0.05, 0.05, 0.05])
    assert eligible(judged, repeats=1) == ["best", "other"] and winner(judged, repeats=1) == "other"


def test_a_regressor_that_learns_beats_the_baseline_where_the_simulator_is_wrong():
    rng = np.random.default_rng(2)
    x = rng.uniform(0.1, 1.0, (60, 4))
    folds = folds_of(x, x[:, 0] + 2 * x[:, 1])
    table = {name: scored(lambda seed, name=name: make_regressor(name, seed), folds) for name in (BASELINE, "ridge")}
    assert winner(table) == "ridge"
