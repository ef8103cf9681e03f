"""The part of BENCHMARKS.md of the bench splitting."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from experiments.benches.bench import Facts, ms, ms_spread
from experiments.benches.intervals import geomean_in_words
from experiments.benches.splitting.plot import PICTURE, measured_rows
from experiments.benches.splitting.run import CERTAIN, is_slower
from experiments.report.text import markdown_table

QUESTION = "What is gained where ops may be divided between devices, and is it the same training?"
WANTED = 1.6  # times as fast as the best single device, in the geometric mean
UNTOUCHED = "untouched, all cores"
OF_UNTOUCHED = " *Untouched, all cores*: TensorFlow by itself in one process, timed before the searches."
TIMES = ("network", "best single device", "`--split off`", "`--split auto`", "off: ratio to single",
         "auto: ratio to single", "auto: ratio to off", "delivered by auto")  # fmt: skip
LIMITS = ("network", "plan tried", "bound, whole", "bound, divided", "predicted, divided", "crossing, whole",
          "crossing, divided")  # fmt: skip
SAME = ("network", "gradients", "other threads", "rounded", "gradients, last", "other threads", "rounded", "first loss",
        "last, whole", "last, divided")  # fmt: skip


def headline(facts: Facts) -> str:
    """The gain if ops may be divided, and the cost of `--split auto`."""
    rows = list(measured_rows(facts).values())
    if not rows:
        return "no network was measured"
    alone = _to_untouched(rows)
    alone_in_words = f"; {geomean_in_words(alone)} times as fast as TensorFlow alone, timed before" if alone else ""
    worse = [row for row in rows if _is_below_single(row)]
    return (
        f"{geomean_in_words([row['ratio_to_best_single'] for row in rows])} times as fast as the best single device "
        f"(wanted: {WANTED}), slower than it on {len(worse)} of {len(rows)} networks (wanted: 0)"
        f"{alone_in_words}; `--split auto` by `off` {geometric_mean(row['ratio_on_vs_off'] for row in rows):.2f}, "
        f"slower on {len(facts['slower'])}"
    )


def _to_untouched(rows: Sequence[Facts]) -> list[float]:
    """How many times as fast as TensorFlow alone the step from `--split auto` is, for records that timed it."""
    return [row["untouched_s"] / row["auto_s"] for row in rows if "untouched_s" in row]


def _is_below_single(row: Facts) -> bool:
    """Whether the delivered step is slower than the best single device, beyond the error of the ratio."""
    return bool(row["ratio_to_best_single"] + CERTAIN * row["ratio_error"] < 1)


def _on_one(row: Facts) -> bool:
    """Whether the delivered step runs on one device, so that nothing crosses."""
    return not (row["crossings_auto"] or row["delivers_divided"])


def page_lines(facts: Facts) -> list[str]:
    """Times side by side, what limits them, and whether divided steps train as whole ones."""
    fine = measured_rows(facts)
    heads: tuple[str, ...] = TIMES
    if any("untouched_s" in row for row in fine.values()):
        heads = (*TIMES[:1], UNTOUCHED, *TIMES[1:])
    failed = [f"- `{name}`: {row['failed']}" for name, row in facts["by_model"].items() if "failed" in row]
    same = {name: row["sameness"] for name, row in fine.items() if row["sameness"]}
    return [
        f"`placer search` on {facts['workers']} one-core worker processes, with `--split off` and with `--split auto`: "
        f"each from the same profile, with at most {facts['measurements']} measured mappings and {facts['minutes']:g} "
        "minutes of asking. What the two delivered and the best single device were then stepped in turn, "
        f"{facts['repeats']} times each, so nothing is judged by the times it was chosen by. Medians, with the "
        "interquartile range; speed-ups with their standard error." + (OF_UNTOUCHED if heads != TIMES else ""),
        "",
        *markdown_table(heads, [_times(name, row, heads) for name, row in fine.items()], left=(0, len(heads) - 1)),
        "",
        *_sums(facts),
        *(["", "Not measured:", "", *failed] if failed else []),
        "",
        "What limits them. *Bound*: what no mapping is predicted below, on the costs as profiled and calibrated. "
        "*Crossing*: what the simulator sends between devices in a step, under the delivered mapping of whole ops and "
        "under the best one measured with ops divided.",
        "",
        *markdown_table(LIMITS, [_limits(name, row) for name, row in fine.items()], left=(0, 1)),
        "",
        f"Whether it is the same training: {facts['steps']} steps from the same start, the divided step under the best "
        "mapping measured of it, the whole one on one worker. *Gradients*: norm of the difference after one step, by "
        "the gradients' norm, read where the optimizer keeps its first moments (or, without any, from the weights); "
        "*last*: the same after all steps. Beside each is how far the whole step is from itself: in one process with "
        "all cores (*other threads*), which may change the order of no sum, and there with one rounding error in every "
        "number at the start (*rounded*). Where the loss falls to nothing, gradients do, and what is left of them "
        "differs more.",
        "",
        *markdown_table(SAME, [_same(name, found) for name, found in same.items()]),
        "",
        f"![Speed over the best single device, with whole and with divided ops]({PICTURE})",
    ]


def _sums(facts: Facts) -> list[str]:
    if facts["geomean_ratio"] is None:
        return ["No network was measured."]
    rows = list(measured_rows(facts).values())
    off, auto, between = (
        geomean_in_words([row[key] for row in rows])
        for key in ("off_to_best_single", "ratio_to_best_single", "ratio_on_vs_off")
    )
    lines = [
        f"Geometric means of the speed-ups over the best single device: {off} with whole ops, {auto} where ops may be "
        f"divided. `--split auto` by `--split off`: {between}. {_slower(facts, len(rows))}",
    ]
    if alone := _to_untouched(rows):
        lines.append(f"To TensorFlow alone on all cores, timed before the searches: {geomean_in_words(alone)}.")
    if below := [f"`{name}`" for name, row in measured_rows(facts).items() if _is_below_single(row)]:
        lines.append(f"Slower than the best single device, beyond that: {', '.join(below)}.")
    return lines


def _slower(facts: Facts, count: int) -> str:
    """On how many networks `--split auto` is slower, and by how much."""
    names: Sequence[str] = facts["slower"]
    if not names:
        return f"`--split auto` was slower than `off`, by more than two standard errors, on 0 of {count} networks."
    rows = [facts["by_model"][name] for name in names]
    losses = [1 - row["ratio_on_vs_off"] for row in rows]
    how_much = f"{min(losses):.1%} to {max(losses):.1%}" if len(losses) > 1 else f"{losses[0]:.1%}"
    whole = sum(not row["delivers_divided"] for row in rows)
    on_one = [name for name, row in zip(names, rows, strict=True) if _on_one(row) and not row["crossings_off"]]
    alike = f" On {', '.join(f'`{name}`' for name in on_one)} both delivered one device." if on_one else ""
    return (
        f"`--split auto` was slower than `off`, by more than two standard errors, on {len(names)} of {count} networks, "
        f"by {how_much}: {', '.join(f'`{name}`' for name in names)}. On {whole} of these it delivered whole ops.{alike}"
    )


def _times(name: str, row: Facts, heads: Sequence[str]) -> list[str]:
    names = ("best_single", "off", "auto")
    ratio, error = row["ratio_on_vs_off"], row["on_vs_off_error"]
    return [
        f"`{name}`",
        *([_untouched(row)] if UNTOUCHED in heads else []),
        *(ms_spread(row[f"{which}_s"], row[f"{which}_spread_s"]) for which in names),
        f"{row['off_to_best_single']:.2f}",
        f"{row['ratio_to_best_single']:.2f} +- {row['ratio_error']:.2f}",
        f"{'**' if is_slower(row) else ''}{ratio:.2f} +- {error:.2f}{'**' if is_slower(row) else ''}",
        f"divided: {row['policy']}" if row["delivers_divided"] else "one device" if _on_one(row) else "whole",
    ]


def _untouched(row: Facts) -> str:
    return ms_spread(row["untouched_s"], row["untouched_spread_s"]) if "untouched_s" in row else ""


def _limits(name: str, row: Facts) -> list[str]:
    plan = "none promised enough" if row["ways"] is None else f"{row['policy']}: {_ways(row)}"
    bounds = [row[f"bound_s_{key}"] for key in ("off", "divided")]
    predicted = row["predicted_s_divided"]
    crossing = [(row[f"crossing_bytes_{key}"], row[f"crossings_{key}"]) for key in ("off", "divided")]
    return [
        f"`{name}`",
        plan,
        *("" if s is None else ms(s) for s in (*bounds, predicted)),
        *("" if count is None else f"{size / 2**20:.1f} MiB in {count}" for size, count in crossing),
    ]


def _ways(row: Facts) -> str:
    ways = list(row["ways"].items())
    named = ", ".join(f"{count} along {way}" for way, count in ways[:3])
    return f"{named}{', ...' if len(ways) > 3 else ''}; {row['variables_divided']} variables"


def _same(name: str, found: Facts) -> list[str]:
    pairs = [found[f"{key}{whose}"] for key in ("gradient_rel_err", "drift") for whose in ("", "_threads", "_rounded")]
    return [
        f"`{name}`",
        *("" if value is None else f"{value:.1e}" for value in pairs),
        *(f"{loss:.3g}" for loss in found["losses"]),
    ]
