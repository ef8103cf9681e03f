"""Placer decides which device runs which op of a TensorFlow training step, and proves the decision with a clock."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placer.capture import Captured as Captured
    from placer.errors import BadInputError as BadInputError
    from placer.errors import PlacerError as PlacerError
    from placer.graph import Edge as Edge
    from placer.graph import Op as Op
    from placer.graph import OpGraph as OpGraph
    from placer.logical import split as split
    from placer.mapping import Mapping as Mapping
    from placer.topology import Device as Device
    from placer.topology import Link as Link
    from placer.topology import Topology as Topology
    from search.online.autoplace import AutoStep as AutoStep
    from search.online.autoplace import autoplace as autoplace
    from search.online.autoplace import place as place

__version__ = "0.1.0"

# Handed out on first use, so that `import placer` loads neither TensorFlow nor anything heavy.
_ROOMS = {
    "AutoStep": "search.online.autoplace",
    "BadInputError": "placer.errors",
    "Captured": "placer.capture",
    "Device": "placer.topology",
    "Edge": "placer.graph",
    "Link": "placer.topology",
    "Mapping": "placer.mapping",
    "Op": "placer.graph",
    "OpGraph": "placer.graph",
    "PlacerError": "placer.errors",
    "Topology": "placer.topology",
    "autoplace": "search.online.autoplace",
    "place": "search.online.autoplace",
    "split": "placer.logical",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'placer' has no attribute {name!r}")
    return getattr(import_module(_ROOMS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOMS])
