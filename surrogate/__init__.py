"""Predictions: costs, timelines and objectives of mappings without running them."""
