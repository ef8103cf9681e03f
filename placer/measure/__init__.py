"""Runs mappings for real: `runner` times them side by side, then `store` keeps the results in SQLite."""
