"""Optimal mappings and proofs.

`bounds` says what no mapping can beat (`forced_crossings` is part of it), `branch_and_bound` is the compiled tree
search, and `exact` the searcher made of them.
"""
