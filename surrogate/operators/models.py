"""Learned per-operator time models, after Li 2024: for each family of ops the regressor that times unseen ops best."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping as MappingABC
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profile.operators.dataset import YARDSTICKS, Operator, OperatorRow
from surrogate.operators.base_ops import bases_of
from surrogate.operators.features import families, family_of, features, traffic, work
from surrogate.operators.hardware import REFERENCE, Hardware, hardware_of
from surrogate.operators.regressors import Floats, OperatorRegressor, OperatorTable, Roofline, candidates, fit_all

FOLDS = 5
FEWEST = 12  # a family with fewer distinct operators is timed by the roofline alone
SMALL_S = 20e-6  # faster ops are timed, too, but do not count in the choice of a regressor
LEAST_S = 1e-9
LEAST_SPREAD = 0.2  # of a family that is too small to be cross-validated
NETWORK_FOLDS = 6  # the most folds of a cross-validation that leaves out networks
MOST = 2000  # the most rows of a family that are cross-validated; the final fit takes all rows
MEMBERS = 3  # a family's model is one regressor, or the mean of up to MEMBERS regressors
ROOFLINE = "roofline"
OVERALL = "roofline over all types"


@dataclass(frozen=True)
class OpTime:
    """The predicted seconds of one op, their expected relative standard deviation, and the source of the prediction."""

    seconds: float
    relative_spread: float
    source: str


@dataclass(frozen=True)
class Score:
    """The cross-validated error of one regressor (or of a mean of regressors) in one family.

    shapes, networks: mean absolute relative error on shapes (networks) left out of the fit, over ops of at least
    SMALL_S, or over all ops if all are faster; networks is None if all rows are of one network. weighted: the errors on
    unseen shapes weighted by time. spread: standard deviation of log(predicted / measured).
    """

    shapes: float
    networks: float | None
    weighted: float
    spread: float


@dataclass
class FamilyModel:
    """The fitted model of one family: the mean of the logarithms that `regressors` predict."""

    family: str
    types: tuple[str, ...]
    rows: int
    choice: str
    regressors: tuple[OperatorRegressor, ...]
    scores: dict[str, Score]
    spread_small: float = 0.5
    spread: float = 0.3
    tried: int = 0  # how many of the rows were cross-validated, for `scores` and the choice

    def predict(self, operators: Sequence[Operator], single: bool, hardware: Hardware) -> list[OpTime]:
        """Return the times of operators whose types this model has seen. Regressors that disagree widen the spread."""
        table = table_of(operators, [single] * len(operators), self.types, hardware)
        each = np.array([regressor.predict(table) for regressor in self.regressors])
        middle, apart = each.mean(axis=0), each.std(axis=0)
        expected = np.where(np.exp(middle) < SMALL_S, self.spread_small, self.spread)
        spreads = np.hypot(expected, apart)
        return [
            OpTime(float(np.exp(m)), float(s), f"{self.family}: {self.choice}")
            for m, s in zip(middle, spreads, strict=True)
        ]


@dataclass
class OperatorModels:
    """The models of all families, fitted on one kind of device. `predict` answers for any operator, on one device.

    hardware: the speed of that device. `on` makes models for another device, if yardsticks were measured on all devices
    that the models learned from.
    """

    device_kind: str
    by_family: dict[str, FamilyModel]
    overall: Roofline
    overall_spread: float
    rows: int
    networks: tuple[str, ...] = field(default=())
    hardware: Hardware = REFERENCE

    def on(self, hardware: Hardware) -> OperatorModels:
        """Return the same models for a device of the speed `hardware`."""
        return replace(self, hardware=hardware)

    def predict(self, operators: Sequence[Operator], *, single: bool = False) -> list[OpTime]:
        """Return the time of each operator inside a training step, or by itself with `single`.

        A type that was never measured falls back to the roofline over all types, and the source says so.
        """
        found: list[OpTime | None] = [None] * len(operators)
        for family, numbers in _by_family(operators).items():
            model = self.by_family.get(family)
            known = [i for i in numbers if model is not None and operators[i].type in model.types]
            if model is not None and known:
                for i, prediction in zip(
                    known, model.predict([operators[i] for i in known], single, self.hardware), strict=True
                ):
                    found[i] = prediction
        left = [i for i, prediction in enumerate(found) if prediction is None]
        for i, prediction in zip(left, self._overall([operators[i] for i in left], single), strict=True):
            found[i] = prediction
        return [prediction for prediction in found if prediction is not None]

    def _overall(self, operators: Sequence[Operator], single: bool) -> list[OpTime]:
        if not operators:
            return []
        log_s = self.overall.predict(table_of(operators, [single] * len(operators), (), self.hardware))
        return [OpTime(float(np.exp(s)), self.overall_spread, OVERALL) for s in log_s]


def fit_models(
    rows: Sequence[OperatorRow], device_kind: str | None = None, *, fixed: Sequence[str] = ()
) -> OperatorModels:
    """Fit the candidate regressors of every family, choose by cross-validation, and keep the chosen ones.

    device_kind: use the rows of this kind only; None = the kind that most rows have. fixed: regressors whose mean is
    taken without a choice, in seconds instead of minutes; such models have no scores. If the rows of every machine
    include yardsticks, one model serves all machines, and predicts for the machine with most rows. Else machines are
    not told apart. Raises BadInputError if there are no rows.
    """
    kinds = [row.device_kind for row in rows]
    kind = device_kind or max(sorted(set(kinds)), key=kinds.count, default="")
    used = [r for r in rows if r.device_kind == kind and r.median_s > LEAST_S and r.network != YARDSTICKS]
    if not used:
        raise BadInputError(f"no operator was measured on a device of kind {kind!r}; run placer profile first.")
    speeds = _Speeds.of(rows, used)
    by_family = _by_family([row.operator for row in used])
    models = {
        family: _fit_family(family, [used[i] for i in numbers], speeds, fixed) for family, numbers in by_family.items()
    }
    table, log_s = _training(used, (), speeds)
    overall = Roofline()
    overall.fit(replace(table, types=np.full(len(table), "")), log_s)
    residual = overall.predict(replace(table, types=np.full(len(table), ""))) - log_s
    networks = tuple(sorted({row.network for row in used}))
    return OperatorModels(kind, models, overall, float(np.std(residual)), len(used), networks, speeds.most)


@dataclass(frozen=True)
class _Speeds:
    """The hardware that rows were measured on, by machine; empty if it is not known of every machine."""

    by_machine: MappingABC[str, Hardware]
    most: Hardware  # of the machine with most rows

    @classmethod
    def of(cls, rows: Sequence[OperatorRow], used: Sequence[OperatorRow]) -> _Speeds:
        """used: the rows that are learned from."""
        kind, counts = used[0].device_kind, Counter(row.machine for row in used)
        known = {machine: found for (of, machine), found in hardware_of(rows).items() if of == kind}
        if not counts.keys() <= known.keys():
            return cls({}, REFERENCE)
        return cls(known, known[counts.most_common(1)[0][0]])

    def behind(self, rows: Sequence[OperatorRow]) -> list[Hardware]:
        return [self.by_machine.get(row.machine, REFERENCE) for row in rows]


def table_of(
    operators: Sequence[Operator],
    single: Sequence[bool],
    types: Sequence[str],
    hardware: Hardware | Sequence[Hardware] = REFERENCE,
) -> OperatorTable:
    """Return operators of one family as numbers, with a column per type of `types`; without types no features.

    single: whether each operator runs by itself. hardware: where all operators run, or where each of them runs.
    """
    flops = np.array([work(operator) for operator in operators], dtype=np.float64)
    moved = np.array([traffic(operator) for operator in operators], dtype=np.float64)
    columns = []
    if types:
        for operator, alone in zip(operators, single, strict=True):
            of_type = [float(operator.type == t) for t in types] if len(types) > 1 else []
            columns.append([*features(operator, alone).values(), *of_type])
    x = np.array(columns, dtype=np.float64).reshape(len(operators), -1)
    behind = [hardware] * len(operators) if isinstance(hardware, Hardware) else hardware
    speeds = [each.single if alone else each.step for each, alone in zip(behind, single, strict=True)]
    rows_of = {speed: np.flatnonzero([other == speed for other in speeds]) for speed in dict.fromkeys(speeds)}
    seen = {speed: speed.features(flops[rows], moved[rows]) for speed, rows in rows_of.items()}
    if types and operators:
        place = np.argsort(np.concatenate([*rows_of.values()]))
        x = np.hstack([x, np.concatenate([*seen.values()])[place]])
    for speed, rows in rows_of.items():
        flops[rows], moved[rows] = speed.flops(flops[rows]), speed.traffic_bytes(moved[rows])
    return OperatorTable(np.array([operator.type for operator in operators], dtype=np.str_), flops, moved, x)


def _training(rows: Sequence[OperatorRow], types: Sequence[str], speeds: _Speeds) -> tuple[OperatorTable, Floats]:
    single = [row.source == "single" for row in rows]
    table = table_of([row.operator for row in rows], single, types, speeds.behind(rows))
    return table, np.log([row.median_s for row in rows])


def _by_family(operators: Sequence[Operator]) -> dict[str, list[int]]:
    """Return family -> positions in `operators`, with the families in the order of reports."""
    found: dict[str, list[int]] = {family: [] for family in families()}
    for i, operator in enumerate(operators):
        found[family_of(operator.type)].append(i)
    return {family: numbers for family, numbers in found.items() if numbers}


def _fit_family(family: str, rows: Sequence[OperatorRow], speeds: _Speeds, fixed: Sequence[str] = ()) -> FamilyModel:
    types = tuple(sorted({row.operator.type for row in rows}))
    table, log_s = _training(rows, types, speeds)
    if len({row.operator.signature for row in rows}) < FEWEST:
        return _roofline_only(family, types, rows, table, log_s)
    regressors = candidates()
    if fixed:
        members = tuple(regressors[name] for name in fixed)
        fit_all(members, table, log_s)
        return FamilyModel(family, types, len(rows), " + ".join(fixed), members, {})
    misses, tried = _cross_validated(regressors, rows, table, log_s)
    combinations = _combinations(tuple(regressors))
    scores = {
        name: _score(_mean(misses[0], members), _mean(misses[1], members) if len(misses) > 1 else None, tried)
        for name, members in combinations.items()
    }
    choice = min(scores, key=lambda name: _rank(scores[name]))
    kept = tuple(regressors[name] for name in combinations[choice])
    fit_all(kept, table, log_s)
    miss, small = _mean(misses[0], combinations[choice]), np.exp(tried) < SMALL_S
    spreads = [float(np.std(miss[some])) if some.any() else float(np.std(miss)) for some in (small, ~small)]
    return FamilyModel(family, types, len(rows), choice, kept, scores, spreads[0], spreads[1], len(tried))


def _roofline_only(
    family: str, types: tuple[str, ...], rows: Sequence[OperatorRow], table: OperatorTable, log_s: Floats
) -> FamilyModel:
    """Fit the roofline alone. Its score comes from predicting each base op by a fit of the others, so a family with a
    single signature has no score.
    """
    roofline = Roofline()
    signatures = np.array([row.operator.signature for row in rows])
    of_row = np.unique(_apart(np.array(bases_of(rows)), signatures, 2), return_inverse=True)[1]
    scores, spread = {}, LEAST_SPREAD
    if of_row.max() > 0:
        miss = _left_out({ROOFLINE: roofline}, table, log_s, of_row)[ROOFLINE]
        scores, spread = {ROOFLINE: _score(miss, None, log_s)}, max(float(np.std(miss)), LEAST_SPREAD)
    roofline.fit(table, log_s)
    return FamilyModel(family, types, len(table), ROOFLINE, (roofline,), scores, spread, spread, len(table))


def _cross_validated(
    regressors: MappingABC[str, OperatorRegressor], rows: Sequence[OperatorRow], table: OperatorTable, log_s: Floats
) -> tuple[list[dict[str, Floats]], Floats]:
    """Return log(predicted / measured) per regressor on unseen shapes, then on unseen networks if there are several;
    and the log seconds of the rows that were tried.
    """
    signatures, bases = np.array([row.operator.signature for row in rows]), np.array(bases_of(rows))
    distinct = np.unique(signatures)
    chance = np.random.default_rng(0)
    some = chance.permutation(distinct)[: max(FEWEST, int(len(distinct) * MOST / len(rows)))]
    tried = np.flatnonzero(np.isin(signatures, some))
    part, part_s = table.take(tried), log_s[tried]
    groupings = _groupings([rows[int(i)] for i in tried], _apart(bases[tried], signatures[tried], FOLDS))
    return [_left_out(regressors, part, part_s, groups) for groups in groupings], part_s


def _apart(bases: NDArray[np.str_], signatures: NDArray[np.str_], fewest: int) -> NDArray[np.str_]:
    """Return what to leave out together, [rows]: rows of one base op. If these are fewer than `fewest`, hardly anything
    would be left to fit; then rows of one signature.
    """
    return bases if len(np.unique(bases)) >= fewest else signatures


def _groupings(rows: Sequence[OperatorRow], apart: NDArray[np.str_]) -> list[NDArray[np.intp]]:
    """Return each row's fold number in two groupings: rows of one base op (`apart`, [rows]) stay together, or rows of
    one network. The second is missing if all rows are of one network.
    """
    distinct, of_row = np.unique(apart, return_inverse=True)
    folds = np.random.default_rng(0).permutation(len(distinct)) % FOLDS
    networks = np.unique([row.network for row in rows], return_inverse=True)[1] % NETWORK_FOLDS
    by_shape = folds[of_row]
    return [by_shape, networks] if networks.max() > 0 else [by_shape]


def _left_out(
    regressors: MappingABC[str, OperatorRegressor], table: OperatorTable, log_s: Floats, groups: NDArray[np.intp]
) -> dict[str, Floats]:
    """Return name -> log(predicted / measured) of every row, predicted by a fit without the rows of the row's group."""
    misses = {name: np.zeros(len(table)) for name in regressors}
    for group in np.unique(groups):
        out = groups == group
        if out.all():
            continue
        fit_all(regressors.values(), table.take(~out), log_s[~out])
        for name, regressor in regressors.items():
            misses[name][out] = regressor.predict(table.take(out)) - log_s[out]
    return misses


