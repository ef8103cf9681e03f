"""Operator models: op times predicted for shapes and networks that were not measured.

Read in this order: `features` describes operators to the models and `hardware` describes devices; `regressors` learn
from both; `models` has a model for each family of ops; `predicted_costs` predicts the times of all ops of a graph.
"""
