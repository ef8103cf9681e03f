"""Operator models: op times predicted for shapes and networks that were not measured.

Read in this order: `features` describes operators to the models and `hardware` describes devices; `regressors` learn
from both, one of them with the `length_scales` of a Gaussian process; `base_ops` says what comes from one op, and has
to be left out together; `models` has a model for each family of ops; `predicted_costs` predicts the times of all ops of
a graph.
"""
