"""The part of BENCHMARKS.md of the bench main-job."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from experiments.benches.bench import Facts, ms, ms_spread
from experiments.benches.intervals import geomean_in_words
from experiments.benches.main_job.plot import PICTURE
from experiments.benches.main_job.run import searched, single_ratios
from experiments.report.text import markdown_table

QUESTION = "How much faster is a training step on two workers than on one of them, and than TensorFlow alone?"
WANTED = 1.6  # with ops divided (DESIGN, section 7)
IN_ADVANCE = ", timed before the workers were started, which favours it"
HEADS = ("network", "best single device", "delivered", "ratio", "by", "predicted", "predicted bound",
         "TensorFlow alone, all cores", "placed, in turn with it", "ratio to that", "switch", "answer",
         "within 5 % of it")  # fmt: skip


def headline(facts: Facts) -> str:
    """Both geometric means, and the seconds that a switch takes."""
    singles, untouched = _means(facts)
    if singles is None:
        return "no network was measured"
    switches_s = [row["switch_s"] for row in searched(facts["models"]) if row["switch_s"] is not None]
    return (
        f"{singles} times as fast as the best single worker (wanted: {WANTED}); {untouched} times as fast as "
        "TensorFlow alone on all cores" + (_switches(switches_s) if switches_s else "")
    )


def _switches(switches_s: Sequence[float]) -> str:
    return (
        f"; a switch takes {median(switches_s):.1f} s in the median, {max(switches_s):.1f} s at the worst (wanted: 1)"
    )


def page_lines(facts: Facts) -> list[str]:
    """The main job as a table: the delivered mapping and the best single device of a row were stepped side by side."""
    singles, untouched = _means(facts)
    return [
        f"What the main job delivers on {facts['workers']} one-core worker processes, after at most "
        f"{facts['measurements']} measured mappings, against the best single worker: medians with the interquartile "
        "range, stepped in turn at the end of the search. Up to five mappings were stepped, and what is handed back "
        "was chosen by these steps, so part of a small gain may be luck; where it is the single device, the ratio is "
        "1.00.",
        "",
        *_untouched_in_words(facts),
        "- *Predicted*: the delivered mapping, by a calibration that knows its measurement, so this is no test of the "
        "simulator; `simulator-accuracy` is.",
        "- *Predicted bound*: no mapping is predicted to be faster. It rests on the costs that the search profiled, so "
        "a step measured minutes later can be faster than it.",
        "- *Switch*: seconds from one mapping of the network to another, the first step included, the median of a few.",
        "- *Answer*: seconds until the search was over, tracing and profiling included. *Within 5 %*: until it had "
        "measured a mapping whose race took at most 5 % longer than the fastest one's.",
        "",
        *markdown_table(HEADS, [_cells(name, row) for name, row in facts["models"].items()], left=(0, 4)),
        "",
        *_by_seed(facts),
        f"Geometric mean of the ratios over {_counted(facts['models'])}: {singles}."
        if singles
        else "No network was measured.",
        *([f"To TensorFlow alone on all cores: {untouched}."] if singles else []),
        *(_elsewhere_in_words(row) for row in facts.get("elsewhere", [])),
        "",
        f"![What the main job delivers, by network]({PICTURE})",
    ]


def _means(facts: Facts) -> tuple[str | None, str | None]:
    """The mean ratios to the best single device and to TensorFlow alone, in words; None if no network was searched."""
    rows = searched(facts["models"])
    if not rows:
        return None, None
    return (
        geomean_in_words(single_ratios(facts["models"])),
        geomean_in_words([row["ratio_to_untouched"] for row in rows]),
    )


def _untouched_in_words(facts: Facts) -> list[str]:
    """Which step of TensorFlow alone the delivered mapping is compared with."""
    if all("in_turn" in row for row in searched(facts["models"])):
        return [
            "- *TensorFlow alone*: the same training as TensorFlow runs it on all cores. The training placed by the "
            "delivered mapping (*placed, in turn with it*) and this one ran in processes of their own and took blocks "
            "of steps in turn; the ratio is the median over pairs of blocks, with its interquartile range. With the "
            "first seed alone.",
        ]
    return [
        "- *TensorFlow alone*: the step as TensorFlow runs it on all cores, timed before the workers were started, "
        "minutes before the delivered mapping. Newer records time the two in turn.",
    ]


def _elsewhere_in_words(row: Facts) -> str:
    at, singles, untouched = row["machine"], row["geomean_ratio"], row["geomean_to_untouched"]
    where = f"On {at['cores']} cores of {at['cpu']} ({row['date']}, commit {row['commit']})"
    return f"{where}: {singles:.2f}, and {untouched:.2f} to TensorFlow alone{'' if row.get('in_turn') else IN_ADVANCE}."


def _counted(models: dict[str, Facts]) -> str:
    """How many networks are in the geometric means."""
    count = len(searched(models))
    return f"{count} networks" if count == len(models) else f"{count} of {len(models)} networks"


def _by_seed(facts: Facts) -> list[str]:
    """The ratios by seed; empty if a record has one seed."""
    rows = {name: row["by_seed"] for name, row in facts["models"].items() if "by_seed" in row}
    if not rows:
        return []
    seeds = list(next(iter(rows.values())))
    return [
        f"Networks on which a search is quick were searched with seeds {', '.join(seeds)}, the others with {seeds[0]}. "
        "The geometric mean takes that of a network's seeds:",
        "",
        *markdown_table(
            ("network", *(f"seed {seed}" for seed in seeds)),
            [[f"`{name}`", *(f"{row[seed]:.2f}" for seed in seeds)] for name, row in rows.items()],
        ),
        "",
    ]


def _cells(name: str, row: Facts) -> list[str]:
    if "failed" in row:
        return [f"`{name}`", f"failed: {row['failed']}"]
    turns = row.get("in_turn")
    return [
        f"`{name}`",
        ms_spread(row["best_single_s"], row["best_single_spread_s"]),
        ms_spread(row["step_s"], row["spread_s"]),
        f"{row['ratio_to_best_single']:.2f}",
        row["searcher"],
        ms(row["predicted_s"]),
        "not recorded" if row["lower_bound_s"] is None else ms(row["lower_bound_s"]),
        ms(turns["untouched_s"] if turns else row["in_process_s"]),
        ms(turns["placed_s"]) if turns else "",
        f"{turns['ratio']:.2f} +- {turns['spread']:.2f}" if turns else f"{row['ratio_to_untouched']:.2f}",
        "not measured" if row["switch_s"] is None else f"{row['switch_s']:.2f} s",
        f"{row['answer_s']:.0f} s",
        f"{row['near_s']:.0f} s",
    ]
