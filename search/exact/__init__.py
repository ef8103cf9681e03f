"""Optimal mappings and proofs.

`bounds` says what no mapping can beat (`forced_crossings` is part of it), `branch_and_bound` is the compiled tree
search (`tree`: what its nodes share; `node_bounds`: what no mapping below a node can beat), and `exact` the searcher
made of them.
"""
