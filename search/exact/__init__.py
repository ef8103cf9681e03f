"""Optimal mappings and proofs.

Read `exact` first, the searcher. `bounds` computes what no mapping can beat (`forced_crossings` is part of it), and
`branch_and_bound` is the compiled tree search (`tree`: what its nodes share; `node_bounds`: what no mapping below a
node can beat).
"""
