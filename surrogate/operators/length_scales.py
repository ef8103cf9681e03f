"""The length scales of a Gaussian process, learned by maximum likelihood (Rasmussen and Williams 2006, chapter 5).

scikit-learn, which makes the predictions, keeps an [n, n, f] array of derivatives for each step up the likelihood. Here
products of matrices take its place, so that each fold of a cross-validation can learn its own scales.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
AMPLITUDE = (1e-2, 1e2)  # bounds
SCALE = (0.3, 100.0)
NOISE = (1e-5, 1.0)
BEGIN = (1.0, 3.0, 0.01)  # amplitude, every scale, noise


@dataclass(frozen=True)
class Learned:
    """A Matern kernel of smoothness 3/2: amplitude * matern(x / scales) + noise on the diagonal. scales: [f]."""

    amplitude: float
    scales: Floats
    noise: float


def learned(x: Floats, y: Floats, steps: int) -> Learned:
    """Take up to `steps` steps up the likelihood of y, because the last digits are not worth their time.

    x: features of variance 1, [n, f]. y: values of mean 0 and variance 1, [n].
    """
    from scipy.optimize import minimize

    features = x.shape[1]
    begin = np.log([BEGIN[0], *[BEGIN[1]] * features, BEGIN[2]])
    bounds = np.log([AMPLITUDE, *[SCALE] * features, NOISE])
    found = minimize(
        negative_log_likelihood,
        begin,
        args=(x, y),
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
        options={"maxiter": steps},
    )
    amplitude, *scales, noise = np.exp(found.x)
    return Learned(float(amplitude), np.array(scales), float(noise))


def negative_log_likelihood(logs: Floats, x: Floats, y: Floats) -> tuple[float, Floats]:
    """The negative log-likelihood of y, and its derivatives by `logs`.

    logs: the logarithms of amplitude, scales and noise, [f + 2]. Infinity where the kernel is not positive definite.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve
    from scipy.spatial.distance import pdist, squareform

    amplitude, scales, noise = np.exp(logs[0]), np.exp(logs[1:-1]), np.exp(logs[-1])
    scaled = x / scales
    distance = np.sqrt(3.0) * squareform(pdist(scaled))
    decay = amplitude * np.exp(-distance)
    smooth = (1.0 + distance) * decay
    try:
        factor = cho_factor(smooth + noise * np.eye(len(y)), lower=True)
    except LinAlgError:
        return np.inf, np.zeros_like(logs)
    weights = cho_solve(factor, y)
    value = 0.5 * y @ weights + np.log(np.diag(factor[0])).sum() + 0.5 * len(y) * np.log(2.0 * np.pi)
    pull = np.outer(weights, weights) - cho_solve(factor, np.eye(len(y)))
    # The derivative of the kernel by the logarithm of scale f is 3 * decay * (scaled[i, f] - scaled[j, f])^2.
    along = 3.0 * pull * decay
    by_scale = 2.0 * (along.sum(axis=1) @ scaled**2 - (scaled * (along @ scaled)).sum(axis=0))
    by_all = np.array([(pull * smooth).sum(), *by_scale, noise * np.trace(pull)])
    return float(value), -0.5 * by_all
