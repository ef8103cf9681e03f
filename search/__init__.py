"""The floor that decides on mappings: the searchers, and what they search."""
