"""The default searcher, and how many mappings it is asked for. A module of its own, because searchers import slowly."""

from __future__ import annotations

DEFAULT_SEARCHER = "hybrid"
BATCH = 4  # mappings that are asked for, and measured, together
