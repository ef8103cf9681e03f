"""The releases of TensorFlow that Placer runs with: it uses names that are not public, which any release may change."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import metadata

from placer.errors import BadInputError, plain

# All tests run with 2.21. With 2.20, the quick tests of placer, of loops and of search/online were run, on a CPU.
SUPPORTED = ("2.20", "2.21")


@cache
def installed() -> str:
    """The version of the installed TensorFlow, found without importing it; "" if none is installed."""
    for name in ("tensorflow", "tensorflow-cpu", "tensorflow-gpu"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return ""


class OtherTensorFlowError(BadInputError):
    """The installed TensorFlow is not of a release in SUPPORTED."""


def check_version(version: str) -> None:
    """Raises OtherTensorFlowError if `version`, as in `tensorflow.__version__`, is not of a release in SUPPORTED."""
    if ".".join(version.split(".")[:2]) not in SUPPORTED:
        raise OtherTensorFlowError(
            f"TensorFlow {plain(version)} is installed, of whose private names Placer knows nothing; it runs with "
            f"{' and '.join(SUPPORTED)}: pip install 'tensorflow-cpu=={SUPPORTED[-1]}.*', or tensorflow for a GPU."
        )
