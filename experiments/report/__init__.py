"""Facts as tables, charts and files."""
