"""The part of BENCHMARKS.md of the bench surrogates."""

from __future__ import annotations

from experiments.benches.bench import Facts, missing_lines, ms
from experiments.benches.intervals import mean_in_words
from experiments.benches.surrogates.plot import PICTURE
from experiments.report.text import markdown_table, percent

QUESTION = "Which model predicts the step times of mappings best, and finds the best one, after few measurements?"


def headline(facts: Facts) -> str:
    """The winner beside the prediction without learning."""
    of = {row["model"]: row for row in facts["table"]}
    base = of[facts["baseline"]]
    return (
        f"`{facts['winner']}` off by {_over_networks(facts, facts['winner'])}, regret "
        f"{percent(of[facts['winner']]['topk_regret'])}; simulator without learning {percent(base['mape'])}, regret "
        f"{percent(base['topk_regret'])}"
    )


def _over_networks(facts: Facts, name: str, key: str = "mape") -> str:
    """The mean over networks of a regressor's mean over a network's folds."""
    rows = (row for network in facts["by_model"].values() for row in network["table"] if row["model"] == name)
    return mean_in_words([row[key] for row in rows])


def page_lines(facts: Facts) -> list[str]:
    """What was compared, the table, the winner per network, and the picture."""
    top = facts["top"]
    first = "the one predicted best" if top == 1 else f"the {top} predicted best"
    return [
        f"{facts['n_mappings']} mappings of {', '.join(facts['networks'])}, measured on {facts['workers']} one-core "
        f"worker processes ({facts['steps_per_mapping']} steps each, in turn with the first single device): by rule "
        "and by expert, these mutated and crossed, and random ones. Each regressor sees the same features "
        "(`surrogate/features/mapping_features.py`) and learns the logarithm of the step time; the "
        "simulator behind the features is "
        "calibrated on the same mappings that the regressor is shown. Cross-validated within each network, "
        f"{facts['folds']} folds, {facts['fold_repeats']} times; means over folds and networks, with the standard "
        f"deviation over folds. *Top-{top} regret*: how much slower than the fold's fastest mapping a search "
        f"ends that measures only {first}. `{facts['baseline']}` is the simulated step times one fitted "
        "factor: the prediction without learning. *In order*: the later half of the mappings as they were drawn, "
        "piece by piece, each after learning from all before it. The same mapping measured again, minutes later, "
        f"differed by {percent(facts['noise'])} on average.",
        "",
        *markdown_table(
            (
                "regressor", "MAPE", "Spearman", "Kendall", f"top-{top} regret", "MAPE in order", "regret in order",
                "fit", "predict",
            ),
            [_regressor(row, _in_order(facts, row["model"]), facts["winner"]) for row in facts["table"]],
        ),
        "",
        f"Winner: `{facts['winner']}`. {_choice(facts)} It was chosen by the folds that are shown, which flatters it a "
        "little, and so was each network's. Over networks its MAPE is "
        f"{_over_networks(facts, facts['winner'])}, its regret "
        f"{_over_networks(facts, facts['winner'], 'topk_regret')}. `htf-mpr` compares them itself, in each search, on "
        "what it has measured, and its genetic algorithm asks the best.",
        "",
        *markdown_table(
            ("network", "mappings", "groups", "step times", "measured again", "winner", "its MAPE", "Kendall",
             f"`{facts['baseline']}` MAPE"),
            [_network(name, row, facts["baseline"]) for name, row in facts["by_model"].items()],
            left=(0, 5),
        ),
        *missing_lines(facts.get("missing", {})),
        *(["", f"Features and step times of all mappings: `{facts['data']}`."] if facts.get("data") else []),
        "",
        f"![Errors of the regressors, and the winner's predictions]({PICTURE})",
    ]  # fmt: skip


def _choice(facts: Facts) -> str:
    """Why the winner won."""
    alike = facts["eligible"]
    if len(alike) == 1:
        return "No other errs as little."
    return (
        f"{len(alike)} regressors err about equally ({', '.join(f'`{name}`' for name in alike)}): the MAPE of each is "
        "within one standard error of the lowest. Of these, this one loses least when only its favourite mapping is "
        "measured."
    )


def _in_order(facts: Facts, name: str) -> list[str]:
    """Error and regret of a regressor that learns from what was measured before, if the record has them."""
    for row in facts.get("table_in_order", ()):
        if row["model"] == name:
            return [f"{row[key]:.1%} +- {row[f'{key}_spread']:.1%}" for key in ("mape", "topk_regret")]
    return ["not recorded", ""]


def _regressor(row: Facts, in_order: list[str], won: str) -> list[str]:
    mape, regret = (f"{row[key]:.1%} +- {row[f'{key}_spread']:.1%}" for key in ("mape", "topk_regret"))
    rho, tau = (f"{row[key]:.2f} +- {row[f'{key}_spread']:.2f}" for key in ("spearman", "kendall"))
    name = f"**{row['model']}**" if row["model"] == won else row["model"]
    return [name, mape, rho, tau, regret, *in_order, ms(row["fit_s"]), ms(row["predict_s"])]


def _network(name: str, row: Facts, baseline: str) -> list[str]:
    of = {entry["model"]: entry for entry in row["table"]}
    best = of[row["winner"]]
    return [
        f"`{name}`", str(row["n_mappings"]), str(row["groups"]), f"{ms(row['fastest_s'])} to {ms(row['slowest_s'])}",
        percent(row["noise"]), row["winner"], percent(best["mape"]), f"{best['kendall']:.2f}",
        percent(of[baseline]["mape"]),
    ]  # fmt: skip
