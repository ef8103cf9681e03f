"""The operator models on the zoo: error on shapes and on whole networks that were held out of every fit."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import TYPE_CHECKING

import numpy as np

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts
from experiments.jobs.profile import ProfileSettings, profiles_of, run_passes
from experiments.report.profile import family_facts
from experiments.report.progress import progress_bar
from experiments.zoo.catalogue import NETWORKS
from placer.profile.operators.dataset import OperatorRow
from surrogate.operators.models import SMALL_S, OperatorModels, OpTime, fit_models

if TYPE_CHECKING:
    from placer.profile.operators.operator_profile import OperatorProfile


DEVICES = "workers:2"  # equal one-core workers, of which the first is measured
PASSES = 3
HELD_OUT_NETWORKS = ("resnet50", "transformer", "two_tower")
HELD_OUT_SHARE = 5  # every fifth signature
NOTHING_S = 1e-9


def bench_facts(options: BenchOptions) -> Facts:
    """Profile the networks at two batch sizes, hold out, fit once, and compare."""
    models = options.models or zoo.names()
    begin_s = time.perf_counter()
    rows, halves = profiled(models, options.measurements or PASSES)
    profiled_s = time.perf_counter() - begin_s
    facts = evaluated(rows, tuple(m for m in HELD_OUT_NETWORKS if m in models and len(models) > 1))
    facts["repeats_disagree"] = disagreement(*halves)
    facts["noise_floor"] = facts["repeats_disagree"]["all"] / 2
    facts |= {"networks": list(models), "repeats": rows[0].repeats, "profile_s": profiled_s}
    return facts | {"seconds": time.perf_counter() - begin_s}


def profiled(models: Sequence[str], passes: int) -> tuple[list[OperatorRow], tuple[list[OperatorRow], ...]]:
    """The rows of all repeats, and the rows of the earlier and of the later half of them."""
    from placer.devices.cluster import open_devices

    with open_devices(DEVICES, links=False) as devices:
        profiles: list[OperatorProfile] = []
        with progress_bar(len(models) * 2 * (passes + 1), quiet=False) as advance:
            for model in models:
                half = max(1, NETWORKS[model].batch // 2) if model in NETWORKS else None
                settings = ProfileSettings((model,), batches=(None, half))
                profiles += profiles_of(model, settings, devices, (0,), advance)
            run_passes(profiles, passes, advance)
        rows = [row for p in profiles for row in p.rows()]
        half = rows[0].repeats // 2
        halves = tuple([row for p in profiles for row in p.rows(runs)] for runs in (slice(half), slice(half, None)))
        return rows, halves


def evaluated(rows: Sequence[OperatorRow], networks: Sequence[str]) -> Facts:
    """Fit on what is left after holding out `networks` and every HELD_OUT_SHARE-th signature; the errors on these."""
    timed = [row for row in rows if row.median_s > NOTHING_S]
    others = [row for row in timed if row.network not in networks]
    held_out = {s for s in {row.operator.signature for row in others} if int(s, 16) % HELD_OUT_SHARE == 0}
    train = [row for row in others if row.operator.signature not in held_out]
    seen = {row.operator.signature for row in train}
    shapes = [row for row in others if row.operator.signature in held_out]
    whole = [row for row in timed if row.network in networks and row.operator.signature not in seen]
    models = fit_models(train)
    on_shapes, on_networks = _Errors(models, shapes), _Errors(models, whole)
    big = on_shapes.only(lambda row: row.median_s >= SMALL_S)
    big_networks = on_networks.only(lambda row: row.median_s >= SMALL_S)
    return {
        "mape": big.mape,
        "median_error": big.median,
        "mape_by_type": big.by(lambda row: row.operator.type),
        "mape_step": big.only(lambda row: row.source == "step").mape,
        "mape_single": big.only(lambda row: row.source == "single").mape,
        "mape_all_ops": on_shapes.mape,
        "median_error_all_ops": on_shapes.median,
        "mape_time_weighted": big.weighted,
        "within_spread": big.within_spread,
        "mape_unseen_networks": big_networks.mape,
        "median_error_unseen_networks": big_networks.median,
        "mape_unseen_networks_weighted": big_networks.weighted,
        "mape_by_unseen_network": big_networks.by(lambda row: row.network),
        "n_train": len(train),
        "n_test": len(big.rows),
        "n_test_all_ops": len(shapes),
        "n_test_unseen_networks": len(big_networks.rows),
        "counted_from_s": SMALL_S,
        "held_out_networks": list(networks),
        "families": family_facts(models),
        "by_regressor": by_regressor(models),
    }


class _Errors:
    """Relative errors of predictions, |predicted / measured - 1|, row by row."""

    def __init__(self, models: OperatorModels, rows: Sequence[OperatorRow]) -> None:
        self.rows = list(rows)
        by_source = {
            single: iter(models.predict([r.operator for r in rows if (r.source == "single") == single], single=single))
            for single in (False, True)
        }
        self.predictions: list[OpTime] = [next(by_source[row.source == "single"]) for row in self.rows]
        self._measure()

    def _measure(self) -> None:
        pairs = zip(self.predictions, self.rows, strict=True)
        self.errors = [abs(p.seconds / row.median_s - 1) for p, row in pairs]

    def only(self, wanted: Callable[[OperatorRow], bool]) -> _Errors:
        """Some of the rows."""
        some = object.__new__(_Errors)
        kept = [i for i, row in enumerate(self.rows) if wanted(row)]
        some.rows, some.predictions = [self.rows[i] for i in kept], [self.predictions[i] for i in kept]
        some._measure()
        return some

    def by(self, key: Callable[[OperatorRow], str]) -> dict[str, float]:
        """Mean error per key, the largest groups first."""
        groups: dict[str, list[float]] = defaultdict(list)
        for row, error in zip(self.rows, self.errors, strict=True):
            groups[key(row)].append(error)
        return {name: mean(errors) for name, errors in sorted(groups.items(), key=lambda g: -len(g[1]))}

    @property
    def mape(self) -> float | None:
        """Mean error; None without rows."""
        return mean(self.errors) if self.errors else None

    @property
    def median(self) -> float | None:
        """Median error."""
        return median(self.errors) if self.errors else None

    @property
    def weighted(self) -> float | None:
        """Mean error, weighted by the time of the ops."""
        seconds = [row.median_s for row in self.rows]
        return float(np.average(self.errors, weights=seconds)) if seconds else None

    @property
    def within_spread(self) -> float | None:
        """Share of the rows whose error is within the spread that was predicted; 0.68 would be a normal one."""
        inside = [e <= p.relative_spread for e, p in zip(self.errors, self.predictions, strict=True)]
        return mean(inside) if inside else None


def disagreement(one: Sequence[OperatorRow], other: Sequence[OperatorRow]) -> Facts:
    """How far apart two halves of the repeats of the same op are, |a - b| over their mean; ops of SMALL_S or more.

    Half of it is about how far the median of all repeats is off by chance: no model can be held to less.
    """
    apart: dict[str, list[float]] = defaultdict(list)
    for a, b in zip(one, other, strict=True):
        middle_s = (a.median_s + b.median_s) / 2
        if middle_s >= SMALL_S:
            apart["all"].append(abs(a.median_s - b.median_s) / middle_s)
            apart[a.source].append(apart["all"][-1])
    means = {name: mean(found) for name, found in apart.items()}
    return {"all": 0.0, **means, "median": median(apart["all"]) if apart["all"] else 0.0}


def by_regressor(models: OperatorModels) -> dict[str, dict[str, float]]:
    """Every regressor alone, and what was chosen: cross-validated on the training rows, families by their rows."""
    scores: dict[str, list[tuple[int, float, float | None]]] = defaultdict(list)
    for model in models.by_family.values():
        if len(model.scores) > 1:
            alone = {name: score for name, score in model.scores.items() if " + " not in name}
            for name, score in {**alone, "chosen": model.scores[model.choice]}.items():
                scores[name].append((model.rows, score.shapes, score.networks))
    found: dict[str, dict[str, float]] = {}
    for name, rows in scores.items():
        found[name] = {"unseen_shapes": _weighted([(n, shapes) for n, shapes, _ in rows])}
        on_networks = [(n, networks) for n, _, networks in rows if networks is not None]
        if on_networks:
            found[name]["unseen_networks"] = _weighted(on_networks)
    return found


def _weighted(pairs: Sequence[tuple[int, float]]) -> float:
    return float(np.average([value for _, value in pairs], weights=[count for count, _ in pairs]))
