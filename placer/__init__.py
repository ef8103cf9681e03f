"""Placer decides which device runs which op of a TensorFlow training step, and proves the decision with a clock."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placer.devices.logical import split as split
    from placer.errors import BadInputError as BadInputError
    from placer.errors import PlacerError as PlacerError
    from placer.graph.mapping import Mapping as Mapping
    from placer.graph.op_graph import Edge as Edge
    from placer.graph.op_graph import Op as Op
    from placer.graph.op_graph import OpGraph as OpGraph
    from placer.graph.topology import Device as Device
    from placer.graph.topology import Link as Link
    from placer.graph.topology import Topology as Topology
    from placer.trace.capture import Captured as Captured
    from search.online.auto_step import AutoStep as AutoStep
    from search.online.autoplace import autoplace as autoplace
    from search.online.autoplace import place as place

__version__ = "0.1.0"

# Imported on first use, so that `import placer` loads neither TensorFlow nor anything heavy.
_MODULE_OF = {
    "AutoStep": "search.online.auto_step",
    "BadInputError": "placer.errors",
    "Captured": "placer.trace.capture",
    "Device": "placer.graph.topology",
    "Edge": "placer.graph.op_graph",
    "Link": "placer.graph.topology",
    "Mapping": "placer.graph.mapping",
    "Op": "placer.graph.op_graph",
    "OpGraph": "placer.graph.op_graph",
    "PlacerError": "placer.errors",
    "Topology": "placer.graph.topology",
    "autoplace": "search.online.autoplace",
    "place": "search.online.autoplace",
    "split": "placer.devices.logical",
}


# Placer's packages beside `placer`; a user's own files may have the same names.
_NEIGHBOURS = ("surrogate", "search", "experiments")


def check_not_hidden() -> None:
    """Raises BadInputError if a user's file or folder would be imported instead of one of Placer's packages."""
    home = Path(__file__).resolve().parent.parent
    for package in filter(lambda name: (home / name).is_dir(), _NEIGHBOURS):
        spec = find_spec(package)
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        if spec is None or any(Path(folder).resolve() == home / package for folder in folders):
            continue
        from placer.errors import BadInputError

        raise BadInputError(
            f"{folders[0] if folders else spec.origin} hides Placer's own package {package!r} ({home / package}): "
            "rename yours, or run `python -P`, which does not import from the script's folder, or use another folder."
        )


def load(module: str, name: str) -> Any:
    """Import `name` from `module`, one of Placer's; with an unsupported TensorFlow, return the stand-in that
    placer/other_tensorflow.py has for it.

    Raises BadInputError if a user's file or folder hides the module, or if there is no stand-in.
    """
    from placer.tf_version import OtherTensorFlowError

    if not module.startswith("placer."):
        check_not_hidden()
    try:
        return getattr(import_module(module), name)
    except OtherTensorFlowError as error:
        from placer.other_tensorflow import stand_in

        return stand_in(name, error)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'placer' has no attribute {name!r}")
    return load(_MODULE_OF[name], name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
