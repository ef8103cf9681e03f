"""Mappings run for real: `runner` times them side by side, `store` keeps the results in SQLite."""
