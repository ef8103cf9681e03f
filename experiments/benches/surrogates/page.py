"""The part of BENCHMARKS.md of the bench surrogates."""

from __future__ import annotations

from experiments.benches.bench import Facts, ms
from experiments.benches.surrogates.run import PICTURE
from experiments.report.text import percent


def page(facts: Facts) -> list[str]:
    """What was compared, the table, the winner per network, and the picture."""
    lines = [
        f"{facts['n_mappings']} mappings of {', '.join(facts['networks'])}, measured on {facts['workers']} one-core "
        f"worker processes ({facts['steps_per_mapping']} steps each, in turn with the first single device): by rule "
        "and by expert, these shaken and crossed, and random ones. Each regressor sees the same features "
        "(`surrogate/features/mapping_features.py`) and learns the logarithm of the step time; the "
        "simulator behind the features is "
        "calibrated on the same mappings that the regressor is shown. Cross-validated within each network, "
        f"{facts['folds']} folds, {facts['fold_repeats']} times; means over folds and networks, with the standard "
        f"deviation over folds. *Top-{facts['top']} regret*: how much slower than the fold's fastest mapping a search "
        f"ends that measures only {_first(facts['top'])}. `{facts['baseline']}` is the simulated step times one fitted "
        "factor: what there is without learning. The same mapping measured again, minutes later, came out "
        f"{percent(facts['noise'])} apart on average.",
        "",
        f"| regressor | MAPE | Spearman | Kendall | top-{facts['top']} regret | fit | predict |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [_row(row, facts["winner"]) for row in facts["table"]]
    lines += [
        "",
        f"Winner: `{facts['winner']}`. Of the regressors whose MAPE is within one standard error (of the difference, "
        f"fold by fold) of the lowest ({', '.join(f'`{name}`' for name in facts['eligible'])}) it has the lowest "
        f"regret. The genetic algorithm asks `{facts['default']}` unless told otherwise.",
        "",
        "| network | mappings | groups | step times | measured again | winner | its MAPE | Kendall | "
        f"`{facts['baseline']}` MAPE |",
        "| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    lines += [_network_row(name, row, facts["baseline"]) for name, row in facts["by_model"].items()]
    if facts.get("data"):
        lines += ["", f"Features and step times of all mappings: `{facts['data']}`."]
    return [*lines, "", f"![Errors of the regressors, and the winner's predictions]({PICTURE})"]


def _row(row: Facts, won: str) -> str:
    name = f"**{row['model']}**" if row["model"] == won else row["model"]
    mape, regret = (f"{row[key]:.1%} +- {row[f'{key}_spread']:.1%}" for key in ("mape", "topk_regret"))
    rho, tau = (f"{row[key]:.2f} +- {row[f'{key}_spread']:.2f}" for key in ("spearman", "kendall"))
    return f"| {name} | {mape} | {rho} | {tau} | {regret} | {ms(row['fit_s'])} | {ms(row['predict_s'])} |"


def _network_row(name: str, row: Facts, baseline: str) -> str:
    of = {entry["model"]: entry for entry in row["table"]}
    best = of[row["winner"]]
    return (
        f"| `{name}` | {row['n_mappings']} | {row['groups']} | {ms(row['fastest_s'])} to {ms(row['slowest_s'])} | "
        f"{percent(row['noise'])} | {row['winner']} | {percent(best['mape'])} | {best['kendall']:.2f} | "
        f"{percent(of[baseline]['mape'])} |"
    )


def _first(top: int) -> str:
    return "the one predicted best" if top == 1 else f"the {top} predicted best"
