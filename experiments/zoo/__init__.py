"""Twelve real networks, each with its own training step, and the way in for a user's own step.

docs/networks.md lists them, with their sizes and sources. Importing this package does not import TensorFlow; `load`
does.
"""

from __future__ import annotations

from experiments.zoo import applications, catalogue, sweep, user
from experiments.zoo.catalogue import names
from experiments.zoo.training import TrainingStep
from placer.errors import BadInputError

__all__ = ["TrainingStep", "find", "load", "names"]

LARGEST_SEED = 2**32 - 1


def load(model: str, *, batch: int | None = None, seed: int = 0) -> TrainingStep:
    """The training step called `model`: a name of the zoo, `keras:NAME`, `sweep:N`, `file.py:function`, `module:NAME`.

    A user's function takes nothing, or `batch`, and returns `(step, example_inputs)` or a TrainingStep.
    batch: examples a step; None = the network's own, which suits one core.
    seed: seeds Python, NumPy and Keras; the same seed gives the same weights and example inputs.
    Raises BadInputError for an unknown name, file or function, and for a user's function that fails.
    """
    if batch is not None and batch < 1:
        raise BadInputError(f"batch is {batch}; give a number of examples >= 1.")
    if not 0 <= seed <= LARGEST_SEED:
        raise BadInputError(f"seed is {seed}; give a number from 0 to {LARGEST_SEED}.")
    builder = find(model)
    import keras

    keras.utils.set_random_seed(seed)
    return builder(batch, seed)


def find(model: str) -> catalogue.Builder:
    """The builder of `model`; neither TensorFlow nor the user's code is imported yet. Raises BadInputError."""
    if model.startswith(applications.PREFIX):
        return applications.find(model)
    if model.startswith(sweep.PREFIX):
        return sweep.find(model)
    return user.find(model) if ":" in model else catalogue.find(model)
