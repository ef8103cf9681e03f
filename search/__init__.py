"""Decides: searchers, and what they search."""
