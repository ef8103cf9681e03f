"""Operator models: op times predicted for shapes and networks that were not measured."""
