"""Predicts: costs, timelines and objectives of mappings that were not run."""
