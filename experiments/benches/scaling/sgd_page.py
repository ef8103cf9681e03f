"""The part of BENCHMARKS.md on the formula of synchronous SGD against the clock."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from experiments.benches.bench import Facts, ms
from experiments.benches.intervals import mean_in_words
from experiments.report.text import markdown_table, percent

ITERATION = ("network", "workers", "input", "MB", "read, MB/s", "copied, MB/s", "measured", "predicted", "error")
CHECKED = (
    "Only one manner of the command was checked: a parameter server and a shared batch (`--form server --batch "
    "shared`). Its defaults, `--form ring` and `--batch fixed`, are not checked against the clock."
)


def sgd_headline(sgd: Facts | None) -> str:
    """The error of the iterations, and of the speed-ups, which users of the formula want to know."""
    if sgd is None or "failed" in sgd:
        return "`scale sgd` not measured"
    several = [row for row in sgd["by_devices"] if row["devices"] > 1]
    apart, crowded = ([row for row in several if (row["workers_per_core"] > 1) == shared] for shared in (False, True))
    told = [f"speed-up {_listed(apart)} off"] if apart else []
    told += [f"oversubscribed {_listed(crowded)}"] if crowded else []
    told += [f"iteration {percent(sgd['sgd_mape'])}"]
    return f"`scale sgd`: {', '.join(told)}"


def _listed(rows: Sequence[Facts]) -> str:
    return " and ".join(percent(row["speedup_mape"]) for row in rows)


def sgd_lines(sgd: Facts | None) -> list[str]:
    """The errors by devices, and every iteration; empty for a record without them."""
    if sgd is None:
        return []
    if "failed" in sgd:
        return ["", f"Synchronous SGD by formula could not be measured: {sgd['failed']}."]
    rows = sgd["rows"]
    networks = len({(row["kind"], str(row["settings"])) for row in rows})
    lost = f" {len(sgd['lost'])} networks failed." if sgd["lost"] else ""
    return [
        "",
        f"**Synchronous SGD by formula (`scale sgd`) against the clock**: {networks} other networks of these kinds, "
        "whose step on one worker was profiled op by op. From these costs, measured links (server: the first worker "
        "holds all variables) and measured rates of reading and copying, the formula says what an iteration on more "
        f"workers takes. {CHECKED} The clock timed real steps in turn with the reference, which was also timed beside "
        f"the profile; nothing was fitted.{lost}",
        "",
        f"Mean absolute error of an iteration {_counted(sgd)}: {_over_networks(sgd)}; by input: "
        f"{_by_input(sgd['by_input'])}{_alone(sgd)}{_crowded(sgd)}.{_speed_ups(sgd)}",
        "",
        *markdown_table(
            ("workers", "a core", "iteration, MAPE", "bias", "speed-up measured", "predicted", "speed-up, MAPE"),
            [_devices(row) for row in sgd["by_devices"]],
        ),
        "",
        "Every iteration. *memory*: the batch is in the coordinating process; *read first*: it is read from a file "
        f"before the step; *prefetch*: it is {_ahead(sgd)} during the step before. Copying takes the workers' compute "
        "(`--host-busy 1`).",
        "",
        *markdown_table(ITERATION, [_row(row) for row in rows], left=(0, 2)),
    ]


def _speed_ups(sgd: Facts) -> str:
    """How the errors of the iterations add up in the speed-up."""
    (alone, *several) = sorted(sgd["by_devices"], key=lambda row: row["devices"] > 1)
    if not several:
        return ""
    each = (
        f"with {row['devices']} workers {row['bias']:+.1%}, so the speed-up is {percent(row['speedup_mape'])} off"
        for row in several
    )
    return f" The iteration on one worker is predicted {alone['bias']:+.1%} off; {'; '.join(each)}."


def _over_networks(sgd: Facts) -> str:
    """The mean over networks of the mean error of a network's iterations on workers with a core each."""
    fewest = 2 if "sgd_mape_alone" in sgd else 1
    by_network: dict[tuple[str, str], list[float]] = {}
    for row in sgd["rows"]:
        if row["workers_per_core"] == 1 and row["devices"] >= fewest:
            by_network.setdefault((row["kind"], str(row["settings"])), []).append(abs(row["error"]))
    return mean_in_words([mean(errors) for errors in by_network.values()])


def _counted(sgd: Facts) -> str:
    """Which iterations count; in older records, those on one worker count, too."""
    several = "on several workers, " if "sgd_mape_alone" in sgd else ""
    return f"{several}where each worker has a core of its own"


def _alone(sgd: Facts) -> str:
    return f"; on one, where nothing is exchanged: {percent(sgd['sgd_mape_alone'])}" if "sgd_mape_alone" in sgd else ""


def _ahead(sgd: Facts) -> str:
    """What was done ahead; only records since 2026-11-23 say that batches stayed in the coordinating process."""
    return "read" if sgd.get("prefetched_to") == "host" else "read and copied to the workers"


def _by_input(errors: dict[str, float | None]) -> str:
    return ", ".join(f"{manner}: {percent(error)}" for manner, error in errors.items())


def _crowded(sgd: Facts) -> str:
    if sgd["sgd_mape_oversubscribed"] is None:
        return ""
    return (
        f"; where workers are oversubscribed, on {sgd['cores']} cores, and every op is taken to last as many times as "
        f"long as workers share its core: {percent(sgd['sgd_mape_oversubscribed'])}"
    )


def _devices(row: Facts) -> list[str]:
    return [
        str(row["devices"]),
        f"{row['workers_per_core']}{' (oversubscribed)' if row['workers_per_core'] > 1 else ''}",
        percent(row["mape"]),
        f"{row['bias']:+.1%}",
        f"{row['speedup_measured']:.2f}",
        f"{row['speedup_predicted']:.2f}",
        percent(row["speedup_mape"]),
    ]


def _row(row: Facts) -> list[str]:
    crowded = f", {row['workers_per_core']} a core" if row["workers_per_core"] > 1 else ""
    return [
        f"`{row['kind']}` {_sized(row['settings'])}",
        f"{row['devices']}{crowded}",
        row["input"],
        f"{row['input_bytes'] / 1e6:.1f}",
        *(f"{row[name] / 1e6:.0f}" for name in ("io_bytes_per_s", "host_bytes_per_s")),
        f"{ms(row['measured_s'])} +- {ms(row['spread_s'])}",
        ms(row["predicted_s"]),
        f"{row['error']:+.1%}",
    ]


def _sized(settings: dict[str, int | str]) -> str:
    names: Sequence[str] = [name for name, value in settings.items() if not isinstance(value, str)]
    return ", ".join([*(f"{name} {settings[name]}" for name in names), str(settings["optimizer"])])
