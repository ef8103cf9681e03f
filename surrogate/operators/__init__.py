"""Operator models: op times predicted for shapes and networks that were not measured.

Read in this order: `features` are what models see of an operator and `hardware` what they see of a device, `regressors`
learn from both, `models` has one for each family of ops, and `predicted_costs` gives the ops of a whole graph their
times.
"""
