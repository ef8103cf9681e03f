"""Default settings of searches, which estimates of their needs use, too."""

from __future__ import annotations

GROUPS = 192  # a search moves at most about this many groups of ops
HEADROOM = 0.1  # share of each device's memory that a search leaves free
