"""What searches take where nothing else is said; what estimates their needs beforehand takes the same."""

from __future__ import annotations

GROUPS = 192  # a search moves at most about this many groups of ops
HEADROOM = 0.1  # share of each device's memory that a search leaves free
