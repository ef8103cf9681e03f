"""Searchers that learn from measured step times.

`hybrid` is the default: `predicted_search` finds the best predicted mappings, and `hybrid` learns the errors of the
predictions. `bayesian`, `genetic` and `htf_mpr` (with `htf_mpr_views`, its features) follow the published methods.
`skopt_adapter` and `deap_adapter` are the only files that import those libraries. `results` turns results into
numbers; `stretches` reduces many units to few dimensions.
"""
