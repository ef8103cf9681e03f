"""Who is asked, and for how many mappings, where nothing else is said. By itself, because searchers import slowly."""

from __future__ import annotations

DEFAULT_SEARCHER = "hybrid"
BATCH = 4  # mappings that are asked for, and measured, together
