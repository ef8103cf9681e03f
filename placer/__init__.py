"""Placer decides which device runs which op of a TensorFlow training step, and proves the decision with a clock."""

from __future__ import annotations

from importlib import import_module
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
    from search.online.autoplace import AutoStep as AutoStep
    from search.online.autoplace import autoplace as autoplace
    from search.online.autoplace import place as place

__version__ = "0.1.0"

# Imported on first use, so that `import placer` loads neither TensorFlow nor anything heavy.
_MODULE_OF = {
    "AutoStep": "search.online.autoplace",
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


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'placer' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
