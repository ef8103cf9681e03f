"""The terms of a scaling formula, and how columns of runs enter it: powers of numbers, a constant per text level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError, listed, plain, short
from surrogate.scaling.runs import Floats, Runs

TINY, FAR = 1e-300, 300.0  # replaces a zero under a logarithm; the largest exponent of e, whose square is still finite
JOIN = "*"
CONSTANT = "C"
OF_PREDICTIONS = ("value", "low", "high", "ratio")  # columns of predictions beside the target


@dataclass(frozen=True)
class Form:
    """The form of a formula. terms: the columns of each summand. extrinsic: the columns whose powers scale the sum.

    The plain form has one column per term. Here a term may join several columns, `filters*kernel`: a_i prod_k x_k^p_ik,
    because a convolution's work is a product of both, which a sum of powers cannot express. A text column gives its
    term one coefficient per level, and as an extrinsic factor one factor per level.
    """

    terms: tuple[tuple[str, ...], ...]
    extrinsic: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        inside = [name for term in self.terms for name in term]
        if not inside:
            raise BadInputError("the form has no intrinsic column; name at least one with --intrinsic.")
        if "" in (*inside, *self.extrinsic):
            raise BadInputError("a column name is empty; write --intrinsic a,b*c --extrinsic d.")
        if CONSTANT in (*inside, *self.extrinsic):
            raise BadInputError(f"{CONSTANT} is the formula's constant; give the column {CONSTANT} another name.")
        for term in self.terms:
            _refuse_twins(term, f"the term {short(JOIN.join(term))} names")
        _refuse_twins([JOIN.join(sorted(term)) for term in self.terms], "--intrinsic has the term")
        _refuse_twins(self.extrinsic, "--extrinsic names")
        for name in self.extrinsic:
            if name in inside:
                raise BadInputError(f"column {short(name)} is both intrinsic and extrinsic; name it once.")

    @classmethod
    def parse(cls, intrinsic: str, extrinsic: str = "") -> Form:
        """Parse texts such as `a,b*c` and `d,e`. Raises BadInputError."""
        terms = tuple(tuple(name.strip() for name in term.split(JOIN)) for term in _listed(intrinsic))
        return cls(terms, _listed(extrinsic))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*(name for term in self.terms for name in term), *self.extrinsic]))

    @property
    def is_joined(self) -> bool:
        """Whether a term has several columns, unlike in the plain form."""
        return any(len(term) > 1 for term in self.terms)

    def __str__(self) -> str:
        inside = ", ".join(JOIN.join(term) for term in self.terms)
        return f"({inside}) x ({', '.join(self.extrinsic)})" if self.extrinsic else f"({inside})"


class Coded(NamedTuple):
    """Rows as the formula takes them. masks: [rows, coefficients] 0 or 1. logs: [rows, intrinsic exponents], logarithms
    of columns divided by their typical values. factors: [rows, extrinsic exponents], logarithms, or 0 and 1 for a
    text's levels.
    """

    masks: Floats
    logs: Floats
    factors: Floats

    def of_rows(self, rows: NDArray[np.intp]) -> Coded:
        """Return the rows with the numbers `rows`."""
        return Coded(*(part[rows] for part in self))


@dataclass(frozen=True)
class Coding:
    """A form, and the levels and typical values of the runs that it is fitted to.

    levels: the levels of each text column, sorted. typical: for each column of numbers the geometric mean of its
    positive values, by which the column is divided. zeros: the columns that are 0 in a run, which no negative exponent
    can take. The constants are one vector: coefficients a, intrinsic exponents p, extrinsic exponents q, and C.
    """

    form: Form
    levels: Mapping[str, tuple[str, ...]]
    typical: Mapping[str, float]
    zeros: frozenset[str] = frozenset()

    @classmethod
    def of(cls, form: Form, runs: Runs) -> Coding:
        """Return the coding of `form` for `runs`. Raises BadInputError for a term with two text columns."""
        levels = {n: tuple(sorted(set(runs.columns[n]))) for n in form.columns if runs.is_text(n)}
        for term in form.terms:
            texts = [name for name in term if name in levels]
            if len(texts) > 1:
                raise BadInputError(f"the term {short(JOIN.join(term))} joins {listed(texts)}, both text; keep one.")
        numbers = {n: runs.numbers(n) for n in form.columns if n not in levels}
        zeros = frozenset(name for name, values in numbers.items() if (values == 0).any())
        return cls(form, levels, {name: _typical(values) for name, values in numbers.items()}, zeros)

    @cached_property
    def coefficients(self) -> tuple[tuple[int, str | None], ...]:
        """Return (term, level of its text column or None) of each a."""
        return tuple((i, level) for i, term in enumerate(self.form.terms) for level in self._levels_of(term))

    @cached_property
    def powers(self) -> tuple[tuple[int, str], ...]:
        """Return (term, column) of each p."""
        terms = enumerate(self.form.terms)
        return tuple((i, name) for i, term in terms for name in term if name not in self.levels)

    @cached_property
    def factors(self) -> tuple[tuple[str, str | None], ...]:
        """Return (column, level or None) of each q. A text's first level has no q, because its factor is 1."""
        found: list[tuple[str, str | None]] = []
        for name in self.form.extrinsic:
            found += [(name, level) for level in self.levels.get(name, ("", None))[1:]]
        return tuple(found)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each constant: `a layers`, `a activation: activation=relu`, `p filters*kernel: kernel`, C."""
        terms = [JOIN.join(term) for term in self.form.terms]
        levelled = {i: next((n for n in term if n in self.levels), "") for i, term in enumerate(self.form.terms)}
        a = [f"a {terms[i]}" + ("" if level is None else f": {levelled[i]}={level}") for i, level in self.coefficients]
        p = [f"p {terms[i]}" + ("" if terms[i] == name else f": {name}") for i, name in self.powers]
        q = [f"q {name}" + ("" if level is None else f"={level}") for name, level in self.factors]
        return (*a, *p, *q, CONSTANT)

    @property
    def exponents(self) -> slice:
        """The slice of p and q in the vector of constants."""
        return slice(len(self.coefficients), len(self.names) - 1)

    def coded(self, columns: Mapping[str, Floats | Sequence[str]]) -> Coded:
        """Return rows as the formula takes them. Raises BadInputError for a level that no run had."""
        rows = len(next(iter(columns.values())))
        masks = [self._mask(i, level, columns, rows) for i, level in self.coefficients]
        logs = [self._log(name, columns) for _, name in self.powers]
        factors = [
            self._log(name, columns) if level is None else self._is(name, level, columns)
            for name, level in self.factors
        ]
        return Coded(*(_stacked(found, rows) for found in (masks, logs, factors)))

    def levels_of(self, coded: Coded) -> Floats:
        """Return which levels each row has, [rows, text levels] 0 or 1. Each level has one constant, except the first
        level of an extrinsic column, whose factor is 1.
        """
        inside = [level is not None for _, level in self.coefficients]
        found = [coded.masks[:, inside]]
        for name in self.form.extrinsic:
            if name in self.levels:
                others = coded.factors[:, [column == name for column, _ in self.factors]]
                found += [1 - others.sum(axis=1, keepdims=True), others]
        return np.hstack(found)

    def basis(self, exponents: Floats, coded: Coded) -> Floats:
        """Return the multipliers of coefficients and C, [sets, rows, coefficients + 1]. exponents: [sets, p and q]."""
        p, q = exponents[:, : len(self.powers)], exponents[:, len(self.powers) :]
        scale = q @ coded.factors.T
        of_term = []
        for i in range(len(self.form.terms)):
            mine = [k for k, (term, _) in enumerate(self.powers) if term == i]
            power = p[:, mine] @ coded.logs[:, mine].T + scale
            of_term.append(np.exp(np.clip(power, -FAR, FAR)))
        found = [of_term[i] * coded.masks[:, k] for k, (i, _) in enumerate(self.coefficients)]
        return np.stack([*found, np.ones_like(scale)], axis=2)

    def values(self, constants: Floats, coded: Coded) -> Floats:
        """Return the formula's values, [sets, rows], divided by the typical time. constants: [sets, constants]."""
        basis = self.basis(constants[:, self.exponents], coded)
        weights = np.concatenate([constants[:, : len(self.coefficients)], constants[:, -1:]], axis=1)
        found: Floats = np.einsum("srk,sk->sr", basis, weights)
        return found

    def _levels_of(self, term: Sequence[str]) -> tuple[str | None, ...]:
        return next((self.levels[name] for name in term if name in self.levels), (None,))

    def _mask(self, term: int, level: str | None, columns: Mapping[str, Floats | Sequence[str]], rows: int) -> Floats:
        if level is None:
            return np.ones(rows)
        return self._is(next(n for n in self.form.terms[term] if n in self.levels), level, columns)

    def _is(self, name: str, level: str, columns: Mapping[str, Floats | Sequence[str]]) -> Floats:
        for found in columns[name]:
            if found not in self.levels[name]:
                raise BadInputError(
                    f"{plain(name)} is {short(str(found))}, which no run had; they had {listed(self.levels[name])}."
                )
        return np.array([float(found == level) for found in columns[name]])

    def _log(self, name: str, columns: Mapping[str, Floats | Sequence[str]]) -> Floats:
        values = np.asarray(columns[name], dtype=np.float64)
        found: Floats = np.log(np.maximum(values / self.typical[name], TINY))
        return found


def _typical(values: Floats) -> float:
    positive = values[values > 0]
    return float(np.exp(np.log(positive).mean())) if len(positive) else 1.0


def _stacked(columns: Sequence[Floats], rows: int) -> Floats:
    return np.column_stack(columns) if columns else np.zeros((rows, 0))


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text.strip() else ()


def _refuse_twins(names: Sequence[str], what: str) -> None:
    for name in names:
        if list(names).count(name) > 1:
            raise BadInputError(f"{what} {short(name)} twice; name it once.")
