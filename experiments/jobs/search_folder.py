"""The files that `placer search --out` writes: the device of every op, and, for `plan` and `simulate`, the groups of
ops that the search placed.
"""

from __future__ import annotations

MAPPING = "mapping.json"  # of the ops
GROUPS = "groups.json"  # the mapping of GRAPH
GRAPH = "graph.json"
TOPOLOGY = "topology.json"
FILES = (MAPPING, GROUPS, GRAPH, TOPOLOGY)
