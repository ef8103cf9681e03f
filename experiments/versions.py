"""The versions of the software behind a result."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

VERSIONED = (
    "placer", "tensorflow", "tensorflow-cpu", "keras", "numpy", "scipy", "numba", "scikit-learn", "scikit-optimize",
    "xgboost", "xgboost-cpu", "optuna", "ray",
)  # fmt: skip


def versions() -> dict[str, str]:
    """The installed versions of Placer and of what its measurements and searchers rest on."""
    found = {}
    for name in VERSIONED:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
