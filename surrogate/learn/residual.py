"""The residual: the simulator's error at measured mappings, and its expected value and uncertainty at others.

A Gaussian process on the logarithm of measured / predicted. Two mappings are near each other if most of the work runs
on the same devices and if they transfer and overlap alike. Then the simulator's error is alike for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product, starmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from surrogate.features.mapping_features import MappingFeatures

Floats = NDArray[np.float64]
Rows = NDArray[np.int32]
COMMON = 0.03  # prior standard deviation of the relative error that all mappings share
SIZES = (0.02, 0.05, 0.1, 0.2)  # candidates for the standard deviation of a single mapping's error; the likeliest wins
USUAL, USUAL_SPREAD = 0.06, 0.7  # log-normal prior of the size: its median, and the standard deviation of its logarithm
WORK_LENGTHS = (0.05, 0.2, 0.8)  # shares of work on different devices at which two mappings say little about each other
FORM_LENGTHS = (0.5, 2.0)
LEAST_NOISE = 0.003


class Settings(NamedTuple):
    """The settings of the Gaussian process."""

    size: float  # standard deviation of a single mapping's error
    work_length: float  # as in WORK_LENGTHS
    form_length: float  # how far apart the forms of two mappings are that say little about each other


@dataclass(frozen=True, eq=False)
class MappingViews:
    """Mappings as the residual sees them.

    placements: [mappings, units] device indices, as searchers write mappings. form: [mappings, features] of their
    transfers and their overlap. predicted_s: [mappings].
    """

    placements: Rows
    form: Floats
    predicted_s: Floats

    def __len__(self) -> int:
        return len(self.placements)


def views_of(features: MappingFeatures, placements: Rows, unit_of: NDArray[np.int32]) -> MappingViews:
    """Return views of `placements`, [mappings, units] device indices. unit_of: [ops], the unit of each op."""
    found = features.of(placements[:, unit_of])
    column = {name: found[:, i] for i, name in enumerate(features.names)}
    step_s = np.maximum(column["makespan_s"], 1e-30)
    form = [
        column["path_s"] / step_s,
        column["busy_s.mean"] / step_s,
        column["ends_s.max"] / step_s,
        np.log1p(column["cut_tensors"]) / 2,
        column["way_s"] / step_s,
    ]
    return MappingViews(placements, np.nan_to_num(np.column_stack(form), posinf=1e3), step_s)


@dataclass(frozen=True, eq=False)
class Residual:
    """The Gaussian process after the mappings `measured`.

    work: [units], each unit's share of all work. error: [mappings], log(measured / predicted). noise: [mappings], the
    relative standard deviation of each measurement. given: the settings, if they are known.
    """

    work: Floats
    measured: MappingViews
    error: Floats
    noise: Floats
    given: Settings | None = None

    def expect(self, sample: MappingViews) -> tuple[Floats, Floats]:
        """Return (mean, standard deviation) of the residual of each mapping of `sample`."""
        across = self._kernel(sample, self.measured)
        mean = across @ self._solved[0]
        left = np.linalg.solve(self._solved[1], across.T)
        variance = COMMON**2 + self.settings.size**2 - (left**2).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def best_s(self) -> float:
        """The smallest expected seconds of a measured mapping: the luckiest measurement itself is too good."""
        return float((self.measured.predicted_s * np.exp(self.expect(self.measured)[0])).min())

    def and_believed(self, sample: MappingViews) -> Residual:
        """Return the residual as if `sample` had been measured with the expected result (Ginsbourger et al. 2010,
        kriging believer).
        """
        both = MappingViews(*(np.concatenate(pair) for pair in zip(_parts(self.measured), _parts(sample), strict=True)))
        error = np.concatenate([self.error, self.expect(sample)[0]])
        noise = np.concatenate([self.noise, np.full(len(sample), LEAST_NOISE)])
        return Residual(self.work, both, error, noise, self.settings)

    @cached_property
    def settings(self) -> Settings:
        """Return the given settings, else those of the greatest posterior likelihood."""
        return self.given or max(
            starmap(Settings, product(SIZES, WORK_LENGTHS, FORM_LENGTHS)), key=self._log_likelihood
        )

    @cached_property
    def _solved(self) -> tuple[Floats, Floats]:
        """Return (weights, Cholesky factor) of the measured mappings."""
        return _solve(self._covariance(self.settings), self.error)

    def _log_likelihood(self, settings: Settings) -> float:
        weights, lower = _solve(self._covariance(settings), self.error)
        usual = (np.log(settings.size / USUAL) / USUAL_SPREAD) ** 2
        return float(-0.5 * self.error @ weights - np.log(np.diag(lower)).sum() - 0.5 * usual)

    def _covariance(self, settings: Settings) -> Floats:
        noise = np.maximum(self.noise, LEAST_NOISE)
        return self._kernel(self.measured, self.measured, settings) + np.diag(noise**2)

    def _kernel(self, a: MappingViews, b: MappingViews, settings: Settings | None = None) -> Floats:
        settings = settings or self.settings
        elsewhere = np.stack([(row != b.placements) @ self.work for row in a.placements])
        apart = ((a.form[:, None, :] - b.form[None, :, :]) ** 2).sum(axis=2)
        near: Floats = np.exp(-elsewhere / settings.work_length - apart / (2 * settings.form_length**2))
        return COMMON**2 + settings.size**2 * near


def expected_gain(predicted_s: Floats, mean: Floats, deviation: Floats, best_s: float) -> Floats:
    """Return the expected improvement over best_s, relative to it (Mockus 1975), on logarithms of seconds."""
    ahead = np.maximum(np.log(best_s) - np.log(predicted_s), -1e3) - mean  # mappings that cannot run predict infinity
    z = ahead / deviation
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    gain: Floats = ahead * ndtr(z) + deviation * density
    return gain


def _parts(sample: MappingViews) -> Sequence[Any]:
    return sample.placements, sample.form, sample.predicted_s


def _solve(covariance: Floats, error: Floats) -> tuple[Floats, Floats]:
    lower: Floats = np.asarray(np.linalg.cholesky(covariance), np.float64)
    weights: Floats = np.linalg.solve(lower.T, np.linalg.solve(lower, error))
    return weights, lower