def _combinations(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return every regressor by itself, and every mean of 2 to MEMBERS regressors other than the bare roofline."""
    learned = [name for name in names if name != ROOFLINE]
    single = [(name,) for name in names]
    means = [c for size in range(2, MEMBERS + 1) for c in itertools.combinations(learned, size)]
    return {" + ".join(members): members for members in (*single, *means)}


def _mean(misses: MappingABC[str, Floats], members: Sequence[str]) -> Floats:
    found: Floats = np.mean([misses[name] for name in members], axis=0)
    return found


def _score(shapes: Floats, networks: Floats | None, log_s: Floats) -> Score:
    seconds = np.exp(log_s)
    count = seconds >= SMALL_S if (seconds >= SMALL_S).any() else seconds > 0
    errors = np.abs(np.expm1(shapes))
    return Score(
        float(errors[count].mean()),
        None if networks is None else float(np.abs(np.expm1(networks))[count].mean()),
        float((errors * seconds).sum() / seconds.sum()),
        float(np.std(shapes[count])),
    )


def _rank(score: Score) -> float:
    """The score for choosing regressors (lower is better): the error on unseen shapes, which most predictions are for,
    plus a quarter of the error on unseen networks, capped at 1.
    """
    return score.shapes + 0.25 * min(score.networks if score.networks is not None else score.shapes, 1.0)
