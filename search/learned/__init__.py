"""Searchers that learn from measured step times.

`hybrid` is the default: `predicted_search` finds what is predicted best, and `hybrid` learns what predictions miss.
`bayesian`, `genetic` and `htf_mpr` (with `htf_mpr_views`, its features) follow the published methods;
`skopt_adapter` and `deap_adapter` are the only files that import those libraries. `results` turns results into
numbers, `stretches` makes few dimensions of many units.
"""
