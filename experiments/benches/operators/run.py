"""The operator models on the zoo: ops are profiled once, then models are judged on ops that they did not see."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean, mean, pstdev
from typing import TYPE_CHECKING

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.kept_runs import kept
from experiments.benches.operators import elsewhere
from experiments.benches.operators.elsewhere import elsewhere_facts
from experiments.benches.operators.held_out import disagreement, evaluated
from experiments.benches.operators.left_out import DEVICES, left_out
from experiments.benches.process import alone, facts_alone
from experiments.benches.taken_options import Takes
from experiments.jobs.profile import ProfileSettings, profiles_of, run_passes
from experiments.report.progress import progress_bar
from experiments.zoo.catalogue import NETWORKS
from experiments.zoo.sweep import PREFIX
from placer.measure.store import Store
from placer.profile.operators.dataset import from_record, to_record

if TYPE_CHECKING:
    from placer.profile.operators.operator_profile import OperatorProfile

PASSES = 3
HELD_OUT_NETWORKS = ("resnet50", "transformer", "two_tower")
LEFT_OUT_NETWORKS = (
    "towers",
    "alexnet",
    "mobilenet_v3",
    "inception_v3",
    "transformer",
    "two_tower",
)  # a few, because each takes minutes
SWEPT = 60  # random steps, which widen the dataset
AT_ONCE = 12  # random steps in one process, because their graphs take memory
PROFILE_S = 3600.0  # limit for one process of profiles, which takes minutes
LEFT_OUT_S = 900.0  # limit for one network that is left out
TAKES = Takes(runs=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Profile the networks at two batch sizes, hold out some rows, fit once, and compare; compare some networks on
    other hardware, too; then leave out one network after the other.

    With --runs, nothing is measured twice.
    """
    models, passes = options.models or zoo.names(), options.measurements or PASSES
    begin_s = time.perf_counter()
    settings: Facts = {"models": list(models), "passes": passes, "devices": DEVICES}
    whole = partial(alone, profiled, models, (None, 0.5), True, passes, seconds=PROFILE_S)
    found = kept(options, "operators/profile", settings, whole)
    rows = [from_record(record) for record in found["rows"]]
    sweeps, missing = _sweeps(options, settings)
    rows += [from_record(record) for sweep in sweeps for record in sweep["rows"]]
    facts = evaluated(rows, tuple(m for m in HELD_OUT_NETWORKS if m in models and len(models) > 1))
    there = _there(options, settings)
    if "failed" in there:
        missing["other hardware"] = there
    facts |= elsewhere_facts(rows, [from_record(record) for record in there.get("rows", ())])
    facts |= {"missing": missing, "swept": sum(sweep["steps"] for sweep in sweeps)}
    facts["repeats_disagree"] = found["repeats_disagree"]
    facts["noise_floor"] = facts["repeats_disagree"]["all"] / 2
    facts |= {"networks": list(models), "repeats": rows[0].repeats, "seeds": [0], "profile_s": found["seconds"]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "operators.sqlite"
        with Store(path) as store:
            store.add_operators(rows)
        facts |= left_out_facts(
            options, [m for m in options.models or LEFT_OUT_NETWORKS if m in models], path, settings
        )
    return facts | {"seconds": time.perf_counter() - begin_s}


def _sweeps(options: BenchOptions, settings: Facts) -> tuple[list[Facts], dict[str, Facts]]:
    """Profile random steps, AT_ONCE in a process. Returns the facts of `profiled`, with the number of steps as `steps`;
    and {which steps: {"failed": line}} for those that failed.
    """
    found, missing = [], dict[str, Facts]()
    for first in range(0, SWEPT, AT_ONCE):
        steps = [f"{PREFIX}{i}" for i in range(first, min(first + AT_ONCE, SWEPT))]
        measured = partial(facts_alone, profiled, steps, (None,), False, settings["passes"], seconds=PROFILE_S)
        sweep = kept(options, f"operators/sweep-{first}", {**settings, "models": steps}, measured)
        if "failed" in sweep:
            missing[f"random steps {steps[0]} to {steps[-1]}"] = sweep
        else:
            found.append(sweep | {"steps": len(steps)})
    return found, missing


def _there(options: BenchOptions, settings: Facts) -> Facts:
    """Profile some of the networks on other hardware. Returns no rows if there is nothing to compare."""
    models = [model for model in elsewhere.NETWORKS if model in settings["models"]]
    if not models or len(settings["models"]) == 1:
        return {"rows": []}
    of_it = (models, (None,), False, settings["passes"], elsewhere.DEVICES)
    measured = partial(facts_alone, profiled, *of_it, seconds=PROFILE_S)
    return kept(options, "operators/elsewhere", {**settings, "models": models, "devices": elsewhere.DEVICES}, measured)


def profiled(
    models: Sequence[str], shares: Sequence[float | None], scaled: bool, passes: int, spec: str = DEVICES
) -> Facts:
    """Profile ops. Returns the records of all repeats, and how far apart the earlier and the later half of them are.

    shares: of the networks' own batch sizes (None: the whole). scaled: whether slower ops are timed at other sizes,
    too. spec: the devices, of which the first is measured.
    """
    from placer.devices.opening import open_devices
    from placer.profile.operators.yardsticks import yardsticks

    begin_s = time.perf_counter()
    with open_devices(spec, links=False, deadlines=True) as devices:
        profiles: list[OperatorProfile] = []
        with progress_bar(len(models) * len(shares) * (passes + 1) + passes, quiet=False) as advance:
            for model in models:
                own = NETWORKS[model].batch if model in NETWORKS else None
                batches = [None if share is None or own is None else max(1, int(own * share)) for share in shares]
                settings = ProfileSettings((model,), batches=tuple(batches), scaled=scaled)
                profiles += profiles_of(model, settings, devices, (0,), advance)
            profiles += yardsticks(devices, (0,))
            run_passes(profiles, passes, advance)
        rows = [row for p in profiles for row in p.rows()]
        half = rows[0].repeats // 2
        halves = [[row for p in profiles for row in p.rows(runs)] for runs in (slice(half), slice(half, None))]
    return {
        "rows": [to_record(row) for row in rows],
        "repeats_disagree": disagreement(*halves),
        "seconds": time.perf_counter() - begin_s,
    }


def left_out_facts(options: BenchOptions, models: Sequence[str], store: Path, settings: Facts) -> Facts:
    """Plan each network in its own process, from the times of the others; no network is planned if it has no others."""
    by_model: dict[str, Facts] = {}
    for model in models if len(settings["models"]) > 1 else ():
        run = partial(facts_alone, left_out, model, store, seconds=LEFT_OUT_S)
        by_model[model] = row = kept(options, f"operators/{model}", {**settings, "left_out": model}, run)
        print(f"{model}: {row.get('failed') or '{:+.1%} of the step'.format(row['error'])}", file=sys.stderr)
    return {"left_out": by_model, **summary([row for row in by_model.values() if "failed" not in row])}


def summary(rows: Sequence[Facts]) -> Facts:
    """Errors of the predicted steps, and the speed of plans by predicted costs relative to plans by a profile; None
    without rows.
    """
    kinds = ("error", "levelled_error", "profiled_error")
    errors, levelled, profiled = ([abs(row[key]) for row in rows] for key in kinds)
    worth = [row["by_profile"]["step_s"] / row["by_prediction"]["step_s"] for row in rows]
    return {
        "step_mape_left_out": mean(errors) if errors else None,
        "step_mape_left_out_spread": pstdev(errors) if errors else None,
        "step_mape_levelled": mean(levelled) if levelled else None,
        "step_mape_profiled": mean(profiled) if profiled else None,
        "step_mape_corrected": _corrected(rows),
        "geomean_worth": geometric_mean(worth) if worth else None,
    }


def _corrected(rows: Sequence[Facts]) -> float | None:
    """The mean error if each predicted step is multiplied by the mean of measured / predicted of the other networks."""
    if len(rows) < 2:
        return None
    ratios: list[float] = [row["step_s"] / row["predicted_s"] for row in rows]
    common = [geometric_mean(ratios[:i] + ratios[i + 1 :]) for i in range(len(ratios))]
    return mean(abs(factor / ratio - 1) for factor, ratio in zip(common, ratios, strict=True))
