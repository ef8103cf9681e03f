"""Parts of the page of the bench `gpu` beside its tables: tight memory, predictions, autoplace, what is missing."""

from __future__ import annotations

from statistics import mean, median

from experiments.benches.bench import Facts, ms
from experiments.benches.gpu.tasks import OVERHEAD_MODEL
from experiments.benches.intervals import mean_in_words


def tight_line(tight: Facts | None, limit_mib: int) -> str:
    """The outcome of training a model that does not fit into the GPU."""
    if tight is None:
        return "Tight memory was not measured."
    where = f" ({tight['default_where']})" if tight.get("default_where") else ""
    said = f"Tight memory: `two_tower` with a GPU of {limit_mib} MiB. TensorFlow's default: {tight['default']}{where}."
    if "failed" in tight:
        return f"{said} Placed: failed, {tight['failed']}."
    (first, last), ratio, scoped_s = tight["losses"], tight["ratio_to_cpu_only"], tight["scoped_s"]
    said += (
        f" Its tables take {tight['table_bytes'] / 2**20:.0f} MiB. Made on the CPU and placed, it "
        f"{'trains' if tight['trains'] else 'does not train'}: the loss went from {first:.4f} to {last:.4f} in "
        f"{tight['steps']} steps of {ms(tight['step_s'])}"
    )
    if ratio is not None:
        said += f", {ratio:.2f}x of everything on the CPU ({ms(tight['cpu_only_s'])})"
    if scoped_s is not None:
        said += f". The tables put on the CPU by hand, the rest left to TensorFlow: {ms(scoped_s)}"
    ran = tight.get("contestants", {}).items()
    failed = ", ".join(f"`{name}` ({row['failed']})" for name, row in ran if row.get("failed"))
    return f"{said}. What failed on the way: {failed}." if failed else f"{said}."


def accuracy_lines(facts: Facts) -> list[str]:
    """How far predictions were off; empty if none was made."""
    error = facts["unseen_mape"]
    if error is None:
        return []
    by_network = errors_of(facts)
    middle = median(off for errors in by_network.values() for off in errors)
    return [
        f"Simulator: {facts['n_unseen']} mappings, predicted before they were measured, were off by {error:.1%} on "
        f"average, {middle:.1%} in the median; those that were dropped after their first step, which sets much up, do "
        f"not count. Each network averaged first: {unseen_in_words(facts)}.",
        "",
    ]


def unseen_in_words(facts: Facts) -> str:
    """The mean over networks of the error of steps that were predicted before they were measured."""
    return mean_in_words([mean(of_network) for of_network in errors_of(facts).values()])


def errors_of(facts: Facts) -> dict[str, list[float]]:
    """The absolute errors of steps that were predicted before they were measured, by network."""
    found: dict[str, list[float]] = {}
    for part in (facts["models"], *facts["splits"].values()):
        for name, row in part.items():
            for predicted_s, took_s in row.get("unseen", ()):
                found.setdefault(name, []).append(abs(predicted_s / took_s - 1))
    return found


def overhead_line(found: Facts | None) -> str:
    """What a call of autoplace costs."""
    if found is None or "failed" in found:
        why = "not measured" if found is None else f"failed, {found['failed']}"
        return f"Overhead of `placer.autoplace`: {why}."
    said = (
        f"Overhead of a call of `placer.autoplace` on `{found.get('model', OVERHEAD_MODEL)}` once its search is over "
        f"(it settled on {found['settled_on']}): "
        f"{found['overhead_total']:+.1%} by all seconds, {found['overhead']:+.1%} +- {found['overhead_error']:.1%} by "
        f"medians, of {ms(found['bare_s'])}; {found['steps']} steps of each, in blocks in turn."
    )
    return f"{said} Meanwhile it said: {' '.join(found['meanwhile'])}" if found.get("meanwhile") else said


def missing_parts(facts: Facts) -> list[str]:
    """The tasks for which there was no time, and the tasks that failed."""
    missing = facts["not_reached"]
    lines = [f"Not reached in {facts['minutes']:g} minutes: {'; '.join(missing)}."] if missing else []
    return lines + [f"{title} failed: {why}." for title, why in facts["failed"].items()]
